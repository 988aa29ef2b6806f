//! What the world sees, step by step: all that facts and invariants are made of.

use std::sync::Arc;

use parti_core::ids::{Offset, PartitionId, Revision, Term, WorkerId};
use parti_core::io::{HandlerResult, Job, Stored};
use parti_core::key::Key;
use parti_core::record::{OverridesRecord, PartitionRecord, Record, RequestRecord, WorkerRecord};
use parti_core::time::Time;
use parti_core::worker::{Action, Fatal};

use crate::setup::Micros;

/// One process, from its start to its end. A restart is another process.
pub type Proc = usize;

/// Something that the world saw.
#[derive(Clone, Copy, Debug)]
pub enum Seen<'a> {
    /// A message is in the log.
    Published {
        /// Index of its partition.
        partition: usize,
        /// Where.
        offset: Offset,
        /// Hash of its key.
        key: u64,
        /// Whether it kills whoever handles it.
        killer: bool,
    },
    /// Retention removed whatever is before an offset.
    Trimmed {
        /// Index of the partition.
        partition: usize,
        /// The first offset that may still be there.
        first: Offset,
        /// What a server was still to deliver, and to whom.
        passed: &'a [(Offset, WorkerId)],
    },
    /// A partition is not in the list any more, for a while.
    Unlisted {
        /// Index of the partition.
        partition: usize,
    },
    /// The partition list is another one.
    ListChanged,
    /// A process began. Processes are numbered in this order.
    Started {
        /// On which machine.
        machine: usize,
    },
    /// The consumer whose session a process hosts has left it: nothing more is handled there.
    Deserted {
        /// Which process.
        proc: Proc,
    },
    /// The store accepted a write.
    Wrote {
        /// Who sent it.
        proc: Proc,
        /// When it was sent.
        sent_at: Micros,
        /// When it was sent, by the sender's clock.
        sent_local: Time,
        /// What it got.
        revision: Revision,
        /// Where.
        key: &'a Key,
        /// What was there before.
        old: Option<&'a Stored>,
        /// What is there now.
        new: Option<&'a Record>,
    },
    /// A worker wants something done.
    Acted {
        /// Which.
        proc: Proc,
        /// When, by its own clock.
        local: Time,
        /// What.
        action: &'a Action,
    },
    /// A watch showed a worker a leader's term.
    TermShown {
        /// Whom.
        proc: Proc,
        /// The highest one.
        term: Term,
    },
    /// A worker was told what became of a request to the store.
    Answered {
        /// Which.
        proc: Proc,
    },
    /// A worker was given a message by its consumer.
    Delivered {
        /// Which.
        proc: Proc,
        /// The consumer sequence.
        sequence: u64,
        /// Index of the partition.
        partition: usize,
        /// Which message.
        offset: Offset,
    },
    /// A handler call began.
    CallBegan {
        /// Where it runs.
        proc: Proc,
        /// When, by its own clock.
        local: Time,
        /// What it handles.
        job: &'a Job,
    },
    /// A handler call ended.
    CallEnded {
        /// Where it ran.
        proc: Proc,
        /// What it handled.
        job: &'a Job,
        /// How it ended.
        result: &'a HandlerResult,
        /// Whether the worker will hear of it; if not, its process died in between.
        reported: bool,
    },
    /// A handler call was cut off before it had any effect.
    CallLost {
        /// Where it ran.
        proc: Proc,
        /// What it handled.
        job: &'a Job,
    },
    /// A dead letter is safely stored.
    DeadLettered {
        /// Index of the partition.
        partition: usize,
        /// Which message.
        offset: Offset,
    },
    /// A process was killed.
    Crashed {
        /// Which.
        proc: Proc,
    },
    /// A process stands still.
    Paused {
        /// Which.
        proc: Proc,
    },
    /// It goes on.
    Resumed {
        /// Which.
        proc: Proc,
    },
    /// A process was asked to stop.
    StopAsked {
        /// Which.
        proc: Proc,
    },
    /// A process ended by itself.
    Ended {
        /// Which.
        proc: Proc,
        /// How.
        result: &'a Result<(), Fatal>,
    },
    /// The way to the store is in trouble.
    StoreTrouble {
        /// For one machine, or for all.
        machine: Option<usize>,
        /// Until when.
        until: Micros,
        /// Whether it is of a kind that must not move a partition.
        harmless: bool,
    },
    /// A message between a process and the store or the source takes long, or may get lost.
    Slow {
        /// Whose.
        proc: Proc,
        /// Until when.
        until: Micros,
    },
    /// An operator of a group without a leader wrote the overrides.
    Decided {
        /// At which revision.
        revision: Revision,
        /// What they are now.
        record: &'a Arc<OverridesRecord>,
    },
    /// An operator changed the record of a partition over its owner, which stands still.
    Forced {
        /// The owner.
        proc: Proc,
        /// Which.
        id: &'a PartitionId,
        /// At which revision.
        revision: Revision,
        /// What it is now.
        record: &'a Arc<PartitionRecord>,
    },
    /// An operator of a group without a leader revoked a session.
    Revoked {
        /// Whose.
        id: &'a WorkerId,
        /// At which revision.
        revision: Revision,
        /// What it is now.
        record: &'a Arc<WorkerRecord>,
    },
    /// An operator asked for something.
    Asked {
        /// Where the request is.
        key: &'a Key,
        /// At which revision.
        revision: Revision,
        /// What is asked for.
        record: &'a Arc<RequestRecord>,
    },
    /// A process was told that a write of its own got this revision (only where the store may be
    /// lost).
    Acknowledged {
        /// Which.
        proc: Proc,
        /// The newest one.
        revision: Revision,
    },
    /// The store was replaced, or went back to a revision.
    StoreLost {
        /// The newest write that was kept, if any was.
        kept: Option<Revision>,
    },
    /// All faults are over.
    Healed,
}
