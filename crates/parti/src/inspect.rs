//! A group as it is: one read-only view for everything that shows groups.

use parti_core::ids::{Epoch, Offset, PartitionId, Term, Version, WorkerId};
use parti_core::key::{Key, Prefix};
use parti_core::record::{Lifecycle, PlanState, Record, SessionStatus};

use crate::store::{Error, GroupStore};

/// A group at about one moment: each record is as of its own read.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Who leads, under which term.
    pub leader: Option<(WorkerId, Term)>,
    /// What the leader is doing.
    pub plan: Option<Plan>,
    /// Every worker with a session, by id.
    pub workers: Vec<WorkerView>,
    /// Every partition that was ever taken, by id.
    pub partitions: Vec<PartitionView>,
}

/// What the leader is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Grows with every plan.
    pub version: Version,
    /// Where the group is in its life.
    pub lifecycle: Lifecycle,
    /// What is going on.
    pub state: PlanState,
    /// Why.
    pub reason: String,
    /// Partitions on the move.
    pub moving: u64,
    /// Partitions that nobody serves, and why.
    pub unserved: Vec<(PartitionId, String)>,
}

/// One worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerView {
    /// Its stable id.
    pub id: WorkerId,
    /// Whether its session lives.
    pub status: SessionStatus,
    /// Its state, 0 to 8.
    pub state: u8,
    /// How many partitions name it as their owner.
    pub owns: usize,
    /// What is wrong with it, if anything is.
    pub degraded: Option<String>,
}

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionView {
    /// Its id.
    pub id: PartitionId,
    /// Who owns it.
    pub owner: Option<WorkerId>,
    /// Its epoch.
    pub epoch: Epoch,
    /// The last done offset.
    pub offset: Option<Offset>,
    /// Where handling goes on.
    pub next_offset: Offset,
    /// When its checkpoint was last written, in milliseconds since the Unix epoch.
    pub updated_ms: u64,
}

/// Reads a group; `None` if the store knows none of this name.
pub async fn group(store: &GroupStore) -> Result<Option<Group>, Error> {
    let (group, leader, plan, workers, partitions) = tokio::try_join!(
        store.read(&Key::Group),
        store.read(&Key::Leader),
        store.read(&Key::Plan),
        store.list(Prefix::Workers),
        store.list(Prefix::Partitions),
    )?;
    if group.is_none() {
        return Ok(None);
    }
    let leader = match leader.map(|stored| stored.record) {
        Some(Record::Leader(leader)) => {
            let holder = leader.holder.as_ref();
            holder.map(|(id, _)| (id.clone(), leader.term))
        }
        _ => None,
    };
    let plan = match plan.map(|stored| stored.record) {
        Some(Record::Plan(plan)) => Some(Plan {
            version: plan.version,
            lifecycle: plan.lifecycle,
            state: plan.state,
            reason: plan.reason.clone(),
            moving: plan.moving,
            unserved: plan.unserved.clone(),
        }),
        _ => None,
    };
    let partitions: Vec<PartitionView> = partitions
        .iter()
        .filter_map(|stored| match (&stored.key, &stored.record) {
            (Key::Partition(id), Record::Partition(record)) => Some(PartitionView {
                id: id.clone(),
                owner: record.owner.as_ref().map(|(owner, _)| owner.clone()),
                epoch: record.epoch,
                offset: record.offset,
                next_offset: record.next_offset(),
                updated_ms: record.updated_at,
            }),
            _ => None,
        })
        .collect();
    let owns = |id: &WorkerId| {
        let owned = partitions.iter().filter(|p| p.owner.as_ref() == Some(id));
        owned.count()
    };
    let workers = workers
        .iter()
        .filter_map(|stored| match (&stored.key, &stored.record) {
            (Key::Worker(id), Record::Worker(record)) if record.status != SessionStatus::Free => {
                Some(WorkerView {
                    id: id.clone(),
                    status: record.status,
                    state: record.state,
                    owns: owns(id),
                    degraded: record.degraded.clone(),
                })
            }
            _ => None,
        })
        .collect();
    Ok(Some(Group {
        name: store.group().to_owned(),
        leader,
        plan,
        workers,
        partitions,
    }))
}
