//! One worker: the machine that a driver (or the simulator) feeds.
//!
//! `handle(now, event)` in, [`Action`]s out, [`Worker::next_deadline`] says when to come back with
//! [`Event::Tick`].

pub mod chronicle;
pub mod holding;
mod identity;
mod leaderless;
mod machine;
pub mod numbers;
pub mod outbox;
mod stop;

pub use machine::Worker;
pub use numbers::Numbers;

use std::sync::Arc;
use std::time::Duration;

use crate::ids::{Epoch, Incarnation, Offset, PartitionId, Term, Version, WorkerId};
use crate::io::{
    Ask, CommitRefused, Ran, RequestId, Run, Scope, SourceEvent, SourceRequest, StoreReply,
    StoreRequest, WatchEvent,
};
use crate::partition::Partition;
use crate::text::{count, few};

/// The nine states of a worker, numbered as the metric `parti_worker_state` shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum State {
    /// Not started.
    Init = 0,
    /// Claiming a stable id.
    ClaimingId = 1,
    /// Finding out who leads.
    Election = 2,
    /// Waiting for the first assignment.
    WaitingAssignment = 3,
    /// Normal running.
    Stable = 4,
    /// Membership is settling.
    Scaling = 5,
    /// Partitions are moving.
    Rebalancing = 6,
    /// A crashed worker's partitions are being given to others.
    Emergency = 7,
    /// Stopping or stopped.
    Shutdown = 8,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Begin.
    Start,
    /// Hand over everything, then go: within `shutdown_timeout`, or a shorter time of the caller's.
    Stop {
        /// The caller's own limit.
        within: Option<Duration>,
    },
    /// A deadline came.
    Tick,
    /// The store answered.
    Store(RequestId, StoreReply),
    /// A watch has news.
    Watch(Scope, WatchEvent),
    /// The partition list was asked for, and this is it.
    Partitions(Result<Arc<[Partition]>, Arc<str>>),
    /// An external election agent speaks: this worker should lead, or should not.
    Elected(bool),
    /// All progress is to be committed now.
    Flush,
    /// The user knows that the partition list changed.
    RefreshPartitions,
    /// The wall clock jumped: the lease counts as lapsed until the next renewal.
    ClockJumped,
    /// The source has news.
    Source(SourceEvent),
    /// The user's own consumption ([`SourceKind::External`](crate::io::SourceKind::External)) is
    /// done with everything up to and with this offset. Answered by [`Action::Committed`].
    Commit {
        /// Comes back in the answer.
        ask: Ask,
        /// Which partition.
        partition: PartitionId,
        /// Under which epoch it was started.
        epoch: Epoch,
        /// The last offset that is done.
        offset: Offset,
        /// When the answer comes.
        answer: Answer,
    },
    /// Messages were handled.
    Handled {
        /// Which partition.
        partition: PartitionId,
        /// Under which epoch they were started.
        epoch: Epoch,
        /// How far it is.
        ran: Ran,
    },
}

impl Event {
    /// Whether by this messages merely come and go: nothing is decided that would have to be done
    /// before the next such event is taken in.
    pub fn flows(&self) -> bool {
        match self {
            Event::Handled { .. } | Event::Commit { .. } => true,
            Event::Source(event) => matches!(
                event,
                SourceEvent::Delivered { .. } | SourceEvent::Read { .. } | SourceEvent::Grew { .. }
            ),
            _ => false,
        }
    }
}

/// When a commit is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// At once: it counts, and is written with the next flush.
    Counted,
    /// When it is in the store, which is asked at once: it survives whatever happens then.
    Stored,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ask the store.
    Store(StoreRequest),
    /// Start a watch (a second one on the same scope restarts it).
    Watch(Scope),
    /// End a watch.
    Unwatch(Scope),
    /// Ask the partition source for its list; answer with [`Event::Partitions`].
    ListPartitions,
    /// Ask the source.
    Source(SourceRequest),
    /// Call the user's handler, message by message; answer with [`Event::Handled`], the last time
    /// when the run is over.
    Handle(Run),
    /// The run of this partition begins no further message.
    Halt(PartitionId),
    /// The answer to [`Event::Commit`]. Ok: it counts, or is stored, whichever was asked for.
    Committed(Ask, Result<(), CommitRefused>),
    /// Tell hooks, logs, metrics and the group's history.
    Report(Report),
    /// The worker is at its end.
    Stopped(Result<(), Fatal>),
}

/// Facts worth telling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// The state changed.
    State {
        /// From.
        from: State,
        /// To.
        to: State,
    },
    /// This worker has an id.
    Claimed(WorkerId, Incarnation),
    /// The session is lost; everything stops, and a new one is sought.
    SessionLost,
    /// The lease lapsed (dispatch pauses) or is good again.
    Lease {
        /// Good again?
        alive: bool,
    },
    /// This worker leads, or leads no longer.
    Leading(Option<Term>),
    /// A new assignment was accepted.
    Assigned {
        /// Its version.
        version: Version,
        /// The leader's term.
        term: Term,
        /// What to serve.
        serve: Vec<PartitionId>,
        /// What to prepare.
        prepare: Vec<PartitionId>,
    },
    /// A partition was taken; handling starts at `next_offset`.
    Taken {
        /// Which.
        partition: PartitionId,
        /// Under which epoch.
        epoch: Epoch,
        /// The last done offset, by whomever; none if nothing is.
        offset: Option<Offset>,
        /// Where handling starts.
        next_offset: Offset,
        /// From a dead owner.
        seized: bool,
    },
    /// A partition was released.
    Released {
        /// Which.
        partition: PartitionId,
        /// Under which epoch it was held.
        epoch: Epoch,
        /// The last done offset.
        offset: Option<Offset>,
        /// Where the next owner starts.
        next_offset: Offset,
    },
    /// Somebody else owns it now: its handling stopped at once.
    Fenced {
        /// Which.
        partition: PartitionId,
        /// The epoch that is over.
        epoch: Epoch,
    },
    /// A message went to the dead letters.
    DeadLettered {
        /// Which partition.
        partition: PartitionId,
        /// Which message.
        offset: Offset,
        /// After how many attempts.
        attempts: u32,
    },
    /// Progress is on its way to the store.
    Flushed {
        /// Of how many partitions.
        partitions: u64,
        /// Since when the oldest of it may have waited.
        age: Duration,
    },
    /// As leader: a plan gives partitions to workers.
    Planned {
        /// Why.
        cause: Cause,
        /// How many partitions that nobody served got an owner.
        placed: u64,
        /// How many handoffs begin.
        moves: u64,
    },
    /// As leader: a handoff is done, the new owner has the partition.
    Moved {
        /// Which.
        partition: PartitionId,
        /// Who had it.
        from: WorkerId,
        /// Who has it.
        to: WorkerId,
        /// The whole handoff, from the decision on.
        took: Duration,
        /// The part of it in which nobody handled the partition, at the most: from the order to let
        /// go until the new owner said that it has it.
        pause: Duration,
    },
    /// Something is wrong, named; the rest goes on.
    Trouble(Trouble),
    /// A line for the group's history.
    History(String),
}

/// Why partitions are planned anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The group begins, or begins again after a restart.
    ColdStart,
    /// A worker joined.
    Join,
    /// A worker leaves, or has left.
    Leave,
    /// A worker was lost.
    Crash,
    /// The list of partitions changed.
    Partitions,
    /// The load was uneven.
    Balance,
    /// Another worker leads.
    NewLeader,
    /// An operator asked for it.
    Operator,
}

impl Cause {
    /// All of them.
    pub const ALL: [Cause; 8] = [
        Cause::ColdStart,
        Cause::Join,
        Cause::Leave,
        Cause::Crash,
        Cause::Partitions,
        Cause::Balance,
        Cause::NewLeader,
        Cause::Operator,
    ];

    /// In one word.
    pub fn name(self) -> &'static str {
        match self {
            Cause::ColdStart => "cold_start",
            Cause::Join => "join",
            Cause::Leave => "leave",
            Cause::Crash => "crash",
            Cause::Partitions => "partitions",
            Cause::Balance => "balance",
            Cause::NewLeader => "new_leader",
            Cause::Operator => "operator",
        }
    }
}

/// Trouble that does not end the worker.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// The log ends before the checkpoint: it was recreated or rolled back.
    #[error(
        "partition {partition}: the log ends at {end}, before the checkpoint's next offset {next}; it was recreated or restored; reset the checkpoint to go on"
    )]
    LogWentBack {
        /// Which partition.
        partition: PartitionId,
        /// Where the log ends.
        end: Offset,
        /// Where handling was to start.
        next: Offset,
    },
    /// Retention removed messages that were never handled.
    #[error(
        "partition {partition}: retention overtook it: up to {} below offset {first} went unhandled",
        count(*lost, "message")
    )]
    RetentionOvertook {
        /// Which partition.
        partition: PartitionId,
        /// Where the log starts now.
        first: Offset,
        /// How many offsets lie between what is done and there. That many messages are gone where
        /// the partition has a log of its own; in a stream, whose offsets all partitions share, it
        /// is only an upper bound, and may be none.
        lost: u64,
    },
    /// Retention removed messages before the worker's consumer came to them.
    #[error(
        "retention came past a worker that lags by as much as the stream keeps: up to {} between \
         offsets {from} and {first} went unhandled, of partition {}; let the stream keep more, or add \
         workers",
        count(*lost, "message"),
        few(partitions, 5)
    )]
    RetentionPassed {
        /// Whose messages it may have been.
        partitions: Vec<PartitionId>,
        /// The first offset that may be gone.
        from: Offset,
        /// Where that ends: what came next is here.
        first: Offset,
        /// How many offsets between them did not come. Each may have been another worker's, so it
        /// is an upper bound, and may be none.
        lost: u64,
    },
    /// A record cannot be read; it is left alone.
    #[error("record {key} cannot be read: {why}")]
    Unreadable {
        /// Where.
        key: String,
        /// Why.
        why: String,
    },
    /// The record that says who leads cannot be read: nobody can be elected.
    #[error(
        "record leader cannot be read: {0}; the group has no leader until it can: update this program if \
         the record is of a newer one, or delete the record if it is damaged (terms go on all the same)"
    )]
    NoElection(String),
    /// Partitions could not be listed; the last list stays.
    #[error("listing partitions failed: {0}")]
    Listing(String),
    /// The group goes by another partition list than this worker: it gets nothing new.
    #[error(
        "the group's partition list ({}) is another than this worker's ({ours}); give all workers \
         the same list",
        count(*theirs, "partition")
    )]
    OtherPartitions {
        /// How many partitions the group has.
        theirs: u64,
        /// How many this worker lists.
        ours: u64,
    },
    /// A move takes long, because the owner's handler is slow.
    #[error("partition {partition}: {owner} takes long to release it")]
    SlowRelease {
        /// Which partition.
        partition: PartitionId,
        /// Who holds it.
        owner: WorkerId,
    },
    /// More partitions than all workers together can serve.
    #[error(
        "{} over cap and served by nobody: every worker serves {cap} already; add workers or raise \
         jetstream.subject_cap",
        count(*partitions, "partition")
    )]
    OverCap {
        /// How many are left over.
        partitions: u64,
        /// The most that one worker serves.
        cap: u32,
    },
    /// The source has trouble that passes by itself.
    #[error("{0}")]
    Source(String),
    /// The source refuses, which lasts until a person mends something.
    #[error("{0}")]
    SourceRefuses(String),
    /// The store has trouble.
    #[error("{0}")]
    Store(String),
}

/// Why a worker ended against its will.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fatal {
    /// Every id in the range is taken.
    #[error("all {0} stable ids in range are claimed; raise worker_id_max or stop a worker")]
    StableIdExhausted(u64),
    /// The store is another one than before.
    #[error("the store's identity changed: it was recreated; check it, then restart the workers")]
    StoreReplaced,
    /// The stream is another one than before.
    #[error(
        "the source is not the one that this group began with: it was recreated, or another topic or stream was named; name the group's own or use another group; to go on with this one, stop all workers, set all checkpoints (`parti checkpoint reset --all --to earliest`, or latest), then start them again"
    )]
    StreamReplaced,
    /// The store lost writes that it had acknowledged.
    #[error(
        "the store went back in time: it was restored or lost writes; run a reset with a higher epoch, then restart the workers"
    )]
    StoreWentBack,
    /// The group runs with other settings.
    #[error("refused by the group: {0}")]
    Disagreement(String),
    /// A session that is hosted for a consumer elsewhere was ended, or goes on at another host.
    #[error("the session is over, or goes on at another instance")]
    SessionOver,
    /// An operator ended its session, and wants it to stay away.
    #[error("evicted by an operator, who wants it to stay away; start it again when it is mended")]
    Dismissed,
    /// A step of the start failed too often.
    #[error(
        "gave up {step} after {attempts} attempts: the store did not answer; check that it runs and can be reached"
    )]
    GaveUp {
        /// Which step.
        step: &'static str,
        /// How often it was tried.
        attempts: u32,
    },
    /// The store refuses this worker.
    #[error("the store refuses: {0}")]
    Rejected(String),
    /// A stop that was asked for did not come to its end in time.
    #[error("{}", out_of_time(cut_off, *not_released))]
    StopTimedOut {
        /// The messages whose handling was given up half way: whoever has their partition next handles
        /// them again.
        cut_off: Vec<(PartitionId, Offset)>,
        /// How many partitions were not released: what was handled there since the last checkpoint may
        /// be handled again.
        not_released: usize,
    },
}

/// What a stop that was out of time leaves behind, and what to do about it.
fn out_of_time(cut_off: &[(PartitionId, Offset)], not_released: usize) -> String {
    let mut told = vec!["stopped by its time limit".to_owned()];
    if !cut_off.is_empty() {
        let messages = count(cut_off.len() as u64, "message");
        let place = |(partition, offset): &(_, _)| format!("partition {partition} offset {offset}");
        told.push(format!(
            "in the middle of {messages}, to be handled again: {}; raise shutdown_timeout well above \
             the time that a message takes",
            few(cut_off.iter().map(place), 10)
        ));
    }
    if not_released > 0 {
        let partitions = count(not_released as u64, "partition");
        told.push(format!(
            "with {partitions} not released: what was handled there since the last checkpoint may be \
             handled again; check that the store answers, or raise shutdown_timeout"
        ));
    }
    told.join(", ")
}

/// What a worker is made of.
#[derive(Clone, Debug)]
pub struct Options {
    /// All settings.
    pub config: crate::config::Config,
    /// Who should serve what.
    pub strategy: Arc<dyn crate::strategy::Strategy>,
    /// What feeds the lanes.
    pub source: crate::io::SourceKind,
    /// Which source it is, as that one reports it.
    pub stream: crate::ids::SourceId,
    /// The number this worker would like in its id (configured, or a StatefulSet ordinal).
    pub preferred: Option<u64>,
    /// Whose session it is.
    pub belongs: crate::session::Belonging,
    /// Who decides who may stand for election.
    pub agent: crate::leader::election::Agent,
    /// Seed of nonces and jitter: different for every start.
    pub seed: u64,
}
