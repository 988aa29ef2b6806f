//! The feed of those who bring their own consumption: it brings no messages, it says what the user
//! may read, and waits for the user's word.
//!
//! ```text
//!  attach, detach ──▶ Prepare (the whole set) ──ok──▶ ready
//!                         ▲ err: again after a wait
//!
//!  open ──ready, lease alive──▶ Start ──ok──▶ the user reads, and commits
//!                                 ▲ err: again after a wait
//!  close ──▶ Revoke ──ok──▶ gone: the partition can be released
//!              ▲ err: again after a wait
//!  fenced, session lost, given up by force ──▶ Lost
//! ```
//!
//! Level, not edge: each partition has a goal, what the user was told of it, and at most one call in
//! flight; the next call is derived anew whenever something changed. So a partition that is lost and
//! taken again starts only after the user has answered to everything of its earlier epoch.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::config::Config;
use crate::feed::backoff::Backoff;
use crate::feed::{Context, Feed};
use crate::ids::{Epoch, Offset, PartitionId};
use crate::io::{Ask, ExternalCall, SourceError, SourceEvent, SourceRequest};
use crate::lane::map::LaneMap;
use crate::lane::{LaneNote, Opening};
use crate::rng::Rng;
use crate::time::Time;
use crate::worker::Trouble;

/// After so many failed updates in a row, others should know that this worker is not well.
const DEGRADED_AFTER: u32 = 3;

/// What should become of a partition at the user's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    /// The user has nothing to do with it.
    Nothing,
    /// The user handles it.
    Serve { epoch: Epoch, next: Offset },
    /// The user lets go of it in good order.
    Revoke,
}

/// What the user has of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Has {
    Nothing,
    /// Told to start under this epoch. It may have begun even if it said that it failed.
    Told {
        epoch: Epoch,
        started: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Start,
    Revoke,
    Lost,
}

#[derive(Debug)]
struct Tap {
    goal: Goal,
    has: Has,
    call: Option<(Ask, Call)>,
    not_before: Time,
    backoff: Backoff,
}

impl Tap {
    /// What the user is to be told next.
    fn next(&self) -> Option<(Call, Epoch, Offset)> {
        match (self.has, self.goal) {
            _ if self.call.is_some() => None,
            (Has::Nothing, Goal::Serve { epoch, next }) => Some((Call::Start, epoch, next)),
            (Has::Nothing, Goal::Nothing | Goal::Revoke) => None,
            (Has::Told { epoch, started }, Goal::Serve { epoch: of, next }) if of == epoch => {
                (!started).then_some((Call::Start, epoch, next))
            }
            (Has::Told { epoch, .. }, Goal::Revoke) => Some((Call::Revoke, epoch, Offset(0))),
            (Has::Told { epoch, .. }, Goal::Serve { .. } | Goal::Nothing) => {
                Some((Call::Lost, epoch, Offset(0)))
            }
        }
    }

    fn is_gone(&self) -> bool {
        self.has == Has::Nothing && self.call.is_none()
    }
}

/// The user's readiness for the whole set.
#[derive(Debug)]
struct Preparation {
    wanted: BTreeSet<PartitionId>,
    /// What the user said to be ready for.
    ready: BTreeSet<PartitionId>,
    /// Whether `wanted` changed since it was last told.
    changed: bool,
    in_flight: Option<(Ask, BTreeSet<PartitionId>)>,
    not_before: Time,
    backoff: Backoff,
    failures: u32,
}

/// The feed of those who bring their own consumption.
#[derive(Debug)]
pub(crate) struct ExternalFeed {
    preparation: Preparation,
    taps: BTreeMap<PartitionId, Tap>,
    calls: BTreeMap<Ask, PartitionId>,
    dirty: BTreeSet<PartitionId>,
    retry: (Duration, Duration),
    rng: Rng,
}

impl ExternalFeed {
    pub(crate) fn new(config: &Config, rng: Rng) -> Self {
        let retry = (Duration::from_millis(100), config.retry.max_delay);
        Self {
            preparation: Preparation {
                wanted: BTreeSet::new(),
                ready: BTreeSet::new(),
                changed: false,
                in_flight: None,
                not_before: Time::ZERO,
                backoff: Backoff::new(retry.0, retry.1),
                failures: 0,
            },
            taps: BTreeMap::new(),
            calls: BTreeMap::new(),
            dirty: BTreeSet::new(),
            retry,
            rng,
        }
    }

    fn aim(&mut self, partition: &PartitionId, goal: Goal) {
        let retry = self.retry;
        let tap = self.taps.entry(partition.clone()).or_insert_with(|| Tap {
            goal,
            has: Has::Nothing,
            call: None,
            not_before: Time::ZERO,
            backoff: Backoff::new(retry.0, retry.1),
        });
        if tap.goal != goal {
            tap.goal = goal;
            tap.not_before = Time::ZERO;
        }
        self.dirty.insert(partition.clone());
    }

    /// Tells the user the whole set, if it changed.
    fn prepare(&mut self, cx: &mut Context<'_>) {
        let preparation = &mut self.preparation;
        let due = preparation.changed && cx.now >= preparation.not_before;
        if !due || !cx.lease || preparation.in_flight.is_some() {
            return;
        }
        preparation.changed = false;
        let ask = cx.out.ask();
        preparation.in_flight = Some((ask, preparation.wanted.clone()));
        let partitions = preparation.wanted.iter().cloned().collect();
        let call = ExternalCall::Prepare { partitions };
        cx.out.source(SourceRequest::External { ask, call });
    }

    fn prepared(
        &mut self,
        cx: &mut Context<'_>,
        told: BTreeSet<PartitionId>,
        result: Result<(), SourceError>,
    ) {
        let preparation = &mut self.preparation;
        match result {
            Ok(()) => {
                preparation.backoff.reset();
                preparation.failures = 0;
                preparation.ready = told
                    .into_iter()
                    .filter(|id| preparation.wanted.contains(id))
                    .collect();
                self.dirty.extend(self.taps.keys().cloned());
            }
            Err(error) => {
                if preparation.backoff.is_fresh() {
                    let why = format!("the consumer cannot be updated: {error}");
                    cx.out.note(LaneNote::Trouble(Trouble::Source(why)));
                }
                preparation.failures += 1;
                preparation.changed = true;
                preparation.not_before = cx.now + preparation.backoff.next(&mut self.rng);
            }
        }
        cx.out.ready_changed = true;
    }

    /// Tells the user what is next for one partition.
    fn tell(&mut self, cx: &mut Context<'_>, partition: &PartitionId) {
        let Some(tap) = self.taps.get_mut(partition) else {
            return;
        };
        if tap.is_gone() && tap.goal == Goal::Nothing {
            self.taps.remove(partition);
            return;
        }
        let Some((call, epoch, next)) = tap.next() else {
            return;
        };
        if cx.now < tap.not_before {
            return;
        }
        if call == Call::Start && !(cx.lease && self.preparation.ready.contains(partition)) {
            // Looked at again with every pump, until both hold.
            self.dirty.insert(partition.clone());
            return;
        }
        let ask = cx.out.ask();
        tap.call = Some((ask, call));
        self.calls.insert(ask, partition.clone());
        let partition = partition.clone();
        let call = match call {
            Call::Start => {
                tap.has = Has::Told {
                    epoch,
                    started: false,
                };
                ExternalCall::Start {
                    partition,
                    epoch,
                    next,
                }
            }
            Call::Revoke => ExternalCall::Revoke { partition, epoch },
            Call::Lost => ExternalCall::Lost { partition, epoch },
        };
        cx.out.source(SourceRequest::External { ask, call });
    }

    fn told(
        &mut self,
        cx: &mut Context<'_>,
        partition: PartitionId,
        result: Result<(), SourceError>,
    ) {
        let Some(tap) = self.taps.get_mut(&partition) else {
            return;
        };
        let Some((_, call)) = tap.call.take() else {
            return;
        };
        match (&mut tap.has, call, &result) {
            (Has::Told { started, .. }, Call::Start, Ok(())) => *started = true,
            // A loss is only told: whatever the user makes of it, nothing can be committed.
            (has, Call::Lost, _) | (has, Call::Revoke, Ok(())) => *has = Has::Nothing,
            _ => {}
        }
        match result {
            Ok(()) => tap.backoff.reset(),
            Err(error) => {
                if tap.backoff.is_fresh() {
                    let what = match call {
                        Call::Start => "started",
                        Call::Revoke => "revoked",
                        Call::Lost => "told as lost",
                    };
                    let why = format!("partition {partition} cannot be {what}: {error}");
                    cx.out.note(LaneNote::Trouble(Trouble::Source(why)));
                }
                tap.not_before = cx.now + tap.backoff.next(&mut self.rng);
                cx.out.wake_at(tap.not_before, &partition);
            }
        }
        self.dirty.insert(partition);
    }
}

impl Feed for ExternalFeed {
    fn attach(&mut self, cx: &mut Context<'_>, partition: &PartitionId) {
        if self.preparation.wanted.insert(partition.clone()) {
            self.preparation.changed = true;
            cx.out.ready_changed = true;
        }
    }

    fn detach(&mut self, cx: &mut Context<'_>, partition: &PartitionId) {
        if self.preparation.wanted.remove(partition) {
            self.preparation.changed = true;
            self.preparation.ready.remove(partition);
            cx.out.ready_changed = true;
        }
        // An answer under way was about a set with it: coming back, it must be told again.
        if let Some((_, told)) = &mut self.preparation.in_flight {
            told.remove(partition);
        }
        if self.taps.contains_key(partition) {
            self.aim(partition, Goal::Nothing);
        }
    }

    fn open(&mut self, _cx: &mut Context<'_>, partition: &PartitionId, opening: &Opening) {
        let (epoch, next) = (opening.epoch, opening.next);
        self.aim(partition, Goal::Serve { epoch, next });
    }

    fn close(&mut self, _cx: &mut Context<'_>, partition: &PartitionId) {
        if self.taps.contains_key(partition) {
            self.aim(partition, Goal::Revoke);
        }
    }

    fn ready(&self, partition: &PartitionId) -> bool {
        self.preparation.ready.contains(partition)
    }

    fn is_gone(&self, partition: &PartitionId) -> bool {
        self.taps.get(partition).is_none_or(Tap::is_gone)
    }

    /// The user announces nothing: there is nothing to be suspected here.
    fn is_caught_up(&self, _lanes: &LaneMap, _partition: &PartitionId) -> bool {
        true
    }

    fn source(&mut self, cx: &mut Context<'_>, event: SourceEvent) {
        let SourceEvent::External { ask, result } = event else {
            return;
        };
        let mine = |(of, _): &mut (Ask, BTreeSet<PartitionId>)| *of == ask;
        if let Some((_, told)) = self.preparation.in_flight.take_if(mine) {
            self.prepared(cx, told, result);
        } else if let Some(partition) = self.calls.remove(&ask) {
            self.told(cx, partition, result);
        }
    }

    fn touch(&mut self, partition: &PartitionId) {
        if self.taps.contains_key(partition) {
            self.dirty.insert(partition.clone());
        }
    }

    fn pump(&mut self, cx: &mut Context<'_>) {
        self.prepare(cx);
        for partition in std::mem::take(&mut self.dirty) {
            self.tell(cx, &partition);
        }
    }

    fn pull(&mut self, cx: &mut Context<'_>, _idle: bool) {
        cx.out.acks.clear();
        cx.out.dropped.clear();
    }

    fn next_deadline(&self, now: Time) -> Time {
        let preparation = &self.preparation;
        let waits = preparation.changed && preparation.in_flight.is_none();
        if waits && preparation.not_before > now {
            preparation.not_before
        } else {
            Time::NEVER
        }
    }

    fn degraded(&self) -> Option<String> {
        (self.preparation.failures >= DEGRADED_AFTER)
            .then(|| "the consumer cannot be updated".to_owned())
    }
}
