//! The store on a file, used by several real processes that are killed at any moment.
//!
//! A test starts this very program again as a child, with its task in the environment.
#![cfg(all(feature = "sqlite", unix))]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use futures_util::StreamExt;
use parti::store::sqlite::Sqlite;
use parti::store::{Change, Error, Expect, Revision, Scope, Store, StoreExt, Write};

const TASK: &str = "PARTI_TEST_TASK";
const URL: &str = "PARTI_TEST_URL";
const NAME: &str = "PARTI_TEST_NAME";

fn start(task: &str, url: &str, name: &str) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "child", "--nocapture"])
        .envs([(TASK, task), (URL, url), (NAME, name)])
        .stdout(Stdio::piped())
        .spawn()
        .expect("started")
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // If nobody listens any more, the end is near.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Not a test by itself: what the others start.
#[tokio::test]
async fn child() {
    let Ok(task) = std::env::var(TASK) else {
        return;
    };
    let url = std::env::var(URL).expect("a URL");
    let name = std::env::var(NAME).expect("a name");
    let store = Sqlite::open(&url).await.expect("it opens");
    match task.as_str() {
        "write" => write_until_killed(&store, &name).await,
        "churn" => churn(&store).await,
        other => panic!("no task {other}"),
    }
}

/// Creates keys in batches, and takes part in counting up a shared key; says what is acknowledged.
async fn write_until_killed(store: &Sqlite, name: &str) {
    for number in 0_u64.. {
        let keys: Vec<String> = (0..=number % 7)
            .map(|part| format!("done/{name}/{number}-{part}"))
            .collect();
        let batch = keys.iter().map(|key| Write {
            key: key.clone(),
            expect: Expect::Absent,
            value: Some(key.clone().into()),
        });
        let outcomes = store.write(batch.collect()).await;
        for (key, outcome) in keys.iter().zip(outcomes) {
            say(&format!("ack {key} {}", outcome.expect("no rival").0));
        }
        let counted = match store.read("count").await.expect("read") {
            None => store.create("count", "1").await,
            Some(entry) => {
                let next = counter(&entry.value) + 1;
                let next = next.to_string();
                store.update("count", entry.revision, next).await
            }
        };
        match counted {
            Ok(revision) => say(&format!("ack count {}", revision.0)),
            Err(Error::Conflict { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

fn counter(value: &[u8]) -> u64 {
    let text = std::str::from_utf8(value).expect("text");
    text.parse().expect("a number")
}

/// Lets a child live until it has acknowledged this many writes; the answer is all it said. With
/// none, it is killed while it opens the store.
fn live_and_die(url: &str, name: &str, mut left: u64) -> Vec<(String, u64)> {
    let mut acknowledged = Vec::new();
    let mut child = start("write", url, name);
    let mut out = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    if left == 0 {
        out.read_line(&mut line).expect("text");
        child.kill().expect("killed");
    }
    while out.read_line(&mut line).expect("text") > 0 {
        // The last line may be cut short.
        if let Some(ack) = line
            .strip_prefix("ack ")
            .and_then(|ack| ack.strip_suffix('\n'))
        {
            let (key, revision) = ack.split_once(' ').expect("two words");
            acknowledged.push((key.to_owned(), revision.parse().expect("a number")));
            left = left.saturating_sub(1);
            if left == 0 {
                // SIGKILL; what it has said until then is still in the pipe.
                child.kill().expect("killed");
            }
        }
        line.clear();
    }
    assert!(!child.wait().expect("ended").success(), "it ends by a kill");
    assert_eq!(left, 0, "{name} ended by itself");
    acknowledged
}

#[tokio::test]
async fn a_kill_at_any_moment_loses_nothing_acknowledged() {
    const WRITERS: u64 = 4;
    const LIVES: u64 = 15;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("parti.db");
    let url = format!("sqlite:{}", path.display());
    let threads = (0..WRITERS).map(|writer| {
        let url = url.clone();
        std::thread::spawn(move || {
            let mut dice = writer + 1;
            let mut lives = Vec::new();
            for life in 0..LIVES {
                dice = dice
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let name = format!("{writer}-{life}");
                let length = if life % 4 == 0 {
                    0
                } else {
                    1 + (dice >> 33) % 60
                };
                lives.extend(live_and_die(&url, &name, length));
            }
            lives
        })
    });
    // All at the same time, not one after the other.
    let threads: Vec<_> = threads.collect();
    let mut counted = BTreeSet::new();
    let mut done = BTreeMap::new();
    for thread in threads {
        for (key, revision) in thread.join().expect("no panic") {
            if key == "count" {
                assert!(counted.insert(revision), "two winners at {revision}");
            } else {
                assert_eq!(done.insert(key, revision), None);
            }
        }
    }

    let store = Sqlite::open(&url).await.expect("it opens");
    let there: BTreeMap<_, _> = store
        .list(&Scope::Under("done/".into()))
        .await
        .expect("listed")
        .into_iter()
        .map(|entry| (entry.key.clone(), entry))
        .collect();
    for (key, revision) in &done {
        let entry = there.get(key).unwrap_or_else(|| panic!("{key} is lost"));
        assert_eq!(entry.revision.0, *revision, "{key}");
        assert_eq!(entry.value, key.as_bytes(), "{key}");
    }
    let revisions: BTreeSet<_> = there.values().map(|entry| entry.revision.0).collect();
    assert_eq!(revisions.len(), there.len(), "no revision is given twice");
    assert!(revisions.is_disjoint(&counted));
    // Whoever was killed before it could say so has counted once more.
    let count = store.read("count").await.expect("read").expect("there");
    let count = counter(&count.value);
    let said = counted.len() as u64;
    assert!(
        (said..=said + WRITERS * LIVES).contains(&count),
        "{count} counted, {said} acknowledged"
    );
    assert!(done.len() as u64 > WRITERS * LIVES / 2);
    println!(
        "{} kills; {} writes acknowledged, all there",
        WRITERS * LIVES,
        done.len() as u64 + said
    );
    check_integrity(&path);
}

fn check_integrity(path: &Path) {
    let file = rusqlite::Connection::open(path).expect("opened");
    let verdict: String = file
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .expect("checked");
    assert_eq!(verdict, "ok");
}

/// Creates, updates and deletes many keys, then says that it is done by one more.
async fn churn(store: &Sqlite) {
    let mut known = BTreeMap::new();
    for step in 0..1_200_u64 {
        let key = format!("churn/{}", (step * 7) % 50);
        let value = step.to_string();
        match known.remove(&key) {
            Some(revision) if step % 3 == 0 => {
                store.delete(&key, revision).await.expect("no rival");
            }
            Some(revision) => {
                let revision = store.update(&key, revision, value).await;
                known.insert(key, revision.expect("no rival"));
            }
            None => {
                let revision = store.create(&key, value).await;
                known.insert(key, revision.expect("no rival"));
            }
        }
    }
    store.create("churn/end", "").await.expect("created");
}

#[tokio::test]
async fn watches_that_start_in_the_midst_see_the_last_state_of_another_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("parti.db").display());
    let store = Sqlite::open(&url).await.expect("it opens");
    let mut child = start("churn", &url, "");
    let mut watches = Vec::new();
    // Each starts once the one before has heard something new: somewhere within the churn.
    for _ in 0..5 {
        let mut watch = store.watch(Scope::Under("churn/".into()));
        let mut view = BTreeMap::new();
        while tell(&mut view, watch.next().await) {}
        tell(&mut view, watch.next().await);
        watches.push((watch, view));
    }
    let mut views = Vec::new();
    for (mut watch, mut view) in watches {
        while !view.contains_key("churn/end") {
            tell(&mut view, watch.next().await);
        }
        views.push(view);
    }
    assert!(child.wait().expect("ended").success());
    let last: BTreeMap<_, _> = store
        .list(&Scope::Under("churn/".into()))
        .await
        .expect("listed")
        .into_iter()
        .map(|entry| (entry.key, entry.revision))
        .collect();
    for view in views {
        assert_eq!(view, last);
    }
}

/// Whether it is still the snapshot.
fn tell(view: &mut BTreeMap<String, Revision>, change: Option<Change>) -> bool {
    match change {
        Some(Change::Put(entry)) => {
            let before = view.insert(entry.key.clone(), entry.revision);
            assert!(before <= Some(entry.revision), "{} went back", entry.key);
        }
        Some(Change::Deleted { key, .. }) => {
            view.remove(&key);
        }
        Some(Change::Synced) => return false,
        other => panic!("{other:?}"),
    }
    true
}
