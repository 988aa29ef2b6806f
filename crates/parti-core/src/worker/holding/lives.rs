//! What is known for certain about other sessions.

use std::collections::BTreeMap;

use crate::ids::{Incarnation, Revision, WorkerId};
use crate::record::WorkerRecord;

/// The highest life seen of each worker, and whether that one is over. Both facts only ever grow,
/// so they may be believed from any read, however stale.
#[derive(Clone, Debug, Default)]
pub struct Lives(BTreeMap<WorkerId, (Incarnation, bool)>);

impl Lives {
    /// A session was seen.
    pub fn learn(&mut self, id: &WorkerId, revision: Revision, record: &WorkerRecord) {
        let life = record.incarnation_at(revision);
        let over = record.status.is_over();
        match self.0.get_mut(id) {
            None => {
                self.0.insert(id.clone(), (life, over));
            }
            Some(known) if life > known.0 => *known = (life, over),
            Some(known) if life == known.0 => known.1 |= over,
            Some(_) => {}
        }
    }

    /// Whether this life of the worker is over, for certain.
    pub fn is_over(&self, owner: &WorkerId, life: Incarnation) -> bool {
        if planted!(SeizeWithoutEvidence) {
            return true;
        }
        self.0
            .get(owner)
            .is_some_and(|(seen, over)| *seen > life || (*seen == life && *over))
    }
}
