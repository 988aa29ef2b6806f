//! Every metric there is, in one table: nothing else names one.

/// What kind of number it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// How often what happened, by size.
    Histogram,
}

/// Where its numbers come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feed {
    /// What the worker reports.
    Reports,
    /// A metered store.
    Store,
    /// Nowhere yet: it has its name, and is not shown.
    Nowhere,
}

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name, as a query has it; a counter's ends with `_total`.
    pub name: &'static str,
    /// What kind of number it is.
    pub kind: Kind,
    /// What is counted, if it is a unit: the name, without `_total`, ends with it.
    pub unit: Option<&'static str>,
    /// Its labels beside `group` and `worker`, which all have. Each has a handful of values, known
    /// beforehand: no partition, key or subject is ever a label.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
    /// Where its numbers come from.
    pub feed: Feed,
}

const fn metric(
    name: &'static str,
    kind: Kind,
    labels: &'static [&'static str],
    feed: Feed,
    help: &'static str,
) -> Metric {
    Metric {
        name,
        kind,
        unit: None,
        labels,
        help,
        feed,
    }
}

const fn in_unit(unit: &'static str, metric: Metric) -> Metric {
    Metric {
        unit: Some(unit),
        ..metric
    }
}

use Feed::{Nowhere, Reports, Store};
use Kind::{Counter, Gauge, Histogram};

/// Every metric, in the order in which they are shown.
pub const METRICS: [Metric; 46] = [
    // The worker.
    metric(
        "parti_worker_state",
        Gauge,
        &[],
        Reports,
        "State of the worker, 0 to 8, in the order of its life.",
    ),
    metric(
        "parti_is_leader",
        Gauge,
        &[],
        Reports,
        "1 while this worker leads its group.",
    ),
    metric(
        "parti_assigned_partitions",
        Gauge,
        &[],
        Reports,
        "Partitions that this worker should serve.",
    ),
    metric(
        "parti_assignment_version",
        Gauge,
        &[],
        Reports,
        "Version of the assignment that was accepted last.",
    ),
    metric(
        "parti_state_transitions_total",
        Counter,
        &["from", "to"],
        Reports,
        "Changes of the worker's state.",
    ),
    metric(
        "parti_assignment_changes_total",
        Counter,
        &[],
        Reports,
        "Assignments accepted.",
    ),
    metric(
        "parti_leadership_changes_total",
        Counter,
        &[],
        Reports,
        "How often this worker began or ceased to lead.",
    ),
    metric(
        "parti_heartbeat_failures_total",
        Counter,
        &[],
        Nowhere,
        "Heartbeats that could not be written.",
    ),
    in_unit(
        "seconds",
        metric(
            "parti_state_duration_seconds",
            Histogram,
            &["state"],
            Reports,
            "Time spent in each state, counted when it is left.",
        ),
    ),
    in_unit(
        "seconds",
        metric(
            "parti_assignment_calculation_seconds",
            Histogram,
            &[],
            Nowhere,
            "Time that a plan took to compute.",
        ),
    ),
    metric(
        "parti_affinity_score",
        Histogram,
        &[],
        Nowhere,
        "Share of the partitions that stayed where they were, of each plan.",
    ),
    metric(
        "parti_session_losses_total",
        Counter,
        &[],
        Reports,
        "Sessions lost against the worker's will.",
    ),
    metric(
        "parti_lease_lapses_total",
        Counter,
        &[],
        Reports,
        "How often dispatch paused because the lease was not renewed in time.",
    ),
    // Partitions.
    metric(
        "parti_partitions_taken_total",
        Counter,
        &["from"],
        Reports,
        "Partitions taken, from nobody or from a dead owner.",
    ),
    metric(
        "parti_partitions_released_total",
        Counter,
        &[],
        Reports,
        "Partitions released.",
    ),
    metric(
        "parti_partitions_fenced_total",
        Counter,
        &[],
        Reports,
        "Partitions lost to a new owner.",
    ),
    metric(
        "parti_take_failures_total",
        Counter,
        &[],
        Nowhere,
        "Takes that were refused or lost a race.",
    ),
    in_unit(
        "seconds",
        metric(
            "parti_handoff_seconds",
            Histogram,
            &[],
            Nowhere,
            "Time from a partition's release by its owner to its take by the next.",
        ),
    ),
    // Handlers.
    in_unit(
        "seconds",
        metric(
            "parti_handler_latency_seconds",
            Histogram,
            &[],
            Nowhere,
            "Time of a handler call.",
        ),
    ),
    metric(
        "parti_dead_letters_total",
        Counter,
        &[],
        Reports,
        "Messages that went to the dead letters.",
    ),
    metric(
        "parti_troubles_total",
        Counter,
        &["kind"],
        Reports,
        "Trouble that did not end the worker.",
    ),
    // The durable consumer.
    metric(
        "parti_consumer_messages_total",
        Counter,
        &[],
        Nowhere,
        "Messages that the durable consumer delivered.",
    ),
    metric(
        "parti_consumer_redeliveries_total",
        Counter,
        &[],
        Nowhere,
        "Deliveries of a message that had been delivered before. A retry in its lane is none.",
    ),
    metric(
        "parti_consumer_inflight",
        Gauge,
        &[],
        Nowhere,
        "Messages delivered and not acked, and those that wait to be delivered.",
    ),
    metric(
        "parti_consumer_subject_count",
        Gauge,
        &[],
        Nowhere,
        "Subjects in the durable consumer's filter.",
    ),
    metric(
        "parti_consumer_update_attempts_total",
        Counter,
        &[],
        Nowhere,
        "Updates and deletions of the durable consumer that were sent.",
    ),
    metric(
        "parti_consumer_update_successes_total",
        Counter,
        &[],
        Nowhere,
        "Those that were carried out.",
    ),
    metric(
        "parti_consumer_update_failures_total",
        Counter,
        &[],
        Nowhere,
        "Those that were not, or whose fate is open.",
    ),
    metric(
        "parti_consumer_update_skipped_total",
        Counter,
        &[],
        Nowhere,
        "Changes of the assignment that ended where the consumer already was.",
    ),
    in_unit(
        "seconds",
        metric(
            "parti_consumer_update_duration_seconds",
            Histogram,
            &[],
            Nowhere,
            "Time until an update was answered.",
        ),
    ),
    metric(
        "parti_consumer_subjects_added_total",
        Counter,
        &[],
        Nowhere,
        "Subjects added by updates.",
    ),
    metric(
        "parti_consumer_subjects_removed_total",
        Counter,
        &[],
        Nowhere,
        "Subjects removed by updates.",
    ),
    metric(
        "parti_consumer_duplicate_subjects_total",
        Counter,
        &[],
        Nowhere,
        "Subjects asked for that had been asked for already.",
    ),
    metric(
        "parti_consumer_pull_loop_healthy",
        Gauge,
        &[],
        Nowhere,
        "1 while the pull loop gets answers.",
    ),
    // The store.
    in_unit(
        "seconds",
        metric(
            "parti_store_operation_seconds",
            Histogram,
            &["operation"],
            Store,
            "Time of reads, lists and batches of writes.",
        ),
    ),
    metric(
        "parti_store_operations_running",
        Gauge,
        &[],
        Store,
        "Operations under way.",
    ),
    metric(
        "parti_store_operations_given_up_total",
        Counter,
        &[],
        Store,
        "Operations whose caller did not wait for the end.",
    ),
    metric(
        "parti_store_writes_total",
        Counter,
        &[],
        Store,
        "Single writes carried out.",
    ),
    metric(
        "parti_store_errors_total",
        Counter,
        &["kind"],
        Store,
        "Operations that failed; of a batch, each write that did.",
    ),
    in_unit(
        "bytes",
        metric(
            "parti_store_received_bytes_total",
            Counter,
            &[],
            Store,
            "Bytes of keys and values that came back.",
        ),
    ),
    in_unit(
        "bytes",
        metric(
            "parti_store_sent_bytes_total",
            Counter,
            &[],
            Store,
            "Bytes of keys and values in writes.",
        ),
    ),
    metric("parti_store_watches", Gauge, &[], Store, "Watches open."),
    metric(
        "parti_store_watch_events_total",
        Counter,
        &[],
        Store,
        "Values and deletions that watches told.",
    ),
    metric(
        "parti_store_watch_snapshots_total",
        Counter,
        &[],
        Store,
        "Snapshots of watches that were complete.",
    ),
    metric(
        "parti_store_watch_restarts_total",
        Counter,
        &[],
        Store,
        "Watches that started anew.",
    ),
    metric(
        "parti_store_watch_interruptions_total",
        Counter,
        &[],
        Store,
        "Interruptions that watches told of.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_say_kind_and_unit() {
        for (index, metric) in METRICS.iter().enumerate() {
            let name = metric.name;
            let before = &METRICS[..index];
            assert!(before.iter().all(|other| other.name != name), "{name}");
            assert!(name.starts_with("parti_"), "{name}");
            let plain = |c: char| c.is_ascii_lowercase() || c == '_';
            assert!(name.chars().all(plain), "{name}");
            assert_eq!(name.ends_with("_total"), metric.kind == Counter, "{name}");
            let family = name.trim_end_matches("_total");
            assert!(
                metric.unit.is_none_or(|unit| family.ends_with(unit)),
                "{name}"
            );
            assert!(metric.labels.iter().all(|label| label.chars().all(plain)));
            assert!(metric.help.ends_with('.'), "{name}");
        }
    }

    #[test]
    fn every_name_that_was_asked_for_is_there() {
        for (name, kind) in [
            ("parti_worker_state", Gauge),
            ("parti_is_leader", Gauge),
            ("parti_assigned_partitions", Gauge),
            ("parti_assignment_version", Gauge),
            ("parti_state_transitions_total", Counter),
            ("parti_assignment_changes_total", Counter),
            ("parti_leadership_changes_total", Counter),
            ("parti_heartbeat_failures_total", Counter),
            ("parti_state_duration_seconds", Histogram),
            ("parti_assignment_calculation_seconds", Histogram),
            ("parti_affinity_score", Histogram),
            ("parti_consumer_messages_total", Counter),
            ("parti_consumer_redeliveries_total", Counter),
            ("parti_consumer_inflight", Gauge),
            ("parti_consumer_update_duration_seconds", Histogram),
            ("parti_consumer_subject_count", Gauge),
            ("parti_handler_latency_seconds", Histogram),
            ("parti_consumer_update_failures_total", Counter),
            ("parti_consumer_update_skipped_total", Counter),
        ] {
            let found = METRICS.iter().find(|metric| metric.name == name);
            assert_eq!(found.map(|metric| metric.kind), Some(kind), "{name}");
        }
    }
}
