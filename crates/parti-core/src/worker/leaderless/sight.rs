//! What a worker without a leader sees of its group, as requests need it.

use std::collections::BTreeMap;

use crate::ids::{Incarnation, PartitionId, Revision, WorkerId};
use crate::leader::Sessions;
use crate::leader::requests::Sight;
use crate::partition::Partition;
use crate::record::{SessionStatus, WorkerRecord};

/// A group as its sessions and its partitions' records show it.
pub(super) struct Peers<'a> {
    pub partitions: &'a [Partition],
    pub sessions: &'a Sessions,
    /// Who owned what, when last looked at.
    pub owners: &'a BTreeMap<PartitionId, (WorkerId, Incarnation)>,
    /// The overrides that everybody has to go by.
    pub revision: Option<Revision>,
}

impl Peers<'_> {
    /// Whether this session goes by the overrides as they stand, and holds nothing against them.
    fn heeds(&self, record: &WorkerRecord) -> bool {
        self.revision
            .is_some_and(|revision| record.heeds >= revision)
    }
}

impl Sight for Peers<'_> {
    fn lists(&self, partition: &PartitionId) -> bool {
        self.partitions
            .binary_search_by(|p| p.id.cmp(partition))
            .is_ok()
    }

    fn life_of(&self, worker: &WorkerId) -> Option<Incarnation> {
        let (revision, record) = self.sessions.get(worker)?;
        let stays = record.status == SessionStatus::Live;
        stays.then(|| record.incarnation_at(revision))
    }

    fn is_over(&self, worker: &WorkerId, life: Incarnation) -> bool {
        self.sessions.get(worker).is_some_and(|(revision, record)| {
            let present = record.incarnation_at(revision);
            present > life || (present == life && record.status.is_over())
        })
    }

    fn staying(&self) -> Vec<(WorkerId, Incarnation)> {
        self.sessions
            .iter()
            .filter(|(_, _, record)| record.status == SessionStatus::Live)
            .map(|(id, revision, record)| (id.clone(), record.incarnation_at(revision)))
            .collect()
    }

    fn is_free(&self, _: &PartitionId) -> bool {
        let mut living = self
            .sessions
            .iter()
            .filter(|(_, _, record)| !record.status.is_over());
        living.all(|(_, _, record)| self.heeds(record))
    }

    fn holds_nothing(&self, worker: &WorkerId, life: Incarnation) -> bool {
        self.sessions.get(worker).is_some_and(|(revision, record)| {
            record.incarnation_at(revision) == life && record.load == 0 && self.heeds(record)
        })
    }

    fn serves(&self, worker: &WorkerId, partition: &PartitionId) -> bool {
        let life = self.life_of(worker);
        let owner = self.owners.get(partition);
        owner.is_some_and(|(owner, owned)| owner == worker && Some(*owned) == life)
    }
}
