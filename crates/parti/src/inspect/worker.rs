//! One worker.

use std::collections::BTreeMap;

use parti_core::ids::{Incarnation, Version, WorkerId};
use parti_core::record::{Blocked, SessionStatus};
use serde::Serialize;

use super::Records;

/// One worker, by its session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WorkerView {
    /// Its stable id.
    #[serde(rename = "worker")]
    pub id: WorkerId,
    /// Which life of the id.
    pub incarnation: Incarnation,
    /// What its session's record says. A worker that was killed stays `live` here until somebody
    /// has seen it silent for the TTL and ended its session: look at `renewed_ms`, too.
    pub status: SessionStatus,
    /// Its state, 0 to 8.
    pub state: u8,
    /// How often it has renewed its session.
    pub beat: u64,
    /// When it last did, in milliseconds of its own wall clock; `None` if it did not say.
    pub renewed_ms: Option<u64>,
    /// Whether it leads.
    pub leader: bool,
    /// How many partitions name it as their owner.
    #[serde(rename = "partitions")]
    pub owns: usize,
    /// How many the leader told it to serve; `None` where nobody told it anything.
    pub serve: Option<usize>,
    /// How many it is getting ready for.
    pub prepare: usize,
    /// Up to this assignment version it has done what it was told.
    pub applied: Version,
    /// Whether an operator has drained it: it serves nothing.
    pub drained: bool,
    /// Takes that were refused, with who stood in the way.
    pub blocked_by: Vec<Blocked>,
    /// What is wrong with it, if anything is.
    pub degraded: Option<String>,
}

impl WorkerView {
    /// How long ago it renewed its session, by this wall clock in milliseconds; `None` if unknown
    /// (or in the future, where clocks differ).
    pub fn silent_ms(&self, now_ms: u64) -> Option<u64> {
        now_ms.checked_sub(self.renewed_ms?)
    }
}

/// All workers whose id is not free again, by id.
pub(super) fn workers(records: &Records, leader: Option<&WorkerId>) -> Vec<WorkerView> {
    let mut owns: BTreeMap<&WorkerId, usize> = BTreeMap::new();
    for (_, _, record) in records.checkpoints() {
        if let Some((owner, _)) = &record.owner {
            *owns.entry(owner).or_default() += 1;
        }
    }
    let told: BTreeMap<&WorkerId, (usize, usize)> = records
        .told()
        .into_iter()
        .map(|(id, _, told)| (id, (told.serve.len(), told.prepare.len())))
        .collect();
    records
        .sessions()
        .filter(|(_, _, record)| record.status != SessionStatus::Free)
        .map(|(id, incarnation, record)| WorkerView {
            id: id.clone(),
            incarnation,
            status: record.status,
            state: record.state,
            beat: record.beat,
            renewed_ms: (record.renewed_at > 0).then_some(record.renewed_at),
            leader: leader == Some(id),
            owns: owns.get(id).copied().unwrap_or(0),
            serve: told.get(id).map(|(serve, _)| *serve),
            prepare: told.get(id).map_or(0, |(_, prepare)| *prepare),
            applied: record.applied,
            drained: records
                .overrides()
                .is_some_and(|overrides| overrides.drains(id, incarnation)),
            blocked_by: record.blocked_by.clone(),
            degraded: record.degraded.clone(),
        })
        .collect()
}
