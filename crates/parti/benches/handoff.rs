//! How long a partition pauses when it moves, under load, on the embedded log and an SQLite store:
//! from the last message under one epoch to the first under the next. Messages come every few
//! milliseconds in every partition, so a pause is at least as long as that. A worker joins and
//! leaves again and again; beside it, the same for partitions that stay where they are.
//!
//! ```text
//! cargo bench -p parti --bench handoff
//! ```

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use parti::source::log::{Log, NewRecord, Topic, TopicSettings};
use parti::{Config, HandlerError, Message, PartitionId, StaticPartitions, Worker, store};

const WORKERS: usize = 3;
const PARTITIONS: u32 = 60;
/// A message in every partition, so often.
const EVERY: Duration = Duration::from_millis(10);
const ROUNDS: usize = 20;
/// Between a join and a leave.
const REST: Duration = Duration::from_millis(1_000);

/// A message that was handled: partition, epoch, offset, when.
type Handled = (PartitionId, u64, u64, Instant);
type Heard = Arc<Mutex<Vec<Handled>>>;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(run());
}

async fn run() {
    let folder = tempfile::tempdir().expect("a folder");
    let topic = open(folder.path()).await;
    let heard = Heard::default();
    let mut workers = Vec::new();
    for _ in 0..WORKERS {
        workers.push(join(folder.path(), &heard).await);
    }
    let producing = tokio::spawn(produce(topic));
    tokio::time::sleep(REST * 2).await;
    heard.lock().expect("no panic").clear();
    tokio::time::sleep(REST * 5).await;
    let quiet = std::mem::take(&mut *heard.lock().expect("no panic"));
    for _ in 0..ROUNDS {
        let guest = join(folder.path(), &heard).await;
        tokio::time::sleep(REST).await;
        guest.stop().await.expect("stops");
        tokio::time::sleep(REST).await;
    }
    producing.abort();
    let moving = std::mem::take(&mut *heard.lock().expect("no panic"));
    for worker in workers {
        worker.stop().await.expect("stops");
    }
    let quiet = Gaps::of(quiet);
    let moving = Gaps::of(moving);
    println!(
        "{WORKERS} workers and one that comes and goes {ROUNDS} times; {PARTITIONS} partitions, a message in each every {} ms",
        EVERY.as_millis()
    );
    println!("| time between two messages of a partition | count | p50 | p99 | longest |");
    println!("|---|---|---|---|---|");
    row("nothing moves", quiet.within);
    row(
        "of a partition that stays, while others move",
        moving.within,
    );
    row("of a partition that moves, across the move", moving.across);
    println!("repeated {}, skipped {}", moving.repeated, moving.skipped);
}

async fn open(folder: &Path) -> Topic {
    let log = Log::open(folder.join("log")).await.expect("a log");
    let settings = TopicSettings::partitions(PARTITIONS);
    log.create_topic("t", settings).await.expect("a topic")
}

/// A worker as another process would be: with a store and a log of its own.
async fn join(folder: &Path, heard: &Heard) -> Worker {
    let topic = open(folder).await;
    let url = format!("sqlite:{}", folder.join("group.db").display());
    let store = store::open(&url).await.expect("a store");
    let config =
        "planned_scale_window: 0s\nexpected_workers: 1\nassignment:\n  rebalance_cooldown: 0s\n";
    let heard = heard.clone();
    let handler = move |message: Message| {
        let handled = (
            message.partition.clone(),
            message.epoch.0,
            message.offset.0,
            Instant::now(),
        );
        heard.lock().expect("no panic").push(handled);
        async { Ok::<(), HandlerError>(()) }
    };
    Worker::builder("g", store, topic, StaticPartitions::numbered(PARTITIONS))
        .config(Config::from_yaml(config).expect("settings"))
        .start(handler)
        .await
        .expect("starts")
}

async fn produce(topic: Topic) {
    let mut ticks = tokio::time::interval(EVERY);
    loop {
        ticks.tick().await;
        let batch = (0..PARTITIONS).map(|number| NewRecord {
            partition: Some(PartitionId::new(number.to_string())),
            ..NewRecord::new("x".repeat(100))
        });
        topic.append(batch.collect()).await.expect("appended");
    }
}

/// Times between messages that follow each other in a partition.
#[derive(Default)]
struct Gaps {
    within: Vec<Duration>,
    across: Vec<Duration>,
    repeated: u64,
    skipped: u64,
}

impl Gaps {
    fn of(handled: Vec<Handled>) -> Self {
        let mut gaps = Gaps::default();
        let mut last: BTreeMap<PartitionId, (u64, u64, Instant)> = BTreeMap::new();
        for (partition, epoch, offset, at) in handled {
            if let Some((before, done, since)) = last.insert(partition, (epoch, offset, at)) {
                let gap = at.saturating_duration_since(since);
                if before == epoch {
                    gaps.within.push(gap);
                } else {
                    gaps.across.push(gap);
                }
                gaps.repeated += u64::from(offset <= done);
                gaps.skipped += u64::from(offset > done + 1);
            }
        }
        gaps
    }
}

fn row(what: &str, mut gaps: Vec<Duration>) {
    gaps.sort();
    let at = |share: usize| {
        let place = gaps.len() * share / 100;
        let gap = gaps.get(place.min(gaps.len().saturating_sub(1)));
        gap.map_or(0.0, |gap| gap.as_secs_f64() * 1_000.0)
    };
    let (p50, p99, longest) = (at(50), at(99), at(100));
    println!(
        "| {what} | {} | {p50:.0} ms | {p99:.0} ms | {longest:.0} ms |",
        gaps.len()
    );
}
