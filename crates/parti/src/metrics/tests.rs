//! Handles, the lag's bound, and the store's numbers, by a recorder that remembers.

use std::collections::BTreeMap;
use std::sync::Mutex;

use metrics::{CounterFn, GaugeFn, HistogramFn};
use parti_core::ids::{Offset, PartitionId};
use parti_core::io::{Ask, Body, Message, ReadBatch, SourceError, SourceEvent, Swath};
use parti_core::time::Time;
use parti_core::worker::Event;
use parti_core::worker::numbers::PlanNumbers;

use super::lag::Series;
use super::*;
use crate::source::Wire;
use crate::store::faulty::Faulty;
use crate::store::metered::Metered;
use crate::store::{Memory, Store, StoreExt};

/// Remembers the last value of everything, by name and labels.
#[derive(Clone, Default)]
struct Memo(Arc<Mutex<BTreeMap<String, f64>>>);

struct Entry(Memo, String);

impl Entry {
    fn change(&self, change: impl FnOnce(f64) -> f64) {
        let mut known = self.0.0.lock().expect("no panic");
        let value = known.entry(self.1.clone()).or_default();
        *value = change(*value);
    }
}

impl CounterFn for Entry {
    fn increment(&self, value: u64) {
        self.change(|before| before + value as f64);
    }
    fn absolute(&self, value: u64) {
        self.change(|_| value as f64);
    }
}

impl GaugeFn for Entry {
    fn increment(&self, value: f64) {
        self.change(|before| before + value);
    }
    fn decrement(&self, value: f64) {
        self.change(|before| before - value);
    }
    fn set(&self, value: f64) {
        self.change(|_| value);
    }
}

impl HistogramFn for Entry {
    fn record(&self, _: f64) {
        self.change(|before| before + 1.0);
    }
}

impl Memo {
    fn entry(&self, key: &Key) -> Arc<Entry> {
        let labels = key
            .labels()
            .map(|label| format!("{}={}", label.key(), label.value()));
        let labels: Vec<String> = labels.collect();
        Arc::new(Entry(
            self.clone(),
            format!("{}{{{}}}", key.name(), labels.join(",")),
        ))
    }

    fn get(&self, series: &str) -> Option<f64> {
        self.0.lock().expect("no panic").get(series).copied()
    }
}

impl Recorder for Memo {
    fn describe_counter(&self, _: KeyName, _: Option<metrics::Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<metrics::Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<metrics::Unit>, _: SharedString) {}
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

#[test]
fn without_a_recorder_nothing_is_measured() {
    assert!(Metrics::default().recorder().is_none(), "none is installed");
    assert!(Metrics::none().recorder().is_none());
    let memo = Memo::default();
    assert!(Metrics::to(memo.clone()).recorder().is_some());
    metrics::with_local_recorder(&memo, || {
        assert!(Metrics::default().recorder().is_some());
        assert!(Metrics::none().recorder().is_none());
    });
}

#[test]
fn who_changes_its_name_leaves_no_gauge_behind() {
    let memo = Memo::default();
    let meters = Meters::new(Arc::new(memo.clone()), "g", Some(500));
    meters.handles().heartbeats.increment(1);
    meters.handles().state.set(1.0);
    let nameless = "parti_heartbeats_total{group=g,worker=}";
    assert_eq!(memo.get(nameless), Some(1.0), "no count is lost");
    let nameless = "parti_worker_state{group=g,worker=}";
    assert_eq!(memo.get(nameless), None, "no process is there twice");
    meters.claimed("worker-3");
    meters.handles().state.set(4.0);
    let own = "parti_worker_state{group=g,worker=worker-3}";
    assert_eq!(memo.get(own), Some(4.0));
    meters.claimed("worker-3");
    assert_eq!(memo.get(own), Some(4.0), "the same name again");
    let cap = "parti_consumer_subject_cap{group=g,worker=worker-3}";
    assert_eq!(memo.get(cap), Some(500.0));
    meters.claimed("worker-5");
    assert_eq!(memo.get(own), Some(0.0));
}

#[test]
fn what_the_core_counts_is_recorded_by_its_growth() {
    let memo = Memo::default();
    let meters = Arc::new(Meters::new(Arc::new(memo.clone()), "g", Some(500)));
    meters.claimed("w");
    let probe = Probe::new(meters, &Metrics::none());
    let mut numbers = parti_core::worker::Numbers::default();
    numbers.feed.updates.duplicates = 1;
    numbers.feed.subjects = 3;
    numbers.feed.unacked = 4;
    numbers.takes.conflicts = 2;
    numbers.plan = Some(PlanNumbers {
        unserved: 6,
        over_cap: 1,
        paused: 2,
        ..PlanNumbers::default()
    });
    let wire = Wire {
        redelivered: 5,
        pending: 6,
        healthy: true,
    };
    probe.count(&numbers, &wire);
    for (series, value) in [
        (
            "parti_consumer_duplicate_subjects_total{group=g,worker=w}",
            1.0,
        ),
        ("parti_consumer_subject_count{group=g,worker=w}", 3.0),
        ("parti_consumer_redeliveries_total{group=g,worker=w}", 5.0),
        ("parti_consumer_inflight{group=g,worker=w}", 10.0),
        ("parti_consumer_pull_loop_healthy{group=g,worker=w}", 1.0),
        (
            "parti_take_failures_total{group=g,worker=w,reason=conflict}",
            2.0,
        ),
        (
            "parti_unserved_partitions{group=g,worker=w,reason=over_cap}",
            1.0,
        ),
        (
            "parti_unserved_partitions{group=g,worker=w,reason=paused}",
            2.0,
        ),
        (
            "parti_unserved_partitions{group=g,worker=w,reason=other}",
            3.0,
        ),
    ] {
        assert_eq!(memo.get(series), Some(value), "{series}");
    }
}

#[test]
fn what_a_sweep_brings_is_counted_as_what_is_read_or_delivered() {
    let memo = Memo::default();
    let meters = Arc::new(Meters::new(Arc::new(memo.clone()), "g", Some(500)));
    let mut probe = Probe::new(meters, &Metrics::none());
    let message = |offset| Message {
        offset: Offset(offset),
        key: 0,
        size: 0,
        body: Body::EMPTY,
    };
    let delivered = SourceEvent::Delivered {
        consumer: 1,
        sequence: 1,
        partition: PartitionId::new("p0"),
        message: message(9),
        pending: 0,
    };
    let batch = ReadBatch {
        messages: vec![message(1), message(2)],
        next: Offset(3),
        first: Offset(1),
        end: Offset(3),
    };
    let swept = ["p0", "p1", "p0"].map(PartitionId::new).into_iter();
    let swath = Swath {
        messages: swept.zip((3..).map(message)).collect(),
        next: Offset(6),
        first: Offset(1),
    };
    let trouble = || SourceError::Unavailable("down".into());
    let ask = Ask(1);
    for (event, count) in [
        (delivered, 1.0),
        (
            SourceEvent::Read {
                ask,
                result: Ok(batch),
            },
            3.0,
        ),
        (
            SourceEvent::Swept {
                ask,
                result: Ok(swath),
            },
            6.0,
        ),
        (
            SourceEvent::Swept {
                ask,
                result: Err(trouble()),
            },
            6.0,
        ),
    ] {
        probe.event(Time::ZERO, &Event::Source(event));
        let series = "parti_consumer_messages_total{group=g,worker=}";
        assert_eq!(memo.get(series), Some(count));
    }
}

/// Positions or ends, by the number of each partition.
fn offsets(of: &[(u32, u64)]) -> Vec<(PartitionId, Offset)> {
    let of = of.iter();
    of.map(|(partition, offset)| (PartitionId::new(partition.to_string()), Offset(*offset)))
        .collect()
}

/// Lags of a worker that has a name; so many partitions have a series of their own.
fn lags(most: usize) -> (Memo, Series) {
    let memo = Memo::default();
    let meters = Meters::new(Arc::new(memo.clone()), "g", None);
    meters.claimed("w");
    let metrics = Metrics::none().partition_series(most);
    let series = Series::new(&metrics, meters.handles().registrar.clone());
    (memo, series)
}

fn lag(memo: &Memo, partition: &str) -> Option<f64> {
    memo.get(&format!(
        "parti_partition_lag{{group=g,worker=w,partition={partition}}}"
    ))
}

#[test]
fn a_lag_that_cannot_be_told_stays_as_it_was() {
    let (memo, mut series) = lags(10);
    let owned = offsets(&[(0, 5), (1, 5)]);
    series.told(&owned, offsets(&[(0, 12)]));
    assert_eq!((lag(&memo, "0"), lag(&memo, "1")), (Some(7.0), None));
    // The source answers nothing at all, then tells of the other one.
    series.told(&owned, Vec::new());
    assert_eq!((lag(&memo, "0"), lag(&memo, "1")), (Some(7.0), None));
    series.told(&owned, offsets(&[(1, 6)]));
    assert_eq!((lag(&memo, "0"), lag(&memo, "1")), (Some(7.0), Some(1.0)));
    series.told(&owned, offsets(&[(0, 5), (1, 3)]));
    assert_eq!((lag(&memo, "0"), lag(&memo, "1")), (Some(0.0), Some(0.0)));
}

#[test]
fn what_is_owned_no_more_has_no_lag_and_none_is_left_over_when_it_comes_back() {
    let (memo, mut series) = lags(10);
    let (both, one) = (offsets(&[(0, 5), (1, 5)]), offsets(&[(1, 5)]));
    series.told(&both, offsets(&[(0, 12), (1, 12)]));
    series.told(&one, Vec::new());
    assert_eq!((lag(&memo, "0"), lag(&memo, "1")), (Some(0.0), Some(7.0)));
    series.told(&both, Vec::new());
    assert_eq!((lag(&memo, "0"), lag(&memo, "1")), (Some(0.0), Some(7.0)));
    series.clear();
    assert_eq!((lag(&memo, "0"), lag(&memo, "1")), (Some(0.0), Some(0.0)));
}

#[test]
fn partitions_past_the_limit_share_a_series_that_keeps_what_was_told_too() {
    let (memo, mut series) = lags(1);
    let owned = offsets(&[(0, 0), (1, 0), (2, 0)]);
    series.told(&owned, offsets(&[(0, 1), (1, 10), (2, 100)]));
    assert_eq!((lag(&memo, "0"), lag(&memo, "*")), (Some(1.0), Some(110.0)));
    series.told(&owned, offsets(&[(2, 200)]));
    assert_eq!((lag(&memo, "0"), lag(&memo, "*")), (Some(1.0), Some(210.0)));
    // The series of its own is not given to another: a recorder forgets nothing.
    series.told(&owned[2..], Vec::new());
    assert_eq!((lag(&memo, "0"), lag(&memo, "*")), (Some(0.0), Some(200.0)));
    assert_eq!((lag(&memo, "1"), lag(&memo, "2")), (None, None));
    series.told(&[], Vec::new());
    assert_eq!((lag(&memo, "0"), lag(&memo, "*")), (Some(0.0), Some(0.0)));
}

#[tokio::test]
async fn a_metered_store_is_recorded() {
    let memo = Memo::default();
    let meters = Arc::new(Meters::new(Arc::new(memo.clone()), "g", None));
    meters.claimed("w");
    let faulty = Faulty::new(Arc::new(Memory::new()), 1);
    let store = Metered::recording(Arc::new(faulty.clone()), meters);
    store.create("ab", "12345").await.expect("new");
    store.create("ab", "6").await.expect_err("a conflict");
    faulty.fail_next();
    store.read("ab").await.expect_err("unavailable");
    let watch = store.watch(crate::store::Scope::Under(String::new()));
    for (series, value) in [
        (
            "parti_store_operation_seconds{group=g,worker=w,operation=write}",
            2.0,
        ),
        (
            "parti_store_operation_seconds{group=g,worker=w,operation=read}",
            1.0,
        ),
        (
            "parti_store_errors_total{group=g,worker=w,kind=conflict}",
            1.0,
        ),
        (
            "parti_store_errors_total{group=g,worker=w,kind=unavailable}",
            1.0,
        ),
        ("parti_store_writes_total{group=g,worker=w}", 1.0),
        ("parti_store_sent_bytes_total{group=g,worker=w}", 10.0),
        ("parti_store_operations_running{group=g,worker=w}", 0.0),
        ("parti_store_watches{group=g,worker=w}", 1.0),
    ] {
        assert_eq!(memo.get(series), Some(value), "{series}");
    }
    drop(watch);
    assert_eq!(memo.get("parti_store_watches{group=g,worker=w}"), Some(0.0));
}

#[test]
fn the_documentation_is_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let text = std::fs::read_to_string(path).expect("docs/metrics.md");
    let table: String = METRICS.iter().map(row).collect();
    let (begin, end) = ("<!-- table -->\n", "<!-- end -->");
    let found = text
        .split(begin)
        .nth(1)
        .and_then(|rest| rest.split(end).next());
    let head = "\n| name | kind | unit | labels | meaning |\n|---|---|---|---|---|\n";
    let expected = format!("{head}{table}\n");
    if found == Some(expected.as_str()) {
        return;
    }
    // Printed, so that it can be pasted.
    println!("{begin}{expected}{end}");
    panic!("docs/metrics.md is not what the table says");
}

/// The names in a text that stand for metrics, without what a histogram's series add to them.
fn names(text: &str) -> Vec<&str> {
    let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':');
    let ours = text.split(word).filter(|name| name.starts_with("parti_"));
    ours.map(|name| {
        let suffixes = ["_bucket", "_count", "_sum"];
        let bare = suffixes.iter().find_map(|end| name.strip_suffix(end));
        let known = |name: &str| METRICS.iter().any(|metric| metric.name == name);
        bare.filter(|bare| known(bare)).unwrap_or(name)
    })
    .collect()
}

#[test]
fn alerts_and_dashboards_ask_for_metrics_of_the_table() {
    let ops = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ops");
    for file in ["prometheus/parti.rules.yml", "grafana/parti.json"] {
        let text = std::fs::read_to_string(format!("{ops}/{file}")).expect(file);
        let names = names(&text);
        assert!(!names.is_empty(), "{file}");
        for name in names {
            let known = METRICS.iter().any(|metric| metric.name == name);
            assert!(known, "{file}: {name} is not in the table");
        }
    }
}

fn row(metric: &Metric) -> String {
    let unit = match metric.unit {
        Unit::Count => "",
        Unit::Seconds => "seconds",
        Unit::Bytes => "bytes",
    };
    let label = |label: &Label| match (label.name, label.values) {
        (name @ ("from" | "to" | "state"), values) if values.len() == 9 => {
            format!("`{name}`: a state")
        }
        (name, []) => format!("`{name}`: bounded"),
        (name, values) => format!("`{name}`: {}", values.join(", ")),
    };
    let labels: Vec<String> = metric.labels.iter().map(label).collect();
    let (name, kind, help) = (metric.name, metric.kind.name(), metric.help);
    format!(
        "| `{name}` | {kind} | {unit} | {} | {help} |\n",
        labels.join("; ")
    )
}
