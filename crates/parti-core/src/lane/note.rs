//! What lanes say, and what they are told when a partition opens.

use crate::ids::{Epoch, Offset, PartitionId, WorkerId};
use crate::io::{Run, SourceRequest};
use crate::record::Begun;
use crate::worker::Trouble;

/// What the lanes want done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaneAction {
    /// Ask the source.
    Source(SourceRequest),
    /// Call the user's handler, message by message; how far it is goes to `handled`.
    Handle(Run),
    /// The run of this partition begins no further message.
    Halt(PartitionId),
    /// Something that the worker must know or do.
    Note(LaneNote),
}

/// What the worker must know or do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaneNote {
    /// Suspicion: write `begun` to the partition record before this handler call; the answer goes
    /// to `begun_written`.
    Begin {
        /// Which partition.
        partition: PartitionId,
        /// Under which epoch.
        epoch: Epoch,
        /// What is about to be handled.
        begun: Begun,
    },
    /// Suspicion: commit this partition's progress now.
    Commit {
        /// Which partition.
        partition: PartitionId,
    },
    /// After a close: no handler call of it is in flight any more (work queues: and its subject is
    /// out of the consumer, so that the next owner can have it).
    Drained {
        /// Which partition.
        partition: PartitionId,
    },
    /// A lane got ready, or stopped being so: ask `ready` again.
    ReadyChanged,
    /// Something is wrong, named; the rest goes on.
    Trouble(Trouble),
    /// The source refuses nothing any more.
    RefusedNoMore,
    /// A message went to the dead letters.
    DeadLettered {
        /// Which partition.
        partition: PartitionId,
        /// Which message.
        offset: Offset,
        /// After how many attempts.
        attempts: u32,
    },
    /// The start position asked for by `resolve` was resolved.
    Resolved {
        /// Which partition.
        partition: PartitionId,
        /// Where handling starts.
        next: Offset,
    },
}

/// How a partition opens: what its record said when it was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The epoch of the take.
    pub epoch: Epoch,
    /// Handling starts exactly here.
    pub next: Offset,
    /// Offsets above `next` that are done already.
    pub done_above: Vec<Offset>,
    /// What an earlier owner announced and did not finish, as far as known.
    pub begun: Option<Begun>,
    /// The earlier owner died with it: handle carefully until proved harmless.
    pub suspicious: bool,
    /// The dead owner, if it was another worker: on a work queue its durable still has the subject.
    pub seized_from: Option<WorkerId>,
}

/// How far a partition is, under one epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The epoch of the take.
    pub epoch: Epoch,
    /// The highest contiguous done offset, in lane order. `None`: nothing yet under this epoch.
    pub offset: Option<Offset>,
    /// Done offsets above it, sorted, bounded.
    pub done_above: Vec<Offset>,
}
