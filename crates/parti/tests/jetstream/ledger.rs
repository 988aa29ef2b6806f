//! What was published, what was handled, and what that proves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use parti::Message;
use tokio::sync::Notify;

/// What does not come within this time never will. A guard: nothing is measured against it.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// One handler call that ended well.
#[derive(Clone, Debug)]
pub struct Handled {
    pub worker: usize,
    pub partition: String,
    /// The message's number in its partition, from 0.
    pub number: u64,
}

/// All of it. Clones share it.
#[derive(Clone, Default)]
pub struct Ledger {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    handled: Mutex<Vec<Handled>>,
    published: Mutex<BTreeMap<String, u64>>,
    news: Notify,
}

/// What the ledger shows.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub published: u64,
    pub never_handled: u64,
    pub out_of_order: u64,
    pub repeated: u64,
}

impl Ledger {
    /// The partition's next number.
    pub fn next_number(&self, partition: &str) -> u64 {
        let published = self.inner.published.lock().expect("no panic");
        published.get(partition).copied().unwrap_or(0)
    }

    /// A message with the partition's next number is in the stream.
    pub fn published(&self, partition: &str) {
        let mut published = self.inner.published.lock().expect("no panic");
        *published.entry(partition.to_owned()).or_default() += 1;
    }

    /// Waits until so many messages are in the stream.
    pub async fn published_at_least(&self, count: u64) {
        let waiting = async {
            while self.counts().published < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let came = tokio::time::timeout(PATIENCE, waiting).await;
        assert!(came.is_ok(), "the publisher is stuck");
    }

    /// A message was handled.
    pub fn handled(&self, worker: usize, message: &Message) {
        let text = std::str::from_utf8(message.payload()).expect("text");
        let number = text.trim_end().parse().expect("a number");
        self.inner.handled.lock().expect("no panic").push(Handled {
            worker,
            partition: message.partition.to_string(),
            number,
        });
        self.inner.news.notify_waiters();
    }

    /// Every call so far.
    pub fn all(&self) -> Vec<Handled> {
        self.inner.handled.lock().expect("no panic").clone()
    }

    /// Waits until what was handled is as wanted.
    pub async fn until(&self, what: &str, wanted: impl Fn(&[Handled]) -> bool) {
        let waiting = async {
            loop {
                let news = self.inner.news.notified();
                if wanted(&self.inner.handled.lock().expect("no panic")) {
                    return;
                }
                news.await;
            }
        };
        let came = tokio::time::timeout(PATIENCE, waiting).await;
        assert!(came.is_ok(), "{what} never came: {:?}", self.counts());
    }

    /// Waits until so many more calls ended well.
    pub async fn more(&self, count: usize) {
        let before = self.all().len();
        self.until("more messages", |all| all.len() >= before + count)
            .await;
    }

    /// Waits until so many more messages of every partition were handled.
    pub async fn next_of_all(&self, partitions: u32, count: usize) {
        let before = self.all().len();
        self.until("messages of every partition", |all| {
            let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
            for handled in &all[before.min(all.len())..] {
                *seen.entry(&handled.partition).or_default() += 1;
            }
            seen.values().filter(|seen| **seen >= count).count() == partitions as usize
        })
        .await;
    }

    /// Waits until everything published was handled.
    pub async fn drained(&self) {
        let published = self.inner.published.lock().expect("no panic").clone();
        let total: u64 = published.values().sum();
        self.until("the end of the stream", |all| {
            let places = all.iter().map(|h| (h.partition.as_str(), h.number));
            places.collect::<BTreeSet<_>>().len() as u64 >= total
        })
        .await;
    }

    /// Counts what must not be.
    pub fn counts(&self) -> Counts {
        let published = self.inner.published.lock().expect("no panic").clone();
        let mut done: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
        let mut counts = Counts::default();
        for handled in self.all() {
            let done = done.entry(handled.partition).or_default();
            // Only the first time counts: whoever takes over may begin again where nothing was
            // committed yet.
            counts.repeated += u64::from(done.contains(&handled.number));
            counts.out_of_order +=
                u64::from(done.len() as u64 != handled.number && !done.contains(&handled.number));
            done.insert(handled.number);
        }
        for (partition, count) in published {
            counts.published += count;
            let done = done.get(&partition).map_or(0, |done| done.len() as u64);
            // A message can be handled before its publisher hears that it is stored.
            counts.never_handled += count.saturating_sub(done);
        }
        counts
    }

    /// Nothing is missing and nothing was out of order.
    pub fn assert_whole(&self) -> Counts {
        let counts = self.counts();
        assert_eq!(
            (counts.never_handled, counts.out_of_order),
            (0, 0),
            "{counts:?}"
        );
        counts
    }
}
