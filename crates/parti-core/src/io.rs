//! The seam between the core and the world: store requests and replies, source requests and
//! events, handler jobs and results, as plain values.
//!
//! Contract of whoever carries them out: every store request gets exactly one reply, at the latest
//! when its `timeout` is over (a write then answers [`StoreError::Unknown`], a read
//! [`StoreError::Unavailable`]). Likewise every source request that carries an [`Ask`] gets exactly
//! one answer, at the latest after `operation_timeout` ([`SourceError::Unavailable`]; it may have
//! been carried out all the same, now or later). Only an [`ExternalCall::Revoke`] may take longer:
//! like a handler call, it takes as long as the user's work does.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{Epoch, Offset, PartitionId, Revision, WorkerId};
use crate::key::{Key, Prefix};
use crate::record::Record;

/// Tells replies apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// One request to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreRequest {
    /// Comes back in the reply.
    pub id: RequestId,
    /// What to do.
    pub op: StoreOp,
    /// When to give up waiting.
    pub timeout: Duration,
}

/// What to do on the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreOp {
    /// Read one record. May be stale: good for preparing a write, never for deciding.
    Read(Key),
    /// Read all records under a prefix. May be stale.
    List(Prefix),
    /// Write each record if its expectation holds; each fares on its own.
    Write(Vec<Write>),
}

/// One conditional write. There is no unconditional one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Where.
    pub key: Key,
    /// What must be there now.
    pub expect: Expect,
    /// What to put there; `None` deletes.
    pub value: Option<Record>,
}

/// What must hold for a write to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Expect {
    /// No record there.
    Absent,
    /// The record at exactly this revision.
    At(Revision),
}

/// A record as found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Where.
    pub key: Key,
    /// As of which write.
    pub revision: Revision,
    /// What.
    pub record: Record,
}

/// The store's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreReply {
    /// To a read.
    Read(Result<Option<Stored>, StoreError>),
    /// To a list.
    List(Result<Vec<Stored>, StoreError>),
    /// To a write: one outcome per write, in order.
    Write(Vec<WriteOutcome>),
}

/// What became of one write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// Done, as this revision.
    Done(Revision),
    /// The expectation did not hold; this is there instead, as seen by whoever refused the write
    /// (never a replica's view: an older record than expected counts as proof of a lost store).
    Conflict(Option<Stored>),
    /// Something else.
    Failed(StoreError),
}

/// Named by what the caller does next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Nothing was done; try again.
    #[error("the store is not available")]
    Unavailable,
    /// The write may have happened, or may still happen: settle it by a further write.
    #[error("the fate of the write is open")]
    Unknown,
    /// The store refuses; a person must mend configuration or permissions.
    #[error("the store refuses: {0}")]
    Rejected(Arc<str>),
}

/// What can be watched. A watch yields a snapshot, then changes, and a fresh snapshot after any gap.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// One record.
    Key(Key),
    /// All records under a prefix.
    Prefix(Prefix),
}

/// News of a watch. Events may be duplicated or late, never silently lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// All there is now: at the start, and after any gap.
    Snapshot(Vec<Stored>),
    /// A record was written.
    Changed(Stored),
    /// A record was deleted, by the write with this revision.
    Removed(Key, Revision),
}

/// A message as a source yields it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its place in the log.
    pub offset: Offset,
    /// Hash of its key, for `ordering: key`.
    pub key: u64,
    /// Payload size in bytes.
    pub size: u32,
    /// What the source put in it, for whoever handles it.
    pub body: Body,
}

/// What a message carries: nothing that the core looks at. It travels with the message, and is
/// freed with it, whatever becomes of the lane it was in.
#[derive(Clone, Default)]
pub struct Body(Option<Arc<dyn Any + Send + Sync>>);

impl Body {
    /// Nothing.
    pub const EMPTY: Body = Body(None);

    /// Wraps what the source knows of a message.
    pub fn new<T: Any + Send + Sync>(content: T) -> Self {
        Self(Some(Arc::new(content)))
    }

    /// The content, for whoever knows its type.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.clone().take()
    }

    /// The content, for whoever knows its type and needs nothing else of the message.
    pub fn take<T: Any + Send + Sync>(self) -> Option<Arc<T>> {
        self.0?.downcast().ok()
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "…" } else { "-" })
    }
}

/// Two bodies are equal if they are one and the same: the core cannot look inside.
impl PartialEq for Body {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (Some(_), None) | (None, Some(_)) => false,
        }
    }
}

impl Eq for Body {}

/// Messages of one partition to hand to the user's handler, one call after the other.
///
/// Before each call, whoever makes it looks at the lease, by this worker's own clock, and whether
/// the run was halted ([`crate::worker::Action::Halt`]); before each but the first, also at how long
/// the run has lasted. What was not begun then, or not after a call that failed or had to wait, comes
/// back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Which partition.
    pub partition: PartitionId,
    /// Under which epoch they are handled: the fencing token.
    pub epoch: Epoch,
    /// The messages, in order. Never none.
    pub messages: Vec<Message>,
    /// Which try of the first message this is. For all others it is the first.
    pub attempt: u32,
    /// No call begins later than this after the first one.
    pub within: Duration,
}

impl Run {
    /// The call of one of its messages.
    pub fn job(&self, index: usize) -> Option<Job> {
        Some(Job {
            partition: self.partition.clone(),
            epoch: self.epoch,
            message: self.messages.get(index)?.clone(),
            attempt: if index == 0 { self.attempt } else { 1 },
        })
    }
}

/// News of a run. Whoever makes the calls tells at the end, and when it has to wait for a call: what
/// is done before it, and what was to follow it, must not wait for what is slow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// Its first message; or, after [`Then::GoesOn`], the one that was named there.
    pub first: Offset,
    /// So many messages are done, from that one on.
    pub done: u32,
    /// What became of the next one.
    pub then: Then,
}

impl Ran {
    /// The news of a run in which only its first message was begun.
    pub fn one(first: Offset, result: HandlerResult) -> Self {
        let (done, then) = match result {
            HandlerResult::Done => (1, Then::Ended),
            HandlerResult::Failed(error) => (0, Then::Failed(error)),
            HandlerResult::Panicked(error) => (0, Then::Panicked(error)),
        };
        Self { first, done, then }
    }
}

/// What became of the next message of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Then {
    /// There is none, or it was not begun: the run is over.
    Ended,
    /// This one: its call has to wait. The run ends with it; what was to follow comes back, because
    /// nothing is kept behind what is slow.
    GoesOn(Offset),
    /// The handler returned an error: the run is over.
    Failed(Arc<str>),
    /// The handler panicked: the run is over.
    Panicked(Arc<str>),
}

/// A message with all that its handler call, or its dead letter, is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Which partition.
    pub partition: PartitionId,
    /// Under which epoch it is handled: the fencing token.
    pub epoch: Epoch,
    /// The message.
    pub message: Message,
    /// 1 for the first try.
    pub attempt: u32,
}

/// How a handler call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandlerResult {
    /// Handled.
    Done,
    /// The handler returned an error.
    Failed(Arc<str>),
    /// The handler panicked.
    Panicked(Arc<str>),
}

/// What kind of source feeds the lanes, and what it can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// The embedded log: every lane reads its own partition, offsets are dense.
    Log,
    /// A JetStream-like stream: one durable consumer with several filters, as transport only.
    Stream(Retention),
    /// The user reads and handles messages himself: the core grants partitions, and keeps the
    /// progress that it is told.
    External,
}

/// What the user's own consumption is told. Every call is answered by [`SourceEvent::External`]. Of
/// one partition there is never more than one call in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExternalCall {
    /// Get ready for exactly these partitions (the whole set, sorted; may be empty). One such call at
    /// a time.
    Prepare {
        /// What is served, or may be soon.
        partitions: Vec<PartitionId>,
    },
    /// The partition is owned: begin, exactly at `next`.
    Start {
        /// Which partition.
        partition: PartitionId,
        /// Under which epoch: the fencing token, and what a commit must name.
        epoch: Epoch,
        /// The first offset to handle.
        next: Offset,
    },
    /// Handle no more of it. Ok: nothing is in flight, and everything done is committed.
    Revoke {
        /// Which partition.
        partition: PartitionId,
        /// The epoch of its start.
        epoch: Epoch,
    },
    /// It is lost: stop at once, nothing more can be committed under this epoch.
    Lost {
        /// Which partition.
        partition: PartitionId,
        /// The epoch of its start.
        epoch: Epoch,
    },
}

/// Why progress of the user's own consumption is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitRefused {
    /// This worker does not have the partition.
    #[error("this worker does not own the partition")]
    NotOwned,
    /// The partition was taken anew since: the epoch that was named is over.
    #[error("fenced: the partition is owned under epoch {current} now")]
    Fenced {
        /// The epoch of today.
        current: Epoch,
    },
    /// More than that is done already.
    #[error("progress never goes back: everything below offset {next} is done already")]
    GoesBack {
        /// The first offset that is not done.
        next: Offset,
    },
    /// Nothing could go on after it.
    #[error(
        "offset: {offset} is beyond the largest that can be committed; give one of up to {}",
        Offset::LARGEST
    )]
    TooLarge {
        /// The offset that was given.
        offset: Offset,
    },
}

/// How a stream forgets messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// By age and size. Any number of readers may overlap.
    Limits,
    /// Once acked. Two consumers may not share a subject.
    WorkQueue,
}

/// Tells answers of a source apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ask(pub u64);

/// What to do on the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceRequest {
    /// Make the worker's durable deliver exactly these partitions; create it if need be.
    /// Never empty: an empty filter list means the whole stream. Answer: `Consumer`.
    UpdateConsumer {
        /// Comes back in the answer.
        ask: Ask,
        /// The whole wanted set, sorted.
        partitions: Vec<PartitionId>,
    },
    /// Delete the worker's durable: nothing is wanted. Answer: `Consumer`.
    DeleteConsumer {
        /// Comes back in the answer.
        ask: Ask,
    },
    /// Make the durable begin anew, with nothing pending. On a work queue at the beginning:
    /// everything not yet acked comes again, in order; `Rejected` where the server cannot. On any
    /// other stream at its end: what lies before is read past it. `Rejected` also where there is no
    /// such durable. Answer: `Consumer`, with a new identity.
    ResetConsumer {
        /// Comes back in the answer.
        ask: Ask,
    },
    /// Compare the worker's durable with what is wanted; changes nothing. Answer: `Consumer`, with
    /// identity 0 where there is none.
    InspectConsumer {
        /// Comes back in the answer.
        ask: Ask,
        /// What it should deliver, sorted.
        partitions: Vec<PartitionId>,
    },
    /// Delete the durable of another worker, if it still delivers this partition, which that worker
    /// owns no more (work queues only: no one else can have the subject before). Answer:
    /// `Consumer`.
    EvictConsumer {
        /// Comes back in the answer.
        ask: Ask,
        /// Whose durable.
        worker: WorkerId,
        /// What it must not keep.
        partition: PartitionId,
    },
    /// Ask the stream's leader where the stream begins and ends. Never a cached or a replica's
    /// answer: everything up to the end is missed if it is too low. Answer: `Bounds`.
    Bounds {
        /// Comes back in the answer.
        ask: Ask,
    },
    /// Read one partition past the consumer: messages from `from` on, in order, up to and with
    /// `upto` (`None`: to the end). Answer: `Read`, possibly fewer than there are.
    Read {
        /// Comes back in the answer.
        ask: Ask,
        /// Which partition.
        partition: PartitionId,
        /// The first offset wanted.
        from: Offset,
        /// The last offset wanted.
        upto: Option<Offset>,
        /// The most messages to answer with.
        limit: u32,
    },
    /// Read the whole stream past the consumer, from `from` up to and with `upto`, and keep what is
    /// of these partitions, in order; what is of others is dropped. Ends early at the message that is
    /// the `limit`th of its partition. Answer: `Swept`, possibly fewer than there are.
    Sweep {
        /// Comes back in the answer.
        ask: Ask,
        /// Which partitions, sorted.
        partitions: Vec<PartitionId>,
        /// The first offset to look at.
        from: Offset,
        /// The last offset to look at.
        upto: Offset,
        /// The most messages of one partition.
        limit: u32,
    },
    /// Turn a start position into a concrete offset, never past the log's end. Answer: `Resolved`.
    Resolve {
        /// Comes back in the answer.
        ask: Ask,
        /// Which partition.
        partition: PartitionId,
        /// What was asked for.
        start: crate::config::StartPosition,
    },
    /// Ask the durable for up to so many more messages. Answer: any number of `Delivered`, and one
    /// `PullEnded` when it was answered in full, timed out or was stopped.
    Pull {
        /// Comes back when the pull ended.
        ask: Ask,
        /// How many.
        batch: u32,
    },
    /// End an open pull now: once its `PullEnded` came, it makes the durable's position move no more.
    StopPull {
        /// The pull's own ask.
        ask: Ask,
    },
    /// Tell the durable that these deliveries need not come again. Not answered; may be lost.
    Ack {
        /// Consumer sequences of the deliveries, all of the durable's present identity.
        deliveries: Vec<u64>,
    },
    /// Tell the durable that these deliveries are still worked on. Not answered; may be lost.
    Extend {
        /// Consumer sequences of the deliveries, all of the durable's present identity.
        deliveries: Vec<u64>,
    },
    /// Publish a dead letter, under a message id made of partition and offset. Answer: `DeadLettered`.
    DeadLetter {
        /// Comes back in the answer.
        ask: Ask,
        /// The message that failed.
        job: Job,
        /// Why.
        error: Arc<str>,
    },
    /// Tell the user's own consumption. Answer: `External`.
    External {
        /// Comes back in the answer.
        ask: Ask,
        /// What to tell.
        call: ExternalCall,
    },
}

/// Where a stream begins and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// What is below was removed, or never was.
    pub first: Offset,
    /// The last offset that was ever given; 0: none.
    pub last: Offset,
}

/// News of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceEvent {
    /// The consumer is as asked (or, after an inspection, is as it is).
    Consumer {
        /// Which request.
        ask: Ask,
        /// The consumer's state.
        result: Result<ConsumerState, SourceError>,
    },
    /// Where the stream begins and ends, asked of its leader.
    Bounds {
        /// Which request.
        ask: Ask,
        /// The answer.
        result: Result<Bounds, SourceError>,
    },
    /// Messages read past the consumer.
    Read {
        /// Which request.
        ask: Ask,
        /// The answer.
        result: Result<ReadBatch, SourceError>,
    },
    /// Messages of several partitions, read past the consumer.
    Swept {
        /// Which request.
        ask: Ask,
        /// The answer.
        result: Result<Swath, SourceError>,
    },
    /// A start position, resolved.
    Resolved {
        /// Which request.
        ask: Ask,
        /// The offset to start at.
        result: Result<Offset, SourceError>,
    },
    /// The durable delivered a message.
    Delivered {
        /// The identity that the consumer had when it sent this: another one than expected is a gap.
        consumer: u64,
        /// The consumer sequence: grows by one from delivery to delivery; anything else is a gap.
        sequence: u64,
        /// Which partition.
        partition: PartitionId,
        /// The message.
        message: Message,
        /// How many messages the durable has not handed out yet, as it counts.
        pending: u64,
    },
    /// A pull ended: it was answered in full, timed out, or was stopped.
    PullEnded {
        /// Which pull.
        ask: Ask,
    },
    /// Something may have been appended to this partition (embedded log).
    Grew {
        /// Which partition.
        partition: PartitionId,
    },
    /// The connection was lost and is back: deliveries may have been lost.
    Reconnected,
    /// The source is another one than the worker was started on: deleted and made anew. Offsets of
    /// the one mean nothing in the other.
    Replaced,
    /// A dead letter was published, or not.
    DeadLettered {
        /// Which request.
        ask: Ask,
        /// Whether it is safely stored.
        result: Result<(), SourceError>,
    },
    /// The user's own consumption answered a call.
    External {
        /// Which call.
        ask: Ask,
        /// Whether it did as told.
        result: Result<(), SourceError>,
    },
}

/// What the durable is like, as of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsumerState {
    /// One life of its sequences: its creation stamp, and greater after every recreation and every
    /// reset. 0: there is no consumer.
    pub identity: u64,
    /// The last consumer sequence that was handed out, to whomever. 0: none in this life.
    pub delivered: u64,
    /// Whether it delivers exactly the partitions that the request named.
    pub as_wanted: bool,
}

/// An answer to a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadBatch {
    /// The messages, in order.
    pub messages: Vec<Message>,
    /// Proof of how far the reader got: between `from` and this offset there is no other message of
    /// the partition. A lagging replica that has nothing answers `from` itself.
    pub next: Offset,
    /// The oldest offset that retention has kept: whatever was below is gone.
    pub first: Offset,
    /// One past the newest offset, as of this read.
    pub end: Offset,
}

/// An answer to a sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swath {
    /// The messages of the partitions that were asked for, in order.
    pub messages: Vec<(PartitionId, Message)>,
    /// Proof of how far the sweep got: between `from` and this offset there is no other message of
    /// those partitions. A lagging replica that has nothing answers `from` itself.
    pub next: Offset,
    /// The oldest offset that retention has kept: whatever was below is gone.
    pub first: Offset,
}

/// Named by what the caller does next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// Try again.
    #[error("the source is not available: {0}")]
    Unavailable(Arc<str>),
    /// The source refuses; a person must mend something.
    #[error("the source refuses: {0}")]
    Rejected(Arc<str>),
    /// Work queues: the durable of another worker of this group still has the subject. Evict it.
    /// (Whoever has it without being a worker of the group is a person's business: `Rejected`.)
    #[error("the durable of {by} still has the subject of {partition}")]
    Occupied {
        /// Whose durable.
        by: WorkerId,
        /// What it has.
        partition: PartitionId,
    },
}
