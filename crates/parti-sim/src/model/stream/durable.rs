//! A durable pull consumer, as the server keeps it.
//!
//! ```text
//!   acked floor      delivered (shown)       position (hidden)          last
//!  ─────┴───── pending ──────┴── matched nothing ──┴── not looked at yet ──┴──▶ stream sequence
//!                 │ ack_wait over
//!                 ▼
//!             redeliver ──▶ the same consumer, whatever its filter says by now
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use parti_core::config::AckMode;
use parti_core::io::{Ask, ConsumerState, Retention, SourceEvent};
use parti_core::rng::Rng;

use super::StreamConfig;
use super::messages::{Messages, SubjectId};
use crate::model::{ClientId, Fate};

/// So many deliveries at the most are not replicated when a consumer's leader dies.
const UNREPLICATED: usize = 4;

/// Which subjects a consumer gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Filter {
    /// The whole stream: what an empty list of filters means.
    Everything,
    /// These, sorted.
    Only(Vec<SubjectId>),
}

impl Filter {
    /// Whether the consumer gets this subject.
    pub fn wants(&self, subject: SubjectId) -> bool {
        match self {
            Filter::Everything => true,
            Filter::Only(subjects) => subjects.binary_search(&subject).is_ok(),
        }
    }

    /// Whether two consumers would get a message both.
    pub fn overlaps(&self, other: &Filter) -> bool {
        match (self, other) {
            (Filter::Everything, _) | (_, Filter::Everything) => true,
            (Filter::Only(mine), other) => mine.iter().any(|subject| other.wants(*subject)),
        }
    }
}

/// A delivery that was not acked yet.
#[derive(Clone, Copy, Debug)]
struct Pending {
    /// When it comes again; `None` while it waits for a pull to come again with.
    due: Option<u64>,
}

/// An open pull of one connection.
#[derive(Clone, Copy, Debug)]
struct Pull {
    client: ClientId,
    ask: Ask,
    left: u32,
    expires: u64,
}

/// A delivery that may not be replicated yet, with what it changed.
#[derive(Clone, Copy, Debug)]
struct Recent {
    message: u64,
    delivered_before: u64,
    again: bool,
}

/// A durable pull consumer.
#[derive(Clone, Debug)]
pub(super) struct Durable {
    /// One life of its sequences: another one after a reset.
    pub identity: u64,
    pub filter: Filter,
    /// The next stream sequence to look at. In memory only: nobody is shown it, and a change of
    /// the filter does not move it.
    position: u64,
    /// The stream sequence of the newest first delivery: what the consumer's info shows.
    delivered: u64,
    /// Up to here everything counts as acked.
    floor: u64,
    /// Messages by consumer sequence, from 1: one more with every delivery, also repeated ones.
    sent: Vec<u64>,
    pending: BTreeMap<u64, Pending>,
    due: BTreeSet<(u64, u64)>,
    redeliver: VecDeque<u64>,
    pulls: VecDeque<Pull>,
    recent: VecDeque<Recent>,
}

impl Durable {
    /// A new durable, at the beginning of the stream (deliver policy `all`).
    pub fn new(identity: u64, filter: Filter, first: u64) -> Self {
        Self {
            identity,
            filter,
            position: first,
            delivered: first - 1,
            floor: first - 1,
            sent: Vec::new(),
            pending: BTreeMap::new(),
            due: BTreeSet::new(),
            redeliver: VecDeque::new(),
            pulls: VecDeque::new(),
            recent: VecDeque::new(),
        }
    }

    /// Begins anew at this sequence and forgets what is pending. Consumer sequences start anew, under
    /// another identity; open pulls stay.
    pub fn reset(&mut self, identity: u64, start: u64) {
        let pulls = std::mem::take(&mut self.pulls);
        *self = Self {
            pulls,
            ..Self::new(identity, self.filter.clone(), start)
        };
    }

    /// Opens a pull; `false` if there are too many already.
    pub fn pull(
        &mut self,
        client: ClientId,
        ask: Ask,
        batch: u32,
        expires: u64,
        most: u32,
    ) -> bool {
        if self.pulls.len() >= most as usize || batch == 0 {
            return false;
        }
        self.pulls.push_back(Pull {
            client,
            ask,
            left: batch,
            expires,
        });
        true
    }

    /// Ends one pull; `false` if it is not open any more.
    pub fn stop_pull(&mut self, client: ClientId, ask: Ask) -> bool {
        let open = self.pulls.len();
        self.pulls
            .retain(|pull| pull.client != client || pull.ask != ask);
        self.pulls.len() < open
    }

    /// The message that a consumer sequence was given to, last.
    pub fn message_of(&self, sequence: u64) -> Option<u64> {
        let index = usize::try_from(sequence.checked_sub(1)?).ok()?;
        self.sent.get(index).copied()
    }

    /// Takes a message for handled. Whoever says so: acks are not a fence. An ack ahead of the
    /// position (sent before a rewind) is ignored; any other removes the message from a work queue.
    pub fn ack(&mut self, message: u64, config: &StreamConfig, messages: &mut Messages) {
        if message >= self.position {
            return;
        }
        self.forget(message);
        self.floor = match self.pending.first_key_value() {
            None => self.delivered,
            Some((lowest, _)) => self.floor.max(lowest - 1),
        };
        if config.retention == Retention::WorkQueue {
            messages.remove(message, Fate::Acked);
        }
    }

    /// Puts off the redelivery of a message that is still worked on.
    pub fn extend(&mut self, message: u64, due: u64) {
        if self.pending.contains_key(&message) {
            self.await_ack(message, due);
        }
    }

    /// Sends what open pulls can get now.
    pub fn deliver(
        &mut self,
        now: u64,
        config: &StreamConfig,
        messages: &mut Messages,
        out: &mut Vec<(ClientId, SourceEvent)>,
    ) {
        self.end_pulls(out, |pull| pull.expires <= now);
        if self.pulls.is_empty() {
            return;
        }
        self.wake(now);
        while !self.pulls.is_empty() {
            let Some(message) = self.next(now, config, messages) else {
                return;
            };
            let Some(entry) = messages.get(message) else {
                continue;
            };
            let Some(mut pull) = self.pulls.pop_front() else {
                return;
            };
            let event = SourceEvent::Delivered {
                consumer: self.identity,
                sequence: self.sent.len() as u64,
                partition: messages.name(entry.subject).clone(),
                message: entry.message.clone(),
                pending: messages.count_from(self.position, |subject| self.filter.wants(subject)),
            };
            out.push((pull.client, event));
            self.settle_unacked(message, config, messages);
            pull.left -= 1;
            // Pulls take turns, so that a forgotten one gets its share.
            if pull.left == 0 {
                out.push((pull.client, SourceEvent::PullEnded { ask: pull.ask }));
            } else {
                self.pulls.push_back(pull);
            }
        }
    }

    /// When `deliver` may have something although nothing else happened until then.
    pub fn next_deadline(&self) -> Option<u64> {
        let pulls = self.pulls.iter().map(|pull| pull.expires).min()?;
        let due = self.due.first().map_or(u64::MAX, |(due, _)| *due);
        Some(pulls.min(due))
    }

    /// Ends the pulls of a connection that is gone, and answers which.
    pub fn disconnect(&mut self, client: ClientId) -> Vec<Ask> {
        let own = self.pulls.iter().filter(|pull| pull.client == client);
        let asks = own.map(|pull| pull.ask).collect();
        self.pulls.retain(|pull| pull.client != client);
        asks
    }

    /// Ends all pulls, and says so.
    pub fn end_all_pulls(&mut self, out: &mut Vec<(ClientId, SourceEvent)>) {
        self.end_pulls(out, |_| true);
    }

    /// The consumer gets another leader, which knows only what was replicated: the last deliveries
    /// may be undone (their consumer sequences are given again), or the next ones may be counted
    /// but sent to nobody. In any case pulls end, the position falls back to what is shown,
    /// redeliveries wait anew, and a work queue drops what it takes for acked.
    pub fn leader_change(
        &mut self,
        now: u64,
        config: &StreamConfig,
        messages: &mut Messages,
        rng: &mut Rng,
        out: &mut Vec<(ClientId, SourceEvent)>,
    ) {
        match rng.below(3) {
            0 => self.undo_recent(rng.between(1, UNREPLICATED as u64), config.ack),
            1 if !self.pulls.is_empty() => {
                self.wake(now);
                for _ in 0..rng.between(1, 3) {
                    let Some(message) = self.next(now, config, messages) else {
                        break;
                    };
                    self.settle_unacked(message, config, messages);
                }
            }
            _ => {}
        }
        self.end_all_pulls(out);
        self.position = self.delivered + 1;
        self.recent.clear();
        self.redeliver.clear();
        self.due.clear();
        let waiting: Vec<u64> = self.pending.keys().copied().collect();
        for message in waiting {
            self.await_ack(message, now + config.ack_wait);
        }
        if config.retention == Retention::WorkQueue {
            for message in messages.first()..=self.floor {
                let taken_for_acked = !self.pending.contains_key(&message)
                    && messages
                        .get(message)
                        .is_some_and(|entry| self.filter.wants(entry.subject));
                if taken_for_acked {
                    messages.remove(message, Fate::Destroyed);
                }
            }
        }
    }

    /// Whether this message, if it goes now, was still to come.
    pub fn passes_over(&self, message: u64, subject: SubjectId) -> bool {
        message >= self.position && self.filter.wants(subject)
    }

    /// Retention removed whatever is below `first`.
    pub fn trimmed(&mut self, first: u64) {
        while let Some((message, _)) = self.pending.first_key_value()
            && *message < first
        {
            let message = *message;
            self.forget(message);
        }
    }

    /// The stream ends at `last` again.
    pub fn rolled_back(&mut self, last: u64) {
        while let Some((message, _)) = self.pending.last_key_value()
            && *message > last
        {
            let message = *message;
            self.forget(message);
        }
        self.position = self.position.min(last + 1);
        self.delivered = self.delivered.min(last);
        self.floor = self.floor.min(last);
        self.recent.clear();
    }

    /// What an answer about the consumer says of it.
    pub fn state(&self, as_wanted: bool) -> ConsumerState {
        ConsumerState {
            identity: self.identity,
            delivered: self.sent.len() as u64,
            as_wanted,
        }
    }

    /// What the consumer's info shows: stream and consumer sequence of the newest delivery, the
    /// floor below which everything is acked, and how many are pending.
    pub fn shown(&self) -> (u64, u64, u64, usize) {
        (
            self.delivered,
            self.sent.len() as u64,
            self.floor,
            self.pending.len(),
        )
    }

    /// The hidden position, for tests.
    #[cfg(test)]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Counts the next message as delivered. Redeliveries come first, and come even when the
    /// filter has dropped their subject, or when the window of pending ones is full.
    fn next(&mut self, now: u64, config: &StreamConfig, messages: &Messages) -> Option<u64> {
        while let Some(message) = self.redeliver.pop_front() {
            if self
                .pending
                .get(&message)
                .is_none_or(|pending| pending.due.is_some())
            {
                continue;
            }
            if messages.get(message).is_none() {
                self.forget(message);
                continue;
            }
            self.count(message, true);
            self.await_ack(message, now + config.ack_wait);
            return Some(message);
        }
        let explicit = config.ack == AckMode::Explicit;
        if explicit && self.pending.len() >= config.max_ack_pending as usize {
            return None;
        }
        // Whether or not something is found, the position moves on: a pull that meets the end
        // leaves it there, and nobody is shown.
        let mut look_at = self.position.max(messages.first());
        while look_at <= messages.last() {
            if messages
                .get(look_at)
                .is_some_and(|entry| self.filter.wants(entry.subject))
            {
                self.position = look_at + 1;
                self.count(look_at, false);
                if explicit {
                    self.await_ack(look_at, now + config.ack_wait);
                }
                return Some(look_at);
            }
            look_at += 1;
        }
        self.position = look_at;
        None
    }

    fn count(&mut self, message: u64, again: bool) {
        self.sent.push(message);
        self.recent.push_back(Recent {
            message,
            delivered_before: self.delivered,
            again,
        });
        if self.recent.len() > UNREPLICATED {
            self.recent.pop_front();
        }
        self.delivered = self.delivered.max(message);
    }

    /// Without acks, whatever was sent counts as acked.
    fn settle_unacked(&mut self, message: u64, config: &StreamConfig, messages: &mut Messages) {
        if config.ack == AckMode::None {
            self.floor = self.floor.max(message);
            if config.retention == Retention::WorkQueue {
                messages.remove(message, Fate::Acked);
            }
        }
    }

    fn await_ack(&mut self, message: u64, due: u64) {
        if let Some(Pending { due: Some(before) }) =
            self.pending.insert(message, Pending { due: Some(due) })
        {
            self.due.remove(&(before, message));
        }
        self.due.insert((due, message));
    }

    fn forget(&mut self, message: u64) {
        if let Some(Pending { due: Some(due) }) = self.pending.remove(&message) {
            self.due.remove(&(due, message));
        }
    }

    /// Queues what was not acked in time, in stream order.
    fn wake(&mut self, now: u64) {
        let mut woken = Vec::new();
        while let Some((due, message)) = self.due.first().copied()
            && due <= now
        {
            self.due.pop_first();
            self.pending.insert(message, Pending { due: None });
            woken.push(message);
        }
        woken.sort_unstable();
        self.redeliver.extend(woken);
    }

    fn undo_recent(&mut self, most: u64, ack: AckMode) {
        for _ in 0..most {
            let Some(last) = self.recent.pop_back() else {
                return;
            };
            // An ack is replicated after its delivery, so an acked delivery cannot be undone.
            if ack == AckMode::Explicit && !self.pending.contains_key(&last.message) {
                return;
            }
            self.sent.pop();
            self.delivered = last.delivered_before;
            self.floor = self.floor.min(self.delivered);
            if !last.again {
                self.forget(last.message);
            }
        }
    }

    fn end_pulls(&mut self, out: &mut Vec<(ClientId, SourceEvent)>, ends: impl Fn(&Pull) -> bool) {
        self.pulls.retain(|pull| {
            let ended = ends(pull);
            if ended {
                out.push((pull.client, SourceEvent::PullEnded { ask: pull.ask }));
            }
            !ended
        });
    }
}
