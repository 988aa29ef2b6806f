//! The measurements.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::StreamExt;
use parti::store::{Bytes, Change, Expect, Revision, Scope, Store, StoreExt, Watch, Write};

use crate::backends::Backend;
use crate::process;

/// How many partitions a flush writes, and how many keys an idle watch covers.
pub const KEYS: usize = 5_000;

/// Batches, ours and the plain client's by turns; the median counts.
const ROUNDS: usize = 9;

/// Changes whose way to the watcher is timed.
const CHANGES: usize = 1_000;

/// Watches that idle at the same time, so that what each needs stands out of the noise.
const WATCHES: usize = 8;

/// How long they idle.
const IDLE: Duration = Duration::from_secs(5);

/// What was found about one backend.
pub struct Measured {
    pub batch: Duration,
    pub plain: Option<Duration>,
    pub p50: Duration,
    pub p99: Duration,
    /// The part of one core that the process needed while its watches idled.
    pub idle: f64,
    /// Bytes per key and watch.
    pub per_key: f64,
}

/// Measures everything.
pub async fn all(mut backend: Backend) -> Measured {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let run = format!("bench-{:x}", now.map_or(0, |now| now.as_nanos()));
    let (batch, plain) = batches(&mut backend, &run).await;
    let (p50, p99) = changes(&backend, &run).await;
    let (idle, per_key) = idle(&backend, &run).await;
    Measured {
        batch,
        plain,
        p50,
        p99,
        idle,
        per_key,
    }
}

async fn batches(backend: &mut Backend, run: &str) -> (Duration, Option<Duration>) {
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
        let began = Instant::now();
        let outcomes = backend.store.write(batch).await;
        ours.push(began.elapsed());
        for (revision, outcome) in revisions.iter_mut().zip(outcomes) {
            *revision = Some(outcome.expect("a write"));
        }
        if let Some(plain) = &mut backend.plain {
            let writes: Vec<(String, Bytes)> = keys.iter().cloned().zip(values).collect();
            let began = Instant::now();
            plain.write(&writes).await;
            plains.push(began.elapsed());
        }
    }
    (median(ours), (!plains.is_empty()).then(|| median(plains)))
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

/// From before a write is sent until another connection's watch has told it.
async fn changes(backend: &Backend, run: &str) -> (Duration, Duration) {
    let key = format!("workers/{run}/w");
    let mut watch = backend.other.watch(Scope::Under(format!("workers/{run}/")));
    synced(&mut watch).await;
    let mut last = None;
    let mut times = Vec::new();
    for number in 0..CHANGES {
        let write = Write {
            key: key.clone(),
            expect: last.map_or(Expect::Absent, Expect::At),
            value: Some(number.to_string().into()),
        };
        let began = Instant::now();
        let (written, heard) = tokio::join!(backend.store.write_one(write), async {
            loop {
                match watch.next().await.expect("a watch never ends") {
                    Change::Put(entry) if entry.value == number.to_string() => {
                        return began.elapsed();
                    }
                    _ => {}
                }
            }
        });
        last = Some(written.expect("a write"));
        times.push(heard);
    }
    times.sort();
    (times[CHANGES / 2], times[CHANGES * 99 / 100])
}

async fn idle(backend: &Backend, run: &str) -> (f64, f64) {
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
    let used = process::cpu();
    // Polled all the while, as a reader does; nothing is to come.
    let quiet = futures_util::future::select_all(watches.iter_mut().map(StreamExt::next));
    let told = tokio::time::timeout(IDLE, quiet).await;
    assert!(told.is_err(), "an idle watch told something");
    let used = process::cpu() - used;
    let part = used.as_secs_f64() / IDLE.as_secs_f64();
    (part, grown / (KEYS * WATCHES) as f64)
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
