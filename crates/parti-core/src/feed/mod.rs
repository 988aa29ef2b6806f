//! Feeds: what brings messages into lanes.
//!
//! ```text
//!              log          each lane reads its own partition, and waits at its end
//!  source ───▶ limits       one durable for all lanes, each lane spliced to it by a reader
//!              work queue   one durable for all lanes, rewound to what is not acked
//!              external     brings nothing: the user reads, and tells how far it is
//! ```
//!
//! A feed knows nothing of handlers: it brings messages in order, from the offset that the opened
//! lane asks for, without gaps.

pub(crate) mod backoff;
pub(crate) mod batch;
pub mod by_sequence;
pub mod consumer;
pub(crate) mod durable;
pub(crate) mod external;
pub(crate) mod limits;
pub(crate) mod log;
pub(crate) mod pace;
pub(crate) mod refusals;
pub(crate) mod splice;
pub(crate) mod sweep;
pub(crate) mod went_back;
pub(crate) mod workqueue;

use std::fmt;

use crate::feed::consumer::UpdateCounters;
use crate::ids::PartitionId;
use crate::io::SourceEvent;
use crate::lane::Opening;
use crate::lane::map::LaneMap;
use crate::lane::outbox::Outbox;
use crate::time::Time;

/// What a feed behind a durable consumer has done, and is like now; for metrics. All zero for
/// other feeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeedNumbers {
    /// What update planning did so far.
    pub updates: UpdateCounters,
    /// Subjects in the consumer's filter, by the last good update.
    pub subjects: u64,
    /// Deliveries that are here and not acked.
    pub unacked: u64,
}

/// What every feed works with.
pub(crate) struct Context<'a> {
    pub(crate) now: Time,
    /// The lanes to fill.
    pub(crate) lanes: &'a mut LaneMap,
    pub(crate) out: &'a mut Outbox,
    /// Whether this worker's session lease is alive: only its holder may touch the durable.
    pub(crate) lease: bool,
}

/// What brings messages into lanes.
pub(crate) trait Feed: fmt::Debug + Send {
    /// Prepare this partition.
    fn attach(&mut self, cx: &mut Context<'_>, partition: &PartitionId);

    /// Forget this partition.
    fn detach(&mut self, cx: &mut Context<'_>, partition: &PartitionId);

    /// The partition's lane has just opened: bring its messages.
    fn open(&mut self, cx: &mut Context<'_>, partition: &PartitionId, opening: &Opening);

    /// The partition's lane takes no more: `cx.lanes` has it as closing already.
    fn close(&mut self, cx: &mut Context<'_>, partition: &PartitionId);

    /// Whether opening this partition would start at once.
    fn ready(&self, partition: &PartitionId) -> bool;

    /// Whether nothing of a closed partition is left at the source that the next owner would miss.
    fn is_gone(&self, _partition: &PartitionId) -> bool {
        true
    }

    /// Whether an open lane has everything that there is, as far as known.
    fn is_caught_up(&self, lanes: &LaneMap, partition: &PartitionId) -> bool;

    /// News of the source.
    fn source(&mut self, cx: &mut Context<'_>, event: SourceEvent);

    /// Something changed in this lane: it may have room.
    fn touch(&mut self, partition: &PartitionId);

    /// A message was handled.
    fn handled(&mut self) {}

    /// Does what is due: updates, reads, hand-over to lanes.
    fn pump(&mut self, cx: &mut Context<'_>);

    /// Asks for more and settles acks, after lanes started what they could. `idle`: handlers are
    /// free, and no lane has anything for them.
    fn pull(&mut self, cx: &mut Context<'_>, idle: bool);

    /// When to pump again, after now. What is due but held back waits for an event.
    fn next_deadline(&self, now: Time) -> Time;

    /// What is wrong, if anything is.
    fn degraded(&self) -> Option<String> {
        None
    }

    /// What of that the source refuses until a person mends something.
    fn refused(&self) -> Option<String> {
        None
    }

    /// For metrics.
    fn numbers(&self) -> FeedNumbers {
        FeedNumbers::default()
    }
}
