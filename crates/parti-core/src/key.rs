//! The one place that knows where records live.
//!
//! ```text
//! workers/<worker>       leader       plan       group
//! assignments/<worker>   requests/<id>   events/<n>   topics/<name>   partitions/<id>
//! ```

use crate::ids::{PartitionId, WorkerId};

/// Where one record lives, within a group's namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// The identity of the store and of the stream.
    Group,
    /// Who leads.
    Leader,
    /// What the leader is doing.
    Plan,
    /// A stable id's claim and session.
    Worker(WorkerId),
    /// What one worker should serve and prepare.
    Assignment(WorkerId),
    /// A partition's owner and progress.
    Partition(PartitionId),
}

/// A set of keys that can be listed or watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Prefix {
    /// All sessions.
    Workers,
    /// All assignments.
    Assignments,
    /// All partition records.
    Partitions,
}

impl Prefix {
    /// Whether the key lies under this prefix.
    pub fn holds(self, key: &Key) -> bool {
        matches!(
            (self, key),
            (Prefix::Workers, Key::Worker(_))
                | (Prefix::Assignments, Key::Assignment(_))
                | (Prefix::Partitions, Key::Partition(_))
        )
    }
}
