//! A worker on JetStream against the best plain way to consume, in one run: a pull consumer of
//! `async-nats` for the whole stream, whose loop acks each message.
//!
//! ```text
//! cargo bench -p parti --bench jetstream
//! ```
//!
//! The stream is on disk and has 64 virtual partitions. The workers start while it is empty, and
//! are held back by their handlers until everything is published: what is measured is the flow
//! through the durable, from a backlog.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_nats::jetstream::{self, consumer};
use futures_util::StreamExt;
use parti::source::JetStream;
use parti::source::jetstream::{NewMessage, StreamSettings};
use parti::store::Memory;
use parti::{Config, HandlerError, Message, StaticPartitions, Worker};
use parti_servers::nats::Server;
use tokio::sync::{Notify, Semaphore};

const MESSAGES: u64 = 200_000;
const PARTITIONS: u32 = 64;
const BATCH: u64 = 2_000;
const PAYLOAD: [u8; 128] = [b'x'; 128];
/// The server's own default for a consumer, and the same for both.
const MAX_ACK_PENDING: u32 = 1_000;
/// All by turns; the median counts.
const ROUNDS: usize = 3;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let server = Server::start();
    let mut times = [const { Vec::new() }; 4];
    for round in 0..ROUNDS {
        let measured = runtime.block_on(measure(&server.url(), &format!("BENCH{round}")));
        for (times, took) in times.iter_mut().zip(measured) {
            times.push(took);
        }
    }
    let rates = times.map(|mut times| {
        times.sort();
        MESSAGES as f64 / times[times.len() / 2].as_secs_f64()
    });
    println!("{MESSAGES} messages of 128 B with a key, {PARTITIONS} virtual partitions, on disk");
    println!("| | messages/s | of the raw loop |");
    println!("|---|---|---|");
    for (what, rate) in [
        "raw loop: whole stream, acks each message",
        "raw loop: a filter for each partition",
        "a worker, `ack: explicit`",
        "a worker, `ack: none`",
    ]
    .iter()
    .zip(rates)
    {
        println!("| {what} | {rate:.0} | {:.2} |", rate / rates[0]);
    }
}

async fn measure(server: &str, name: &str) -> [Duration; 4] {
    let place = server.trim_start_matches("nats://");
    let url = format!("jetstream://{place}/{name}");
    let stream = JetStream::create(&url, &StreamSettings::partitions(PARTITIONS)).await;
    let stream = stream.expect("a stream");
    let explicit = Held::start(&stream, "explicit").await;
    let none = Held::start(&stream, "none").await;
    publish(&stream).await;
    let filters = (0..PARTITIONS).map(|number| format!("{name}.{number}"));
    [
        raw(server, name, Vec::new()).await,
        raw(server, name, filters.collect()).await,
        explicit.release().await,
        none.release().await,
    ]
}

async fn publish(stream: &JetStream) {
    let producer = stream.producer().expect("partitions").window(2_000);
    for first in (0..MESSAGES).step_by(BATCH as usize) {
        let batch = (first..first + BATCH).map(|number| NewMessage {
            key: Some(format!("customer-{:06}", number % 10_000).into()),
            payload: PAYLOAD.as_slice().into(),
            ..NewMessage::default()
        });
        let published = producer.publish(batch.collect()).await.expect("published");
        assert_eq!(published.len() as u64, BATCH);
    }
}

/// Everything, by a loop that acks each message.
async fn raw(server: &str, name: &str, filter_subjects: Vec<String>) -> Duration {
    let client = async_nats::connect(server).await.expect("connected");
    let context = jetstream::new(client.clone());
    let stream = context.get_stream(name).await.expect("the stream");
    let config = consumer::pull::Config {
        durable_name: Some(format!("raw-{}", filter_subjects.len())),
        ack_policy: consumer::AckPolicy::Explicit,
        max_ack_pending: i64::from(MAX_ACK_PENDING),
        filter_subjects,
        ..consumer::pull::Config::default()
    };
    let consumer = stream.create_consumer(config).await.expect("a consumer");
    let began = Instant::now();
    let mut messages = consumer
        .stream()
        .max_messages_per_batch(MAX_ACK_PENDING as usize / 2)
        .messages()
        .await
        .expect("messages");
    for _ in 0..MESSAGES {
        let message = messages.next().await.expect("one more").expect("sound");
        assert_eq!(message.payload.len(), PAYLOAD.len());
        message.ack().await.expect("acked");
    }
    client.flush().await.expect("flushed");
    began.elapsed()
}

/// A worker whose handler waits until it is let go.
struct Held {
    worker: Worker,
    gate: Arc<Semaphore>,
    all: Arc<Notify>,
}

impl Held {
    async fn start(stream: &JetStream, ack: &str) -> Self {
        let config = format!(
            "expected_workers: 1\nprocessing:\n  start: earliest\njetstream:\n  ack: {ack}\n  \
             max_ack_pending: {MAX_ACK_PENDING}\n"
        );
        let config = Config::from_yaml(&config).expect("settings");
        let gate = Arc::new(Semaphore::new(0));
        let (seen, all) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
        let (closed, ready) = (gate.clone(), all.clone());
        let handler = move |message: Message| {
            let (closed, seen, ready) = (closed.clone(), seen.clone(), ready.clone());
            async move {
                assert_eq!(message.payload().len(), PAYLOAD.len());
                if !closed.is_closed() {
                    // An error is how it opens.
                    let _ = closed.acquire().await;
                }
                if seen.fetch_add(1, Ordering::Relaxed) + 1 == MESSAGES {
                    ready.notify_one();
                }
                Ok::<(), HandlerError>(())
            }
        };
        let partitions = StaticPartitions::numbered(PARTITIONS);
        let worker = Worker::builder(ack, Memory::new(), stream.clone(), partitions)
            .config(config)
            .start(handler)
            .await
            .expect("starts");
        Self { worker, gate, all }
    }

    async fn release(self) -> Duration {
        let began = Instant::now();
        self.gate.close();
        self.all.notified().await;
        let took = began.elapsed();
        self.worker.stop().await.expect("stops");
        took
    }
}
