//! What a worker did and is like, as plain data: whoever runs it makes metrics of it.

use crate::feed::FeedNumbers;

/// The numbers of one worker. Counts grow as long as the worker lives, whatever id it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// Renewals of the session that landed.
    pub heartbeats: u64,
    /// Renewals that failed, or whose fate is open.
    pub heartbeat_failures: u64,
    /// Takes that came to nothing.
    pub takes: TakeNumbers,
    /// What the source's side did.
    pub feed: FeedNumbers,
    /// What the leader sees, or in a group without one what each worker sees; none while this worker
    /// does not lead.
    pub plan: Option<PlanNumbers>,
}

/// Takes of partitions that came to nothing; each is tried again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TakeNumbers {
    /// Not tried: the record names an owner that may live.
    pub blocked: u64,
    /// The record had changed meanwhile.
    pub conflicts: u64,
    /// The store failed, or the fate of the write is open.
    pub failures: u64,
}

/// What is seen of the group as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanNumbers {
    /// Handoffs under way, of which only a leader knows.
    pub moving: u64,
    /// Partitions that nobody should serve now; without a leader, those that nobody has served for
    /// longer than the grace.
    pub unserved: u64,
    /// Those of them that no worker has room for.
    pub over_cap: u64,
    /// Those of them that an operator has paused.
    pub paused: u64,
}
