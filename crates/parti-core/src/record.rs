//! What the store holds: one type per kind of record.
//!
//! ```text
//!  Record ── encode ──▶ {"v":1, …} ── decode(key, …) ──▶ Record, or Unreadable(why)
//! ```
//!
//! Values are JSON with a format version `v`, made to be read by people with the store's own tools.
//! A record that is corrupt or newer than this build is reported by key and left alone. Further
//! fields of the same version are ignored. Numbers that are drawn at random or are hashes appear as
//! text of sixteen hex digits, because common JSON tools round what does not fit into 53 bits.

mod format;
mod overrides;
#[cfg(test)]
mod tests;
mod wire;

pub use format::FORMAT;
pub use overrides::{Drained, OverridesRecord, Pinned};

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{
    Badge, Epoch, Incarnation, Nonce, Offset, PartitionId, Revision, SourceId, Term, Version,
    WorkerId,
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
    /// See [`OverridesRecord`].
    Overrides(Arc<OverridesRecord>),
    /// See [`RequestRecord`].
    Request(Arc<RequestRecord>),
    /// See [`EventRecord`].
    Event(Arc<EventRecord>),
    /// See [`TopicRecord`].
    Topic(Arc<TopicRecord>),
    /// A record that cannot be read, and why. It is left alone.
    Unreadable(Arc<str>),
}

/// The identity of what this group's promises are about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRecord {
    /// Random, drawn when the group was created: a store that was recreated has another.
    #[serde(with = "wire::hex_nonce")]
    pub store: Nonce,
    /// Which source it is about (a stream by its creation stamp), as first seen.
    #[serde(with = "wire::source")]
    pub stream: SourceId,
    /// Who decides, as [`crate::config::Coordination::name`] has it. Two modes in one group would
    /// take partitions from each other for ever.
    pub coordination: String,
    /// Without a leader, the strategy by which everybody computes the same target. With one, the
    /// plan's fingerprint tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<String>,
    /// The writer's mark.
    #[serde(with = "wire::hex_nonce")]
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
    #[serde(with = "wire::hex")]
    pub partitions: u64,
    /// Without a leader: the revision of the overrides that this worker goes by, once it holds
    /// nothing that they forbid.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub heeds: Revision,
    /// When the worker itself last wrote this, in milliseconds of its wall clock (for people): who
    /// ends a silent session leaves it as it is. 0 in a claim, and by workers before this field.
    #[serde(default)]
    pub renewed_at: u64,
    /// Of a session that is hosted for a consumer elsewhere: what lets it go on at another host.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "wire::badge")]
    pub badge: Option<Badge>,
    /// The writer's mark.
    #[serde(with = "wire::hex_nonce")]
    pub nonce: Nonce,
}

fn is_zero(revision: &Revision) -> bool {
    revision.0 == 0
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
    /// Not over yet, but it cannot be renewed any more: an operator wants it to end. Its holder finds
    /// that out by its next renewal, gives up, and comes back in a new life.
    Revoked,
    /// Revoked, and its holder is to end instead of coming back.
    Dismissed,
    /// Over, by its own goodbye: it holds nothing, its id is free.
    Goodbye,
    /// Over, ended by someone who saw it silent for the TTL, or given up after it was revoked.
    Evicted,
    /// Evicted, and silent for so long that its id is free for anyone.
    Free,
}

impl SessionStatus {
    /// Whether this is the evidence that a taker needs.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Goodbye | Self::Evicted | Self::Free)
    }

    /// Whether an operator ended it, so that its holder has yet to give up.
    pub fn is_revoked(self) -> bool {
        matches!(self, Self::Revoked | Self::Dismissed)
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
#[serde(try_from = "wire::Leader", into = "wire::Leader")]
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
    #[serde(with = "wire::prepare")]
    pub prepare: Vec<(PartitionId, WorkerId)>,
    /// Partitions whose record still names this worker though it is not to serve them.
    pub release: Vec<PartitionId>,
    /// Those of `serve` and `prepare` that were added to a running group: nobody has ever read them,
    /// so whoever takes one first starts at its earliest message, whatever `processing.start` says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<PartitionId>,
    /// The writer's mark.
    #[serde(with = "wire::hex_nonce")]
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
    #[serde(with = "wire::unserved")]
    pub unserved: Vec<(PartitionId, String)>,
    /// Partitions that were added to the running group and were never taken since, sorted: a new
    /// leader learns here that they start at their earliest message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<PartitionId>,
    /// What everybody must agree on.
    pub fingerprint: Fingerprint,
    /// The writer's mark.
    #[serde(with = "wire::hex_nonce")]
    pub nonce: Nonce,
}

/// What every worker of a group must agree on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Hash of the sorted partition list with weights ([`crate::partition::hash`]).
    #[serde(with = "wire::hex")]
    pub partitions: u64,
    /// Name and parameters of the strategy.
    pub strategy: String,
    /// `leader` or `leaderless`.
    pub coordination: String,
}

/// A partition's owner and progress: the one record that safety rests on. Never deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "wire::Partition", into = "wire::Partition")]
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
    /// What an owner in suspicion was about to handle, and how often that was begun. Kept by a
    /// release in suspicion, so that the next owner goes on carefully.
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
        match self.offset {
            None => self.start,
            Some(done) if crate::planted!(CheckpointSkipsOne) => done.next().next(),
            Some(done) => done.next(),
        }
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

/// What an operator wants. The leader carries it out and writes down what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRecord {
    /// What is wanted.
    pub request: Request,
    /// Who asks.
    pub by: String,
    /// Why.
    pub why: String,
    /// When it was asked, in milliseconds of wall-clock time (for people).
    pub at: u64,
    /// What became of it.
    pub outcome: Outcome,
    /// The writer's mark.
    #[serde(with = "wire::hex_nonce")]
    pub nonce: Nonce,
}

impl RequestRecord {
    /// The line of the group's history about it.
    pub fn told(&self, outcome: &Outcome) -> String {
        let (by, what) = (&self.by, &self.request);
        let why = match self.why.as_str() {
            "" => String::new(),
            why => format!(" ({why})"),
        };
        match outcome {
            Outcome::Refused { why: reason } => {
                format!("{by} asked to {what}{why}: refused, {reason}")
            }
            Outcome::Overtaken { by: other } => {
                format!("{by} asked to {what}{why}: not done, {other}")
            }
            Outcome::Done => format!("{by} asked to {what}{why}: done"),
            Outcome::Open | Outcome::Accepted => format!("{by} asked to {what}{why}: under way"),
        }
    }
}

/// What an operator can ask for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Request {
    /// Relieve a worker of everything, and give it nothing any more. It stays in the group; its
    /// restart ends the drain, too.
    Drain {
        /// Which.
        worker: WorkerId,
    },
    /// End a drain: the worker gets its share again.
    Undrain {
        /// Which.
        worker: WorkerId,
    },
    /// End one life of a worker, whether or not its handlers are ever done: its session cannot be
    /// renewed any more, and others take over what it had, as after a crash. This is for a worker
    /// that hangs; [`Request::Drain`] is the gentle way.
    Evict {
        /// Which.
        worker: WorkerId,
        /// In which life: a later one is another matter.
        incarnation: Incarnation,
        /// Its process ends with an error, for its supervisor to start a new one. Without, it joins
        /// again, and gets a share like any newcomer.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        stay_away: bool,
    },
    /// Move a partition to a worker. It stays there as long as this life of the worker, so that no
    /// later plan moves it back; [`Request::Unpin`] lets the strategy decide again.
    Move {
        /// Which.
        partition: PartitionId,
        /// Where to.
        worker: WorkerId,
    },
    /// Keep a partition on a worker whenever that worker is there.
    Pin {
        /// Which.
        partition: PartitionId,
        /// Where.
        worker: WorkerId,
    },
    /// End a pin.
    Unpin {
        /// Which.
        partition: PartitionId,
    },
    /// Stop handling a partition: it is released, and nobody takes it. When this is done, nobody
    /// handles a message of it.
    Pause {
        /// Which.
        partition: PartitionId,
    },
    /// Go on handling it.
    Resume {
        /// Which.
        partition: PartitionId,
    },
    /// Rebalance now, whatever threshold and cooldown say.
    Rebalance,
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Request::Drain { worker } => write!(f, "drain {worker}"),
            Request::Undrain { worker } => write!(f, "undrain {worker}"),
            Request::Evict {
                worker, stay_away, ..
            } => {
                let stays = if *stay_away { " for good" } else { "" };
                write!(f, "evict {worker}{stays}")
            }
            Request::Move { partition, worker } => {
                write!(f, "move partition {partition} to {worker}")
            }
            Request::Pin { partition, worker } => {
                write!(f, "pin partition {partition} to {worker}")
            }
            Request::Unpin { partition } => write!(f, "unpin partition {partition}"),
            Request::Pause { partition } => write!(f, "pause partition {partition}"),
            Request::Resume { partition } => write!(f, "resume partition {partition}"),
            Request::Rebalance => f.write_str("rebalance"),
        }
    }
}

/// What became of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Outcome {
    /// Nobody has looked at it yet.
    #[default]
    Open,
    /// It is in the overrides, and on its way to be carried out.
    Accepted,
    /// Carried out.
    Done,
    /// Not possible.
    Refused {
        /// Why not.
        why: String,
    },
    /// Something else came between, and there is nothing left to carry out.
    Overtaken {
        /// What.
        by: String,
    },
}

impl Outcome {
    /// Whether nothing more becomes of the request.
    pub fn is_final(&self) -> bool {
        !matches!(self, Outcome::Open | Outcome::Accepted)
    }
}

/// One line of the group's history, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventRecord {
    /// When, in milliseconds of wall-clock time.
    pub at: u64,
    /// Who wrote it.
    pub worker: WorkerId,
    /// What kind of thing happened.
    pub kind: EventKind,
    /// What happened.
    pub text: String,
    /// How it went, if partitions moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves: Option<Moves>,
    /// The writer's mark.
    #[serde(with = "wire::hex_nonce")]
    pub nonce: Nonce,
}

/// How moves went that ended together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moves {
    /// How many.
    pub count: u64,
    /// Why the partitions moved.
    pub reason: String,
    /// From the decision until the last new owner had taken over, in milliseconds.
    pub took_ms: u64,
    /// The longest time that nobody served one of them, in milliseconds.
    pub pause_ms: u64,
}

/// What kinds of things a history tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A worker came.
    Join,
    /// A worker went with a goodbye.
    Leave,
    /// A worker's session was ended by another.
    Crash,
    /// A leader was elected.
    Election,
    /// A plan was made.
    Plan,
    /// A partition moved.
    Handoff,
    /// An owner found that it no longer is.
    Fencing,
    /// A request was made or carried out.
    Request,
    /// Something needs a person.
    Trouble,
}

/// A topic of the embedded log, or of virtual partitions on a stream. Written once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicRecord {
    /// How many partitions. Never changes: keys would move to other partitions.
    pub partitions: u32,
    /// How a message's key finds its partition.
    pub layout: Layout,
    /// The template of its subjects, such as `orders.{0}`; none in the embedded log.
    pub subject: Option<String>,
    /// How the group spreads the partitions, for those who join without settings of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<String>,
    /// The writer's mark.
    #[serde(with = "wire::hex_nonce")]
    pub nonce: Nonce,
}

/// How a message's key finds its partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// XXH3-64 of the key's bytes, modulo the number of partitions.
    #[default]
    Xxh3Modulo,
}
