//! What the store on a file can do on this machine:
//! `cargo run --release -p parti --no-default-features --features sqlite --example sqlite_numbers`
//!
//! Prints the time of a batch beside that of plain SQLite, the time from a change to a watcher in
//! another process, what an idle watch costs, and how eight writing processes get along. Other
//! processes are this very program, started with a task as its first argument. The folder can be
//! given as the first argument instead; by default it is a temporary one.

#[cfg(not(all(feature = "sqlite", target_os = "linux")))]
fn main() {
    eprintln!("build this with --features sqlite, on Linux");
}

#[cfg(all(feature = "sqlite", target_os = "linux"))]
#[tokio::main(flavor = "current_thread")]
async fn main() {
    numbers::main().await;
}

#[cfg(all(feature = "sqlite", target_os = "linux"))]
mod numbers {
    use std::io::Read;
    use std::path::{Path, PathBuf};
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

    use futures_util::StreamExt;
    use parti::store::sqlite::Sqlite;
    use parti::store::{Bytes, Change, Expect, Revision, Scope, Store, StoreExt, Write};
    use rusqlite::{Connection, TransactionBehavior, params};

    const KEYS: usize = 5_000;
    const VALUE: usize = 200;
    const ROUNDS: i64 = 15;
    const CHANGES: u32 = 400;
    const WRITERS: usize = 8;
    const CONTEST: Duration = Duration::from_secs(5);
    const IDLE: Duration = Duration::from_secs(10);

    pub async fn main() {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["change", path] => change(path).await,
            ["contend", path, name] => contend(path, name).await,
            [folder] => measure(Path::new(folder)).await,
            _ => {
                let folder = std::env::temp_dir().join(format!("parti-{}", std::process::id()));
                std::fs::create_dir(&folder).expect("a folder");
                measure(&folder).await;
                std::fs::remove_dir_all(&folder).expect("removed");
            }
        }
    }

    async fn measure(folder: &Path) {
        batches(folder).await;
        let path = folder.join("watched.db");
        latency(&path).await;
        idle(&path).await;
        contest(&folder.join("contest.db"));
    }

    fn url(path: &Path) -> String {
        format!("sqlite:{}", path.display())
    }

    fn start(arguments: &[&str]) -> Child {
        Command::new(std::env::current_exe().expect("this program"))
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("started")
    }

    fn median(mut times: Vec<Duration>) -> Duration {
        times.sort();
        times[times.len() / 2]
    }

    async fn batches(folder: &Path) {
        let store = Sqlite::open(&url(&folder.join("batch.db")))
            .await
            .expect("opened");
        let plain = folder.join("plain.db");
        let mut plain = Connection::open(plain).expect("opened");
        plain
            .execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
                 CREATE TABLE kv (key TEXT PRIMARY KEY, revision INTEGER, value BLOB) WITHOUT ROWID;",
            )
            .expect("made");
        let keys: Vec<String> = (0..KEYS)
            .map(|key| format!("partitions/g/p{key:05}"))
            .collect();
        let mut revisions = vec![None; KEYS];
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 0..=ROUNDS {
            let value = Bytes::from(vec![b'0' + (round % 10) as u8; VALUE]);
            let batch: Vec<Write> = keys
                .iter()
                .zip(&revisions)
                .map(|(key, revision)| Write {
                    key: key.clone(),
                    expect: revision.map_or(Expect::Absent, Expect::At),
                    value: Some(value.clone()),
                })
                .collect();
            let began = Instant::now();
            let outcomes = store.write(batch).await;
            ours.push(began.elapsed());
            revisions = outcomes
                .into_iter()
                .map(|outcome| Some(outcome.expect("no rival")))
                .collect::<Vec<Option<Revision>>>();

            let began = Instant::now();
            let transaction = plain
                .transaction_with_behavior(TransactionBehavior::Immediate)
                .expect("begun");
            {
                let mut insert = transaction
                    .prepare_cached("INSERT INTO kv VALUES (?1, ?2, ?3)")
                    .expect("prepared");
                let mut update = transaction
                    .prepare_cached(
                        "UPDATE kv SET revision = ?2, value = ?3 WHERE key = ?1 AND revision = ?4",
                    )
                    .expect("prepared");
                for key in &keys {
                    let changed = match round {
                        0 => insert.execute(params![key, 0, &value[..]]),
                        _ => update.execute(params![key, round, &value[..], round - 1]),
                    };
                    assert_eq!(changed.expect("written"), 1);
                }
            }
            transaction.commit().expect("committed");
            theirs.push(began.elapsed());
        }
        // The first round creates.
        let (ours, theirs) = (median(ours.split_off(1)), median(theirs.split_off(1)));
        println!(
            "batch of {KEYS} updates of {VALUE} B: {:.1} ms ({:.0}/s); plain SQLite in one transaction {:.1} ms; ratio {:.2}",
            ours.as_secs_f64() * 1e3,
            KEYS as f64 / ours.as_secs_f64(),
            theirs.as_secs_f64() * 1e3,
            ours.as_secs_f64() / theirs.as_secs_f64(),
        );
    }

    fn now() -> u128 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.expect("after 1970").as_micros()
    }

    /// In another process: writes the time, now and then.
    async fn change(path: &str) {
        let store = Sqlite::open(&url(Path::new(path))).await.expect("opened");
        let mut revision = store.create("watched/time", "").await.expect("created");
        let mut dice: u64 = 7;
        for _ in 0..CHANGES {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            std::thread::sleep(Duration::from_millis(10 + (dice >> 33) % 80));
            let time = now().to_string();
            revision = store
                .update("watched/time", revision, time)
                .await
                .expect("updated");
        }
    }

    async fn latency(path: &Path) {
        let store = Sqlite::open(&url(path)).await.expect("opened");
        let batch = (0..KEYS).map(|key| Write {
            key: format!("watched/{key}"),
            expect: Expect::Absent,
            value: Some(vec![0; VALUE].into()),
        });
        assert!(store.write(batch.collect()).await.iter().all(Result::is_ok));
        let mut watch = store.watch(Scope::Under("watched/".into()));
        while watch.next().await != Some(Change::Synced) {}
        let mut child = start(&["change", &path.display().to_string()]);
        let mut times = Vec::new();
        // Two changes within one look are one: not every change is told.
        loop {
            let Some(Change::Put(entry)) = watch.next().await else {
                panic!("a change");
            };
            let sent = std::str::from_utf8(&entry.value).ok();
            if let Some(sent) = sent.and_then(|sent| sent.parse::<u128>().ok()) {
                times.push(now().saturating_sub(sent) as f64 / 1e3);
            }
            if child.try_wait().expect("asked").is_some() || times.len() >= CHANGES as usize - 20 {
                break;
            }
        }
        child.wait().expect("ended");
        times.sort_by(f64::total_cmp);
        let share = |share: usize| times[(times.len() - 1) * share / 100];
        println!(
            "begin of a write to a watcher in another process ({} changes): p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms",
            times.len(),
            share(50),
            share(99),
            share(100)
        );
    }

    /// Nanoseconds that this process was on a processor.
    fn processor() -> u64 {
        let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
        tasks
            .flatten()
            .filter_map(|task| std::fs::read_to_string(task.path().join("schedstat")).ok())
            .filter_map(|text| text.split(' ').next()?.parse::<u64>().ok())
            .sum()
    }

    async fn idle(path: &Path) {
        let store = Sqlite::open(&url(path)).await.expect("opened");
        let mut watch = store.watch(Scope::Under("watched/".into()));
        let mut count = 0;
        while let Some(Change::Put(_)) = watch.next().await {
            count += 1;
        }
        let (began, before) = (Instant::now(), processor());
        tokio::select! {
            change = watch.next() => panic!("{change:?}"),
            () = tokio::time::sleep(IDLE) => {}
        }
        let used = Duration::from_nanos(processor() - before);
        println!(
            "idle watch of {count} keys for {} s: {:.3} % of a core",
            IDLE.as_secs(),
            used.as_secs_f64() / began.elapsed().as_secs_f64() * 100.0
        );
    }

    /// In another process: writes one after the other; says how many, and the longest wait.
    async fn contend(path: &str, name: &str) {
        let store = Sqlite::open(&url(&PathBuf::from(path)))
            .await
            .expect("opened");
        let key = format!("contest/{name}");
        let mut revision = store.create(&key, "").await.expect("created");
        let began = Instant::now();
        let (mut count, mut longest, mut refused) = (0, Duration::ZERO, 0);
        while began.elapsed() < CONTEST {
            let write = Instant::now();
            match store.update(&key, revision, vec![0; VALUE]).await {
                Ok(new) => (revision, count) = (new, count + 1),
                Err(_) => refused += 1,
            }
            longest = longest.max(write.elapsed());
        }
        println!("{count} {} {refused}", longest.as_millis());
    }

    fn contest(path: &Path) {
        let children: Vec<Child> = (0..WRITERS)
            .map(|name| start(&["contend", &path.display().to_string(), &name.to_string()]))
            .collect();
        let (mut counts, mut waits, mut refused) = (Vec::new(), Vec::new(), 0);
        for mut child in children {
            let mut said = String::new();
            let out = child.stdout.as_mut().expect("piped");
            out.read_to_string(&mut said).expect("text");
            child.wait().expect("ended");
            let numbers: Vec<u64> = said
                .split_whitespace()
                .map(|number| number.parse().expect("a number"))
                .collect();
            counts.push(numbers[0]);
            waits.push(numbers[1]);
            refused += numbers[2];
        }
        println!(
            "{WRITERS} processes, single writes for {} s: {counts:?} writes, longest waits {waits:?} ms, {refused} refused",
            CONTEST.as_secs()
        );
    }
}
