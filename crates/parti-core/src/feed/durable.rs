//! The worker's one durable consumer, as transport: its sequence, pulls, acks and inspections.
//!
//! The consumer sequence in each delivery shows every loss between two deliveries; a loss at the
//! end shows when the durable's own count is compared (the inspection). What follows from a gap is
//! the feeds' business.
//!
//! What no sequence shows is a filter that was another one for a while: an update that timed out,
//! or one of an earlier life of this worker, can land late and replace the filter. So it is looked
//! at right before it is changed ([`Durable::may_change`]), because after the change nobody could
//! see any more that messages were passed over.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::config::{AckMode, Config};
use crate::feed::batch::Batch;
use crate::feed::by_sequence::BySequence;
use crate::feed::consumer::Planner;
use crate::feed::refusals::Asked;
use crate::feed::{Context, FeedNumbers};
use crate::ids::PartitionId;
use crate::io::{Ask, ConsumerState, SourceError, SourceRequest};
use crate::lane::outbox::{Delivery, Outbox, take_all};
use crate::rng::Rng;
use crate::time::Time;

/// Pulls that may be open at once: the second one bridges the round trip.
const OPEN_PULLS: usize = 2;
/// How long a delivery may be on its way before it counts as lost.
const ON_ITS_WAY: Duration = Duration::from_secs(1);
/// What wants an explanation may come with every message, and mean nothing: a subject that is no
/// partition's, under a wildcard. So often it is looked at, at the most.
const WONDER_EVERY: Duration = Duration::from_secs(5);

/// What a delivery's identity and sequence say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Of an earlier life of the durable: means nothing any more.
    Stale,
    /// Right after the one before.
    InOrder,
    /// Something before it is missing, or the durable went back.
    Gap,
    /// Of a durable that somebody recreated: its filter is unknown.
    Foreign,
}

/// What an answer about the durable says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// Not an answer to the planner or to an inspection.
    NotMine,
    /// An update failed.
    Failed,
    /// An inspection failed.
    Unseen,
    /// An update was carried out. `recreated`: on another durable than before.
    Updated { recreated: bool },
    /// An inspection found everything as it should be.
    Sound,
    /// An inspection found another durable than ours, or another filter.
    Foreign,
}

/// The worker's durable.
#[derive(Debug)]
pub(crate) struct Durable {
    pub(crate) planner: Planner,
    pub(crate) identity: u64,
    /// The next consumer sequence.
    expected: u64,
    /// Open pulls: how many messages each asked for, and how many had arrived by then. The server
    /// spreads messages over open pulls as it likes: only `PullEnded` says that one is over.
    pulls: BTreeMap<Ask, (u32, u64)>,
    /// How many messages the open pulls may still bring, at the most.
    to_come: u32,
    /// How many messages arrived so far.
    arrived: u64,
    /// Unacked deliveries that are here, with when the server last heard of each.
    held: BySequence<Time>,
    pub(crate) batch: Batch,
    explicit: bool,
    ack_wait: Duration,
    extend_at: Time,
    reconcile_interval: Duration,
    /// The inspection in flight, with the filter that it should find.
    inspection: Option<(Ask, Vec<PartitionId>)>,
    inspect_at: Time,
    /// For when a look was last wanted because something came that nobody expected.
    wondered: Option<Time>,
    /// The filter was found to be what it should be, just now.
    looked: bool,
    /// The durable says that it handed out up to here: what has not come by then is lost.
    owed: Option<(u64, Time)>,
}

impl Durable {
    pub(crate) fn new(config: &Config) -> Self {
        let jetstream = &config.jetstream;
        Self {
            planner: Planner::new(config),
            identity: 0,
            expected: 1,
            pulls: BTreeMap::new(),
            to_come: 0,
            arrived: 0,
            held: BySequence::default(),
            batch: Batch::new(jetstream),
            explicit: jetstream.ack == AckMode::Explicit,
            ack_wait: jetstream.ack_wait,
            extend_at: Time::NEVER,
            reconcile_interval: jetstream.reconcile_interval,
            inspection: None,
            inspect_at: Time::NEVER,
            wondered: None,
            looked: false,
            owed: None,
        }
    }

    /// Takes note of a delivery.
    pub(crate) fn arrive(&mut self, delivery: Delivery) -> Arrival {
        if delivery.consumer < self.identity {
            return Arrival::Stale;
        }
        self.arrived += 1;
        self.to_come = self.to_come.saturating_sub(1);
        let expected = self.expected;
        self.expected = delivery.sequence + 1;
        if delivery.consumer > self.identity {
            self.begin_life(delivery.consumer, delivery.sequence);
            self.planner.found_drift();
            return Arrival::Foreign;
        }
        if delivery.sequence == expected || planted!(IgnoreSequenceGap) {
            Arrival::InOrder
        } else {
            Arrival::Gap
        }
    }

    /// Another life of the durable: nothing of the earlier one means anything any more.
    fn begin_life(&mut self, identity: u64, delivered: u64) {
        self.identity = identity;
        self.expected = delivered + 1;
        self.pulls.clear();
        self.to_come = 0;
        self.held.clear();
        self.owed = None;
    }

    /// Keeps a delivery unacked until it is handled or dropped.
    pub(crate) fn hold(&mut self, now: Time, delivery: Delivery, out: &mut Outbox) {
        if planted!(AckBeforeHandled) {
            out.source(SourceRequest::Ack {
                deliveries: vec![delivery.sequence],
            });
        }
        self.held.keep(delivery.sequence, now);
        if self.extend_at == Time::NEVER {
            self.extend_at = now + self.ack_wait / 3;
        }
    }

    /// Sends the acks that gathered, and forgets what was dropped.
    pub(crate) fn settle(&mut self, out: &mut Outbox) {
        for delivery in std::mem::take(&mut out.dropped) {
            if delivery.consumer == self.identity {
                self.held.take(delivery.sequence);
            }
        }
        let acks = take_all(&mut out.acks);
        let mut deliveries = Vec::with_capacity(acks.len());
        let ours = acks.iter().filter(|d| d.consumer == self.identity);
        deliveries.extend(ours.map(|d| d.sequence));
        deliveries.sort_unstable();
        deliveries.dedup();
        for sequence in &deliveries {
            self.held.take(*sequence);
        }
        if self.explicit && !deliveries.is_empty() {
            out.source(SourceRequest::Ack { deliveries });
        }
    }

    /// Tells the server in time that what is here is still worked on.
    pub(crate) fn extend(&mut self, now: Time, out: &mut Outbox) {
        if now < self.extend_at {
            return;
        }
        self.extend_at = if self.held.is_empty() {
            Time::NEVER
        } else {
            now + self.ack_wait / 3
        };
        let mut deliveries = Vec::new();
        for (sequence, heard) in self.held.iter_mut() {
            // At the next look, this one would be older than two thirds.
            if now.since(*heard) >= self.ack_wait / 3 {
                *heard = now;
                deliveries.push(sequence);
            }
        }
        if self.explicit && !deliveries.is_empty() {
            out.source(SourceRequest::Extend { deliveries });
        }
    }

    /// Asks for more where the window allows.
    pub(crate) fn pull(&mut self, now: Time, out: &mut Outbox) {
        self.batch.sample(now, self.held.len());
        if self.identity == 0 || !self.planner.has_consumer() || self.pulls.len() >= OPEN_PULLS {
            return;
        }
        let batch = self.batch.ask_for(self.held.len(), self.to_come);
        // A second pull only when the first is nearly used up.
        if batch == 0 || self.to_come > batch / 2 {
            return;
        }
        let ask = out.ask();
        self.pulls.insert(ask, (batch, self.arrived));
        self.to_come += batch;
        out.source(SourceRequest::Pull { ask, batch });
    }

    /// A pull ended. True: with less than it asked for, though the window had room.
    pub(crate) fn pull_ended(&mut self, ask: Ask) -> bool {
        let Some((batch, arrived)) = self.pulls.remove(&ask) else {
            return false;
        };
        self.to_come = self
            .to_come
            .min(self.pulls.values().map(|(batch, _)| batch).sum());
        self.arrived - arrived < u64::from(batch) && !self.is_full()
    }

    /// Asks every open pull to end.
    pub(crate) fn stop_pulls(&self, out: &mut Outbox) {
        for ask in self.pulls.keys() {
            out.source(SourceRequest::StopPull { ask: *ask });
        }
    }

    /// Whether a pull is open.
    pub(crate) fn is_pulling(&self) -> bool {
        !self.pulls.is_empty()
    }

    /// The connection was lost: open pulls are gone.
    pub(crate) fn reconnected(&mut self, now: Time) {
        self.pulls.clear();
        self.to_come = 0;
        self.look_soon(now);
    }

    /// Whether the window is used up.
    pub(crate) fn is_full(&self) -> bool {
        self.batch.is_full(self.held.len())
    }

    /// Looks at the durable from time to time.
    pub(crate) fn inspect(&mut self, now: Time, out: &mut Outbox) {
        if self.inspect_at <= now && self.planner.is_settled() {
            self.look(out);
        }
    }

    fn look(&mut self, out: &mut Outbox) {
        if self.inspection.is_some() || self.identity == 0 {
            return;
        }
        if let Some(partitions) = self.planner.known() {
            let ask = out.ask();
            self.inspection = Some((ask, partitions.clone()));
            out.source(SourceRequest::InspectConsumer { ask, partitions });
        }
    }

    /// Whether the filter may be changed at once; otherwise it is looked at first.
    pub(crate) fn may_change(&mut self, out: &mut Outbox) -> bool {
        let unknown = self.identity == 0 || self.planner.is_unknown();
        if unknown || !self.planner.keeps() || self.looked {
            return true;
        }
        self.look(out);
        false
    }

    /// Whether it was just found as it should be, and all that it handed out has come.
    pub(crate) fn is_whole(&self) -> bool {
        self.looked && self.owed.is_none()
    }

    /// Whatever was to be done right after a look was done.
    pub(crate) fn look_away(&mut self) {
        self.looked = false;
    }

    /// Somebody has to know what the durable is like.
    pub(crate) fn look_soon(&mut self, now: Time) {
        self.inspect_at = self.inspect_at.min(now);
    }

    /// Something came that wants an explanation: look soon, but not again and again.
    pub(crate) fn wonder(&mut self, now: Time) {
        let soonest = match self.wondered {
            Some(last) => now.max(last + WONDER_EVERY),
            None => now,
        };
        if soonest < self.inspect_at {
            self.inspect_at = soonest;
            self.wondered = Some(soonest);
        }
    }

    /// True when a delivery that the durable says it made has not come: a gap at the end.
    pub(crate) fn is_short(&mut self, now: Time) -> bool {
        let Some((delivered, _)) = self.owed.take_if(|(_, at)| *at <= now) else {
            return false;
        };
        let short = self.expected <= delivered;
        if short {
            self.expected = delivered + 1;
        }
        short
    }

    /// Takes in an answer about the durable.
    pub(crate) fn answer(
        &mut self,
        cx: &mut Context<'_>,
        ask: Ask,
        result: &Result<ConsumerState, SourceError>,
        rng: &mut Rng,
    ) -> News {
        let now = cx.now;
        if let Some((_, partitions)) = self.inspection.take_if(|(asked, _)| *asked == ask) {
            self.inspect_at = now + self.reconcile_interval;
            cx.out.answered(cx.now, Asked::Look, result.as_ref().err());
            return match result {
                Ok(state) => self.compare(now, state, &partitions),
                Err(error) => {
                    if self.planner.needs_update() {
                        self.planner.put_off(now, error.to_string(), rng);
                        self.note_refusal(error);
                    }
                    News::Unseen
                }
            };
        }
        let error = result.as_ref().err().map(ToString::to_string);
        match (self.planner.answer(now, ask, error, rng), result) {
            (None, _) => News::NotMine,
            (Some(_), Err(error)) => {
                self.note_refusal(error);
                News::Failed
            }
            (Some(_), Ok(state)) => {
                self.inspect_at = now + self.reconcile_interval;
                let recreated = self.adopt(now, state);
                News::Updated { recreated }
            }
        }
    }

    fn note_refusal(&mut self, error: &SourceError) {
        if let SourceError::Rejected(_) = error {
            self.planner.was_refused();
        }
    }

    /// Takes over what an answer says about the durable. True: it is another one than before.
    pub(crate) fn adopt(&mut self, now: Time, state: &ConsumerState) -> bool {
        if state.identity != self.identity {
            self.begin_life(state.identity, state.delivered);
            return true;
        }
        self.note_owed(now, state.delivered);
        false
    }

    fn note_owed(&mut self, now: Time, delivered: u64) {
        if delivered >= self.expected && self.owed.is_none() {
            self.owed = Some((delivered, now + ON_ITS_WAY));
        }
    }

    fn compare(&mut self, now: Time, state: &ConsumerState, partitions: &[PartitionId]) -> News {
        if self.planner.known().is_none_or(|known| known != partitions) {
            // It is being changed: the answer may be of before or after.
            return News::Sound;
        }
        if state.identity != self.identity || !state.as_wanted {
            self.planner.found_drift();
            return News::Foreign;
        }
        self.note_owed(now, state.delivered);
        self.looked = true;
        News::Sound
    }

    /// For metrics.
    pub(crate) fn numbers(&self) -> FeedNumbers {
        FeedNumbers {
            updates: self.planner.counters,
            subjects: self.planner.subjects(),
            unacked: self.held.len() as u64,
        }
    }

    /// When to look again, after now.
    pub(crate) fn next_deadline(&self, now: Time) -> Time {
        let owed = self.owed.map_or(Time::NEVER, |(_, at)| at);
        let inspects = self.inspection.is_none() && self.identity != 0 && self.planner.is_settled();
        let inspect = if inspects {
            self.inspect_at
        } else {
            Time::NEVER
        };
        // A change waits for the look at the filter, which is answered in any case.
        let change = if self.inspection.is_none() {
            self.planner.next_deadline()
        } else {
            Time::NEVER
        };
        let deadlines = [owed, inspect, self.extend_at, change];
        deadlines
            .into_iter()
            .map(|at| at.after(now))
            .fold(Time::NEVER, Time::min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Looks that so many strange messages lead to, one each 100 ms, when each look is answered at
    /// once.
    fn looks(messages: u32) -> Vec<Time> {
        let mut durable = Durable::new(&Config::default());
        let mut looks = Vec::new();
        for n in 0..messages {
            let now = Time(0) + SECOND * n / 10;
            durable.wonder(now);
            if durable.inspect_at <= now {
                durable.inspect_at = now + durable.reconcile_interval;
                looks.push(now);
            }
        }
        looks
    }

    #[test]
    fn the_first_strange_message_is_looked_into_at_once_and_the_rest_from_time_to_time() {
        let at = |seconds: u32| Time(0) + SECOND * seconds;
        assert_eq!(looks(1), [at(0)]);
        assert_eq!(looks(40), [at(0)]);
        assert_eq!(looks(121), [at(0), at(5), at(10)]);
    }

    #[test]
    fn a_look_that_is_due_anyway_is_not_put_off_by_wondering() {
        let mut durable = Durable::new(&Config::default());
        durable.wonder(Time(0));
        durable.inspect_at = Time(0) + SECOND * 2;
        durable.wonder(Time(0) + SECOND);
        assert_eq!(durable.inspect_at, Time(0) + SECOND * 2);
    }
}
