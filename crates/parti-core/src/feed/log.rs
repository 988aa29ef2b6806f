//! The feed of an embedded log: each lane reads its own partition.
//!
//! ```text
//!  open ──▶ Hungry ──read──▶ Reading ──answer──▶ Hungry (more there)
//!             ▲  ▲              │ └──at the end──▶ AtEnd ──grew, or a slow poll──▶ Hungry
//!             │  └──room────────┘ error: Hungry again after a wait
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::config::Config;
use crate::feed::backoff::Backoff;
use crate::feed::refusals::Asked;
use crate::feed::{Context, Feed};
use crate::ids::PartitionId;
use crate::io::{Ask, ReadBatch, SourceError, SourceEvent, SourceRequest};
use crate::lane::map::LaneMap;
use crate::lane::outbox::Outbox;
use crate::lane::{LaneNote, Opening};
use crate::rng::Rng;
use crate::time::Time;
use crate::worker::Trouble;

#[derive(Debug)]
enum State {
    /// Reads when there is room, and not before this time.
    Hungry(Time),
    /// A read is in flight. `grew`: something was appended since it was sent.
    Reading { ask: Ask, grew: bool },
    /// Everything was read; looks again at this time even if nobody says that it grew.
    AtEnd(Time),
}

#[derive(Debug)]
struct Tap {
    state: State,
    backoff: Backoff,
}

/// The feed of an embedded log.
#[derive(Debug)]
pub(crate) struct LogFeed {
    taps: BTreeMap<PartitionId, Tap>,
    reads: BTreeMap<Ask, PartitionId>,
    dirty: BTreeSet<PartitionId>,
    poll: Duration,
    retry: (Duration, Duration),
    rng: Rng,
}

impl LogFeed {
    pub(crate) fn new(config: &Config, rng: Rng) -> Self {
        Self {
            taps: BTreeMap::new(),
            reads: BTreeMap::new(),
            dirty: BTreeSet::new(),
            poll: config.jetstream.reconcile_interval,
            retry: (Duration::from_millis(100), config.retry.max_delay),
            rng,
        }
    }

    fn fresh(&self) -> Tap {
        Tap {
            state: State::Hungry(Time::ZERO),
            backoff: Backoff::new(self.retry.0, self.retry.1),
        }
    }

    fn read(&mut self, cx: &mut Context<'_>, partition: &PartitionId) {
        let Some(tap) = self.taps.get_mut(partition) else {
            return;
        };
        let due = match tap.state {
            State::Hungry(at) | State::AtEnd(at) => at <= cx.now,
            State::Reading { .. } => false,
        };
        let rules = &cx.lanes.rules;
        let Some(serving) = cx.lanes.open(partition).filter(|_| due) else {
            return;
        };
        let room = serving.room(rules);
        // Half a buffer at a time: no read for every single message that was handled.
        if room == 0 || (room < rules.lane_buffer / 2 && !serving.is_empty()) {
            return;
        }
        let (ask, from) = (cx.out.ask(), serving.next());
        tap.state = State::Reading { ask, grew: false };
        self.reads.insert(ask, partition.clone());
        let limit = u32::try_from(room).unwrap_or(u32::MAX);
        let partition = partition.clone();
        cx.out.source(SourceRequest::Read {
            ask,
            partition,
            from,
            upto: None,
            limit,
        });
    }

    fn answered(&mut self, cx: &mut Context<'_>, ask: Ask, result: Result<ReadBatch, SourceError>) {
        let Some(partition) = self.reads.remove(&ask) else {
            return;
        };
        let Some(tap) = self.taps.get_mut(&partition) else {
            return;
        };
        let State::Reading { ask: asked, grew } = tap.state else {
            return;
        };
        if asked != ask {
            return;
        }
        let Some(serving) = cx.lanes.open_mut(&partition) else {
            tap.state = State::Hungry(Time::ZERO);
            return;
        };
        let from = serving.next();
        let batch = match result {
            Ok(batch) => batch,
            Err(error) => {
                let asked = Asked::Partition(partition.clone());
                cx.out.answered(cx.now, asked, Some(&error));
                // Told once, not at every try.
                let passes = !matches!(error, SourceError::Rejected(_));
                if passes && tap.backoff.is_fresh() {
                    let why = format!("partition {partition} cannot be read: {error}");
                    cx.out.note(LaneNote::Trouble(Trouble::Source(why)));
                }
                let at = cx.now + tap.backoff.next(&mut self.rng);
                tap.state = State::Hungry(at);
                cx.out.wake_at(at, &partition);
                return;
            }
        };
        if cx.out.refusals.first().is_some() {
            let asked = Asked::Partition(partition.clone());
            cx.out.answered(cx.now, asked, None);
        }
        tap.backoff.reset();
        if batch.end < from {
            tap.state = State::AtEnd(Time::NEVER);
            let (end, next) = (batch.end, from);
            cx.lanes.halt(&partition, cx.out);
            cx.out.note(LaneNote::Trouble(Trouble::LogWentBack {
                partition,
                end,
                next,
            }));
            return;
        }
        if batch.first > from {
            let (first, lost) = (batch.first, batch.first.0 - from.0);
            let partition = partition.clone();
            cx.out.note(LaneNote::Trouble(Trouble::RetentionOvertook {
                partition,
                first,
                lost,
            }));
            serving.nothing_below(first);
        }
        for message in batch.messages {
            if message.offset >= serving.next() {
                serving.place(message, None);
            }
        }
        serving.nothing_below(batch.next);
        tap.state = if grew || serving.next() < batch.end {
            // No progress with more to come: a moment's rest instead of a tight circle.
            let stuck = serving.next() == from;
            State::Hungry(if stuck { cx.now + self.retry.0 } else { cx.now })
        } else {
            State::AtEnd(cx.now + self.poll)
        };
        if let State::Hungry(at) | State::AtEnd(at) = tap.state {
            cx.out.wake_at(at, &partition);
        }
        cx.out.wake(&partition);
        self.dirty.insert(partition);
    }

    fn hungry(&mut self, out: &mut Outbox, partition: &PartitionId) {
        let Some(tap) = self.taps.get_mut(partition) else {
            return;
        };
        match &mut tap.state {
            State::Reading { grew, .. } => *grew = true,
            State::AtEnd(at) => {
                *at = Time::ZERO;
                out.wake(partition);
                self.dirty.insert(partition.clone());
            }
            State::Hungry(_) => {}
        }
    }
}

impl Feed for LogFeed {
    fn attach(&mut self, cx: &mut Context<'_>, partition: &PartitionId) {
        if !self.taps.contains_key(partition) {
            self.taps.insert(partition.clone(), self.fresh());
            cx.out.ready_changed = true;
        }
    }

    fn detach(&mut self, cx: &mut Context<'_>, partition: &PartitionId) {
        cx.out.ready_changed |= self.taps.remove(partition).is_some();
    }

    fn open(&mut self, _cx: &mut Context<'_>, partition: &PartitionId, _opening: &Opening) {
        // A read of an earlier opening may still be answered: by then its ask is unknown here.
        self.taps.insert(partition.clone(), self.fresh());
        self.dirty.insert(partition.clone());
    }

    fn close(&mut self, _cx: &mut Context<'_>, partition: &PartitionId) {
        self.taps.insert(partition.clone(), self.fresh());
    }

    fn ready(&self, partition: &PartitionId) -> bool {
        self.taps.contains_key(partition)
    }

    fn is_caught_up(&self, _lanes: &LaneMap, partition: &PartitionId) -> bool {
        self.taps
            .get(partition)
            .is_some_and(|tap| matches!(tap.state, State::AtEnd(_)))
    }

    fn source(&mut self, cx: &mut Context<'_>, event: SourceEvent) {
        match event {
            SourceEvent::Read { ask, result } => self.answered(cx, ask, result),
            SourceEvent::Grew { partition } => self.hungry(cx.out, &partition),
            SourceEvent::Reconnected => {
                for partition in self.taps.keys().cloned().collect::<Vec<_>>() {
                    self.hungry(cx.out, &partition);
                }
            }
            _ => {}
        }
    }

    fn touch(&mut self, partition: &PartitionId) {
        self.dirty.insert(partition.clone());
    }

    fn pump(&mut self, cx: &mut Context<'_>) {
        for partition in std::mem::take(&mut self.dirty) {
            self.read(cx, &partition);
        }
    }

    fn pull(&mut self, cx: &mut Context<'_>, _idle: bool) {
        cx.out.acks.clear();
        cx.out.dropped.clear();
    }

    fn next_deadline(&self, _now: Time) -> Time {
        Time::NEVER
    }
}
