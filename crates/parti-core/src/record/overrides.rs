//! What operators decided against the strategy: one record, so that it outlives leaders.

use serde::{Deserialize, Serialize};

use super::wire;
use crate::ids::{Incarnation, Nonce, PartitionId, Term, WorkerId};

/// What operators decided, until they decide otherwise. A new leader writes it anew under its term
/// before it plans anything, so that it never goes by an old one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverridesRecord {
    /// The term of the leader that wrote it.
    pub term: Term,
    /// Workers that serve nothing, sorted.
    pub drained: Vec<Drained>,
    /// Partitions that nobody serves, sorted.
    pub paused: Vec<PartitionId>,
    /// Partitions that stay where they were put, sorted by partition.
    pub pinned: Vec<Pinned>,
    /// The writer's mark.
    #[serde(with = "wire::hex_nonce")]
    pub nonce: Nonce,
}

/// A worker that serves nothing, in this one life: a restart ends it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Drained {
    /// Which.
    pub worker: WorkerId,
    /// In which life.
    pub incarnation: Incarnation,
}

/// A partition that stays on a worker while that is there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Pinned {
    /// Which.
    pub partition: PartitionId,
    /// Where.
    pub worker: WorkerId,
    /// Only in this life: it was moved there once. Without, in every life: it was pinned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<Incarnation>,
}

impl OverridesRecord {
    /// In which life this worker is drained, if it is.
    pub fn drained_life(&self, worker: &WorkerId) -> Option<Incarnation> {
        let found = self.drained.iter().find(|entry| entry.worker == *worker);
        found.map(|entry| entry.incarnation)
    }

    /// Whether this life of a worker is to serve nothing.
    pub fn drains(&self, worker: &WorkerId, life: Incarnation) -> bool {
        self.drained_life(worker) == Some(life)
    }

    /// Whether nobody is to serve this partition.
    pub fn pauses(&self, partition: &PartitionId) -> bool {
        self.paused.binary_search(partition).is_ok()
    }

    /// Where this partition is to stay, if anywhere.
    pub fn pin_of(&self, partition: &PartitionId) -> Option<&Pinned> {
        let place = self
            .pinned
            .binary_search_by(|entry| entry.partition.cmp(partition));
        place.ok().map(|place| &self.pinned[place])
    }

    /// This worker serves nothing from now on.
    pub fn drain(&mut self, worker: &WorkerId, incarnation: Incarnation) {
        self.undrain(worker);
        self.drained.push(Drained {
            worker: worker.clone(),
            incarnation,
        });
        self.drained.sort();
    }

    /// This worker serves like any other.
    pub fn undrain(&mut self, worker: &WorkerId) {
        self.drained.retain(|entry| entry.worker != *worker);
    }

    /// Nobody serves this partition from now on.
    pub fn pause(&mut self, partition: &PartitionId) {
        if let Err(place) = self.paused.binary_search(partition) {
            self.paused.insert(place, partition.clone());
        }
    }

    /// This partition is served like any other.
    pub fn resume(&mut self, partition: &PartitionId) {
        self.paused.retain(|paused| paused != partition);
    }

    /// This partition stays on that worker.
    pub fn pin(&mut self, pinned: Pinned) {
        self.unpin(&pinned.partition);
        self.pinned.push(pinned);
        self.pinned.sort();
    }

    /// The strategy decides where this partition is served.
    pub fn unpin(&mut self, partition: &PartitionId) {
        self.pinned.retain(|entry| entry.partition != *partition);
    }

    /// Forgets what was meant for lives that are over.
    pub fn forget_lives(&mut self, is_over: impl Fn(&WorkerId, Incarnation) -> bool) {
        self.drained
            .retain(|entry| !is_over(&entry.worker, entry.incarnation));
        self.pinned.retain(|entry| {
            entry
                .incarnation
                .is_none_or(|life| !is_over(&entry.worker, life))
        });
    }
}
