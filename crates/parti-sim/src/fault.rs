//! Faults as data: what can go wrong, when, and for how long.

use parti_core::key::Key;
use serde::{Deserialize, Serialize};

use crate::setup::Micros;

/// Something that goes wrong at a given time. Every count and duration is a number of its own, so
/// that a failing scenario can be made smaller piece by piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// `kill -9`: volatile state is gone, calls in flight end nowhere or had their effect already.
    Crash {
        /// Where.
        machine: usize,
        /// When a new process starts there, if ever.
        restart_after: Option<Micros>,
    },
    /// `SIGSTOP`: everything waits; the clock runs on.
    Pause {
        /// Where.
        machine: usize,
        /// For how long.
        length: Micros,
    },
    /// The machine sleeps: as a pause, and its connections are gone when it wakes.
    Suspend {
        /// Where.
        machine: usize,
        /// For how long.
        length: Micros,
    },
    /// The worker is asked to stop.
    Stop {
        /// Where.
        machine: usize,
        /// When a new process starts there after the old one ended, if ever.
        restart_after: Option<Micros>,
    },
    /// Every worker is asked to stop, nearly at once.
    StopAll {
        /// When new processes start after the old ones ended, if ever.
        restart_after: Option<Micros>,
    },
    /// An operator asks for something.
    Ask {
        /// What.
        wish: Wish,
        /// Of whom: whoever runs there.
        machine: usize,
        /// Which partition, counted round.
        partition: usize,
    },
    /// Everybody stands still. An operator who waits in vain changes the record of a partition over
    /// its owner.
    Force {
        /// Which partition, counted round.
        partition: usize,
        /// For how long.
        length: Micros,
    },
    /// A process starts on a machine that runs none.
    Join {
        /// Where.
        machine: usize,
    },
    /// A second process that prefers the same id starts on a spare machine.
    Twin {
        /// Whose id.
        machine: usize,
    },
    /// A consumer whose session is hosted goes on at a host on a spare machine.
    Rehost {
        /// Whose session.
        machine: usize,
        /// The old host is still there; else it dies.
        host_lives: bool,
        /// Somebody else tries it, without the badge.
        stolen: bool,
    },
    /// Crashes someone right before or after a write of a kind is accepted.
    CrashAtWrite {
        /// Who.
        victim: Victim,
        /// Which kind of record.
        kind: WriteKind,
        /// At the how-manieth such write from now on (1: the next).
        nth: u32,
        /// Before: the write never arrives.
        before: bool,
        /// When a new process starts there, if ever.
        restart_after: Option<Micros>,
    },
    /// The leader falls silent in the middle of a write to an assignment, and the write arrives
    /// when another one leads.
    Overthrow {
        /// At the how-manieth such write from now on (1: the next).
        nth: u32,
        /// It stands still; else it only does not reach the store.
        frozen: bool,
        /// For how long.
        length: Micros,
    },
    /// Nobody reaches the store.
    Outage {
        /// For how long.
        length: Micros,
    },
    /// One machine does not reach the store.
    Partition {
        /// Which.
        machine: usize,
        /// For how long.
        length: Micros,
    },
    /// One machine's requests take long.
    SlowStore {
        /// Which.
        machine: usize,
        /// For how long.
        length: Micros,
        /// By how much at the most.
        delay: Micros,
    },
    /// One machine's requests and replies get lost.
    LossyStore {
        /// Which.
        machine: usize,
        /// For how long.
        length: Micros,
        /// How many of a hundred requests.
        percent: u8,
    },
    /// Writes of one machine land after they timed out.
    LateWrites {
        /// Which.
        machine: usize,
        /// For how long.
        length: Micros,
        /// How many of a hundred writes.
        percent: u8,
        /// How long after the timeout at the most.
        by: Micros,
    },
    /// One machine reads from a follower that hears nothing new.
    StaleReads {
        /// Which.
        machine: usize,
        /// For how long.
        length: Micros,
    },
    /// Accepted writes are answered as conflicts, as a client library does that repeats a request.
    ConflictStorm {
        /// For how long.
        length: Micros,
        /// How many of a hundred writes.
        percent: u8,
    },
    /// All watches of one machine break and come back with a snapshot.
    BreakWatches {
        /// Which.
        machine: usize,
        /// After how long.
        gap: Micros,
    },
    /// News of watches come twice.
    DuplicateWatches {
        /// Whose.
        machine: usize,
        /// For how long.
        length: Micros,
    },
    /// News of watches come late.
    DelayWatches {
        /// Whose.
        machine: usize,
        /// For how long.
        length: Micros,
        /// By how much at the most.
        delay: Micros,
    },
    /// One machine's link to the source dies; what was sent into it is lost.
    SourceDown {
        /// Which.
        machine: usize,
        /// For how long.
        length: Micros,
    },
    /// Deliveries to one machine get lost on their way, and nobody is told.
    LostDeliveries {
        /// Which.
        machine: usize,
        /// For how long.
        length: Micros,
        /// How many of a hundred.
        percent: u8,
    },
    /// The consumer of one machine gets another leader inside the source.
    ConsumerLeaderChange {
        /// Whose.
        machine: usize,
    },
    /// Readers of the source get answers from a replica that lags.
    LaggingReplica {
        /// For how long.
        length: Micros,
        /// By how many messages.
        behind: u64,
    },
    /// Handlers of one machine are slow.
    SlowHandlers {
        /// Which.
        machine: usize,
        /// For how long.
        length: Micros,
        /// By how much at the most.
        delay: Micros,
    },
    /// The wall clock of one machine jumps.
    ClockJump {
        /// Which.
        machine: usize,
    },
    /// The user of one machine asks for a fresh partition list.
    Refresh {
        /// Which.
        machine: usize,
    },
    /// The partition list changes, for each worker at another time.
    ListChange {
        /// Which partitions are gone, and which weigh another amount.
        salt: u64,
    },
    /// Retention removes all but the newest messages, handled or not.
    Retention {
        /// How many are kept of a stream; of a partition of a log, an eighth of that.
        keep: u64,
    },
    /// Another, empty store answers under the same name.
    ReplaceStore,
    /// The store forgets its newest writes.
    RollBackStore {
        /// How many.
        writes: u64,
    },
}

/// What an operator asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wish {
    /// A worker is to serve nothing.
    Drain,
    /// It serves again.
    Undrain,
    /// Its life is to end, and it may come back.
    Evict,
    /// Its process is to end, too.
    Dismiss,
    /// A partition is to be moved.
    Move,
    /// A partition is to stay somewhere.
    Pin,
    /// It may go anywhere.
    Unpin,
    /// Nobody is to handle a partition.
    Pause,
    /// It is handled again.
    Resume,
    /// Everybody gets a share.
    Rebalance,
}

/// Who is to crash at a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Victim {
    /// Whoever wrote it.
    Writer,
    /// Whom the record is about: an assignment's worker, a partition's new owner.
    Subject,
    /// A partition's owner before the write, or the one named in a `prepare`.
    OldOwner,
    /// The leader of the group.
    Leader,
}

/// Kinds of records, as targets of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteKind {
    /// `leader`
    Leader,
    /// `plan`
    Plan,
    /// `workers/…`
    Worker,
    /// `assignments/…`
    Assignment,
    /// `partitions/…`
    Partition,
}

impl WriteKind {
    /// The kind of a key, if faults aim at it.
    pub fn of(key: &Key) -> Option<WriteKind> {
        match key {
            Key::Group | Key::Overrides | Key::Request(_) | Key::Event(_) | Key::Topic(_) => None,
            Key::Leader => Some(WriteKind::Leader),
            Key::Plan => Some(WriteKind::Plan),
            Key::Worker(_) => Some(WriteKind::Worker),
            Key::Assignment(_) => Some(WriteKind::Assignment),
            Key::Partition(_) => Some(WriteKind::Partition),
        }
    }
}

/// Names of the kinds of faults, in the order of [`Fault::kind`].
pub const KINDS: [&str; 32] = [
    "crash",
    "pause",
    "suspend",
    "stop",
    "join",
    "twin",
    "crash at write",
    "outage",
    "partition",
    "slow store",
    "lossy store",
    "late writes",
    "stale reads",
    "conflict storm",
    "broken watches",
    "duplicate watches",
    "delayed watches",
    "source down",
    "consumer leader change",
    "lagging replica",
    "slow handlers",
    "clock jump",
    "refresh",
    "store lost",
    "overthrow",
    "lost deliveries",
    "retention",
    "list change",
    "stop all",
    "ask",
    "rehost",
    "force",
];

impl Fault {
    /// The index of this fault's kind in [`KINDS`].
    pub fn kind(&self) -> usize {
        match self {
            Fault::Crash { .. } => 0,
            Fault::Pause { .. } => 1,
            Fault::Suspend { .. } => 2,
            Fault::Stop { .. } => 3,
            Fault::Join { .. } => 4,
            Fault::Twin { .. } => 5,
            Fault::CrashAtWrite { .. } => 6,
            Fault::Outage { .. } => 7,
            Fault::Partition { .. } => 8,
            Fault::SlowStore { .. } => 9,
            Fault::LossyStore { .. } => 10,
            Fault::LateWrites { .. } => 11,
            Fault::StaleReads { .. } => 12,
            Fault::ConflictStorm { .. } => 13,
            Fault::BreakWatches { .. } => 14,
            Fault::DuplicateWatches { .. } => 15,
            Fault::DelayWatches { .. } => 16,
            Fault::SourceDown { .. } => 17,
            Fault::ConsumerLeaderChange { .. } => 18,
            Fault::LaggingReplica { .. } => 19,
            Fault::SlowHandlers { .. } => 20,
            Fault::ClockJump { .. } => 21,
            Fault::Refresh { .. } => 22,
            Fault::ReplaceStore | Fault::RollBackStore { .. } => 23,
            Fault::Overthrow { .. } => 24,
            Fault::LostDeliveries { .. } => 25,
            Fault::Retention { .. } => 26,
            Fault::ListChange { .. } => 27,
            Fault::StopAll { .. } => 28,
            Fault::Ask { .. } => 29,
            Fault::Rehost { .. } => 30,
            Fault::Force { .. } => 31,
        }
    }

    /// The fault's length, where it has one that can be halved.
    pub fn length_mut(&mut self) -> Option<&mut Micros> {
        match self {
            Fault::Pause { length, .. }
            | Fault::Suspend { length, .. }
            | Fault::Outage { length }
            | Fault::Partition { length, .. }
            | Fault::SlowStore { length, .. }
            | Fault::LossyStore { length, .. }
            | Fault::LateWrites { length, .. }
            | Fault::StaleReads { length, .. }
            | Fault::ConflictStorm { length, .. }
            | Fault::BreakWatches { gap: length, .. }
            | Fault::DuplicateWatches { length, .. }
            | Fault::DelayWatches { length, .. }
            | Fault::SourceDown { length, .. }
            | Fault::LaggingReplica { length, .. }
            | Fault::Overthrow { length, .. }
            | Fault::Force { length, .. }
            | Fault::LostDeliveries { length, .. }
            | Fault::SlowHandlers { length, .. } => Some(length),
            _ => None,
        }
    }
}
