//! The embedded log against SQLite itself, in one run: the same messages as the rows of one table,
//! in its order and with one sync for each batch, and read back.
//!
//! ```text
//! cargo bench -p parti --bench log
//! ```

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use parti::source::Source;
use parti::source::log::{Log, NewRecord, Topic, TopicSettings};
use parti::store::Memory;
use parti::{Config, HandlerError, Message, Offset, PartitionId, StaticPartitions, Worker};
use rusqlite::{Connection, params};
use tokio::sync::Notify;

const MESSAGES: usize = 1_000_000;
const PARTITIONS: u32 = 16;
const BATCH: usize = 1_000;
const PRODUCERS: usize = 4;
const PAYLOAD: [u8; 128] = [b'x'; 128];
const READ: usize = 256;
/// Ours and the raw ones by turns; the median counts.
const ROUNDS: usize = 5;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let mut times = [const { Vec::new() }; 6];
        for _ in 0..ROUNDS {
            let folder = tempfile::tempdir().expect("a folder");
            let mut raw = Raw::open(&folder.path().join("raw.db"));
            let log = Log::open(folder.path().join("log")).await.expect("a log");
            let settings = TopicSettings::partitions(PARTITIONS);
            let topic = log.create_topic("t", settings.clone()).await.expect("made");
            let other = log.create_topic("other", settings).await.expect("made");
            let measured = [
                raw.append(),
                append(&topic, 1).await,
                append(&other, PRODUCERS).await,
                raw.read(),
                read(&topic).await,
                consume(&topic).await,
            ];
            for (times, took) in times.iter_mut().zip(measured) {
                times.push(took);
            }
        }
        let rates = times.map(|mut times| {
            times.sort();
            MESSAGES as f64 / times[times.len() / 2].as_secs_f64()
        });
        println!(
            "{MESSAGES} messages of 128 B with a key, batches of {BATCH}, {PARTITIONS} partitions"
        );
        println!("| | messages/s | of SQLite |");
        println!("|---|---|---|");
        let line = |what: &str, rate: f64, raw: f64| {
            println!("| {what} | {rate:.0} | {:.2} |", rate / raw);
        };
        line("SQLite: insert", rates[0], rates[0]);
        line("append, 1 producer", rates[1], rates[0]);
        line(
            &format!("append, {PRODUCERS} producers"),
            rates[2],
            rates[0],
        );
        line("SQLite: select", rates[3], rates[3]);
        line("read", rates[4], rates[3]);
        line(
            "consume: a worker, with a handler call for each message",
            rates[5],
            rates[3],
        );
    });
}

/// SQLite as it is, as durable as the log.
struct Raw(Connection);

impl Raw {
    fn open(path: &Path) -> Self {
        let connection = Connection::open(path).expect("opened");
        connection
            .execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
                 CREATE TABLE messages (
                     row INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, key BLOB, payload BLOB NOT NULL
                 );",
            )
            .expect("set up");
        Self(connection)
    }

    fn append(&mut self) -> Duration {
        let began = Instant::now();
        for batch in 0..MESSAGES / BATCH {
            let transaction = self.0.transaction().expect("begun");
            let mut statement = transaction
                .prepare_cached("INSERT INTO messages VALUES (?1, ?2, ?3, ?4)")
                .expect("prepared");
            for number in batch * BATCH..(batch + 1) * BATCH {
                let row = i64::try_from(number).expect("small");
                let key = key(number);
                statement
                    .execute(params![row, 0, key.as_bytes(), PAYLOAD.as_slice()])
                    .expect("inserted");
            }
            drop(statement);
            transaction.commit().expect("committed");
        }
        began.elapsed()
    }

    fn read(&self) -> Duration {
        let began = Instant::now();
        let mut statement = self
            .0
            .prepare_cached(
                "SELECT row, at_ms, key, payload FROM messages WHERE row >= ?1 ORDER BY row LIMIT ?2",
            )
            .expect("prepared");
        let (mut next, mut seen) = (0_i64, 0);
        loop {
            let mut rows = statement.query(params![next, READ as i64]).expect("query");
            let mut batch = Vec::with_capacity(READ);
            while let Some(row) = rows.next().expect("a row") {
                let at: i64 = row.get(0).expect("a number");
                let at_ms: i64 = row.get(1).expect("a number");
                let key: Vec<u8> = row.get(2).expect("a key");
                let payload: Vec<u8> = row.get(3).expect("a payload");
                next = at + 1;
                batch.push((at, at_ms, key, payload));
            }
            if batch.is_empty() {
                break;
            }
            seen += batch.len();
        }
        assert_eq!(seen, MESSAGES);
        began.elapsed()
    }
}

fn key(number: usize) -> String {
    format!("customer-{:06}", number % 10_000)
}

fn batch(numbers: std::ops::Range<usize>) -> Vec<NewRecord> {
    numbers
        .map(|number| NewRecord::new(PAYLOAD.as_slice()).with_key(key(number)))
        .collect()
}

async fn append(topic: &Topic, producers: usize) -> Duration {
    let began = Instant::now();
    let share = MESSAGES / producers;
    let tasks = (0..producers).map(|producer| {
        let topic = topic.clone();
        tokio::spawn(async move {
            for first in (producer * share..(producer + 1) * share).step_by(BATCH) {
                let placed = topic.append(batch(first..first + BATCH)).await;
                assert_eq!(placed.expect("appended").len(), BATCH);
            }
        })
    });
    for ended in join_all(tasks.collect::<Vec<_>>()).await {
        ended.expect("no panic");
    }
    began.elapsed()
}

async fn read(topic: &Topic) -> Duration {
    let began = Instant::now();
    let mut seen = 0;
    for number in 0..PARTITIONS {
        let partition = PartitionId::new(number.to_string());
        let mut next = Offset(0);
        loop {
            let batch = topic.read(&partition, next, READ).await.expect("read");
            if batch.records.is_empty() {
                break;
            }
            seen += batch.records.len();
            next = batch.next;
        }
    }
    assert_eq!(seen, MESSAGES);
    began.elapsed()
}

/// From the start of a worker until its handler has seen everything.
async fn consume(topic: &Topic) -> Duration {
    let config = "expected_workers: 1\nprocessing:\n  start: earliest\n";
    let config = Config::from_yaml(config).expect("settings");
    let (seen, all) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
    let (count, ready) = (seen.clone(), all.clone());
    let handler = move |_: Message| {
        if count.fetch_add(1, Ordering::Relaxed) + 1 == MESSAGES as u64 {
            ready.notify_one();
        }
        async { Ok::<(), HandlerError>(()) }
    };
    let partitions = StaticPartitions::numbered(PARTITIONS);
    let began = Instant::now();
    let worker = Worker::builder("g", Memory::new(), topic.clone(), partitions)
        .config(config)
        .start(handler)
        .await
        .expect("starts");
    all.notified().await;
    let took = began.elapsed();
    worker.stop().await.expect("stops");
    took
}
