//! Where lanes and feeds put what they want done, until the worker fetches it.

use crate::config::Config;
use crate::feed::refusals::{Asked, Refusals};
use crate::ids::PartitionId;
use crate::io::{Ask, Run, SourceError, SourceRequest};
use crate::lane::{LaneAction, LaneNote};
use crate::time::Time;
use crate::worker::Trouble;

/// One delivery of a durable: what an ack names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delivery {
    /// The durable's identity at that time: sequences of another life mean something else.
    pub(crate) consumer: u64,
    /// The consumer sequence.
    pub(crate) sequence: u64,
}

/// Collects effects in order. Acks are gathered, so that one event gives one ack request.
#[derive(Debug)]
pub(crate) struct Outbox {
    actions: Vec<LaneAction>,
    last_ask: u64,
    /// Deliveries that need not come again.
    pub(crate) acks: Vec<Delivery>,
    /// Deliveries that are no longer held here, though nobody handled them.
    pub(crate) dropped: Vec<Delivery>,
    /// Lanes in which something may have become possible.
    pub(crate) woken: Vec<PartitionId>,
    /// Lanes to wake at a time.
    pub(crate) timers: Vec<(Time, PartitionId)>,
    /// Whether some lane's readiness may have changed.
    pub(crate) ready_changed: bool,
    /// What the source refuses, of all that anybody here asks.
    pub(crate) refusals: Refusals,
}

impl Outbox {
    /// Nothing to do yet.
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            actions: Vec::new(),
            last_ask: 0,
            acks: Vec::new(),
            dropped: Vec::new(),
            woken: Vec::new(),
            timers: Vec::new(),
            ready_changed: false,
            refusals: Refusals::new(config),
        }
    }

    /// A fresh mark for a request.
    pub(crate) fn ask(&mut self) -> Ask {
        self.last_ask += 1;
        Ask(self.last_ask)
    }

    pub(crate) fn source(&mut self, request: SourceRequest) {
        self.actions.push(LaneAction::Source(request));
    }

    pub(crate) fn handle(&mut self, run: Run) {
        self.actions.push(LaneAction::Handle(run));
    }

    pub(crate) fn halt(&mut self, partition: &PartitionId) {
        self.actions.push(LaneAction::Halt(partition.clone()));
    }

    pub(crate) fn note(&mut self, note: LaneNote) {
        self.actions.push(LaneAction::Note(note));
    }

    /// An answer of the source came; `error`: what was wrong. A refusal is told once.
    pub(crate) fn answered(&mut self, now: Time, asked: Asked, error: Option<&SourceError>) {
        if let Some(why) = self.refusals.answered(now, asked, error) {
            self.note(LaneNote::Trouble(Trouble::SourceRefuses(why)));
        }
    }

    pub(crate) fn ack(&mut self, delivery: Option<Delivery>) {
        self.acks.extend(delivery);
    }

    pub(crate) fn drop_unhandled(&mut self, delivery: Option<Delivery>) {
        self.dropped.extend(delivery);
    }

    pub(crate) fn wake(&mut self, partition: &PartitionId) {
        if self.woken.last() != Some(partition) {
            self.woken.push(partition.clone());
        }
    }

    pub(crate) fn wake_at(&mut self, at: Time, partition: &PartitionId) {
        self.timers.push((at, partition.clone()));
    }

    pub(crate) fn take(&mut self) -> Vec<LaneAction> {
        take_all(&mut self.actions)
    }
}

/// Empties a list. The next burst will be about as large: so much room is made for it at once.
pub(crate) fn take_all<T>(list: &mut Vec<T>) -> Vec<T> {
    let room = Vec::with_capacity(list.len());
    std::mem::replace(list, room)
}
