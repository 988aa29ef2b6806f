//! Workers of one group, in this process, and what they handled.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use parti::source::JetStream;
use parti::store::Memory;
use parti::{Config, HandlerError, Message, PartitionId, StaticPartitions, Worker};
use parti_servers::nats::Server;
use tokio::sync::watch;

use crate::stream::number;

/// One that was handled: epoch, number, when.
pub type Handled = (u64, u64, Instant);

/// What the workers of a group handled.
#[derive(Clone)]
pub struct Heard {
    count: Arc<AtomicU64>,
    by_partition: Arc<Mutex<BTreeMap<PartitionId, Vec<Handled>>>>,
    /// Handlers wait while this is false.
    open: watch::Sender<bool>,
}

impl Heard {
    pub fn new() -> Self {
        Self {
            count: Arc::default(),
            by_partition: Arc::default(),
            open: watch::Sender::new(true),
        }
    }

    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Lets handlers go on, or not.
    pub fn open(&self, open: bool) {
        self.open.send_replace(open);
    }

    /// Waits until so many were handled; answers when the last was.
    pub async fn until(&self, count: u64) -> Instant {
        while self.count() < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Instant::now()
    }

    pub fn take(&self) -> BTreeMap<PartitionId, Vec<Handled>> {
        std::mem::take(&mut self.by_partition.lock().expect("no panic"))
    }

    async fn handle(&self, message: Message) -> Result<(), HandlerError> {
        if !*self.open.borrow() {
            let mut news = self.open.subscribe();
            news.wait_for(|open| *open).await?;
        }
        let handled = (message.epoch.0, number(message.payload()), Instant::now());
        let mut all = self.by_partition.lock().expect("no panic");
        all.entry(message.partition.clone())
            .or_default()
            .push(handled);
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// A group on a stream.
pub struct Group {
    url: String,
    partitions: StaticPartitions,
    config: Config,
    store: Memory,
    pub heard: Heard,
    pub workers: Vec<Worker>,
}

impl Group {
    /// No worker yet; the stream has so many subjects.
    pub fn new(server: &Server, stream: &str, partitions: u32, config: &str) -> Self {
        Self {
            url: format!(
                "jetstream://{}/{stream}?subject={stream}.{{0}}",
                server.address()
            ),
            partitions: StaticPartitions::numbered(partitions),
            config: Config::from_yaml(config).expect("settings"),
            store: Memory::new(),
            heard: Heard::new(),
            workers: Vec::new(),
        }
    }

    /// Starts so many workers at once.
    pub async fn start(&mut self, count: usize) {
        let starting = (0..count).map(|_| async {
            let source = JetStream::connect(&self.url).await.expect("connects");
            let heard = self.heard.clone();
            let handler = move |message: Message| {
                let heard = heard.clone();
                async move { heard.handle(message).await }
            };
            let partitions = self.partitions.clone();
            Worker::builder("g", self.store.clone(), source, partitions)
                .config(self.config.clone())
                .start(handler)
                .await
                .expect("starts")
        });
        let started = join_all(starting).await;
        self.workers.extend(started);
    }

    /// Stops all workers but so many, gracefully and at once.
    pub async fn stop_down_to(&mut self, count: usize) {
        let ending = self.workers.split_off(count.min(self.workers.len()));
        for stopped in join_all(ending.into_iter().map(Worker::stop)).await {
            stopped.expect("stops");
        }
    }
}

/// What a group did with numbered messages.
#[derive(Debug, Default)]
pub struct Counts {
    pub lost: u64,
    pub out_of_order: u64,
    pub repeated: u64,
    /// Times between two messages of a partition under one epoch, and across epochs.
    pub within: Vec<Duration>,
    pub across: Vec<Duration>,
}

impl Counts {
    /// Of each partition the numbers from 0 up to `published` were sent, in order.
    pub fn of(
        handled: &BTreeMap<PartitionId, Vec<Handled>>,
        published: impl Fn(&PartitionId) -> u64,
    ) -> Self {
        let mut counts = Self::default();
        for (partition, all) in handled {
            let mut next = 0;
            let mut before: Option<&Handled> = None;
            let mut done = std::collections::BTreeSet::new();
            for handled @ (epoch, number, at) in all {
                counts.repeated += u64::from(!done.insert(*number));
                counts.out_of_order += u64::from(*number > next);
                next = next.max(number + 1);
                if let Some((old, _, since)) = before {
                    let gap = at.saturating_duration_since(*since);
                    if old == epoch {
                        counts.within.push(gap);
                    } else {
                        counts.across.push(gap);
                    }
                }
                before = Some(handled);
            }
            counts.lost += published(partition).saturating_sub(done.len() as u64);
        }
        counts
    }
}

/// A time at this share of all, in milliseconds.
pub fn at(times: &mut [Duration], share: f64) -> f64 {
    times.sort_unstable();
    let place = (times.len() as f64 * share) as usize;
    let time = times.get(place.min(times.len().saturating_sub(1)));
    time.map_or(0.0, |time| time.as_secs_f64() * 1_000.0)
}
