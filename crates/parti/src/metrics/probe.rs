//! What the event loop tells: every event, every action, and the worker after each burst.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use metrics::{Counter, Histogram};
use parti_core::ids::PartitionId;
use parti_core::io::{Ask, SourceEvent, SourceRequest, Then};
use parti_core::time::Time;
use parti_core::worker::numbers::TakeNumbers;
use parti_core::worker::{Action, Event, Numbers, Report, State, Worker};

use super::Metrics;
use super::handles::{ConsumerHandles, Handles, Meters};
use super::lag::Lag;
use super::table::{self, STATES};
use crate::driver::tasks::Tasks;
use crate::source::{Transport, Wire};

/// Records what the event loop sees. Belongs to the loop alone: nothing waits for it.
pub(crate) struct Probe {
    meters: Arc<Meters>,
    handles: Arc<Handles>,
    /// What was recorded last.
    numbers: Numbers,
    wire: Wire,
    lease_until: Time,
    state: (State, Time),
    leads_since: Option<Time>,
    serve: Vec<PartitionId>,
    owned: u64,
    /// Updates of the consumer under way.
    updates: BTreeMap<Ask, Time>,
    lag: Lag,
}

/// Times handler calls.
#[derive(Clone, Debug)]
pub(crate) struct CallTimes(Histogram);

impl CallTimes {
    /// A call begins.
    pub(crate) fn begin(&self) -> Call<'_> {
        Call {
            began: Instant::now(),
            latency: &self.0,
        }
    }
}

/// A handler call that is timed.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    began: Instant,
    latency: &'a Histogram,
}

impl Call<'_> {
    /// It ended.
    pub(crate) fn ended(self) {
        self.latency.record(self.began.elapsed());
    }
}

impl Probe {
    /// Of a worker that is about to start.
    pub(crate) fn new(meters: Arc<Meters>, metrics: &Metrics) -> Self {
        let handles = meters.handles();
        Self {
            lag: Lag::new(metrics, handles.registrar.clone()),
            meters,
            handles,
            numbers: Numbers::default(),
            wire: Wire::default(),
            lease_until: Time::ZERO,
            state: (State::Init, Time::ZERO),
            leads_since: None,
            serve: Vec::new(),
            owned: 0,
            updates: BTreeMap::new(),
        }
    }

    /// What times handler calls.
    pub(crate) fn call_times(&self) -> CallTimes {
        CallTimes(self.handles.latency.clone())
    }

    /// An event comes in.
    pub(crate) fn event(&mut self, now: Time, event: &Event) {
        match event {
            Event::Handled { ran, .. } => match ran.then {
                Then::Ended | Then::GoesOn(_) => {}
                Then::Failed(_) => self.handles.handler_errors.increment(1),
                Then::Panicked(_) => self.handles.handler_panics.increment(1),
            },
            Event::Source(SourceEvent::Delivered { .. }) => self.handles.messages.increment(1),
            Event::Source(SourceEvent::Read {
                result: Ok(batch), ..
            }) => self.handles.messages.increment(batch.messages.len() as u64),
            Event::Source(SourceEvent::Swept {
                result: Ok(swath), ..
            }) => self.handles.messages.increment(swath.messages.len() as u64),
            Event::Source(SourceEvent::Consumer { ask, .. }) => {
                if let (Some(began), Some(consumer)) =
                    (self.updates.remove(ask), &self.handles.consumer)
                {
                    consumer.duration.record(now.since(began));
                }
            }
            _ => {}
        }
    }

    /// An action goes out.
    pub(crate) fn action(&mut self, now: Time, action: &Action) {
        match action {
            Action::Handle(run) if run.attempt > 1 => self.handles.retries.increment(1),
            Action::Source(
                SourceRequest::UpdateConsumer { ask, .. } | SourceRequest::DeleteConsumer { ask },
            ) => {
                self.updates.insert(*ask, now);
            }
            Action::Report(report) => self.report(now, report),
            _ => {}
        }
    }

    fn report(&mut self, now: Time, report: &Report) {
        let handles = &self.handles;
        match report {
            Report::State { from, to } => {
                let (from, to) = (STATES[*from as usize], STATES[*to as usize]);
                let registrar = &handles.registrar;
                let changes = registrar.counter(&table::STATE_TRANSITIONS, &[from, to]);
                changes.increment(1);
                let lasted = registrar.histogram(&table::STATE_DURATION, &[from]);
                lasted.record(now.since(self.state.1));
            }
            Report::Claimed(worker, _) => {
                self.meters.claimed(worker.as_str());
                self.handles = self.meters.handles();
                self.lag.rename(self.handles.registrar.clone());
                self.show();
            }
            Report::SessionLost => {
                handles.session_losses.increment(1);
                self.assigned(Vec::new());
            }
            Report::Lease { alive: false } => handles.lease_lapses.increment(1),
            Report::Leading(term) => {
                let since = term.map(|_| now);
                if since.is_some() != self.leads_since.is_some() {
                    handles.leadership_changes.increment(1);
                }
                if let Some(began) = std::mem::replace(&mut self.leads_since, since) {
                    handles.leadership_duration.record(now.since(began));
                }
                self.show();
            }
            Report::Assigned { version, serve, .. } => {
                handles.assignments.increment(1);
                handles.version.set(version.0 as f64);
                self.assigned(serve.clone());
            }
            Report::Taken { seized, .. } => {
                let from = if *seized { "dead_owner" } else { "nobody" };
                handles.taken.add(from, 1);
                self.lag.soon(now);
                self.owned += 1;
                self.show();
            }
            Report::Released { .. } => {
                handles.released.increment(1);
                self.owned = self.owned.saturating_sub(1);
                self.show();
            }
            Report::Fenced { .. } => {
                handles.fenced.increment(1);
                self.owned = self.owned.saturating_sub(1);
                self.show();
            }
            Report::DeadLettered { .. } => handles.dead_letters.increment(1),
            Report::Flushed { partitions, age } => {
                handles.flush_partitions.record(*partitions as f64);
                handles.flush_age.record(*age);
            }
            Report::Planned { cause, .. } => handles.rebalances.add(cause.name(), 1),
            Report::Moved { took, pause, .. } => {
                handles.handoff.record(*took);
                handles.pause.record(*pause);
            }
            // Counted where all observers hear of it.
            Report::Trouble(_) | Report::Lease { alive: true } | Report::History(_) => {}
        }
        if let Report::State { to, .. } = report {
            self.state = (*to, now);
            self.show();
        }
    }

    fn assigned(&mut self, serve: Vec<PartitionId>) {
        // Both lists are sorted.
        let missing = |these: &[PartitionId], those: &[PartitionId]| {
            let of = |id: &&PartitionId| those.binary_search(id).is_err();
            these.iter().filter(of).count() as u64
        };
        self.handles.added.increment(missing(&serve, &self.serve));
        self.handles.removed.increment(missing(&self.serve, &serve));
        self.serve = serve;
        self.show();
    }

    /// Sets what follows from reports alone.
    fn show(&self) {
        let handles = &self.handles;
        handles.state.set(f64::from(self.state.0 as u8));
        handles
            .leader
            .set(f64::from(u8::from(self.leads_since.is_some())));
        handles.assigned.set(self.serve.len() as f64);
        handles.owned.set(self.owned as f64);
    }

    /// A burst of events is over.
    pub(crate) fn settled(
        &mut self,
        now: Time,
        worker: &Worker,
        transport: &Arc<dyn Transport>,
        tasks: &Tasks,
    ) {
        let lease_until = worker.lease_until();
        if lease_until > self.lease_until {
            if self.lease_until > Time::ZERO {
                let margin = self.lease_until.since(now);
                self.handles.lease_margin.record(margin);
            }
            self.lease_until = lease_until;
        }
        let (numbers, wire) = (worker.numbers(), transport.wire());
        if numbers != self.numbers || wire != self.wire {
            self.count(&numbers, &wire);
            (self.numbers, self.wire) = (numbers, wire);
        }
        self.lag.look(now, worker, transport, tasks);
    }

    pub(super) fn count(&self, now: &Numbers, wire: &Wire) {
        let (handles, before) = (&self.handles, &self.numbers);
        grown(&handles.heartbeats, before.heartbeats, now.heartbeats);
        grown(
            &handles.heartbeat_failures,
            before.heartbeat_failures,
            now.heartbeat_failures,
        );
        for (reason, count) in [
            ("blocked", (|t| t.blocked) as fn(&TakeNumbers) -> u64),
            ("conflict", |t| t.conflicts),
            ("store", |t| t.failures),
        ] {
            let more = count(&now.takes) - count(&before.takes);
            handles.take_failures.add(reason, more);
        }
        let plan = now.plan.unwrap_or_default();
        handles.moving.set(plan.moving as f64);
        for (reason, count) in [
            ("over_cap", plan.over_cap),
            ("paused", plan.paused),
            (
                "other",
                plan.unserved.saturating_sub(plan.over_cap + plan.paused),
            ),
        ] {
            if let Some(gauge) = handles.unserved.of(reason) {
                gauge.set(count as f64);
            }
        }
        if let Some(consumer) = &handles.consumer {
            self.count_consumer(consumer, now, wire);
        }
    }

    fn count_consumer(&self, consumer: &ConsumerHandles, now: &Numbers, wire: &Wire) {
        let (before, updates) = (&self.numbers.feed.updates, &now.feed.updates);
        for (counter, before, now) in [
            (&consumer.attempts, before.attempted, updates.attempted),
            (&consumer.successes, before.succeeded, updates.succeeded),
            (&consumer.failures, before.failed, updates.failed),
            (&consumer.skipped, before.skipped, updates.skipped),
            (&consumer.duplicates, before.duplicates, updates.duplicates),
            (&consumer.subjects_added, before.added, updates.added),
            (&consumer.subjects_removed, before.removed, updates.removed),
            (
                &consumer.drift_repaired,
                before.drift_repaired,
                updates.drift_repaired,
            ),
            (
                &consumer.redeliveries,
                self.wire.redelivered,
                wire.redelivered,
            ),
        ] {
            grown(counter, before, now);
        }
        consumer.subjects.set(now.feed.subjects as f64);
        consumer
            .inflight
            .set((wire.pending + now.feed.unacked) as f64);
        consumer.healthy.set(f64::from(u8::from(wire.healthy)));
    }
}

/// A worker that has ended owns nothing, and has no lag; its last state stays to be seen.
impl Drop for Probe {
    fn drop(&mut self) {
        self.lag.clear();
        self.handles.retire();
        self.handles.state.set(f64::from(self.state.0 as u8));
    }
}

fn grown(counter: &Counter, before: u64, now: u64) {
    if now > before {
        counter.increment(now - before);
    }
}
