//! A recorder that remembers which metrics were anything else than zero.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use tokio::sync::watch;

/// What does not come within this time never will.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Remembers which metrics were anything else than zero.
#[derive(Clone, Debug, Default)]
pub struct Touched(Arc<watch::Sender<BTreeSet<String>>>);

impl Touched {
    /// The names so far.
    pub fn names(&self) -> BTreeSet<String> {
        self.0.borrow().clone()
    }

    /// Whether this one was.
    pub fn has(&self, name: &str) -> bool {
        self.0.borrow().contains(name)
    }

    /// Waits for all of these.
    pub async fn until(&self, names: &[&str]) {
        let mut seen = self.0.subscribe();
        let all = seen.wait_for(|seen| names.iter().all(|name| seen.contains(*name)));
        if tokio::time::timeout(PATIENCE, all).await.is_err() {
            let missing: Vec<_> = names.iter().filter(|name| !self.has(name)).collect();
            panic!("never fed: {missing:?}");
        }
    }

    fn entry(&self, key: &Key) -> Arc<Entry> {
        Arc::new(Entry(self.clone(), key.name().to_owned()))
    }
}

struct Entry(Touched, String);

impl Entry {
    fn touch(&self, value: bool) {
        if value {
            let known = &self.0.0;
            known.send_if_modified(|known| known.insert(self.1.clone()));
        }
    }
}

impl CounterFn for Entry {
    fn increment(&self, value: u64) {
        self.touch(value > 0);
    }
    fn absolute(&self, value: u64) {
        self.touch(value > 0);
    }
}

impl GaugeFn for Entry {
    fn increment(&self, value: f64) {
        self.touch(value != 0.0);
    }
    fn decrement(&self, value: f64) {
        self.touch(value != 0.0);
    }
    fn set(&self, value: f64) {
        self.touch(value != 0.0);
    }
}

impl HistogramFn for Entry {
    fn record(&self, _: f64) {
        self.touch(true);
    }
}

impl Recorder for Touched {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.entry(key))
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.entry(key))
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.entry(key))
    }
}
