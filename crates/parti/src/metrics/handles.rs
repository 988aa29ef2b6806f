//! Handles of all metrics for one group and worker, made once and kept.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use metrics::{Counter, Gauge, Histogram, Key, Level, Metadata, Recorder};
use parti_core::worker::{Report, Trouble};

use super::table::{self, Kind, METRICS, Metric, Unit};
use crate::driver::Observer;
use crate::store::metered::Numbers;

/// Makes handles with the labels of one worker.
#[derive(Clone)]
pub(super) struct Registrar {
    recorder: Arc<dyn Recorder + Send + Sync>,
    group: String,
    worker: String,
}

impl Registrar {
    fn key(&self, metric: &Metric, values: &[&str]) -> Key {
        let own = metric.labels.iter().zip(values);
        let own = own.map(|(label, value)| metrics::Label::new(label.name, (*value).to_owned()));
        let labels = [("group", &self.group), ("worker", &self.worker)];
        let common = labels.map(|(name, value)| metrics::Label::new(name, value.clone()));
        Key::from_parts(
            metric.name,
            common.into_iter().chain(own).collect::<Vec<_>>(),
        )
    }

    pub(super) fn counter(&self, metric: &Metric, values: &[&str]) -> Counter {
        let key = self.key(metric, values);
        self.recorder.register_counter(&key, &METADATA)
    }

    /// Before there is a name, a gauge shows nowhere: a recorder forgets nothing, so that every
    /// process would be there twice from then on, once without a name and at 0.
    pub(super) fn gauge(&self, metric: &Metric, values: &[&str]) -> Gauge {
        if self.worker.is_empty() {
            return Gauge::noop();
        }
        let key = self.key(metric, values);
        self.recorder.register_gauge(&key, &METADATA)
    }

    pub(super) fn histogram(&self, metric: &Metric, values: &[&str]) -> Histogram {
        let key = self.key(metric, values);
        self.recorder.register_histogram(&key, &METADATA)
    }

    /// One counter for each value of the metric's one label.
    fn counters(&self, metric: &Metric) -> Family<Counter> {
        Family::new(metric, |value| self.counter(metric, &[value]))
    }
}

const METADATA: Metadata<'static> = Metadata::new("parti", Level::INFO, None);

/// The handles of a metric with one label, one per value.
pub(super) struct Family<T>(Vec<(&'static str, T)>);

impl<T> Family<T> {
    fn new(metric: &Metric, make: impl Fn(&str) -> T) -> Self {
        let values = metric.labels.iter().flat_map(|label| label.values);
        Self(values.map(|value| (*value, make(value))).collect())
    }

    /// The handle of one value; a value that the table does not know has none.
    pub(super) fn of(&self, value: &str) -> Option<&T> {
        let found = self.0.iter().find(|(own, _)| *own == value);
        found.map(|(_, handle)| handle)
    }
}

impl Family<Counter> {
    pub(super) fn add(&self, value: &str, count: u64) {
        if let Some(counter) = self.of(value) {
            counter.increment(count);
        }
    }
}

/// Handles for the worker's own facts.
pub(super) struct Handles {
    pub registrar: Registrar,
    pub state: Gauge,
    pub leader: Gauge,
    pub leadership_changes: Counter,
    pub leadership_duration: Histogram,
    pub heartbeats: Counter,
    pub heartbeat_failures: Counter,
    pub lease_margin: Histogram,
    pub lease_lapses: Counter,
    pub session_losses: Counter,
    troubles: Family<Counter>,
    pub assigned: Gauge,
    pub owned: Gauge,
    pub version: Gauge,
    pub assignments: Counter,
    pub added: Counter,
    pub removed: Counter,
    pub calculation: Histogram,
    pub affinity: Histogram,
    pub rebalances: Family<Counter>,
    pub handoff: Histogram,
    pub pause: Histogram,
    pub moving: Gauge,
    pub unserved: Family<Gauge>,
    pub taken: Family<Counter>,
    pub released: Counter,
    pub fenced: Counter,
    pub take_failures: Family<Counter>,
    pub flush_partitions: Histogram,
    pub flush_age: Histogram,
    pub latency: Histogram,
    pub handler_errors: Counter,
    pub handler_panics: Counter,
    pub retries: Counter,
    pub dead_letters: Counter,
    pub messages: Counter,
    /// None where the source has no durable consumer.
    pub consumer: Option<ConsumerHandles>,
    pub store: StoreHandles,
}

/// Handles for what only a durable consumer has.
pub(super) struct ConsumerHandles {
    pub redeliveries: Counter,
    pub inflight: Gauge,
    pub subjects: Gauge,
    pub attempts: Counter,
    pub successes: Counter,
    pub failures: Counter,
    pub skipped: Counter,
    pub duration: Histogram,
    pub subjects_added: Counter,
    pub subjects_removed: Counter,
    pub duplicates: Counter,
    pub drift_repaired: Counter,
    pub healthy: Gauge,
}

impl Handles {
    fn new(registrar: Registrar, subject_cap: Option<u32>) -> Self {
        let r = &registrar;
        Self {
            state: r.gauge(&table::WORKER_STATE, &[]),
            leader: r.gauge(&table::IS_LEADER, &[]),
            leadership_changes: r.counter(&table::LEADERSHIP_CHANGES, &[]),
            leadership_duration: r.histogram(&table::LEADERSHIP_DURATION, &[]),
            heartbeats: r.counter(&table::HEARTBEATS, &[]),
            heartbeat_failures: r.counter(&table::HEARTBEAT_FAILURES, &[]),
            lease_margin: r.histogram(&table::LEASE_MARGIN, &[]),
            lease_lapses: r.counter(&table::LEASE_LAPSES, &[]),
            session_losses: r.counter(&table::SESSION_LOSSES, &[]),
            troubles: r.counters(&table::TROUBLES_TOTAL),
            assigned: r.gauge(&table::ASSIGNED_PARTITIONS, &[]),
            owned: r.gauge(&table::OWNED_PARTITIONS, &[]),
            version: r.gauge(&table::ASSIGNMENT_VERSION, &[]),
            assignments: r.counter(&table::ASSIGNMENT_CHANGES, &[]),
            added: r.counter(&table::ASSIGNMENT_ADDED, &[]),
            removed: r.counter(&table::ASSIGNMENT_REMOVED, &[]),
            calculation: r.histogram(&table::ASSIGNMENT_CALCULATION, &[]),
            affinity: r.histogram(&table::AFFINITY_SCORE, &[]),
            rebalances: r.counters(&table::REBALANCES),
            handoff: r.histogram(&table::HANDOFF_DURATION, &[]),
            pause: r.histogram(&table::HANDOFF_PAUSE, &[]),
            moving: r.gauge(&table::MOVING_PARTITIONS, &[]),
            unserved: Family::new(&table::UNSERVED_PARTITIONS, |reason| {
                r.gauge(&table::UNSERVED_PARTITIONS, &[reason])
            }),
            taken: r.counters(&table::TAKEN),
            released: r.counter(&table::RELEASED, &[]),
            fenced: r.counter(&table::FENCED, &[]),
            take_failures: r.counters(&table::TAKE_FAILURES),
            flush_partitions: r.histogram(&table::FLUSH_PARTITIONS, &[]),
            flush_age: r.histogram(&table::FLUSH_AGE, &[]),
            latency: r.histogram(&table::HANDLER_LATENCY, &[]),
            handler_errors: r.counter(&table::HANDLER_FAILURES, &["error"]),
            handler_panics: r.counter(&table::HANDLER_FAILURES, &["panic"]),
            retries: r.counter(&table::HANDLER_RETRIES, &[]),
            dead_letters: r.counter(&table::DEAD_LETTERS, &[]),
            messages: r.counter(&table::CONSUMER_MESSAGES, &[]),
            consumer: subject_cap.map(|cap| ConsumerHandles::new(r, cap)),
            store: StoreHandles::new(r),
            registrar,
        }
    }

    /// Nobody goes by this name any more: what it was like is no more.
    pub(super) fn retire(&self) {
        for gauge in [
            &self.state,
            &self.leader,
            &self.assigned,
            &self.owned,
            &self.version,
            &self.moving,
        ] {
            gauge.set(0.0);
        }
        for (_, gauge) in &self.unserved.0 {
            gauge.set(0.0);
        }
        if let Some(consumer) = &self.consumer {
            for gauge in [&consumer.inflight, &consumer.subjects, &consumer.healthy] {
                gauge.set(0.0);
            }
        }
    }
}

impl ConsumerHandles {
    fn new(r: &Registrar, cap: u32) -> Self {
        r.gauge(&table::CONSUMER_SUBJECT_CAP, &[])
            .set(f64::from(cap));
        Self {
            redeliveries: r.counter(&table::CONSUMER_REDELIVERIES, &[]),
            inflight: r.gauge(&table::CONSUMER_INFLIGHT, &[]),
            subjects: r.gauge(&table::CONSUMER_SUBJECTS, &[]),
            attempts: r.counter(&table::UPDATE_ATTEMPTS, &[]),
            successes: r.counter(&table::UPDATE_SUCCESSES, &[]),
            failures: r.counter(&table::UPDATE_FAILURES, &[]),
            skipped: r.counter(&table::UPDATE_SKIPPED, &[]),
            duration: r.histogram(&table::UPDATE_DURATION, &[]),
            subjects_added: r.counter(&table::SUBJECTS_ADDED, &[]),
            subjects_removed: r.counter(&table::SUBJECTS_REMOVED, &[]),
            duplicates: r.counter(&table::DUPLICATE_SUBJECTS, &[]),
            drift_repaired: r.counter(&table::DRIFT_REPAIRED, &[]),
            healthy: r.gauge(&table::PULL_LOOP_HEALTHY, &[]),
        }
    }
}

/// A number of a metered store.
type Number = fn(&Numbers) -> u64;

/// Counts of a metered store, and the metric of each.
const STORE_COUNTS: [(&Metric, &[&str], Number); 13] = [
    (&table::STORE_GIVEN_UP, &[], |n| n.given_up),
    (&table::STORE_WRITES, &[], |n| n.writes_done),
    (&table::STORE_ERRORS_TOTAL, &["conflict"], |n| {
        n.errors_of("conflict")
    }),
    (&table::STORE_ERRORS_TOTAL, &["unavailable"], |n| {
        n.errors_of("unavailable")
    }),
    (&table::STORE_ERRORS_TOTAL, &["unknown"], |n| {
        n.errors_of("unknown")
    }),
    (&table::STORE_ERRORS_TOTAL, &["rejected"], |n| {
        n.errors_of("rejected")
    }),
    (&table::STORE_ERRORS_TOTAL, &["corrupt"], |n| {
        n.errors_of("corrupt")
    }),
    (&table::STORE_RECEIVED, &[], |n| n.bytes_in),
    (&table::STORE_SENT, &[], |n| n.bytes_out),
    (&table::STORE_WATCH_EVENTS, &[], |n| n.watch_events),
    (&table::STORE_WATCH_SNAPSHOTS, &[], |n| n.watch_snapshots),
    (&table::STORE_WATCH_RESTARTS, &[], |n| n.watch_restarts),
    (&table::STORE_WATCH_INTERRUPTIONS, &[], |n| {
        n.watch_interruptions
    }),
];

/// All counts of a metered store at one moment.
pub(crate) type StoreCounts = [u64; STORE_COUNTS.len()];

/// Handles for a metered store.
pub(crate) struct StoreHandles {
    read: Histogram,
    list: Histogram,
    write: Histogram,
    counters: Vec<Counter>,
    running: Gauge,
    watches: Gauge,
}

impl StoreHandles {
    fn new(r: &Registrar) -> Self {
        let counters = STORE_COUNTS.iter();
        Self {
            read: r.histogram(&table::STORE_OPERATION, &["read"]),
            list: r.histogram(&table::STORE_OPERATION, &["list"]),
            write: r.histogram(&table::STORE_OPERATION, &["write"]),
            counters: counters
                .map(|(metric, labels, _)| r.counter(metric, labels))
                .collect(),
            running: r.gauge(&table::STORE_RUNNING, &[]),
            watches: r.gauge(&table::STORE_WATCHES, &[]),
        }
    }

    /// The counts that are recorded.
    pub(crate) fn counts(numbers: &Numbers) -> StoreCounts {
        STORE_COUNTS.map(|(_, _, number)| number(numbers))
    }

    /// What changed.
    pub(crate) fn changed(&self, before: &StoreCounts, now: &StoreCounts, gauges: (u64, u64)) {
        for ((counter, before), now) in self.counters.iter().zip(before).zip(now) {
            if now > before {
                counter.increment(now - before);
            }
        }
        self.running.set(gauges.0 as f64);
        self.watches.set(gauges.1 as f64);
    }

    /// How long reads took.
    pub(crate) fn read(&self) -> &Histogram {
        &self.read
    }

    /// How long lists took.
    pub(crate) fn list(&self) -> &Histogram {
        &self.list
    }

    /// How long batches of writes took.
    pub(crate) fn write(&self) -> &Histogram {
        &self.write
    }
}

/// The handles of today: they change with the worker's id.
pub(crate) struct Meters {
    recorder: Arc<dyn Recorder + Send + Sync>,
    group: String,
    subject_cap: Option<u32>,
    handles: RwLock<Arc<Handles>>,
}

impl fmt::Debug for Meters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Meters({:?})", self.group)
    }
}

impl Meters {
    /// Of a worker of this group that has no id yet. `subject_cap`: of its durable consumer, if the
    /// source has one.
    pub(crate) fn new(
        recorder: Arc<dyn Recorder + Send + Sync>,
        group: &str,
        subject_cap: Option<u32>,
    ) -> Self {
        describe(recorder.as_ref());
        let registrar = Registrar {
            recorder: recorder.clone(),
            group: group.to_owned(),
            worker: String::new(),
        };
        let handles = Handles::new(registrar, subject_cap);
        Self {
            recorder,
            group: group.to_owned(),
            subject_cap,
            handles: RwLock::new(Arc::new(handles)),
        }
    }

    pub(super) fn handles(&self) -> Arc<Handles> {
        let handles = self.handles.read();
        handles.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// For the metered store.
    pub(crate) fn with_store(&self, record: impl FnOnce(&StoreHandles)) {
        record(&self.handles().store);
    }

    /// The worker has an id.
    pub(super) fn claimed(&self, worker: &str) {
        let before = self.handles();
        if before.registrar.worker == worker {
            return;
        }
        let registrar = Registrar {
            recorder: self.recorder.clone(),
            group: self.group.clone(),
            worker: worker.to_owned(),
        };
        let handles = Arc::new(Handles::new(registrar, self.subject_cap));
        *self.handles.write().unwrap_or_else(PoisonError::into_inner) = handles;
        before.retire();
    }
}

/// Trouble is told by the event loop and by others: all of it comes to observers.
impl Observer for Meters {
    fn observe(&self, report: &Report) {
        if let Report::Trouble(trouble) = report {
            self.handles().troubles.add(kind(trouble), 1);
        }
    }
}

fn kind(trouble: &Trouble) -> &'static str {
    match trouble {
        Trouble::LogWentBack { .. } => "log_went_back",
        Trouble::RetentionOvertook { .. } | Trouble::RetentionPassed { .. } => "retention_overtook",
        Trouble::Unreadable { .. } => "unreadable_record",
        Trouble::NoElection(_) => "no_election",
        Trouble::Listing(_) => "listing",
        Trouble::OtherPartitions { .. } => "other_partitions",
        Trouble::SlowRelease { .. } => "slow_release",
        Trouble::OverCap { .. } => "over_cap",
        Trouble::Source(_) | Trouble::SourceRefuses(_) => "source",
        Trouble::Store(_) => "store",
    }
}

/// Tells the recorder what every metric is.
pub(super) fn describe(recorder: &dyn Recorder) {
    for metric in METRICS {
        let unit = match metric.unit {
            Unit::Count => metrics::Unit::Count,
            Unit::Seconds => metrics::Unit::Seconds,
            Unit::Bytes => metrics::Unit::Bytes,
        };
        let (name, unit, help) = (metric.name.into(), Some(unit), metric.help.into());
        match metric.kind {
            Kind::Counter => recorder.describe_counter(name, unit, help),
            Kind::Gauge => recorder.describe_gauge(name, unit, help),
            Kind::Histogram(_) => recorder.describe_histogram(name, unit, help),
        }
    }
}
