//! A worker on JetStream against the best plain way to consume, in one run: a pull consumer of
//! `async-nats` for the whole stream, whose loop acks each message.
//!
//! ```text
//! cargo bench -p parti --bench jetstream                 # all of them
//! cargo bench -p parti --bench jetstream -- none         # the raw loop, and what is named so
//! ```
//!
//! The stream is on disk and has 64 virtual partitions. The workers start while it is empty, and
//! are held back by their handlers until everything is published: what is measured is the flow
//! through the durable, from a backlog. So nothing may be read past it, however slow it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_nats::jetstream::{self, consumer};
use futures_util::StreamExt;
use parti::source::JetStream;
use parti::source::jetstream::{NewMessage, StreamSettings};
use parti::store::Memory;
use parti::{Config, HandlerError, Message, StaticPartitions, Worker};
use parti_servers::nats::Server;
use tokio::sync::{Notify, Semaphore};

#[path = "stores/process.rs"]
#[allow(dead_code, reason = "memory is the subject of other benches")]
mod process;

const MESSAGES: u64 = 200_000;
const PARTITIONS: u32 = 64;
const BATCH: u64 = 2_000;
const PAYLOAD: [u8; 128] = [b'x'; 128];
/// The server's own default for a consumer, and the same for both.
const MAX_ACK_PENDING: u32 = 1_000;
/// All by turns; the median counts.
const ROUNDS: usize = 7;
/// The ways to consume; the first is what the others are compared with.
const WAYS: [&str; 5] = [
    "raw loop: whole stream, acks each message",
    "raw loop: a filter for each partition",
    "raw loop: whole stream, no acks",
    "a worker, `ack: explicit`",
    "a worker, `ack: none`",
];

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let mut server = Server::start();
    let process = server.id().expect("it runs");
    // cargo itself passes flags.
    let named: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    let wanted = WAYS.map(|way| named.is_empty() || named.iter().any(|name| way.contains(name)));
    let mut runs = [const { Vec::new() }; WAYS.len()];
    for round in 0..ROUNDS {
        let name = format!("BENCH{round}");
        let measured = runtime.block_on(measure(&server.url(), &name, process, wanted));
        for (runs, run) in runs.iter_mut().zip(measured) {
            runs.extend(run);
        }
    }
    let runs = runs.map(|mut runs: Vec<Taken>| {
        runs.sort_by_key(|run| run.took);
        runs.into_iter().nth(ROUNDS / 2)
    });
    let raw = runs[0].as_ref().map_or(Duration::ZERO, |run| run.took);
    println!("{MESSAGES} messages of 128 B with a key, {PARTITIONS} virtual partitions, on disk");
    println!("| | messages/s | of the raw loop | CPU per message: server | client |");
    println!("|---|---|---|---|---|");
    for (what, run) in WAYS.iter().zip(&runs) {
        let Some(run) = run else { continue };
        let rate = MESSAGES as f64 / run.took.as_secs_f64();
        let ratio = raw.as_secs_f64() / run.took.as_secs_f64();
        let [server, client] = run.cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / MESSAGES as f64);
        println!("| {what} | {rate:.0} | {ratio:.2} | {server:.1} \u{b5}s | {client:.1} \u{b5}s |");
    }
}

/// What one way to consume everything took.
struct Taken {
    took: Duration,
    /// CPU time of the server, and of this process.
    cpu: [Duration; 2],
}

/// Measures a way to consume everything, on a server that is this process.
struct Meter {
    server: u32,
}

impl Meter {
    fn cpu(&self) -> [Duration; 2] {
        [process::cpu_of_family(self.server), process::cpu()]
    }

    async fn measure(&self, wanted: bool, consuming: impl Future<Output = ()>) -> Option<Taken> {
        if !wanted {
            return None;
        }
        let before = self.cpu();
        let began = Instant::now();
        consuming.await;
        let took = began.elapsed();
        let after = self.cpu();
        let cpu = [after[0] - before[0], after[1] - before[1]];
        Some(Taken { took, cpu })
    }
}

async fn measure(
    server: &str,
    name: &str,
    process: u32,
    wanted: [bool; WAYS.len()],
) -> [Option<Taken>; WAYS.len()] {
    let place = server.trim_start_matches("nats://");
    let url = format!("jetstream://{place}/{name}");
    let stream = JetStream::create(&url, &StreamSettings::partitions(PARTITIONS)).await;
    let stream = stream.expect("a stream");
    let explicit = Held::start(&stream, "explicit").await;
    let none = Held::start(&stream, "none").await;
    publish(&stream).await;
    let filters = (0..PARTITIONS).map(|number| format!("{name}.{number}"));
    let meter = Meter { server: process };
    let all = Raw::create(server, name, consumer::AckPolicy::Explicit, Vec::new()).await;
    let each = Raw::create(
        server,
        name,
        consumer::AckPolicy::Explicit,
        filters.collect(),
    )
    .await;
    let unacked = Raw::create(server, name, consumer::AckPolicy::None, Vec::new()).await;
    let taken = [
        meter.measure(true, all.consume()).await,
        meter.measure(wanted[1], each.consume()).await,
        meter.measure(wanted[2], unacked.consume()).await,
        meter.measure(wanted[3], explicit.consume()).await,
        meter.measure(wanted[4], none.consume()).await,
    ];
    for (held, wanted) in [(&explicit, wanted[3]), (&none, wanted[4])] {
        if wanted {
            held.check(server, name).await;
        }
    }
    for held in [explicit, none] {
        // Whoever was not wanted still holds its first messages back.
        held.gate.close();
        held.worker.stop().await.expect("stops");
    }
    taken
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

/// A plain pull consumer.
struct Raw {
    client: async_nats::Client,
    consumer: consumer::PullConsumer,
    acks: bool,
}

impl Raw {
    async fn create(
        server: &str,
        name: &str,
        ack_policy: consumer::AckPolicy,
        filter_subjects: Vec<String>,
    ) -> Self {
        let client = async_nats::connect(server).await.expect("connected");
        let context = jetstream::new(client.clone());
        let stream = context.get_stream(name).await.expect("the stream");
        let acks = ack_policy != consumer::AckPolicy::None;
        let config = consumer::pull::Config {
            durable_name: Some(format!("raw-{}-{acks}", filter_subjects.len())),
            ack_policy,
            max_ack_pending: i64::from(MAX_ACK_PENDING),
            filter_subjects,
            ..consumer::pull::Config::default()
        };
        let consumer = stream.create_consumer(config).await.expect("a consumer");
        Self {
            client,
            consumer,
            acks,
        }
    }

    /// Everything, by a loop.
    async fn consume(&self) {
        let mut messages = self
            .consumer
            .stream()
            .max_messages_per_batch(MAX_ACK_PENDING as usize / 2)
            .messages()
            .await
            .expect("messages");
        for _ in 0..MESSAGES {
            let message = messages.next().await.expect("one more").expect("sound");
            assert_eq!(message.payload.len(), PAYLOAD.len());
            if self.acks {
                message.ack().await.expect("acked");
            }
        }
        self.client.flush().await.expect("flushed");
    }
}

/// A worker whose handler waits until it is let go.
struct Held {
    group: String,
    worker: Worker,
    gate: Arc<Semaphore>,
    all: Arc<Notify>,
}

impl Held {
    async fn start(stream: &JetStream, ack: &str) -> Self {
        let config = format!(
            "expected_workers: 1\nprocessing:\n  start: earliest\njetstream:\n  ack: {ack}\n  \
             max_ack_pending: {MAX_ACK_PENDING}\n  catch_up_after: 1h\n"
        );
        let config = Config::from_yaml(&config).expect("settings");
        let gate = Arc::new(Semaphore::new(0));
        let (seen, all) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
        let (closed, ready) = (gate.clone(), all.clone());
        let open = Arc::new(AtomicBool::new(false));
        let handler = move |message: Message| {
            let (closed, open) = (closed.clone(), open.clone());
            let (seen, ready) = (seen.clone(), ready.clone());
            async move {
                assert_eq!(message.payload().len(), PAYLOAD.len());
                if !open.load(Ordering::Relaxed) {
                    // An error is how it opens.
                    let _ = closed.acquire().await;
                    open.store(true, Ordering::Relaxed);
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
        let group = ack.to_owned();
        Self {
            group,
            worker,
            gate,
            all,
        }
    }

    /// Nearly everything came by the durable: only what was there before it is read past it.
    async fn check(&self, server: &str, name: &str) {
        let client = async_nats::connect(server).await.expect("connected");
        let stream = jetstream::new(client)
            .get_stream(name)
            .await
            .expect("there");
        let name = format!("parti-{}-worker-0", self.group);
        let consumer = stream.get_consumer::<consumer::pull::Config>(&name).await;
        let info = consumer.expect("the durable").cached_info().clone();
        let delivered = info.delivered.consumer_sequence;
        assert!(delivered > MESSAGES / 10 * 9, "{name} brought {delivered}");
    }

    /// Everything, from the moment on when the handlers are let go.
    async fn consume(&self) {
        self.gate.close();
        self.all.notified().await;
    }
}
