//! Every metric there is, in one table: nothing else names one. Registration, `docs/metrics.md`
//! and the tests follow from it.

/// What kind of number it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// How often what happened, by size: the upper bounds of its buckets.
    Histogram(&'static [f64]),
}

impl Kind {
    /// As Prometheus calls it.
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram(_) => "histogram",
        }
    }
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things.
    Count,
    /// Time.
    Seconds,
    /// Memory.
    Bytes,
}

/// A label that a metric has beside `group` and `worker`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// Its name.
    pub name: &'static str,
    /// Its values, where they are known beforehand. Only `partition` has other ones, and those are
    /// bounded in number.
    pub values: &'static [&'static str],
}

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric {
    /// Its name, as a query has it.
    pub name: &'static str,
    /// What kind of number it is.
    pub kind: Kind,
    /// What is counted.
    pub unit: Unit,
    /// Its labels beside `group` and `worker`, which all have.
    pub labels: &'static [Label],
    /// What it says.
    pub help: &'static str,
}

const fn label(name: &'static str, values: &'static [&'static str]) -> Label {
    Label { name, values }
}

/// The states of a worker, in the order of their numbers.
pub(super) const STATES: [&str; 9] = [
    "init",
    "claiming_id",
    "election",
    "waiting_assignment",
    "stable",
    "scaling",
    "rebalancing",
    "emergency",
    "shutdown",
];

/// Why there was a rebalance, as [`Cause`](crate::core::worker::Cause) names it.
const CAUSES: [&str; 8] = [
    "cold_start",
    "join",
    "leave",
    "crash",
    "partitions",
    "balance",
    "new_leader",
    "operator",
];

/// The kinds of trouble.
const TROUBLES: [&str; 10] = [
    "log_went_back",
    "retention_overtook",
    "unreadable_record",
    "no_election",
    "listing",
    "other_partitions",
    "slow_release",
    "over_cap",
    "source",
    "store",
];

const STORE_ERRORS: [&str; 5] = ["conflict", "unavailable", "unknown", "rejected", "corrupt"];

/// For what a handler or a server does.
const FAST: Kind = Kind::Histogram(&[
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 30.0, 60.0,
]);
/// For what lasts.
const SLOW: Kind = Kind::Histogram(&[
    0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0, 300.0, 3600.0, 86400.0,
]);
const SHARE: Kind =
    Kind::Histogram(&[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0]);
const SIZES: Kind = Kind::Histogram(&[
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0,
]);

use Kind::{Counter, Gauge};
use Unit::{Bytes, Count, Seconds};

/// Defines every metric, and the list of all of them.
macro_rules! metrics {
    ($($id:ident = $name:literal, $kind:expr, $unit:expr, [$($label:expr),*], $help:literal;)*) => {
        $(
            #[doc = $help]
            pub const $id: Metric = Metric {
                name: $name,
                kind: $kind,
                unit: $unit,
                labels: &[$($label),*],
                help: $help,
            };
        )*
        /// Every metric, in the order in which they are documented.
        pub const METRICS: &[Metric] = &[$($id),*];
    };
}

metrics! {
    // The worker.
    WORKER_STATE = "parti_worker_state", Gauge, Count, [],
        "State of the worker: 0 init, 1 claiming id, 2 election, 3 waiting for its assignment, \
         4 stable, 5 scaling, 6 rebalancing, 7 emergency, 8 shutdown.";
    STATE_TRANSITIONS = "parti_state_transitions_total", Counter, Count,
        [label("from", &STATES), label("to", &STATES)],
        "Changes of the worker's state.";
    STATE_DURATION = "parti_state_duration_seconds", SLOW, Seconds, [label("state", &STATES)],
        "Time spent in a state, recorded when it is left.";
    IS_LEADER = "parti_is_leader", Gauge, Count, [],
        "1 while this worker leads its group.";
    LEADERSHIP_CHANGES = "parti_leadership_changes_total", Counter, Count, [],
        "How often this worker began or ceased to lead.";
    LEADERSHIP_DURATION = "parti_leadership_duration_seconds", SLOW, Seconds, [],
        "How long this worker led, recorded when it ceases to.";
    HEARTBEATS = "parti_heartbeats_total", Counter, Count, [],
        "Heartbeats that were written.";
    HEARTBEAT_FAILURES = "parti_heartbeat_failures_total", Counter, Count, [],
        "Heartbeats that could not be written, or of which that is not known; they are sent again.";
    LEASE_MARGIN = "parti_lease_margin_seconds", SLOW, Seconds, [],
        "What was left of the lease when it was renewed: near zero, the next hiccup of the store \
         makes handling pause.";
    LEASE_LAPSES = "parti_lease_lapses_total", Counter, Count, [],
        "How often handling paused because the lease was not renewed in time.";
    SESSION_LOSSES = "parti_session_losses_total", Counter, Count, [],
        "Sessions that the group ended against the worker's will.";
    TROUBLES_TOTAL = "parti_troubles_total", Counter, Count, [label("kind", &TROUBLES)],
        "Trouble that did not end the worker.";

    // Assignments.
    ASSIGNED_PARTITIONS = "parti_assigned_partitions", Gauge, Count, [],
        "Partitions that this worker should serve.";
    OWNED_PARTITIONS = "parti_owned_partitions", Gauge, Count, [],
        "Partitions that this worker owns.";
    ASSIGNMENT_VERSION = "parti_assignment_version", Gauge, Count, [],
        "Version of the assignment that was accepted last.";
    ASSIGNMENT_CHANGES = "parti_assignment_changes_total", Counter, Count, [],
        "Assignments accepted.";
    ASSIGNMENT_ADDED = "parti_assignment_partitions_added_total", Counter, Count, [],
        "Partitions that an assignment had and the one before it had not.";
    ASSIGNMENT_REMOVED = "parti_assignment_partitions_removed_total", Counter, Count, [],
        "Partitions that an assignment no longer had.";

    // What the leader does.
    ASSIGNMENT_CALCULATION = "parti_assignment_calculation_seconds", FAST, Seconds, [],
        "Time that the strategy took to decide who should serve what.";
    AFFINITY_SCORE = "parti_affinity_score", SHARE, Count, [],
        "Share of the partitions with an owner that a decision of the strategy left where they \
         were, 0 to 1.";
    REBALANCES = "parti_rebalances_total", Counter, Count, [label("reason", &CAUSES)],
        "Plans by this leader that gave partitions to workers.";
    HANDOFF_DURATION = "parti_handoff_duration_seconds", FAST, Seconds, [],
        "Time of a partition's handoff, from the leader's decision until the new owner has it; by \
         the leader's clock.";
    HANDOFF_PAUSE = "parti_handoff_pause_seconds", FAST, Seconds, [],
        "The part of a handoff in which nobody handled the partition, at the most: from the order \
         to let go until the new owner has it; by the leader's clock.";
    MOVING_PARTITIONS = "parti_moving_partitions", Gauge, Count, [],
        "Handoffs under way, as the leader knows them; 0 where this worker does not lead.";
    UNSERVED_PARTITIONS = "parti_unserved_partitions", Gauge, Count,
        [label("reason", &["over_cap", "paused", "other"])],
        "Partitions that nobody should serve now, as the leader knows them: over cap when no \
         worker has room (add workers or raise jetstream.subject_cap), paused when an operator \
         wants it so; 0 where this worker does not lead. In a group without a leader, each worker \
         tells what it finds without an owner for longer than leaderless.grace_period.";

    // Partitions.
    TAKEN = "parti_partitions_taken_total", Counter, Count,
        [label("from", &["nobody", "dead_owner"])],
        "Partitions taken.";
    RELEASED = "parti_partitions_released_total", Counter, Count, [],
        "Partitions released.";
    FENCED = "parti_partitions_fenced_total", Counter, Count, [],
        "Fencing events: partitions whose handling stopped at once because somebody else owns \
         them, or because the session was lost.";
    TAKE_FAILURES = "parti_take_failures_total", Counter, Count,
        [label("reason", &["blocked", "conflict", "store"])],
        "Takes that came to nothing and are tried again: blocked by an owner that may live, in \
         conflict with another write, or failed by the store.";
    PARTITION_LAG = "parti_partition_lag", Gauge, Count, [label("partition", &[])],
        "Offsets between what is done and the end of the partition, of those owned, looked up from \
         time to time. Messages, where a partition has a log of its own; an upper bound on a \
         stream, whose offsets all partitions share. Bounded: partitions past the limit are summed \
         up under the partition *; one that is owned no more shows 0.";

    // Checkpoints.
    FLUSH_PARTITIONS = "parti_checkpoint_flush_partitions", SIZES, Count, [],
        "Partitions whose progress one flush writes.";
    FLUSH_AGE = "parti_checkpoint_flush_age_seconds", SLOW, Seconds, [],
        "How long the oldest progress of a flush may have waited: what a crash would have \
         repeated.";

    // Handlers.
    HANDLER_LATENCY = "parti_handler_latency_seconds", FAST, Seconds, [],
        "Time of a handler call, well or badly ended.";
    HANDLER_FAILURES = "parti_handler_failures_total", Counter, Count,
        [label("kind", &["error", "panic"])],
        "Handler calls that failed.";
    HANDLER_RETRIES = "parti_handler_retries_total", Counter, Count, [],
        "Handler calls that were not the first for their message. A retry happens in the message's \
         lane and is no redelivery.";
    DEAD_LETTERS = "parti_dead_letters_total", Counter, Count, [],
        "Messages that went to the dead letters.";

    // The source.
    CONSUMER_MESSAGES = "parti_consumer_messages_total", Counter, Count, [],
        "Messages that came from the source: delivered by the durable consumer, or read.";
    CONSUMER_REDELIVERIES = "parti_consumer_redeliveries_total", Counter, Count, [],
        "Messages that the server delivered although it had delivered them before, because it got \
         no ack in time. A retry after a failed handler call is none: it happens in the lane, \
         without the server.";
    CONSUMER_INFLIGHT = "parti_consumer_inflight", Gauge, Count, [],
        "Messages that the durable consumer has still to deliver, by its last delivery, and those \
         delivered and not acked.";
    CONSUMER_SUBJECTS = "parti_consumer_subject_count", Gauge, Count, [],
        "Subjects in the durable consumer's filter.";
    CONSUMER_SUBJECT_CAP = "parti_consumer_subject_cap", Gauge, Count, [],
        "The most subjects that the filter may have: jetstream.subject_cap.";
    UPDATE_ATTEMPTS = "parti_consumer_update_attempts_total", Counter, Count, [],
        "Updates and deletions of the durable consumer that were sent.";
    UPDATE_SUCCESSES = "parti_consumer_update_successes_total", Counter, Count, [],
        "Updates and deletions of the durable consumer that were carried out.";
    UPDATE_FAILURES = "parti_consumer_update_failures_total", Counter, Count, [],
        "Updates and deletions of the durable consumer that failed, or whose fate is open.";
    UPDATE_SKIPPED = "parti_consumer_update_skipped_total", Counter, Count, [],
        "Changes of what is wanted that ended where the durable consumer already was: no-op diffs.";
    UPDATE_DURATION = "parti_consumer_update_duration_seconds", FAST, Seconds, [],
        "Time until an update or a deletion of the durable consumer was answered.";
    SUBJECTS_ADDED = "parti_consumer_subjects_added_total", Counter, Count, [],
        "Subjects added to the filter by updates.";
    SUBJECTS_REMOVED = "parti_consumer_subjects_removed_total", Counter, Count, [],
        "Subjects removed from the filter by updates.";
    DUPLICATE_SUBJECTS = "parti_consumer_duplicate_subjects_total", Counter, Count, [],
        "Subjects asked for that had been asked for already: an anomaly, harmless but a bug.";
    DRIFT_REPAIRED = "parti_consumer_drift_repaired_total", Counter, Count, [],
        "Times that the durable consumer had been changed, deleted or recreated by somebody else, \
         and was put right.";
    PULL_LOOP_HEALTHY = "parti_consumer_pull_loop_healthy", Gauge, Count, [],
        "1 while the pull loop runs and its pulls are answered.";

    // The store.
    STORE_OPERATION = "parti_store_operation_seconds", FAST, Seconds,
        [label("operation", &["read", "list", "write"])],
        "Time of an operation of the store; a batch of writes is one.";
    STORE_RUNNING = "parti_store_operations_running", Gauge, Count, [],
        "Operations of the store under way.";
    STORE_GIVEN_UP = "parti_store_operations_given_up_total", Counter, Count, [],
        "Operations of the store whose end was not waited for.";
    STORE_WRITES = "parti_store_writes_total", Counter, Count, [],
        "Single writes carried out.";
    STORE_ERRORS_TOTAL = "parti_store_errors_total", Counter, Count,
        [label("kind", &STORE_ERRORS)],
        "Operations of the store that failed; of a batch, each write that did.";
    STORE_RECEIVED = "parti_store_received_bytes_total", Counter, Bytes, [],
        "Bytes of keys and values that came from the store.";
    STORE_SENT = "parti_store_sent_bytes_total", Counter, Bytes, [],
        "Bytes of keys and values in writes.";
    STORE_WATCHES = "parti_store_watches", Gauge, Count, [],
        "Watches open.";
    STORE_WATCH_EVENTS = "parti_store_watch_events_total", Counter, Count, [],
        "Values and deletions that watches told.";
    STORE_WATCH_SNAPSHOTS = "parti_store_watch_snapshots_total", Counter, Count, [],
        "Snapshots of watches that were complete.";
    STORE_WATCH_RESTARTS = "parti_store_watch_restarts_total", Counter, Count, [],
        "Watches that started anew after a gap.";
    STORE_WATCH_INTERRUPTIONS = "parti_store_watch_interruptions_total", Counter, Count, [],
        "Interruptions that watches told of.";
}

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
            let unit = match metric.unit {
                Count => "",
                Seconds => "_seconds",
                Bytes => "_bytes",
            };
            assert!(family.ends_with(unit), "{name}");
            if let Kind::Histogram(bounds) = metric.kind {
                assert!(bounds.windows(2).all(|pair| pair[0] < pair[1]), "{name}");
            }
            for label in metric.labels {
                assert!(label.name.chars().all(plain), "{name}");
                assert_eq!(label.values.is_empty(), label.name == "partition", "{name}");
            }
            assert!(metric.help.ends_with('.'), "{name}");
        }
    }

    #[test]
    fn causes_are_those_of_the_core() {
        assert_eq!(CAUSES, crate::core::worker::Cause::ALL.map(|c| c.name()));
    }

    #[test]
    fn every_name_that_was_asked_for_is_there() {
        let histogram = "histogram";
        let (counter, gauge) = ("counter", "gauge");
        for (name, kind) in [
            ("parti_worker_state", gauge),
            ("parti_is_leader", gauge),
            ("parti_assigned_partitions", gauge),
            ("parti_assignment_version", gauge),
            ("parti_state_transitions_total", counter),
            ("parti_assignment_changes_total", counter),
            ("parti_leadership_changes_total", counter),
            ("parti_heartbeat_failures_total", counter),
            ("parti_state_duration_seconds", histogram),
            ("parti_assignment_calculation_seconds", histogram),
            ("parti_affinity_score", histogram),
            ("parti_consumer_messages_total", counter),
            ("parti_consumer_redeliveries_total", counter),
            ("parti_consumer_inflight", gauge),
            ("parti_consumer_update_duration_seconds", histogram),
            ("parti_consumer_subject_count", gauge),
            ("parti_handler_latency_seconds", histogram),
            ("parti_consumer_update_failures_total", counter),
            ("parti_consumer_update_skipped_total", counter),
        ] {
            let found = METRICS.iter().find(|metric| metric.name == name);
            assert_eq!(found.map(|metric| metric.kind.name()), Some(kind), "{name}");
        }
    }
}
