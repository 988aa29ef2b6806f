//! One opened partition: its messages in lane order, what runs, what is done.
//!
//! ```text
//!             place                      step                        finished
//!  feed ───────────────▶ Waiting ──(Following)──────▶ Running ──Done──▶ Done ─┐ leaves at the front:
//!                          │  ▲ begun_written          │ failed              │ the watermark moves
//!               suspicion  ▼  │                        ▼                     ▼
//!                       Announcing      Backoff ◀── attempts left     done, done_above
//!                                          │           │ none left
//!                                          └─▶ step    ▼
//!                                                   Unburied ──step──▶ Burying ──ok──▶ Done
//!                                                      ▲──────── failed ──┘
//! ```
//!
//! Contiguity is by lane order, never by counting: a stream's offsets have gaps.
//!
//! With `ordering: partition`, what waits behind a message that starts goes along with it, as one
//! run: no way back to here for each single message.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::config::{Config, Ordering};
use crate::ids::{Epoch, Offset};
use crate::io::{Ask, CommitRefused, Message, Ran, Then};
use crate::lane::outbox::Delivery;
use crate::lane::suspicion::{Advice, Suspicion};
use crate::lane::{Opening, Progress};
use crate::record::Begun;
use crate::time::Time;

/// The most messages of a run: half of what a lane holds by default, so that the other half can be
/// fetched meanwhile.
const RUN: usize = 128;
/// After a call that had to wait, so many messages run alone: the next ones will have to wait, too.
const ALONE: u32 = 16;

/// The settings that lanes go by.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) ordering: Ordering,
    pub(crate) concurrency: usize,
    pub(crate) lane_buffer: usize,
    max_done_above: usize,
    suspicion_successes: u32,
    max_deliver: u32,
    retry_backoff: Vec<Duration>,
}

impl Rules {
    pub(crate) fn new(config: &Config) -> Self {
        let processing = &config.processing;
        Self {
            ordering: processing.ordering,
            concurrency: processing.concurrency.max(1) as usize,
            lane_buffer: processing.lane_buffer.max(1) as usize,
            max_done_above: processing.max_done_above as usize,
            suspicion_successes: processing.suspicion_successes,
            max_deliver: config.jetstream.max_deliver.max(1),
            retry_backoff: config.jetstream.retry_backoff.clone(),
        }
    }

    /// The wait after so many attempts; the last one repeats.
    fn backoff(&self, attempts: u32) -> Duration {
        let last = self.retry_backoff.len().saturating_sub(1);
        let index = (attempts.saturating_sub(1) as usize).min(last);
        self.retry_backoff.get(index).copied().unwrap_or_default()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ItemState {
    /// Not started.
    Waiting,
    /// The worker is writing `begun`.
    Announcing,
    /// `begun` is written: it may run.
    Announced,
    /// Its handler call is in flight.
    Running,
    /// It goes along with the one that runs, and is begun next.
    Following,
    /// It failed, and is tried again then.
    Backoff(Time),
    /// It failed too often: to be dead-lettered, not before then.
    Unburied(Time, Arc<str>),
    /// Its dead letter is being published.
    Burying(Ask, Arc<str>),
    /// Done, but something before it is not.
    Done,
}

#[derive(Clone, Debug)]
struct Item {
    message: Message,
    delivery: Option<Delivery>,
    state: ItemState,
    attempts: u32,
}

/// What a lane does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Call the handler for these in turn; this is the first one's try.
    Run(Vec<Message>, u32),
    /// Have `begun` written.
    Announce(Begun),
    /// Publish a dead letter.
    Bury {
        ask: Ask,
        message: Message,
        attempts: u32,
        error: Arc<str>,
    },
}

/// What became of a message that a feed brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placed {
    /// It waits for its turn.
    Queued,
    /// It is here already: this delivery replaces an earlier one (returned), if any.
    Known(Option<Delivery>),
    /// It was done before: whoever delivers it can be told so.
    DoneBefore,
}

/// What a handler's or a dead letter's answer led to, for one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The message is done; this delivery can be acked.
    Done {
        delivery: Option<Delivery>,
        /// Suspicion: commit at once.
        commit: bool,
        attempts: u32,
    },
    /// It is tried again then.
    Later(Time),
    /// No such call is in flight.
    Unknown,
}

/// One opened partition.
#[derive(Clone, Debug)]
pub(crate) struct Serving {
    pub(crate) epoch: Epoch,
    /// Everything below is here or done: where the feed goes on.
    next: Offset,
    /// Everything below is done.
    done_next: Offset,
    /// The highest contiguous done offset under this epoch.
    done: Option<Offset>,
    /// Done offsets above the watermark.
    done_above: BTreeSet<Offset>,
    items: VecDeque<Item>,
    done_items: usize,
    /// Runs in flight.
    running: usize,
    /// Messages that go along with the one that runs.
    following: usize,
    /// So many of the next runs are of one message.
    alone: u32,
    burying: usize,
    suspicion: Option<Suspicion>,
}

impl Serving {
    pub(crate) fn new(opening: &Opening, rules: &Rules) -> Self {
        let next = if planted!(CursorOffByOne) {
            opening.next.next()
        } else {
            opening.next
        };
        let suspicious = opening.suspicious && !planted!(SuspicionIgnored);
        Self {
            epoch: opening.epoch,
            next,
            done_next: next,
            done: None,
            done_above: opening
                .done_above
                .iter()
                .copied()
                .filter(|o| *o >= next)
                .collect(),
            items: VecDeque::new(),
            done_items: 0,
            running: 0,
            following: 0,
            alone: 0,
            burying: 0,
            suspicion: suspicious.then(|| Suspicion::new(opening.begun, rules.suspicion_successes)),
        }
    }

    /// Where the feed goes on: everything below is here or done.
    pub(crate) fn next(&self) -> Offset {
        self.next
    }

    /// How many more messages it may hold.
    pub(crate) fn room(&self, rules: &Rules) -> usize {
        rules
            .lane_buffer
            .saturating_sub(self.items.len() - self.done_items)
    }

    /// Whether no message is here.
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Deliveries here that are not acked yet.
    pub(crate) fn held(&self) -> usize {
        self.items.iter().filter(|i| i.delivery.is_some()).count()
    }

    /// Runs and dead letters in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.running + self.burying
    }

    /// Whether a run would begin another message, unless it is halted.
    pub(crate) fn would_go_on(&self) -> bool {
        self.following > 0
    }

    /// The offsets whose handler calls are in flight.
    pub(crate) fn running(&self) -> impl Iterator<Item = Offset> + '_ {
        self.items
            .iter()
            .filter(|i| i.state == ItemState::Running)
            .map(|i| i.message.offset)
    }

    /// The offsets of what is in flight: handler calls and dead letters.
    pub(crate) fn begun(&self) -> impl Iterator<Item = Offset> + '_ {
        let begun = |i: &&Item| matches!(i.state, ItemState::Running | ItemState::Burying(..));
        self.items.iter().filter(begun).map(|i| i.message.offset)
    }

    /// The feed knows that there is nothing between `next` and this offset.
    pub(crate) fn nothing_below(&mut self, offset: Offset) {
        self.next = self.next.max(offset);
    }

    /// How far this partition is.
    pub(crate) fn progress(&self) -> Progress {
        let offset = if planted!(CheckpointLastAcked) {
            self.done_above.last().copied().max(self.done)
        } else {
            self.done
        };
        Progress {
            epoch: self.epoch,
            offset,
            done_above: self.done_above.iter().copied().collect(),
        }
    }

    /// Takes in a message. Feeds bring them in order, and only from `next` on; a work queue also
    /// brings again what is here already.
    pub(crate) fn place(&mut self, message: Message, delivery: Option<Delivery>) -> Placed {
        let offset = message.offset;
        if offset < self.done_next {
            return Placed::DoneBefore;
        }
        // Nearly all of them come in order.
        let last = self.items.back();
        let at = if last.is_none_or(|last| last.message.offset < offset) {
            self.items.len()
        } else {
            self.items.partition_point(|i| i.message.offset < offset)
        };
        if let Some(item) = self.items.get_mut(at)
            && item.message.offset == offset
        {
            if item.state == ItemState::Done {
                return Placed::DoneBefore;
            }
            return Placed::Known(std::mem::replace(&mut item.delivery, delivery));
        }
        let done_before = self.done_above.contains(&offset);
        let state = if done_before {
            ItemState::Done
        } else {
            ItemState::Waiting
        };
        self.items.insert(
            at,
            Item {
                message,
                delivery,
                state,
                attempts: 0,
            },
        );
        self.next = self.next.max(offset.next());
        if done_before {
            self.done_items += 1;
            self.leave_front();
            return Placed::DoneBefore;
        }
        Placed::Queued
    }

    /// Drops what has not been started, from the end, and says which deliveries that frees and up
    /// to where (exclusive) must be read again.
    pub(crate) fn drop_unstarted(&mut self, keep: usize) -> Option<(Offset, Vec<Delivery>)> {
        let mut freed = Vec::new();
        let mut upto = None;
        while self.items.len() > keep
            && let Some(last) = self.items.back()
            && last.state == ItemState::Waiting
        {
            upto = upto.or(Some(last.message.offset.next()));
            self.next = last.message.offset;
            freed.extend(last.delivery);
            self.items.pop_back();
        }
        upto.map(|upto| (upto, freed))
    }

    /// The deliveries of messages whose calls are not in flight, which then hold none any more.
    pub(crate) fn let_go_unstarted(&mut self) -> Vec<Delivery> {
        let idle = |i: &&mut Item| {
            !matches!(
                i.state,
                ItemState::Running | ItemState::Burying(..) | ItemState::Done
            )
        };
        self.items
            .iter_mut()
            .filter(idle)
            .filter_map(|i| i.delivery.take())
            .collect()
    }

    /// The first offset that is not done.
    pub(crate) fn done_next(&self) -> Offset {
        self.done_next
    }

    /// Ends suspicion, because nothing is left to be suspected.
    pub(crate) fn lag_is_gone(&mut self) {
        let next = self.next;
        if self.items.is_empty() && self.suspicion.as_ref().is_some_and(|s| !s.expects(next)) {
            self.suspicion = None;
        }
    }

    /// Whether a seized partition's messages are still announced one by one.
    pub(crate) fn suspicious(&self) -> bool {
        self.suspicion.is_some()
    }

    /// The next message, if it was begun before by an owner that ended in the middle of it.
    pub(crate) fn suspect(&self, rules: &Rules) -> Option<Offset> {
        let suspicion = self.suspicion.as_ref()?;
        let front = self.items.front()?;
        let offset = front.message.offset;
        let waits = front.state == ItemState::Waiting;
        (waits && suspicion.suspects(offset, rules.max_deliver)).then_some(offset)
    }

    /// Whether the first try of this message is under way, from its announcement on.
    pub(crate) fn tries(&self, offset: Offset) -> bool {
        let trying = |item: &Item| match item.state {
            ItemState::Announcing | ItemState::Announced => true,
            ItemState::Running => item.attempts <= 1,
            _ => false,
        };
        let front = self.items.front();
        front.is_some_and(|front| front.message.offset == offset && trying(front))
    }

    /// Starts the next thing that may start now.
    pub(crate) fn step(
        &mut self,
        now: Time,
        rules: &Rules,
        ask: impl FnOnce() -> Ask,
    ) -> Option<Step> {
        let at = self.startable(now, rules)?;
        let item = &mut self.items[at];
        let offset = item.message.offset;
        if let ItemState::Unburied(_, error) = &item.state {
            let error = error.clone();
            return Some(self.bury(at, error, ask()));
        }
        if item.state == ItemState::Waiting
            && let Some(suspicion) = &mut self.suspicion
        {
            match suspicion.advise(offset, rules.max_deliver) {
                Advice::Announce(begun) => {
                    item.state = ItemState::Announcing;
                    return Some(Step::Announce(begun));
                }
                Advice::Bury { times } => {
                    item.attempts = times;
                    let error = format!("{times} owners began it and ended before it was done");
                    return Some(self.bury(at, error.into(), ask()));
                }
            }
        }
        item.state = ItemState::Running;
        item.attempts += 1;
        let attempt = item.attempts;
        self.running += 1;
        Some(Step::Run(self.run_from(at, rules), attempt))
    }

    /// The message that starts, with those that may follow it at once.
    fn run_from(&mut self, at: usize, rules: &Rules) -> Vec<Message> {
        // What may be handled beside others does not wait behind them, and what may kill the
        // process is announced by itself.
        let alone = rules.ordering != Ordering::Partition
            || self.suspicion.is_some()
            || self.running > 1
            || self.alone > 0;
        self.alone = self.alone.saturating_sub(1);
        let most = if alone { 1 } else { RUN };
        let mut messages = Vec::with_capacity(most.min(self.items.len() - at));
        let mut items = self.items.range_mut(at..).take(most);
        messages.extend(items.next().map(|first| first.message.clone()));
        for item in items.take_while(|item| item.state == ItemState::Waiting) {
            item.state = ItemState::Following;
            self.following += 1;
            messages.push(item.message.clone());
        }
        messages
    }

    fn bury(&mut self, at: usize, error: Arc<str>, ask: Ask) -> Step {
        let item = &mut self.items[at];
        item.state = ItemState::Burying(ask, error.clone());
        self.burying += 1;
        Step::Bury {
            ask,
            message: item.message.clone(),
            attempts: item.attempts,
            error,
        }
    }

    /// The first message in lane order that may start now.
    fn startable(&self, now: Time, rules: &Rules) -> Option<usize> {
        let due = |item: &Item| match &item.state {
            ItemState::Waiting | ItemState::Announced => true,
            ItemState::Backoff(at) | ItemState::Unburied(at, _) => *at <= now,
            _ => false,
        };
        if rules.ordering == Ordering::Partition || self.suspicion.is_some() {
            return self.items.front().filter(|i| due(i)).map(|_| 0);
        }
        // The release must be able to carry everything that is done above the watermark.
        let may_pass = self.done_above.len() + self.running < rules.max_done_above;
        let window = if may_pass { self.items.len() } else { 1 };
        let mut busy_keys = BTreeSet::new();
        for (at, item) in self.items.iter().enumerate().take(window) {
            if item.state == ItemState::Done {
                continue;
            }
            let in_order =
                rules.ordering == Ordering::None || !busy_keys.contains(&item.message.key);
            if in_order && due(item) {
                return Some(at);
            }
            busy_keys.insert(item.message.key);
        }
        None
    }

    fn find(&self, offset: Offset) -> Option<usize> {
        let at = self.items.partition_point(|i| i.message.offset < offset);
        self.items
            .get(at)
            .filter(|i| i.message.offset == offset)
            .map(|_| at)
    }

    /// `begun` of this message is written. True: it may run now.
    pub(crate) fn begun_written(&mut self, offset: Offset) -> bool {
        match self.find(offset) {
            Some(at) if self.items[at].state == ItemState::Announcing => {
                self.items[at].state = ItemState::Announced;
                true
            }
            _ => false,
        }
    }

    /// News of a run; what became of each of its messages that ended. `None`: no such run is in
    /// flight.
    pub(crate) fn handled(&mut self, now: Time, ran: Ran, rules: &Rules) -> Option<Vec<Outcome>> {
        let first = self
            .find(ran.first)
            .filter(|at| self.items[*at].state == ItemState::Running)?;
        let mut outcomes = Vec::with_capacity(ran.done as usize + 1);
        let mut runs = Some(first);
        for _ in 0..ran.done {
            let Some(at) = runs else { break };
            let commit = self.suspicion.is_some();
            if self.suspicion.as_mut().is_some_and(Suspicion::succeeded) {
                self.suspicion = None;
            }
            outcomes.push(self.done(at, commit));
            runs = self.begin_next();
        }
        let error = match ran.then {
            Then::GoesOn(_) if runs.is_some() => {
                self.alone = ALONE;
                self.let_followers_wait();
                return Some(outcomes);
            }
            Then::Failed(error) => Some(error),
            Then::Panicked(error) => Some(format!("panicked: {error}").into()),
            Then::Ended | Then::GoesOn(_) => None,
        };
        self.running -= 1;
        match (runs, error) {
            (Some(at), Some(error)) => outcomes.push(self.failed(now, at, error, rules)),
            (Some(at), None) => self.not_begun(now, at),
            (None, _) => {}
        }
        self.let_followers_wait();
        Some(outcomes)
    }

    /// The next message of the run is the one that runs.
    fn begin_next(&mut self) -> Option<usize> {
        if self.following == 0 {
            return None;
        }
        let follows = |item: &Item| item.state == ItemState::Following;
        let at = self.items.iter().position(follows)?;
        self.following -= 1;
        self.items[at].state = ItemState::Running;
        self.items[at].attempts += 1;
        Some(at)
    }

    /// The run ended before this message was begun: it is as if it had not been in it.
    fn not_begun(&mut self, now: Time, at: usize) {
        let suspicious = self.suspicion.is_some();
        let item = &mut self.items[at];
        item.attempts -= 1;
        item.state = match item.attempts {
            // It need not be announced twice.
            0 if suspicious => ItemState::Announced,
            0 => ItemState::Waiting,
            _ => ItemState::Backoff(now),
        };
    }

    fn let_followers_wait(&mut self) {
        if self.following > 0 {
            let follows = |item: &&mut Item| item.state == ItemState::Following;
            for item in self.items.iter_mut().filter(follows) {
                item.state = ItemState::Waiting;
            }
            self.following = 0;
        }
    }

    fn failed(&mut self, now: Time, at: usize, error: Arc<str>, rules: &Rules) -> Outcome {
        if let Some(suspicion) = &mut self.suspicion {
            suspicion.failed();
        }
        let item = &mut self.items[at];
        if item.attempts >= rules.max_deliver {
            item.state = ItemState::Unburied(now, error);
            return Outcome::Later(now);
        }
        let until = now + rules.backoff(item.attempts);
        item.state = ItemState::Backoff(until);
        Outcome::Later(until)
    }

    /// A dead letter was published, or was not: then it is tried again at `retry_at`.
    pub(crate) fn buried(
        &mut self,
        ask: Ask,
        published: bool,
        retry_at: Time,
    ) -> (Offset, Outcome) {
        let is_it = |i: &Item| matches!(i.state, ItemState::Burying(a, _) if a == ask);
        let Some(at) = self.items.iter().position(is_it) else {
            return (Offset(0), Outcome::Unknown);
        };
        self.burying -= 1;
        let offset = self.items[at].message.offset;
        if published {
            return (offset, self.done(at, self.suspicion.is_some()));
        }
        if let ItemState::Burying(_, error) = &self.items[at].state {
            self.items[at].state = ItemState::Unburied(retry_at, error.clone());
        }
        (offset, Outcome::Later(retry_at))
    }

    /// Everything up to and with this offset was done elsewhere; no message of it is here.
    pub(crate) fn done_upto(&mut self, offset: Offset) -> Result<(), CommitRefused> {
        if offset > Offset::LARGEST {
            return Err(CommitRefused::TooLarge { offset });
        }
        if offset.next() < self.done_next {
            return Err(CommitRefused::GoesBack {
                next: self.done_next,
            });
        }
        if offset >= self.done_next {
            self.done = Some(offset);
            self.done_next = offset.next();
            self.next = self.next.max(self.done_next);
            self.done_above = self.done_above.split_off(&self.done_next);
        }
        Ok(())
    }

    fn done(&mut self, at: usize, commit: bool) -> Outcome {
        let item = &mut self.items[at];
        item.state = ItemState::Done;
        let outcome = Outcome::Done {
            delivery: item.delivery.take(),
            commit,
            attempts: item.attempts,
        };
        if at > 0 {
            self.done_above.insert(item.message.offset);
        }
        self.done_items += 1;
        self.leave_front();
        outcome
    }

    /// Moves the watermark over everything at the front that is done.
    fn leave_front(&mut self) {
        while let Some(front) = self.items.front().filter(|i| i.state == ItemState::Done) {
            let offset = front.message.offset;
            self.done = Some(offset);
            self.done_next = offset.next();
            self.items.pop_front();
            self.done_items -= 1;
            while self.done_above.first().is_some_and(|o| *o < self.done_next) {
                self.done_above.pop_first();
            }
        }
    }
}
