//! Everything that a group has in the store, as found.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use parti_core::config::Coordination;
use parti_core::ids::{Incarnation, PartitionId, WorkerId};
use parti_core::io::Stored;
use parti_core::key::{Key, Prefix};
use parti_core::record::{
    AssignmentRecord, GroupRecord, OverridesRecord, PartitionRecord, Record, SessionStatus,
    WorkerRecord,
};

use super::OwnerSession;
use crate::store::{Error, GroupStore};

/// Written into a group's record while an operator deletes the group: no worker has this mode of
/// coordination, so none can join, and each is told this text.
pub(crate) const CLOSED: &str = "being deleted (`parti group delete` ends that)";

/// A group's records, each as of its own read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Records {
    pub group: Option<Stored>,
    pub leader: Option<Stored>,
    pub plan: Option<Stored>,
    pub overrides: Option<Stored>,
    pub workers: Vec<Stored>,
    pub assignments: Vec<Stored>,
    pub requests: Vec<Stored>,
    pub partitions: Vec<Stored>,
    pub events: Vec<Stored>,
}

/// A record's place among the others.
enum Place<'a> {
    One(&'a mut Option<Stored>),
    List(&'a mut Vec<Stored>),
}

fn find(list: &[Stored], key: &Key) -> Result<usize, usize> {
    list.binary_search_by(|stored| stored.key.cmp(key))
}

impl Records {
    /// Reads all of them: the overrides before anything else, because whoever writes those has told
    /// before in other records why. So whoever finds the one finds the other, too. For the same
    /// reason partitions come before workers: whoever takes one has claimed its id before.
    pub async fn read(store: &GroupStore) -> Result<Self, Error> {
        let overrides = store.read(&Key::Overrides).await?;
        let (group, leader, plan, assignments, requests, partitions, events) = tokio::try_join!(
            store.read(&Key::Group),
            store.read(&Key::Leader),
            store.read(&Key::Plan),
            store.list(Prefix::Assignments),
            store.list(Prefix::Requests),
            store.list(Prefix::Partitions),
            store.list(Prefix::Events),
        )?;
        let workers = store.list(Prefix::Workers).await?;
        Ok(Self {
            group,
            leader,
            plan,
            overrides,
            workers,
            assignments,
            requests,
            partitions,
            events,
        })
    }

    /// These, by what they are and each list in the order of its keys; of one key the last. What
    /// belongs to no group is left out.
    pub fn of(stored: Vec<Stored>) -> Self {
        let sorted: BTreeMap<Key, Stored> = (stored.into_iter())
            .map(|stored| (stored.key.clone(), stored))
            .collect();
        let mut records = Self::default();
        for stored in sorted.into_values() {
            match records.place(&stored.key) {
                Some(Place::One(place)) => *place = Some(stored),
                Some(Place::List(list)) => list.push(stored),
                None => {}
            }
        }
        records
    }

    /// Takes over one record. Lists must be in the order of their keys.
    pub fn put(&mut self, stored: Stored) {
        match self.place(&stored.key) {
            Some(Place::One(place)) => *place = Some(stored),
            Some(Place::List(list)) => match find(list, &stored.key) {
                Ok(at) => list[at] = stored,
                Err(at) => list.insert(at, stored),
            },
            None => {}
        }
    }

    /// Drops one record; says whether it was there. Lists must be in the order of their keys.
    pub fn remove(&mut self, key: &Key) -> bool {
        match self.place(key) {
            Some(Place::One(place)) => place.take().is_some(),
            Some(Place::List(list)) => {
                let found = find(list, key).map(|at| list.remove(at));
                found.is_ok()
            }
            None => false,
        }
    }

    /// Where a record belongs.
    fn place(&mut self, key: &Key) -> Option<Place<'_>> {
        Some(match key {
            Key::Group => Place::One(&mut self.group),
            Key::Leader => Place::One(&mut self.leader),
            Key::Plan => Place::One(&mut self.plan),
            Key::Overrides => Place::One(&mut self.overrides),
            Key::Worker(_) => Place::List(&mut self.workers),
            Key::Assignment(_) => Place::List(&mut self.assignments),
            Key::Request(_) => Place::List(&mut self.requests),
            Key::Partition(_) => Place::List(&mut self.partitions),
            Key::Event(_) => Place::List(&mut self.events),
            Key::Topic(_) => return None,
        })
    }

    /// Whether there is such a group. Checkpoints alone are none: they may wait for one.
    pub fn exists(&self) -> bool {
        self.group.is_some()
    }

    /// Whether there is nothing at all.
    pub fn is_empty(&self) -> bool {
        let lists = [
            &self.workers,
            &self.assignments,
            &self.requests,
            &self.partitions,
            &self.events,
        ];
        let singles = [&self.group, &self.leader, &self.plan, &self.overrides];
        singles.iter().all(|one| one.is_none()) && lists.iter().all(|list| list.is_empty())
    }

    /// The group's own record.
    pub fn identity(&self) -> Option<&GroupRecord> {
        match &self.group.as_ref()?.record {
            Record::Group(record) => Some(record),
            _ => None,
        }
    }

    /// Whether everybody goes by the overrides, and nobody is told by a leader.
    pub fn is_leaderless(&self) -> bool {
        let group = self.identity();
        group.is_some_and(|group| group.coordination == Coordination::Leaderless.name())
    }

    /// Whether an operator is deleting it.
    pub fn is_closed(&self) -> bool {
        self.identity()
            .is_some_and(|group| group.coordination == CLOSED)
    }

    /// All sessions that can be read, with the life that each belongs to.
    pub fn sessions(&self) -> impl Iterator<Item = (&WorkerId, Incarnation, &WorkerRecord)> {
        self.workers
            .iter()
            .filter_map(|stored| match (&stored.key, &stored.record) {
                (Key::Worker(id), Record::Worker(record)) => {
                    Some((id, record.incarnation_at(stored.revision), record.as_ref()))
                }
                _ => None,
            })
    }

    /// What the leader told workers whose session is not over, in their present life.
    pub fn told(&self) -> Vec<(&WorkerId, &WorkerRecord, &AssignmentRecord)> {
        let sessions: BTreeMap<&WorkerId, (Incarnation, &WorkerRecord)> = self
            .sessions()
            .filter(|(_, _, record)| !record.status.is_over())
            .map(|(id, life, record)| (id, (life, record)))
            .collect();
        self.assignments
            .iter()
            .filter_map(|stored| match (&stored.key, &stored.record) {
                (Key::Assignment(id), Record::Assignment(told)) => {
                    let (life, session) = sessions.get(id)?;
                    (told.incarnation == *life).then_some((id, *session, told.as_ref()))
                }
                _ => None,
            })
            .collect()
    }

    /// The partition records that can be read, each as found.
    pub fn checkpoints(&self) -> impl Iterator<Item = (&PartitionId, &Stored, &PartitionRecord)> {
        self.partitions
            .iter()
            .filter_map(|stored| match (&stored.key, &stored.record) {
                (Key::Partition(id), Record::Partition(record)) => {
                    Some((id, stored, record.as_ref()))
                }
                _ => None,
            })
    }

    /// What is known of the session that an owner had when it took a partition.
    pub fn owner_session(&self, owner: &WorkerId, life: Incarnation) -> OwnerSession {
        let key = Key::Worker(owner.clone());
        let found = self.workers.iter().find(|stored| stored.key == key);
        session_of(found, life)
    }

    /// What operators decided, if it can be read.
    pub fn overrides(&self) -> Option<&OverridesRecord> {
        match &self.overrides.as_ref()?.record {
            Record::Overrides(record) => Some(record),
            _ => None,
        }
    }

    /// Partitions that an operator has paused, sorted. Whoever serves one may not have let go yet.
    pub fn paused(&self) -> &[PartitionId] {
        self.overrides().map_or(&[], |overrides| &overrides.paused)
    }

    /// Every record as found.
    pub fn all(&self) -> impl Iterator<Item = &Stored> {
        let singles = [&self.group, &self.leader, &self.plan, &self.overrides];
        let lists = [
            &self.workers,
            &self.assignments,
            &self.requests,
            &self.partitions,
            &self.events,
        ];
        singles
            .into_iter()
            .flatten()
            .chain(lists.into_iter().flatten())
    }
}

/// What a session's record says of one life of its id. Only what can never be otherwise again counts
/// as its end: that life over, or a later one. A record of an earlier life is merely an old view of a
/// worker that came back, whatever it says; and none at all is an old view of one that is new, as
/// nobody deletes these records while there are partitions (`operate/delete`: partitions go first, so
/// that whatever was planned for one meets a conflict). So workers that are gone never keep anybody
/// from changing what was theirs: their records say that they are. Where those were lost with a part of
/// the store, silence tells (`operate/evidence`), as it does of whoever died without a word.
pub(super) fn session_of(found: Option<&Stored>, life: Incarnation) -> OwnerSession {
    let Some((revision, Record::Worker(record))) =
        found.map(|stored| (stored.revision, &stored.record))
    else {
        return OwnerSession::Live;
    };
    match record.incarnation_at(revision).cmp(&life) {
        Ordering::Less => OwnerSession::Live,
        Ordering::Greater => OwnerSession::Over,
        Ordering::Equal => match record.status {
            SessionStatus::Leaving => OwnerSession::Leaving,
            status if status.is_over() => OwnerSession::Over,
            _ => OwnerSession::Live,
        },
    }
}
