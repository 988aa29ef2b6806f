//! The measurements.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use parti::store::{Bytes, Change, Expect, Revision, Scope, Store, Watch, Write};

use crate::backends::Backend;
use crate::process;
use crate::writer::{self, Writer};

/// How many partitions a flush writes, and how many keys an idle watch covers.
pub const KEYS: usize = 5_000;

/// Batches, ours and the plain client's by turns; the median counts.
const ROUNDS: usize = 31;

/// Before each: who has just slept is not the first to be interrupted on a busy machine.
const BREATH: Duration = Duration::from_millis(5);

/// Changes whose way to the watcher is timed.
const CHANGES: usize = 1_000;

/// Watches that idle at the same time, so that what each needs stands out of the noise.
const WATCHES: usize = 8;

/// How long they idle.
const IDLE: Duration = Duration::from_secs(10);

/// What was found about one backend.
pub struct Measured {
    pub batch: Duration,
    pub plain: Duration,
    pub p50: Duration,
    pub p99: Duration,
    pub idle: Idle,
}

/// What watches need while nothing happens.
pub struct Idle {
    /// The part of one core that this process needed.
    pub cpu: f64,
    /// The part of one core that the server needed, with what it needs for itself.
    pub server_cpu: Option<f64>,
    /// Bytes per key and watch, in this process.
    pub per_key: f64,
}

/// Measures everything.
pub async fn all(mut backend: Backend) -> Measured {
    let run = format!("bench-{:x}", writer::now().as_nanos());
    let (batch, plain) = batches(&mut backend, &run).await;
    let (p50, p99) = changes(&backend, &run).await;
    Measured {
        batch,
        plain,
        p50,
        p99,
        idle: idle(&backend, &run).await,
    }
}

async fn batches(backend: &mut Backend, run: &str) -> (Duration, Duration) {
    let keys: Vec<String> = (0..KEYS)
        .map(|n| format!("partitions/{run}/p{n:05}"))
        .collect();
    let mut revisions: Vec<Option<Revision>> = vec![None; KEYS];
    let (mut ours, mut plains) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let values: Vec<Bytes> = (0..KEYS).map(|n| checkpoint(round, n)).collect();
        let batch = keys.iter().zip(&values).zip(&revisions);
        let batch = batch.map(|((key, value), revision)| Write {
            key: key.clone(),
            expect: revision.map_or(Expect::Absent, Expect::At),
            value: Some(value.clone()),
        });
        let batch: Vec<Write> = batch.collect();
        let writes: Vec<(String, Bytes)> = keys.iter().cloned().zip(values).collect();
        // Who is first changes: the disk may be busy with what the other one left to it.
        if round % 2 == 0 {
            plains.push(plain(backend, &writes).await);
        }
        tokio::time::sleep(BREATH).await;
        let began = Instant::now();
        let outcomes = backend.store.write(batch).await;
        ours.push(began.elapsed());
        for (revision, outcome) in revisions.iter_mut().zip(outcomes) {
            *revision = Some(outcome.expect("a write"));
        }
        if round % 2 == 1 {
            plains.push(plain(backend, &writes).await);
        }
    }
    (median(ours), median(plains))
}

async fn plain(backend: &mut Backend, writes: &[(String, Bytes)]) -> Duration {
    tokio::time::sleep(BREATH).await;
    let began = Instant::now();
    backend.plain.write(writes).await;
    began.elapsed()
}

/// About 200 bytes, as a partition's record is.
fn checkpoint(round: usize, number: usize) -> Bytes {
    Bytes::from(format!(
        r#"{{"v":1,"epoch":{round},"owner":{{"worker":"worker-{}","incarnation":1234567}},"start":0,"offset":{},"done_above":[],"nonce":"{:016x}","claimed_at":1760000000000,"updated_at":176000000{:04}}}"#,
        number % 32,
        round * 1_000 + number,
        number * 7_919,
        number
    ))
}

/// From before a write is sent until another connection's watch has told it. The next write comes
/// right after: for a store that looks for changes from time to time, the worst moment.
async fn changes(backend: &Backend, run: &str) -> (Duration, Duration) {
    let mut watch = backend.other.watch(Scope::Under(format!("workers/{run}/")));
    synced(&mut watch).await;
    let mut writer = Writer::of(backend, format!("workers/{run}/w"));
    let mut times = Vec::new();
    for number in 0..=CHANGES {
        let ((), took) = tokio::join!(writer.write(), heard(&mut watch));
        // The first one also waits for its writer to open the store.
        if number > 0 {
            times.push(took);
        }
    }
    times.sort();
    (times[CHANGES / 2], times[CHANGES * 99 / 100])
}

/// How long the next change took to come here.
async fn heard(watch: &mut Watch) -> Duration {
    loop {
        if let Change::Put(entry) = watch.next().await.expect("a watch never ends") {
            let began = std::str::from_utf8(&entry.value).ok();
            let began = began.and_then(|text| text.parse().ok()).expect("a time");
            return writer::now().saturating_sub(Duration::from_nanos(began));
        }
    }
}

async fn idle(backend: &Backend, run: &str) -> Idle {
    let prefix = format!("workers/{run}-idle/");
    let batch = (0..KEYS).map(|n| Write {
        key: format!("{prefix}w{n:05}"),
        expect: Expect::Absent,
        value: Some(checkpoint(0, n)),
    });
    for outcome in backend.store.write(batch.collect()).await {
        outcome.expect("a write");
    }
    // One first, whose buffers the others find already there.
    let mut watches = vec![watching(&*backend.other, &prefix).await];
    let before = process::resident();
    for _ in 0..WATCHES {
        watches.push(watching(&*backend.other, &prefix).await);
    }
    let grown = process::resident().saturating_sub(before) as f64;
    let server = || backend.server_id.map(process::cpu_of_family);
    let (used, server_used) = (process::cpu(), server());
    // Polled all the while, as a reader does; nothing is to come.
    let quiet = futures_util::future::select_all(watches.iter_mut().map(StreamExt::next));
    let told = tokio::time::timeout(IDLE, quiet).await;
    assert!(told.is_err(), "an idle watch told something");
    let part = |used: Duration| used.as_secs_f64() / IDLE.as_secs_f64();
    let server_used = server().zip(server_used);
    Idle {
        cpu: part(process::cpu() - used),
        server_cpu: server_used.map(|(now, before)| part(now.saturating_sub(before))),
        per_key: grown / (KEYS * WATCHES) as f64,
    }
}

async fn watching(store: &dyn Store, prefix: &str) -> Watch {
    let mut watch = store.watch(Scope::Under(prefix.to_owned()));
    assert_eq!(synced(&mut watch).await, KEYS);
    watch
}

/// Reads to the end of the snapshot, without keeping it; answers with its size.
async fn synced(watch: &mut Watch) -> usize {
    let mut count = 0;
    loop {
        match watch.next().await.expect("a watch never ends") {
            Change::Synced => return count,
            Change::Put(_) => count += 1,
            other => panic!("a snapshot was disturbed by {other:?}"),
        }
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
