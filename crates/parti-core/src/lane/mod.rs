//! The message side of a worker: lanes that keep order, and the feed that fills them.
//!
//! ```text
//!            attach        open                close             (Drained)   detach
//!  (nothing) ─────▶ Prepared ─────▶ Open ─────────────▶ Closing ─────────────────▶ (nothing)
//!                                    │ └─ log went back ─▶ Halted
//!                                    └──── abandon: at once, what is in flight is only remembered
//!
//!  source ──▶ feed ──▶ lane ──lease alive, slot free, in turn──▶ Handle ──▶ handled ──▶ progress
//! ```
//!
//! Inputs only take note; [`Lanes::take_actions`] then does everything that became possible, so
//! that a burst of inputs becomes one consumer update and one ack.

pub(crate) mod map;
pub mod note;
pub(crate) mod outbox;
mod resolve;
pub(crate) mod serving;
pub(crate) mod suspicion;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

pub use note::{LaneAction, LaneNote, Opening, Progress};

use crate::config::Config;
use crate::feed::external::ExternalFeed;
use crate::feed::limits::Limits;
use crate::feed::log::LogFeed;
use crate::feed::workqueue::WorkQueue;
use crate::feed::{Context, Feed, FeedNumbers};
use crate::ids::{Epoch, Offset, PartitionId};
use crate::io::{
    Ask, CommitRefused, Job, Ran, Retention, Run, SourceEvent, SourceKind, SourceRequest, Then,
};
use crate::lane::map::{Lane, LaneMap, Phase};
use crate::lane::outbox::{Outbox, take_all};
use crate::lane::resolve::Resolve;
use crate::lane::serving::{Outcome, Rules, Serving, Step};
use crate::rng::Rng;
use crate::time::Time;
use crate::worker::Trouble;

/// No message of a run begins later than this after its first: other lanes wait for the slot.
const RUN_TIME: Duration = Duration::from_millis(2);

/// All lanes of a worker, with their feed.
#[derive(Debug)]
pub struct Lanes {
    map: LaneMap,
    feed: Box<dyn Feed>,
    out: Outbox,
    /// Lanes that may start something, in turn.
    runnable: VecDeque<PartitionId>,
    timers: BTreeSet<(Time, PartitionId)>,
    /// Runs in flight, those of abandoned lanes included: each is in one handler call.
    running: usize,
    /// The runs of lanes that are no more, by the message that they are at: their results do not
    /// count, but until they ended, the partition starts no other.
    stale: BTreeMap<PartitionId, BTreeSet<(Epoch, Offset)>>,
    /// The one message that was begun before and is being tried again.
    suspect: Option<(PartitionId, Epoch, Offset)>,
    /// Lanes whose next message was begun before, too: they wait for their turn.
    suspects: BTreeSet<PartitionId>,
    closing: BTreeSet<PartitionId>,
    letters: BTreeMap<Ask, PartitionId>,
    resolves: BTreeMap<PartitionId, Resolve>,
    /// Messages are handled outside: progress comes by `commit`, not by `handled`.
    external: bool,
    lease_until: Time,
    now: Time,
    /// Whether it is told that the feed is degraded; and then, whether by a refusal.
    told_degraded: Option<bool>,
    /// Whether the source refused something when that was last looked at.
    told_refused: bool,
    /// Whether everything that became possible was done.
    settled: bool,
    retry: (Duration, Duration),
    rng: Rng,
}

impl Lanes {
    /// No lanes yet, fed by this kind of source. Nothing is dispatched before [`Lanes::lease`].
    pub fn new(config: &Config, kind: SourceKind, mut rng: Rng) -> Self {
        let feed: Box<dyn Feed> = match kind {
            SourceKind::Log => Box::new(LogFeed::new(config, rng.fork())),
            SourceKind::Stream(Retention::Limits) => Box::new(Limits::new(config, rng.fork())),
            SourceKind::Stream(Retention::WorkQueue) => {
                Box::new(WorkQueue::new(config, rng.fork()))
            }
            SourceKind::External => Box::new(ExternalFeed::new(config, rng.fork())),
        };
        Self {
            map: LaneMap {
                lanes: BTreeMap::new(),
                rules: Rules::new(config),
            },
            feed,
            out: Outbox::new(config),
            runnable: VecDeque::new(),
            timers: BTreeSet::new(),
            running: 0,
            stale: BTreeMap::new(),
            suspect: None,
            suspects: BTreeSet::new(),
            closing: BTreeSet::new(),
            letters: BTreeMap::new(),
            resolves: BTreeMap::new(),
            external: kind == SourceKind::External,
            lease_until: Time::ZERO,
            now: Time::ZERO,
            told_degraded: None,
            told_refused: false,
            settled: true,
            retry: (
                config.retry.initial_delay.min(Duration::from_secs(1)),
                config.retry.max_delay,
            ),
            rng,
        }
    }

    fn at(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.settled = false;
    }

    fn with_feed<R>(&mut self, act: impl FnOnce(&mut dyn Feed, &mut Context<'_>) -> R) -> R {
        let lease = self.lease_is_alive();
        let mut cx = Context {
            now: self.now,
            lanes: &mut self.map,
            out: &mut self.out,
            lease,
        };
        act(self.feed.as_mut(), &mut cx)
    }

    fn lease_is_alive(&self) -> bool {
        self.now < self.lease_until
    }

    /// Prepares a partition: feed and buffer it, handle nothing. Again and again is fine.
    pub fn attach(&mut self, now: Time, partition: &PartitionId) {
        self.at(now);
        if !self.map.lanes.contains_key(partition) {
            let lane = Lane {
                phase: Phase::Prepared,
                queued: false,
            };
            self.map.lanes.insert(partition.clone(), lane);
            self.with_feed(|feed, cx| feed.attach(cx, partition));
        }
    }

    /// Drops a partition from the source and forgets its buffer. A handler call in flight is
    /// remembered until it returns; its result does not count.
    pub fn detach(&mut self, now: Time, partition: &PartitionId) {
        self.at(now);
        self.closing.remove(partition);
        self.resolves.remove(partition);
        if self.map.lanes.contains_key(partition) {
            self.with_feed(|feed, cx| feed.detach(cx, partition));
            self.retire(partition);
            self.map.lanes.remove(partition);
        }
    }

    /// Fenced, or the session is lost: stops at once and drops everything.
    pub fn abandon(&mut self, now: Time, partition: &PartitionId) {
        self.detach(now, partition);
    }

    /// Remembers the handler calls of a lane that is no more.
    fn retire(&mut self, partition: &PartitionId) {
        let Some(serving) = self.map.lanes.get(partition).and_then(Lane::serving) else {
            return;
        };
        let calls: Vec<_> = serving
            .running()
            .map(|offset| (serving.epoch, offset))
            .collect();
        if serving.would_go_on() {
            self.out.halt(partition);
        }
        if planted!(ReopenWhileInFlight) {
            self.running -= calls.len();
        } else if !calls.is_empty() {
            self.stale
                .entry(partition.clone())
                .or_default()
                .extend(calls);
        }
    }

    /// Whether a prepared partition could be served at once.
    pub fn ready(&self, partition: &PartitionId) -> bool {
        self.feed.ready(partition)
    }

    /// Starts serving a partition that was taken, exactly at `opening.next`. Attaches it if need be.
    pub fn open(&mut self, now: Time, partition: &PartitionId, opening: Opening) {
        self.attach(now, partition);
        self.closing.remove(partition);
        let served = self
            .map
            .lanes
            .get(partition)
            .and_then(Lane::serving)
            .is_some();
        if served {
            self.with_feed(|feed, cx| feed.close(cx, partition));
            self.retire(partition);
        }
        let serving = Serving::new(&opening, &self.map.rules);
        if let Some(lane) = self.map.lanes.get_mut(partition) {
            lane.phase = Phase::Open(serving);
        }
        self.with_feed(|feed, cx| feed.open(cx, partition, &opening));
        self.out.wake(partition);
    }

    /// Takes no new message of this partition; [`LaneNote::Drained`] when what is in flight ended.
    /// Messages that wait for another try stay undone.
    pub fn close(&mut self, now: Time, partition: &PartitionId) {
        self.at(now);
        let Some(lane) = self.map.lanes.get_mut(partition) else {
            self.closing.insert(partition.clone());
            return;
        };
        if !planted!(KeepServingAfterClose) {
            if lane.serving().is_some_and(Serving::would_go_on) {
                self.out.halt(partition);
            }
            lane.phase = match std::mem::replace(&mut lane.phase, Phase::Prepared) {
                Phase::Open(serving) | Phase::Halted(serving) => Phase::Closing(serving),
                other => other,
            };
            if matches!(lane.phase, Phase::Closing(_)) && self.closing.insert(partition.clone()) {
                self.with_feed(|feed, cx| feed.close(cx, partition));
            }
        }
        self.closing.insert(partition.clone());
    }

    /// Handlers are called, and the durable is touched, only before this time.
    pub fn lease(&mut self, now: Time, until: Time) {
        self.at(now);
        self.lease_until = until;
    }

    /// News of the source.
    pub fn source(&mut self, now: Time, event: SourceEvent) {
        self.at(now);
        match event {
            SourceEvent::Resolved { ask, result } => self.resolved(ask, result),
            SourceEvent::DeadLettered { ask, result } => self.dead_lettered(ask, result.is_ok()),
            event => self.with_feed(|feed, cx| feed.source(cx, event)),
        }
    }

    /// News of a run.
    pub fn handled(&mut self, now: Time, partition: &PartitionId, epoch: Epoch, ran: Ran) {
        self.at(now);
        if self.ended_stale(partition, epoch, &ran) {
            return;
        }
        let LaneMap { lanes, rules } = &mut self.map;
        let serving = lanes.get_mut(partition).and_then(Lane::serving_mut);
        let Some(serving) = serving.filter(|s| s.epoch == epoch) else {
            return;
        };
        let ran_before = serving.in_flight();
        let Some(outcomes) = serving.handled(self.now, ran, rules) else {
            return;
        };
        self.running -= ran_before - serving.in_flight();
        for outcome in outcomes {
            self.conclude(partition, outcome);
        }
        self.may_go_on(partition);
    }

    /// The user's own consumption is done with everything up to and with this offset. It counts
    /// from now on, and is written with the next flush or release.
    pub fn commit(
        &mut self,
        now: Time,
        partition: &PartitionId,
        epoch: Epoch,
        offset: Offset,
    ) -> Result<(), CommitRefused> {
        self.at(now);
        let serving = match self.map.lanes.get_mut(partition) {
            Some(lane) if self.external => lane.serving_mut(),
            _ => None,
        };
        let serving = serving.ok_or(CommitRefused::NotOwned)?;
        if serving.epoch != epoch {
            let current = serving.epoch;
            return Err(CommitRefused::Fenced { current });
        }
        serving.done_upto(offset)
    }

    /// Whether this is news of a run of a lane that is no more.
    fn ended_stale(&mut self, partition: &PartitionId, epoch: Epoch, ran: &Ran) -> bool {
        let Some(calls) = self.stale.get_mut(partition) else {
            return false;
        };
        if !calls.remove(&(epoch, ran.first)) {
            return false;
        }
        if let Then::GoesOn(next) = ran.then {
            calls.insert((epoch, next));
            return true;
        }
        self.running -= 1;
        if calls.is_empty() {
            self.stale.remove(partition);
            self.out.wake(partition);
        }
        true
    }

    fn conclude(&mut self, partition: &PartitionId, outcome: Outcome) {
        match outcome {
            Outcome::Unknown => {}
            Outcome::Later(at) => self.out.wake_at(at, partition),
            Outcome::Done {
                delivery, commit, ..
            } => {
                self.out.ack(delivery);
                self.feed.handled();
                if commit && self.map.open(partition).is_some() {
                    self.out.note(LaneNote::Commit {
                        partition: partition.clone(),
                    });
                }
            }
        }
    }

    fn may_go_on(&mut self, partition: &PartitionId) {
        self.feed.touch(partition);
        self.out.wake(partition);
    }

    /// Suspicion: `begun` is in the partition record, the announced message may run.
    pub fn begun_written(
        &mut self,
        now: Time,
        partition: &PartitionId,
        epoch: Epoch,
        offset: Offset,
    ) {
        self.at(now);
        let serving = self.map.open_mut(partition).filter(|s| s.epoch == epoch);
        if serving.is_some_and(|s| s.begun_written(offset)) {
            self.out.wake(partition);
        }
    }

    /// How far an opened partition is. `None`: it is not opened.
    pub fn progress(&self, partition: &PartitionId) -> Option<Progress> {
        self.map
            .lanes
            .get(partition)?
            .serving()
            .map(Serving::progress)
    }

    /// The messages of an opened partition that are being handled, or sent to the dead letters.
    pub fn in_flight(&self, partition: &PartitionId) -> impl Iterator<Item = Offset> + '_ {
        let serving = self.map.lanes.get(partition).and_then(Lane::serving);
        serving.into_iter().flat_map(Serving::begun)
    }

    /// Whether an opened partition is still handled in suspicion.
    pub fn suspicious(&self, partition: &PartitionId) -> bool {
        let serving = self.map.lanes.get(partition).and_then(Lane::serving);
        serving.is_some_and(Serving::suspicious)
    }

    /// A deadline came.
    pub fn tick(&mut self, now: Time) {
        self.at(now);
    }

    /// When to come back with [`Lanes::tick`], at the latest. Fetch the actions first.
    pub fn next_deadline(&self) -> Time {
        if !self.settled {
            return self.now;
        }
        let timer = self.timers.first().map_or(Time::NEVER, |(at, _)| *at);
        timer
            .min(self.resolve_deadline())
            .min(self.out.refusals.next_deadline())
            .min(self.feed.next_deadline(self.now))
    }

    /// What is wrong with the source's side of this worker, if anything is.
    pub fn degraded(&self) -> Option<String> {
        self.feed.degraded()
    }

    /// What the source refuses until a person mends something, if anything.
    pub fn refused(&self) -> Option<String> {
        let refused = self.out.refusals.first().map(str::to_owned);
        refused.or_else(|| self.feed.refused())
    }

    /// What the feed did so far, for metrics.
    pub fn numbers(&self) -> FeedNumbers {
        self.feed.numbers()
    }

    /// Every opened partition with the first offset that is not done.
    pub fn positions(&self) -> impl Iterator<Item = (&PartitionId, Offset)> {
        let opened = |(id, lane): (_, &'_ Lane)| Some((id, lane.serving()?.done_next()));
        self.map.lanes.iter().filter_map(opened)
    }

    /// Does everything that became possible, and yields what it takes.
    pub fn take_actions(&mut self) -> Vec<LaneAction> {
        self.fire_timers();
        self.send_resolves();
        self.with_feed(|feed, cx| feed.pump(cx));
        let idle = self.dispatch();
        self.with_feed(|feed, cx| feed.pull(cx, idle));
        self.report_drained();
        self.tell_degraded();
        self.tell_refused();
        self.timers.extend(self.out.timers.drain(..));
        if std::mem::take(&mut self.out.ready_changed) {
            self.out.note(LaneNote::ReadyChanged);
        }
        self.settled = true;
        self.out.take()
    }

    fn fire_timers(&mut self) {
        self.timers.extend(self.out.timers.drain(..));
        while let Some((at, partition)) = self.timers.pop_first() {
            if at > self.now {
                self.timers.insert((at, partition));
                break;
            }
            self.feed.touch(&partition);
            self.out.wake(&partition);
        }
    }

    /// Starts what may start, lane by lane in turn. True: handlers are free, lanes have nothing.
    fn dispatch(&mut self) -> bool {
        self.end_try();
        for partition in take_all(&mut self.out.woken) {
            if let Some(lane) = self.map.lanes.get_mut(&partition)
                && !std::mem::replace(&mut lane.queued, true)
            {
                self.runnable.push_back(partition);
            }
        }
        while self.running < self.map.rules.concurrency {
            if !self.lease_is_alive() && !planted!(DispatchWithoutLease) {
                return false;
            }
            let Some(partition) = self.runnable.pop_front() else {
                return true;
            };
            let Some(lane) = self.map.lanes.get_mut(&partition) else {
                continue;
            };
            lane.queued = false;
            if self.start_one(&partition) {
                if let Some(lane) = self.map.lanes.get_mut(&partition) {
                    lane.queued = true;
                }
                self.runnable.push_back(partition);
            }
        }
        false
    }

    /// Lets the next suspect have its turn, once the try of the one before has ended: handled, or
    /// given up with its lane.
    fn end_try(&mut self) {
        let Some((partition, epoch, offset)) = &self.suspect else {
            return;
        };
        let serving = match self.map.lanes.get(partition).map(|lane| &lane.phase) {
            // One that closes may still run it, or have its announcement on the way.
            Some(Phase::Open(serving) | Phase::Closing(serving)) => Some(serving),
            _ => None,
        };
        if !serving.is_some_and(|s| s.epoch == *epoch && s.tries(*offset)) {
            self.suspect = None;
            for waiting in std::mem::take(&mut self.suspects) {
                self.out.wake(&waiting);
            }
        }
    }

    /// Whether this lane has to wait, because its next message was begun before and another such
    /// one is being tried.
    fn waits_for_its_turn(&mut self, partition: &PartitionId) -> bool {
        let serving = self.map.open(partition);
        let Some((epoch, offset)) =
            serving.and_then(|s| Some((s.epoch, s.suspect(&self.map.rules)?)))
        else {
            return false;
        };
        if self.suspect.is_some() && !planted!(SuspectsTogether) {
            self.suspects.insert(partition.clone());
            return true;
        }
        self.suspect = Some((partition.clone(), epoch, offset));
        false
    }

    /// Starts one thing in this lane. False: there is nothing to start.
    fn start_one(&mut self, partition: &PartitionId) -> bool {
        if self.stale.contains_key(partition) {
            return false;
        }
        if self.waits_for_its_turn(partition) {
            return false;
        }
        let LaneMap { lanes, rules } = &mut self.map;
        let Some(Lane {
            phase: Phase::Open(serving),
            ..
        }) = lanes.get_mut(partition)
        else {
            return false;
        };
        let epoch = serving.epoch;
        let Some(step) = serving.step(self.now, rules, || self.out.ask()) else {
            if serving.suspicious() && serving.is_empty() {
                let caught_up = self.feed.is_caught_up(&self.map, partition);
                if let Some(serving) = self.map.open_mut(partition).filter(|_| caught_up) {
                    serving.lag_is_gone();
                }
            }
            return false;
        };
        let partition = partition.clone();
        match step {
            Step::Run(messages, attempt) => {
                self.running += 1;
                self.out.handle(Run {
                    partition,
                    epoch,
                    messages,
                    attempt,
                    within: RUN_TIME,
                });
            }
            Step::Announce(begun) => {
                self.out.note(LaneNote::Begin {
                    partition,
                    epoch,
                    begun,
                });
            }
            Step::Bury {
                ask,
                message,
                attempts,
                error,
            } => {
                self.letters.insert(ask, partition.clone());
                let job = Job {
                    partition,
                    epoch,
                    message,
                    attempt: attempts,
                };
                self.out
                    .source(SourceRequest::DeadLetter { ask, job, error });
            }
        }
        true
    }

    /// Tells once what is wrong with the source's side; the session says it for as long as it lasts.
    fn tell_degraded(&mut self) {
        if self.external {
            // The user's own consumption said what failed when it did.
            return;
        }
        let why = self.feed.degraded();
        let state = why.as_ref().map(|_| self.feed.refused().is_some());
        let told = std::mem::replace(&mut self.told_degraded, state);
        match (why, state) {
            (Some(why), Some(true)) if told != state => {
                self.out
                    .note(LaneNote::Trouble(Trouble::SourceRefuses(why)));
            }
            (Some(why), Some(false)) if told.is_none() => {
                self.out.note(LaneNote::Trouble(Trouble::Source(why)));
            }
            _ => {}
        }
    }

    /// Tells once that the source refuses nothing any more.
    fn tell_refused(&mut self) {
        let asks = self.lease_is_alive();
        self.out.refusals.pass(self.now, asks);
        let refused = self.refused().is_some();
        if std::mem::replace(&mut self.told_refused, refused) && !refused {
            self.out.note(LaneNote::RefusedNoMore);
        }
    }

    fn report_drained(&mut self) {
        let drained: Vec<_> = self
            .closing
            .iter()
            .filter(|partition| {
                let lane = self.map.lanes.get(*partition).and_then(Lane::serving);
                let quiet =
                    lane.is_none_or(|s| s.in_flight() == 0) && !self.stale.contains_key(*partition);
                (quiet && self.feed.is_gone(partition)) || planted!(KeepServingAfterClose)
            })
            .cloned()
            .collect();
        for partition in drained {
            self.closing.remove(&partition);
            self.out.note(LaneNote::Drained { partition });
        }
    }

    fn dead_lettered(&mut self, ask: Ask, published: bool) {
        let Some(partition) = self.letters.remove(&ask) else {
            return;
        };
        let spread = self.rng.below(self.retry.0.as_micros() as u64);
        let retry_at = self.now + self.retry.0 + Duration::from_micros(spread);
        let Some(serving) = self
            .map
            .lanes
            .get_mut(&partition)
            .and_then(Lane::serving_mut)
        else {
            return;
        };
        let (offset, outcome) = serving.buried(ask, published, retry_at);
        if let Outcome::Done { attempts, .. } = outcome {
            let partition = partition.clone();
            self.out.note(LaneNote::DeadLettered {
                partition,
                offset,
                attempts,
            });
        }
        self.conclude(&partition, outcome);
        self.may_go_on(&partition);
    }
}
