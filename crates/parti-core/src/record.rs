//! What the store holds: one type per kind of record.
//!
//! Values are JSON with a format version `v`. A record that is corrupt or newer than this build is
//! reported by key and left alone.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{
    Epoch, Incarnation, Nonce, Offset, PartitionId, Revision, Term, Version, WorkerId,
};

/// Any record. Shared, because the same value travels through watches, replies and snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// See [`GroupRecord`].
    Group(Arc<GroupRecord>),
    /// See [`LeaderRecord`].
    Leader(Arc<LeaderRecord>),
    /// See [`PlanRecord`].
    Plan(Arc<PlanRecord>),
    /// See [`WorkerRecord`].
    Worker(Arc<WorkerRecord>),
    /// See [`AssignmentRecord`].
    Assignment(Arc<AssignmentRecord>),
    /// See [`PartitionRecord`].
    Partition(Arc<PartitionRecord>),
    /// A record that cannot be read, and why. It is left alone.
    Unreadable(Arc<str>),
}

/// The identity of what this group's promises are about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRecord {
    /// Random, drawn when the group was created: a store that was recreated has another.
    pub store: Nonce,
    /// The stream's identity (its creation stamp), as first seen.
    pub stream: u64,
    /// The writer's mark.
    pub nonce: Nonce,
}

/// A stable id's claim and session in one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerRecord {
    /// Which life of the id this is. `None` only in the claim itself, whose own revision it is.
    pub incarnation: Option<Incarnation>,
    /// Grows with every renewal.
    pub beat: u64,
    /// Whether the session lives.
    pub status: SessionStatus,
    /// The worker's state, 0 to 8, as in [`crate::worker::State`].
    pub state: u8,
    /// The term of the assignments that `released`, `applied` and `ready` answer.
    pub term: Term,
    /// Up to this assignment version, nothing outside `serve` is held any more.
    pub released: Version,
    /// Up to this assignment version, all of `serve` is held too.
    pub applied: Version,
    /// Which prepared partitions are ready, and for which assignment version that was said.
    pub ready: Ready,
    /// Takes that were refused, with who stood in the way.
    pub blocked_by: Vec<Blocked>,
    /// How many partitions the worker holds.
    pub load: u64,
    /// What is wrong with this worker, if anything is.
    pub degraded: Option<String>,
    /// Hash of the partition list this worker goes by: a leader with another one lists again.
    pub partitions: u64,
    /// The writer's mark.
    pub nonce: Nonce,
}

impl WorkerRecord {
    /// Which life of the id this record belongs to, given the revision it was found at.
    pub fn incarnation_at(&self, found_at: Revision) -> Incarnation {
        self.incarnation.unwrap_or(Incarnation(found_at.0))
    }
}

/// Whether a session lives. It ends by a write, never by a timer alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionStatus {
    /// Renewing.
    Live,
    /// Still renewing, asks to be relieved of everything before it goes.
    Leaving,
    /// Over, by its own goodbye: it holds nothing, its id is free.
    Goodbye,
    /// Over, ended by someone who saw it silent for the TTL.
    Evicted,
    /// Evicted, and silent for so long that its id is free for anyone.
    Free,
}

impl SessionStatus {
    /// Whether this is the evidence that a taker needs.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Goodbye | Self::Evicted | Self::Free)
    }
}

/// Prepared partitions that are ready to be served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// The assignment version that this answers: leftovers of older ones do not count.
    pub version: Version,
    /// The partitions, sorted.
    pub partitions: Vec<PartitionId>,
}

/// A take that was refused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Blocked {
    /// What was to be taken.
    pub partition: PartitionId,
    /// Who holds it.
    pub owner: WorkerId,
    /// In which life.
    pub incarnation: Incarnation,
}

/// Who leads. Never deleted, so that terms never restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaderRecord {
    /// The leader, or none after a resignation.
    pub holder: Option<(WorkerId, Incarnation)>,
    /// Grows with every election.
    pub term: Term,
    /// Grows with every renewal.
    pub beat: u64,
    /// The writer's mark.
    pub nonce: Nonce,
}

/// Where a group is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lifecycle {
    /// First deployment, or a restart of most of the group.
    #[default]
    ColdStart,
    /// The first plan after a cold start is out.
    PostColdStart,
    /// Normal running.
    Stable,
}

/// What one worker should serve and prepare.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssignmentRecord {
    /// Grows with every assignment the group publishes.
    pub version: Version,
    /// The leader's term. Lower terms than the highest seen are ignored.
    pub term: Term,
    /// Whom it is for: an assignment to an earlier life of the id does not count.
    pub incarnation: Incarnation,
    /// Where the group is in its life.
    pub lifecycle: Lifecycle,
    /// What to serve, sorted.
    pub serve: Vec<PartitionId>,
    /// What to prepare, with its present owner, sorted.
    pub prepare: Vec<(PartitionId, WorkerId)>,
    /// Partitions whose record still names this worker though it is not to serve them.
    pub release: Vec<PartitionId>,
    /// Those of `serve` that joined a running group and start at the earliest message, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<PartitionId>,
    /// The writer's mark.
    pub nonce: Nonce,
}

/// What the leader is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanState {
    /// Nothing.
    #[default]
    Stable,
    /// Waiting for membership to settle.
    Scaling,
    /// Moving partitions.
    Rebalancing,
    /// Giving a crashed worker's partitions to others.
    Emergency,
}

/// The plan: what the leader is doing, and what everybody must agree on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanRecord {
    /// The highest assignment version published so far.
    pub version: Version,
    /// The leader's term.
    pub term: Term,
    /// Where the group is in its life.
    pub lifecycle: Lifecycle,
    /// What the leader is doing.
    pub state: PlanState,
    /// Why.
    pub reason: String,
    /// When this state was entered, in milliseconds of wall-clock time (for people).
    pub started_at: u64,
    /// How many workers the plan counts on.
    pub workers: u64,
    /// How many partitions there are.
    pub partitions: u64,
    /// How many of them are moving now.
    pub moving: u64,
    /// Partitions that nobody serves, and why (the first few; the count is in the reason).
    pub unserved: Vec<(PartitionId, String)>,
    /// Partitions that joined a running group and were not taken yet, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<PartitionId>,
    /// What everybody must agree on.
    pub fingerprint: Fingerprint,
    /// The writer's mark.
    pub nonce: Nonce,
}

/// What every worker of a group must agree on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Hash of the sorted partition list with weights.
    pub partitions: u64,
    /// Name and parameters of the strategy.
    pub strategy: String,
    /// `leader` or `leaderless`.
    pub coordination: String,
}

/// A partition's owner and progress: the one record that safety rests on. Never deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionRecord {
    /// Grows with every take.
    pub epoch: Epoch,
    /// Who owns it, in which life.
    pub owner: Option<(WorkerId, Incarnation)>,
    /// Where reading starts when nothing is done yet; resolved once, at the first take.
    pub start: Offset,
    /// The last done offset: everything up to it is done.
    pub offset: Option<Offset>,
    /// Done offsets above `offset` (orderings `key` and `none`), sorted, bounded.
    pub done_above: Vec<Offset>,
    /// What an owner in suspicion was about to handle, and how often that was begun.
    pub begun: Option<Begun>,
    /// The writer's mark.
    pub nonce: Nonce,
    /// When the owner took it, in milliseconds of wall-clock time (for people).
    pub claimed_at: u64,
    /// When it was last written, in milliseconds of wall-clock time (for people).
    pub updated_at: u64,
}

impl PartitionRecord {
    /// Where reading starts: one past the last done offset.
    pub fn next_offset(&self) -> Offset {
        self.offset.map_or(self.start, Offset::next)
    }
}

/// A handler call that an owner in suspicion announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// The message.
    pub offset: Offset,
    /// How many owners have begun it so far.
    pub times: u32,
}
