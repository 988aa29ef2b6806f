//! Metrics: counted without locks, shown as OpenMetrics text.
//!
//! ```text
//!   worker ── Report ──▶ Metrics (atomics) ──┐
//!                                            ├──▶ render ──▶ text for a scrape
//!   Metered store ── snapshot ───────────────┘
//! ```
//!
//! All names are in one [table](METRICS). What has no feed yet is in the table and not in the text:
//! a number that is always zero would be a lie.
//!
//! ```
//! use std::sync::Arc;
//! use parti::metrics::Metrics;
//!
//! let metrics = Arc::new(Metrics::new("orders"));
//! // worker.observe(metrics.clone()), then for each scrape, as `CONTENT_TYPE`:
//! let text = metrics.render(None);
//! assert!(text.ends_with("# EOF\n"));
//! ```

mod table;
mod text;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use parti_core::worker::{Report, State, Trouble};

use crate::Observer;
use crate::store::metered::{BOUNDS, Latency, Numbers};
pub use table::{Feed, Kind, METRICS, Metric};
pub use text::CONTENT_TYPE;
use text::Text;

/// The states, in the order of their numbers.
const STATES: [(State, &str); 9] = [
    (State::Init, "init"),
    (State::ClaimingId, "claiming_id"),
    (State::Election, "election"),
    (State::WaitingAssignment, "waiting_assignment"),
    (State::Stable, "stable"),
    (State::Scaling, "scaling"),
    (State::Rebalancing, "rebalancing"),
    (State::Emergency, "emergency"),
    (State::Shutdown, "shutdown"),
];

/// Upper bounds of the times that states last, in seconds.
const STATE_BOUNDS: [f64; 9] = [0.01, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 600.0, 3600.0];

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

fn trouble_index(trouble: &Trouble) -> usize {
    match trouble {
        Trouble::LogWentBack { .. } => 0,
        Trouble::RetentionOvertook { .. } => 1,
        Trouble::Unreadable { .. } => 2,
        Trouble::NoElection(_) => 3,
        Trouble::Listing(_) => 4,
        Trouble::OtherPartitions { .. } => 5,
        Trouble::SlowRelease { .. } => 6,
        Trouble::OverCap { .. } => 7,
        Trouble::Source(_) => 8,
        Trouble::Store(_) => 9,
    }
}

/// How often what took how long.
#[derive(Debug, Default)]
struct Durations {
    buckets: [AtomicU64; STATE_BOUNDS.len() + 1],
    nanos: AtomicU64,
}

impl Durations {
    fn record(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = STATE_BOUNDS.partition_point(|bound| *bound < seconds);
        self.buckets[bucket].fetch_add(1, Relaxed);
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Relaxed);
    }
}

/// The metrics of one worker. It is an [`Observer`]: give it to the worker's builder.
#[derive(Debug)]
pub struct Metrics {
    group: String,
    /// Written when an id is claimed, read when a text is made: nobody waits for it in between.
    worker: Mutex<String>,
    began: Instant,
    state: AtomicU64,
    /// Since when, in nanoseconds after `began`.
    state_since: AtomicU64,
    transitions: [[AtomicU64; STATES.len()]; STATES.len()],
    durations: [Durations; STATES.len()],
    leads: AtomicU64,
    leadership_changes: AtomicU64,
    assigned: AtomicU64,
    version: AtomicU64,
    assignments: AtomicU64,
    sessions_lost: AtomicU64,
    lapses: AtomicU64,
    taken_free: AtomicU64,
    seized: AtomicU64,
    released: AtomicU64,
    fenced: AtomicU64,
    dead_letters: AtomicU64,
    troubles: [AtomicU64; TROUBLES.len()],
}

impl Metrics {
    /// Of a worker of this group, with all numbers at zero.
    pub fn new(group: impl Into<String>) -> Self {
        Self {
            group: group.into(),
            worker: Mutex::default(),
            began: Instant::now(),
            state: AtomicU64::new(0),
            state_since: AtomicU64::new(0),
            transitions: Default::default(),
            durations: Default::default(),
            leads: AtomicU64::new(0),
            leadership_changes: AtomicU64::new(0),
            assigned: AtomicU64::new(0),
            version: AtomicU64::new(0),
            assignments: AtomicU64::new(0),
            sessions_lost: AtomicU64::new(0),
            lapses: AtomicU64::new(0),
            taken_free: AtomicU64::new(0),
            seized: AtomicU64::new(0),
            released: AtomicU64::new(0),
            fenced: AtomicU64::new(0),
            dead_letters: AtomicU64::new(0),
            troubles: Default::default(),
        }
    }

    fn state_changed(&self, from: State, to: State, now: Duration) {
        let (from, to) = (from as usize, to as usize);
        self.transitions[from][to].fetch_add(1, Relaxed);
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let since = self.state_since.swap(now, Relaxed);
        self.durations[from].record(Duration::from_nanos(now.saturating_sub(since)));
        self.state.store(to as u64, Relaxed);
    }

    /// All metrics that have a feed, as OpenMetrics text. `store`: the numbers of a
    /// [metered](crate::store::metered) store, if the worker has one.
    pub fn render(&self, store: Option<&Numbers>) -> String {
        let worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = Text::new(&[("group", &self.group), ("worker", &worker)]);
        for metric in &METRICS {
            match metric.feed {
                Feed::Reports => self.render_one(metric, &mut text),
                Feed::Store => {
                    if let Some(numbers) = store {
                        render_store(metric, numbers, &mut text);
                    }
                }
                Feed::Nowhere => {}
            }
        }
        text.end()
    }

    fn render_one(&self, metric: &Metric, text: &mut Text) {
        text.begin(metric);
        let plain = match metric.name {
            "parti_worker_state" => &self.state,
            "parti_is_leader" => &self.leads,
            "parti_assigned_partitions" => &self.assigned,
            "parti_assignment_version" => &self.version,
            "parti_assignment_changes_total" => &self.assignments,
            "parti_leadership_changes_total" => &self.leadership_changes,
            "parti_session_losses_total" => &self.sessions_lost,
            "parti_lease_lapses_total" => &self.lapses,
            "parti_partitions_released_total" => &self.released,
            "parti_partitions_fenced_total" => &self.fenced,
            "parti_dead_letters_total" => &self.dead_letters,
            "parti_state_transitions_total" => return self.render_transitions(metric, text),
            "parti_state_duration_seconds" => return self.render_durations(metric, text),
            "parti_partitions_taken_total" => {
                text.number(metric, &["nobody"], self.taken_free.load(Relaxed));
                text.number(metric, &["dead_owner"], self.seized.load(Relaxed));
                return;
            }
            "parti_troubles_total" => {
                for (kind, count) in TROUBLES.iter().zip(&self.troubles) {
                    text.number(metric, &[kind], count.load(Relaxed));
                }
                return;
            }
            // A test sees to it that every metric with a feed is shown.
            _ => return,
        };
        text.number(metric, &[], plain.load(Relaxed));
    }

    /// Only those that happened: few of the 81 can.
    fn render_transitions(&self, metric: &Metric, text: &mut Text) {
        for ((_, from), row) in STATES.iter().zip(&self.transitions) {
            for ((_, to), count) in STATES.iter().zip(row) {
                let count = count.load(Relaxed);
                if count > 0 {
                    text.number(metric, &[from, to], count);
                }
            }
        }
    }

    fn render_durations(&self, metric: &Metric, text: &mut Text) {
        for ((_, state), durations) in STATES.iter().zip(&self.durations) {
            let counts: Vec<u64> = durations.buckets.iter().map(|b| b.load(Relaxed)).collect();
            if counts.iter().any(|count| *count > 0) {
                let sum = Duration::from_nanos(durations.nanos.load(Relaxed));
                text.histogram(metric, &[state], &STATE_BOUNDS, &counts, sum.as_secs_f64());
            }
        }
    }
}

impl Observer for Metrics {
    fn observe(&self, report: &Report) {
        let add = |counter: &AtomicU64| {
            counter.fetch_add(1, Relaxed);
        };
        match report {
            Report::State { from, to } => self.state_changed(*from, *to, self.began.elapsed()),
            Report::Claimed(worker, _) => {
                let mut known = self.worker.lock().unwrap_or_else(PoisonError::into_inner);
                *known = worker.to_string();
            }
            Report::SessionLost => add(&self.sessions_lost),
            Report::Lease { alive: false } => add(&self.lapses),
            Report::Leading(term) => {
                let leads = u64::from(term.is_some());
                if self.leads.swap(leads, Relaxed) != leads {
                    add(&self.leadership_changes);
                }
            }
            Report::Assigned { version, serve, .. } => {
                self.assigned.store(serve.len() as u64, Relaxed);
                self.version.store(version.0, Relaxed);
                add(&self.assignments);
            }
            Report::Taken { seized: true, .. } => add(&self.seized),
            Report::Taken { seized: false, .. } => add(&self.taken_free),
            Report::Released { .. } => add(&self.released),
            Report::Fenced { .. } => add(&self.fenced),
            Report::DeadLettered { .. } => add(&self.dead_letters),
            Report::Trouble(trouble) => add(&self.troubles[trouble_index(trouble)]),
            Report::Lease { alive: true } | Report::History(_) => {}
        }
    }
}

/// The kinds of a store's errors: all are shown, also at zero.
const ERRORS: [&str; 5] = ["conflict", "unavailable", "unknown", "rejected", "corrupt"];

fn render_store(metric: &Metric, numbers: &Numbers, text: &mut Text) {
    text.begin(metric);
    let plain = match metric.name {
        "parti_store_operations_running" => numbers.running,
        "parti_store_operations_given_up_total" => numbers.given_up,
        "parti_store_writes_total" => numbers.writes_done,
        "parti_store_received_bytes_total" => numbers.bytes_in,
        "parti_store_sent_bytes_total" => numbers.bytes_out,
        "parti_store_watches" => numbers.watches,
        "parti_store_watch_events_total" => numbers.watch_events,
        "parti_store_watch_snapshots_total" => numbers.watch_snapshots,
        "parti_store_watch_restarts_total" => numbers.watch_restarts,
        "parti_store_watch_interruptions_total" => numbers.watch_interruptions,
        "parti_store_operation_seconds" => {
            let bounds = BOUNDS.map(|bound| bound.as_secs_f64());
            let all: [(&str, &Latency); 3] = [
                ("read", &numbers.reads),
                ("list", &numbers.lists),
                ("write", &numbers.batches),
            ];
            for (operation, latency) in all {
                let sum = latency.sum.as_secs_f64();
                text.histogram(metric, &[operation], &bounds, &latency.buckets, sum);
            }
            return;
        }
        "parti_store_errors_total" => {
            for kind in ERRORS {
                let count = numbers.errors.get(kind).copied().unwrap_or(0);
                text.number(metric, &[kind], count);
            }
            return;
        }
        _ => return,
    };
    text.number(metric, &[], plain);
}

#[cfg(test)]
mod tests;
