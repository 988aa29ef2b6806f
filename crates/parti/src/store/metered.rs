//! A wrapper that counts and times what goes through a store.
//!
//! [`Metered::snapshot`] hands out the numbers. Around a worker's own store, when there is a recorder
//! of metrics, they are recorded too.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::StreamExt;

use crate::metrics::{Meters, StoreHandles};

use super::{About, Change, Entry, Error, Revision, Scope, Store, Watch, Write};

/// The upper bounds of the latency buckets; one more bucket holds what took longer.
pub const BOUNDS: [Duration; 10] = [
    Duration::from_micros(100),
    Duration::from_micros(300),
    Duration::from_millis(1),
    Duration::from_millis(3),
    Duration::from_millis(10),
    Duration::from_millis(30),
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(3),
];

/// How long operations took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// How many there were.
    pub count: u64,
    /// All of them together.
    pub sum: Duration,
    /// The longest.
    pub max: Duration,
    /// How many took at most the bound of the same place in [`BOUNDS`], and more than the one
    /// before; the last counts what took longer than any.
    pub buckets: [u64; BOUNDS.len() + 1],
}

impl Latency {
    fn record(&mut self, took: Duration) {
        self.count += 1;
        self.sum += took;
        self.max = self.max.max(took);
        self.buckets[BOUNDS.partition_point(|bound| *bound < took)] += 1;
    }

    /// The mean, zero where there was nothing.
    pub fn mean(&self) -> Duration {
        let count = u32::try_from(self.count).unwrap_or(u32::MAX);
        self.sum.checked_div(count).unwrap_or_default()
    }
}

/// What went through a store so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// Reads, each with its time.
    pub reads: Latency,
    /// Lists, each with its time.
    pub lists: Latency,
    /// Batches of writes, each with its time.
    pub batches: Latency,
    /// Operations that were begun, and neither ended nor were given up.
    pub running: u64,
    /// Operations whose caller did not wait for the end.
    pub given_up: u64,
    /// Single writes that were carried out.
    pub writes_done: u64,
    /// Failures by [`Error::kind`]: of reads, of lists, and of each write of a batch.
    pub errors: BTreeMap<&'static str, u64>,
    /// Bytes of keys and values that came back from reads, lists and watches.
    pub bytes_in: u64,
    /// Bytes of keys and values in writes.
    pub bytes_out: u64,
    /// Watches open now.
    pub watches: u64,
    /// Values and deletions that watches told, snapshots included.
    pub watch_events: u64,
    /// Snapshots that were complete.
    pub watch_snapshots: u64,
    /// Watches that started anew.
    pub watch_restarts: u64,
    /// Interruptions that watches told of.
    pub watch_interruptions: u64,
}

/// A store that counts. Clones share the numbers.
#[derive(Clone, Debug)]
pub struct Metered {
    inner: Arc<dyn Store>,
    counts: Arc<Counts>,
}

/// The numbers, and where they are recorded as metrics.
#[derive(Debug, Default)]
struct Counts {
    numbers: Mutex<Numbers>,
    meters: Option<Arc<Meters>>,
}

impl Counts {
    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        // Numbers are whole after every step.
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, count: impl FnOnce(&mut Numbers)) {
        let mut numbers = self.numbers();
        let Some(meters) = &self.meters else {
            return count(&mut numbers);
        };
        let before = StoreHandles::counts(&numbers);
        count(&mut numbers);
        let now = StoreHandles::counts(&numbers);
        let gauges = (numbers.running, numbers.watches);
        meters.with_store(|handles| handles.changed(&before, &now, gauges));
    }
}

/// What an operation is.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Read,
    List,
    Write,
}

impl Metered {
    /// Over this store, with all numbers at zero.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        let counts = Arc::default();
        Self { inner, counts }
    }

    /// The same, recorded as metrics too.
    pub(crate) fn recording(inner: Arc<dyn Store>, meters: Arc<Meters>) -> Self {
        let counts = Counts {
            meters: Some(meters),
            ..Counts::default()
        };
        Self {
            inner,
            counts: Arc::new(counts),
        }
    }

    /// The numbers so far.
    pub fn snapshot(&self) -> Numbers {
        self.counts.numbers().clone()
    }

    fn begin(&self, operation: Operation) -> Running {
        self.counts.count(|numbers| numbers.running += 1);
        Running {
            counts: self.counts.clone(),
            began: Instant::now(),
            operation: Some(operation),
        }
    }
}

/// An operation under way. Dropped before its end, it counts as given up.
struct Running {
    counts: Arc<Counts>,
    began: Instant,
    operation: Option<Operation>,
}

impl Running {
    fn end(mut self, count: impl FnOnce(&mut Numbers)) {
        let took = self.began.elapsed();
        let Some(operation) = self.operation.take() else {
            return;
        };
        if let Some(meters) = &self.counts.meters {
            meters.with_store(|handles| {
                let histogram = match operation {
                    Operation::Read => handles.read(),
                    Operation::List => handles.list(),
                    Operation::Write => handles.write(),
                };
                histogram.record(took);
            });
        }
        self.counts.count(|numbers| {
            let latency = match operation {
                Operation::Read => &mut numbers.reads,
                Operation::List => &mut numbers.lists,
                Operation::Write => &mut numbers.batches,
            };
            latency.record(took);
            count(numbers);
        });
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let given_up = self.operation.is_some();
        self.counts.count(|numbers| {
            numbers.running -= 1;
            numbers.given_up += u64::from(given_up);
        });
    }
}

/// An open watch.
struct Open(Arc<Counts>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.count(|numbers| numbers.watches -= 1);
    }
}

impl Numbers {
    /// How many failures of this kind there were.
    pub fn errors_of(&self, kind: &str) -> u64 {
        self.errors.get(kind).copied().unwrap_or(0)
    }

    fn failed(&mut self, error: &Error) {
        *self.errors.entry(error.kind()).or_default() += 1;
    }

    fn told(&mut self, change: &Change) {
        match change {
            Change::Put(entry) => {
                self.watch_events += 1;
                self.bytes_in += size(entry);
            }
            Change::Deleted { key, .. } => {
                self.watch_events += 1;
                self.bytes_in += key.len() as u64;
            }
            Change::Synced => self.watch_snapshots += 1,
            Change::Restarted => self.watch_restarts += 1,
            Change::Interrupted(_) => self.watch_interruptions += 1,
        }
    }
}

fn size(entry: &Entry) -> u64 {
    (entry.key.len() + entry.value.len()) as u64
}

#[async_trait]
impl Store for Metered {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn read(&self, key: &str) -> Result<Option<Entry>, Error> {
        let running = self.begin(Operation::Read);
        let answer = self.inner.read(key).await;
        running.end(|numbers| match &answer {
            Ok(found) => numbers.bytes_in += found.iter().map(size).sum::<u64>(),
            Err(error) => numbers.failed(error),
        });
        answer
    }

    async fn list(&self, scope: &Scope) -> Result<Vec<Entry>, Error> {
        let running = self.begin(Operation::List);
        let answer = self.inner.list(scope).await;
        running.end(|numbers| match &answer {
            Ok(found) => numbers.bytes_in += found.iter().map(size).sum::<u64>(),
            Err(error) => numbers.failed(error),
        });
        answer
    }

    async fn about(&self) -> Result<About, Error> {
        self.inner.about().await
    }

    async fn write(&self, batch: Vec<Write>) -> Vec<Result<Revision, Error>> {
        let value = |write: &Write| write.value.as_ref().map_or(0, |value| value.len());
        let bytes = |write: &Write| (write.key.len() + value(write)) as u64;
        let bytes_out: u64 = batch.iter().map(bytes).sum();
        let running = self.begin(Operation::Write);
        let outcomes = self.inner.write(batch).await;
        running.end(|numbers| {
            numbers.bytes_out += bytes_out;
            for outcome in &outcomes {
                match outcome {
                    Ok(_) => numbers.writes_done += 1,
                    Err(error) => numbers.failed(error),
                }
            }
        });
        outcomes
    }

    fn watch(&self, scope: Scope) -> Watch {
        self.counts.count(|numbers| numbers.watches += 1);
        let open = Open(self.counts.clone());
        let told = move |change: &Change| open.0.count(|numbers| numbers.told(change));
        self.inner.watch(scope).inspect(told).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::faulty::Faulty;
    use crate::store::{Memory, StoreExt};
    use futures_util::FutureExt;

    #[tokio::test]
    async fn everything_is_counted() {
        let faulty = Faulty::new(Arc::new(Memory::new()), 1);
        let store = Metered::new(Arc::new(faulty.clone()));
        let mut watch = store.watch(Scope::Under(String::new()));
        watch.next().await;
        let revision = store.create("ab", "12345").await.expect("new");
        assert!(store.create("ab", "6").await.is_err());
        store.delete("ab", revision).await.expect("there");
        watch.next().await;
        watch.next().await;
        faulty.fail_next();
        assert!(store.read("ab").await.is_err());
        assert!(store.list(&Scope::Under(String::new())).await.is_ok());
        faulty.break_watches();
        for _ in 0..3 {
            watch.next().await;
        }
        let numbers = store.snapshot();
        let counts = [numbers.reads, numbers.lists, numbers.batches].map(|of| of.count);
        assert_eq!(counts, [1, 1, 3]);
        assert_eq!(numbers.batches.buckets.iter().sum::<u64>(), 3);
        assert_eq!(numbers.errors["conflict"], 1);
        assert_eq!(numbers.errors["unavailable"], 1);
        assert_eq!((numbers.writes_done, numbers.bytes_out), (2, 7 + 3 + 2));
        assert_eq!((numbers.watch_events, numbers.bytes_in), (2, 7 + 2));
        assert_eq!((numbers.watch_snapshots, numbers.watch_restarts), (2, 1));
        assert_eq!((numbers.watch_interruptions, numbers.watches), (1, 1));
        drop(watch);
        assert_eq!(store.snapshot().watches, 0);
    }

    #[tokio::test]
    async fn what_is_given_up_is_counted_as_such() {
        let faulty = Faulty::new(Arc::new(Memory::new()), 1).with(crate::store::faulty::Faults {
            delay: 1.0,
            longest: Duration::from_secs(3600),
            ..Default::default()
        });
        let store = Metered::new(Arc::new(faulty));
        assert!(store.read("a").now_or_never().is_none());
        let numbers = store.snapshot();
        assert_eq!(
            (numbers.given_up, numbers.running, numbers.reads.count),
            (1, 0, 0)
        );
    }
}
