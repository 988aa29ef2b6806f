//! The feed of a stream with limits retention: one durable for all lanes, as transport only.
//!
//! ```text
//!  attach ──▶ planner ──update answered──▶ one Head for all lanes that wait ──▶ base of each lane
//!  Delivered ──sequence in order──▶ the lane's tail ──▶ lane        (no lane: acked at once)
//!      └──gap, step back, other durable, reconnect──▶ every lane needs a new base
//!  Read (next, base] ──▶ lane, until the answer proves that the base was passed
//!      └──more there, in many lanes──▶ Sweep: one read of the whole stream for all of them
//!  durable too slow for what is pending ──▶ put at the stream's end, every lane needs a new base
//!  lags for long ──▶ where does the stream begin? ──after what came──▶ what may be gone is told
//! ```
//!
//! The checkpoint is the truth; acks are flow control.

mod overtaken;
mod reading;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::config::Config;
use crate::feed::backoff::Backoff;
use crate::feed::durable::{Arrival, Durable, News};
use crate::feed::pace::Pace;
use crate::feed::refusals::Asked;
use crate::feed::splice::{Base, Splice};
use crate::feed::sweep::Choice;
use crate::feed::went_back::WentBack;
use crate::feed::{Context, Feed, FeedNumbers};
use crate::ids::{Offset, PartitionId};
use crate::io::{Ask, ConsumerState, Message, SourceError, SourceEvent, SourceRequest};
use crate::lane::map::LaneMap;
use crate::lane::outbox::Delivery;
use crate::lane::{LaneNote, Opening};
use crate::rng::Rng;
use crate::time::Time;
use crate::worker::Trouble;
use overtaken::{Losses, Overtaken};

/// Reads that may be in flight at once, over all lanes.
const OPEN_READS: usize = 64;

/// The feed of a stream with limits retention.
#[derive(Debug)]
pub(crate) struct Limits {
    durable: Durable,
    splices: BTreeMap<PartitionId, Splice>,
    /// Lanes to look at.
    dirty: BTreeSet<PartitionId>,
    need_head: BTreeSet<PartitionId>,
    /// The question in flight, with the least answer that is not stale.
    head: Option<(Ask, Offset)>,
    head_not_before: Time,
    head_backoff: Backoff,
    /// The highest offset seen anywhere in the stream.
    seen: Offset,
    went_back: WentBack,
    /// Nothing was pulled for a while: retention may have overtaken what waited, unseen.
    lapsed: bool,
    /// Lanes that may want a read.
    behind: BTreeSet<PartitionId>,
    /// Lanes of which the last read left something: many of them are read by one sweep.
    deep: BTreeSet<PartitionId>,
    reads: BTreeMap<Ask, PartitionId>,
    /// First reads in flight.
    probes: BTreeSet<Ask>,
    sweep: Option<(Ask, Choice)>,
    sweep_not_before: Time,
    sweep_backoff: Backoff,
    /// Sweeps that brought nothing, in a row.
    sweep_failures: u32,
    sweep_partitions: u32,
    pace: Pace,
    overtaken: Overtaken,
    jump: Jump,
    retry: (Duration, Duration),
    rng: Rng,
}

/// The way of a durable that is too slow to the stream's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Jump {
    Rest,
    /// No pull may be open meanwhile: what it brings would be of nobody knows which life.
    Stopping,
    Asked(Ask),
}

impl Limits {
    pub(crate) fn new(config: &Config, rng: Rng) -> Self {
        let retry = (Duration::from_millis(50), config.retry.max_delay);
        let jetstream = &config.jetstream;
        Self {
            durable: Durable::new(config),
            splices: BTreeMap::new(),
            dirty: BTreeSet::new(),
            need_head: BTreeSet::new(),
            head: None,
            head_not_before: Time::ZERO,
            head_backoff: Backoff::new(retry.0, retry.1),
            seen: Offset(0),
            went_back: WentBack::default(),
            lapsed: false,
            behind: BTreeSet::new(),
            deep: BTreeSet::new(),
            reads: BTreeMap::new(),
            probes: BTreeSet::new(),
            sweep: None,
            sweep_not_before: Time::ZERO,
            sweep_backoff: Backoff::new(retry.0, retry.1),
            sweep_failures: 0,
            sweep_partitions: jetstream.sweep_partitions,
            pace: Pace::new(jetstream.catch_up_after, jetstream.sweep_partitions),
            overtaken: Overtaken::new(),
            jump: Jump::Rest,
            retry,
            rng,
        }
    }

    fn delivered(
        &mut self,
        cx: &mut Context<'_>,
        delivery: Delivery,
        partition: &PartitionId,
        message: Message,
        pending: u64,
    ) {
        match self.durable.arrive(delivery) {
            Arrival::Stale => return,
            Arrival::InOrder => {}
            Arrival::Gap => self.gap(cx),
            Arrival::Foreign => self.filter_is_unknown(cx),
        }
        self.pace.delivered(cx.now, message.offset, pending);
        self.overtaken.delivered(cx.now, message.offset, pending);
        self.seen = self.seen.max(message.offset);
        let Some(splice) = self.splices.get_mut(partition) else {
            self.durable.wonder(cx.now);
            cx.out.ack(Some(delivery));
            return;
        };
        if splice.arrive(message, delivery, cx.out) {
            self.durable.hold(cx.now, delivery, cx.out);
            if !std::mem::replace(&mut splice.dirty, true) {
                self.dirty.insert(partition.clone());
            }
        } else {
            // Late, or to be read: the durable need not bring it again.
            cx.out.ack(Some(delivery));
        }
    }

    /// Deliveries may have been lost: every lane needs a new base.
    fn gap(&mut self, cx: &mut Context<'_>) {
        self.overtaken.gap();
        for (partition, splice) in &mut self.splices {
            cx.out.ready_changed |= splice.base == Base::Known;
            splice.gap(cx.out);
            if splice.base == Base::NeedHead {
                self.need_head.insert(partition.clone());
            }
        }
    }

    /// The durable's filter may be another one: what it does not deliver for sure is outside.
    fn filter_is_unknown(&mut self, cx: &mut Context<'_>) {
        self.gap(cx);
        for (partition, splice) in &mut self.splices {
            if !self.durable.planner.delivers(partition) {
                splice.base = Base::Outside;
                self.need_head.remove(partition);
            }
        }
    }

    fn ask_head(&mut self, cx: &mut Context<'_>) {
        if self.need_head.is_empty() && self.head.is_none() {
            // Whoever asks next begins to count anew.
            self.went_back = WentBack::default();
        }
        let due = self.head.is_none() && self.head_not_before <= cx.now;
        if self.need_head.is_empty() || !due {
            return;
        }
        let ask = cx.out.ask();
        let mut known = self.seen;
        for partition in std::mem::take(&mut self.need_head) {
            if let Some(splice) = self.splices.get_mut(&partition) {
                splice.base = Base::HeadAsked(ask);
            }
            if let Some(next) = cx.lanes.next_of(&partition) {
                known = known.max(Offset(next.0.saturating_sub(1)));
            }
        }
        self.head = Some((ask, known));
        cx.out.source(SourceRequest::Bounds { ask });
    }

    fn head_answered(
        &mut self,
        cx: &mut Context<'_>,
        ask: Ask,
        result: Result<Offset, SourceError>,
    ) {
        let Some((_, known)) = self.head.take_if(|(asked, _)| *asked == ask) else {
            return;
        };
        let waiting: Vec<_> = self
            .splices
            .iter()
            .filter(|(_, s)| s.base == Base::HeadAsked(ask))
            .map(|(p, _)| p.clone())
            .collect();
        let last = match result {
            Ok(last) if last >= known => last,
            // An answer below what was seen or done is stale, unless it comes again and again.
            Ok(last) if self.went_back.is_told(cx.now) => last,
            refused => {
                if refused.is_err() {
                    self.went_back = WentBack::default();
                }
                self.head_not_before = cx.now + self.head_backoff.next(&mut self.rng);
                for partition in waiting {
                    if let Some(splice) = self.splices.get_mut(&partition) {
                        splice.base = Base::NeedHead;
                    }
                    self.need_head.insert(partition);
                }
                return;
            }
        };
        let went_back = last < known;
        self.went_back = WentBack::default();
        self.head_backoff.reset();
        self.seen = if went_back { last } else { self.seen.max(last) };
        for partition in waiting {
            let Some(splice) = self.splices.get_mut(&partition) else {
                continue;
            };
            if went_back {
                splice.rebased_on(last, cx.out);
            } else {
                splice.based_on(last, cx.out);
            }
            cx.out.ready_changed = true;
            if let Some(next) = cx.lanes.next_of(&partition)
                && went_back
                && next > last.next()
            {
                let (end, partition) = (last.next(), partition.clone());
                cx.lanes.halt(&partition, cx.out);
                // What waits there would keep its share of the window from all others.
                splice.drop_tail(cx.out);
                if let Some(serving) = cx.lanes.halted_mut(&partition) {
                    cx.out.acks.extend(serving.let_go_unstarted());
                }
                cx.out.note(LaneNote::Trouble(Trouble::LogWentBack {
                    partition,
                    end,
                    next,
                }));
            }
            cx.out.wake(&partition);
            self.dirty.insert(partition);
        }
    }

    /// Looks at one lane: base, tail, reader.
    fn advance(&mut self, cx: &mut Context<'_>, partition: &PartitionId) {
        let Some(splice) = self.splices.get_mut(partition) else {
            return;
        };
        splice.dirty = false;
        if cx.lanes.halted_mut(partition).is_some() {
            // Nobody takes it from here; it is read again once the lane is opened anew.
            splice.drop_tail(cx.out);
        }
        if splice.base == Base::Outside && self.durable.planner.delivers(partition) {
            cx.out.ready_changed = true;
            splice.base = Base::NeedHead;
            if planted!(AddWithoutBackfill) {
                splice.base = Base::Known;
            }
            if planted!(PositionFromDelivered) {
                splice.based_on(self.seen, cx.out);
            }
            if splice.base == Base::NeedHead {
                self.need_head.insert(partition.clone());
            }
        }
        let room = match cx.lanes.open(partition) {
            Some(serving) => serving.room(&cx.lanes.rules),
            None => return,
        };
        let Some(serving) = cx.lanes.open_mut(partition) else {
            return;
        };
        if splice.hand_over(serving, room, cx.out) {
            cx.out.wake(partition);
        }
        if splice.to_read(serving.next()).is_some() {
            self.behind.insert(partition.clone());
        } else {
            splice.deep = false;
        }
    }

    /// Handlers are free, and the window is full of messages that wait behind slow ones: one such
    /// lane gives its share back and reads it again later, so that the others go on.
    fn relieve(&mut self, cx: &mut Context<'_>) {
        let starved = self.splices.iter().any(|(partition, splice)| {
            let lane = cx.lanes.open(partition);
            lane.is_some_and(|s| s.is_empty() && splice.is_caught_up(s.next()))
        });
        if !starved {
            return;
        }
        let waiting = |(partition, splice): (&PartitionId, &Splice)| {
            let queued = cx.lanes.open(partition).map_or(0, |s| s.held());
            (queued + splice.tail_len(), partition.clone())
        };
        let Some((_, partition)) = self.splices.iter().map(waiting).max() else {
            return;
        };
        if let Some(splice) = self.splices.get_mut(&partition) {
            splice.drop_tail(cx.out);
            if let Some(serving) = cx.lanes.open_mut(&partition)
                && let Some((upto, freed)) = serving.drop_unstarted(1)
            {
                cx.out.acks.extend(freed);
                splice.start_tail_at(upto, cx.out);
                // The lane's need went back: a read that goes on from further up would leave a hole.
                splice.reading = None;
            }
            self.dirty.insert(partition);
        }
    }

    /// Whether retention came past the durable while it lagged.
    fn look_for_the_beginning(&mut self, cx: &mut Context<'_>) {
        if self.overtaken.is_due(cx.now) {
            let ask = cx.out.ask();
            self.overtaken.asks(ask);
            cx.out.source(SourceRequest::Bounds { ask });
        }
    }

    fn tell(&self, cx: &mut Context<'_>, losses: Losses) {
        for (from, first, lost) in losses.spans {
            let here = self.splices.keys().chain(&losses.left);
            let partitions: BTreeSet<_> = here.cloned().collect();
            let trouble = Trouble::RetentionPassed {
                partitions: partitions.into_iter().collect(),
                from,
                first,
                lost,
            };
            cx.out.note(LaneNote::Trouble(trouble));
        }
    }

    /// A durable that keeps handlers waiting, with more to come than it can bring in time, is put at
    /// the stream's end.
    fn jump(&mut self, cx: &mut Context<'_>, idle: bool) {
        let lags = idle
            && self.jump == Jump::Rest
            && self.durable.identity != 0
            && self.durable.planner.is_settled()
            && !self.durable.is_full()
            && self.pace.lags(cx.now, self.splices.len());
        if lags {
            self.durable.stop_pulls(cx.out);
            self.jump = Jump::Stopping;
        }
        if self.jump == Jump::Stopping && !self.durable.is_pulling() {
            let ask = cx.out.ask();
            cx.out.source(SourceRequest::ResetConsumer { ask });
            self.jump = Jump::Asked(ask);
        }
    }

    fn jumped(&mut self, cx: &mut Context<'_>, result: Result<ConsumerState, SourceError>) {
        self.jump = Jump::Rest;
        self.pace.caught_up(cx.now);
        match result {
            Ok(state) => {
                self.durable.adopt(cx.now, &state);
                if !planted!(JumpWithoutSplice) {
                    self.gap(cx);
                }
            }
            Err(_) => {
                // It may have been done, or half of it: the filter is set once more.
                self.durable.planner.forget_answer();
                self.filter_is_unknown(cx);
            }
        }
    }

    /// The lane's own buffer is given up: what was in it is the reader's business again.
    fn give_up_buffer(&mut self, cx: &mut Context<'_>, partition: &PartitionId) {
        let Some(splice) = self.splices.get_mut(partition) else {
            return;
        };
        splice.reading = None;
        if let Some(serving) = cx
            .lanes
            .lanes
            .get_mut(partition)
            .and_then(|l| l.serving_mut())
        {
            splice.start_tail_at(serving.next(), cx.out);
            cx.out.acks.extend(serving.let_go_unstarted());
        }
    }
}

impl Feed for Limits {
    fn attach(&mut self, cx: &mut Context<'_>, partition: &PartitionId) {
        if !self.splices.contains_key(partition) {
            let backoff = Backoff::new(self.retry.0, self.retry.1);
            let capacity = cx.lanes.rules.lane_buffer;
            self.splices
                .insert(partition.clone(), Splice::new(capacity, backoff));
        }
        self.durable.planner.want(partition);
        self.dirty.insert(partition.clone());
    }

    fn detach(&mut self, cx: &mut Context<'_>, partition: &PartitionId) {
        self.give_up_buffer(cx, partition);
        self.overtaken.detach(partition);
        if let Some(mut splice) = self.splices.remove(partition) {
            cx.out.ready_changed |= splice.base == Base::Known;
            splice.drop_tail(cx.out);
        }
        cx.out.refusals.forget(&Asked::Read(partition.clone()));
        self.need_head.remove(partition);
        self.durable.planner.unwant(partition);
    }

    fn open(&mut self, cx: &mut Context<'_>, partition: &PartitionId, opening: &Opening) {
        let Some(splice) = self.splices.get_mut(partition) else {
            return;
        };
        splice.reading = None;
        splice.retry_at = Time::ZERO;
        // A cursor above all that was ever seen here: make sure that the log did not go back.
        let unheard_of = opening.next > self.seen.next() && opening.next > splice.from();
        if unheard_of && splice.base != Base::Outside {
            splice.gap(cx.out);
            self.need_head.insert(partition.clone());
        }
        self.dirty.insert(partition.clone());
    }

    fn close(&mut self, cx: &mut Context<'_>, partition: &PartitionId) {
        self.overtaken.hurry(cx.now);
        self.give_up_buffer(cx, partition);
    }

    fn ready(&self, partition: &PartitionId) -> bool {
        self.splices
            .get(partition)
            .is_some_and(|splice| splice.base == Base::Known)
    }

    fn is_caught_up(&self, lanes: &LaneMap, partition: &PartitionId) -> bool {
        match (self.splices.get(partition), lanes.next_of(partition)) {
            (Some(splice), Some(next)) => splice.is_caught_up(next),
            _ => false,
        }
    }

    fn source(&mut self, cx: &mut Context<'_>, event: SourceEvent) {
        match event {
            SourceEvent::Delivered {
                consumer,
                sequence,
                partition,
                message,
                pending,
            } => {
                let delivery = Delivery { consumer, sequence };
                self.delivered(cx, delivery, &partition, message, pending);
            }
            SourceEvent::Consumer { ask, result } if self.jump == Jump::Asked(ask) => {
                self.jumped(cx, result);
            }
            SourceEvent::Consumer { ask, result } => {
                match self.durable.answer(cx, ask, &result, &mut self.rng) {
                    News::Updated { recreated } => {
                        if recreated {
                            self.gap(cx);
                        }
                        self.dirty.extend(self.splices.keys().cloned());
                    }
                    News::Foreign => self.filter_is_unknown(cx),
                    News::Failed | News::Unseen | News::Sound | News::NotMine => {}
                }
            }
            SourceEvent::Bounds { ask, result } => {
                cx.out
                    .answered(cx.now, Asked::Bounds, result.as_ref().err());
                let first = result.as_ref().ok().map(|bounds| bounds.first);
                match self.overtaken.answered(cx.now, ask, first) {
                    Some(losses) => self.tell(cx, losses),
                    None => self.head_answered(cx, ask, result.map(|bounds| bounds.last)),
                }
            }
            SourceEvent::Read { ask, result } => self.read_answered(cx, ask, result),
            SourceEvent::Swept { ask, result } => self.swept(cx, ask, result),
            SourceEvent::PullEnded { ask } => {
                self.durable.pull_ended(ask);
            }
            SourceEvent::Reconnected => {
                self.durable.reconnected(cx.now);
                // Another server may answer now.
                self.went_back = WentBack::default();
                self.gap(cx);
            }
            SourceEvent::Grew { .. }
            | SourceEvent::Resolved { .. }
            | SourceEvent::DeadLettered { .. }
            | SourceEvent::External { .. }
            | SourceEvent::Replaced => {}
        }
    }

    fn touch(&mut self, partition: &PartitionId) {
        self.dirty.insert(partition.clone());
    }

    fn handled(&mut self) {
        self.durable.batch.handled();
    }

    fn pump(&mut self, cx: &mut Context<'_>) {
        let back = cx.lease && std::mem::take(&mut self.lapsed);
        self.lapsed |= !cx.lease;
        if back || self.durable.is_short(cx.now) {
            self.gap(cx);
        }
        let may_change = cx.lease && self.jump == Jump::Rest;
        if may_change && self.durable.planner.is_due(cx.now) && self.durable.may_change(cx.out) {
            let ask = cx.out.ask();
            let request = self.durable.planner.send(cx.now, ask);
            cx.out.source(request);
        }
        self.durable.look_away();
        for partition in std::mem::take(&mut self.dirty) {
            self.advance(cx, &partition);
        }
        self.read_on(cx);
        self.ask_head(cx);
    }

    fn pull(&mut self, cx: &mut Context<'_>, idle: bool) {
        if idle && self.durable.is_full() {
            self.relieve(cx);
        }
        self.durable.settle(cx.out);
        self.durable.extend(cx.now, cx.out);
        if self.durable.is_full() {
            self.pace.held_back();
            self.overtaken.held_back(cx.now);
        }
        if cx.lease {
            self.look_for_the_beginning(cx);
            self.jump(cx, idle);
            if self.jump == Jump::Rest {
                self.durable.inspect(cx.now, cx.out);
                self.durable.pull(cx.now, cx.out);
            }
        }
    }

    fn next_deadline(&self, now: Time) -> Time {
        let head = self.head.is_none() && !self.need_head.is_empty();
        let head = if head {
            self.head_not_before
        } else {
            Time::NEVER
        };
        let sweep = if self.sweep.is_none() && !self.deep.is_empty() {
            self.sweep_not_before
        } else {
            Time::NEVER
        };
        let own = [
            head,
            sweep,
            self.pace.next_deadline(),
            self.overtaken.next_deadline(),
        ];
        let soonest = own.into_iter().map(|at| at.after(now)).min();
        let durable = self.durable.next_deadline(now);
        soonest.map_or(durable, |at| at.min(durable))
    }

    fn degraded(&self) -> Option<String> {
        self.durable.planner.degraded()
    }

    fn refused(&self) -> Option<String> {
        self.durable.planner.refused()
    }

    fn numbers(&self) -> FeedNumbers {
        self.durable.numbers()
    }
}
