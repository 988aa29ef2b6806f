//! All lanes of a worker, by partition.

use std::collections::BTreeMap;

use crate::ids::{Offset, PartitionId};
use crate::lane::outbox::Outbox;
use crate::lane::serving::{Rules, Serving};

/// Where a lane is in its life.
#[derive(Debug)]
pub(crate) enum Phase {
    /// Fed, not served: no cursor yet.
    Prepared,
    /// Served.
    Open(Serving),
    /// Takes nothing new; what is in flight ends.
    Closing(Serving),
    /// The log went back below its cursor: nothing moves until it is opened anew.
    Halted(Serving),
}

/// One partition's place in this worker.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) phase: Phase,
    /// Stands in the queue of lanes that may start something.
    pub(crate) queued: bool,
}

impl Lane {
    /// The opened partition, in whatever phase.
    pub(crate) fn serving(&self) -> Option<&Serving> {
        match &self.phase {
            Phase::Prepared => None,
            Phase::Open(s) | Phase::Closing(s) | Phase::Halted(s) => Some(s),
        }
    }

    /// The opened partition, in whatever phase.
    pub(crate) fn serving_mut(&mut self) -> Option<&mut Serving> {
        match &mut self.phase {
            Phase::Prepared => None,
            Phase::Open(s) | Phase::Closing(s) | Phase::Halted(s) => Some(s),
        }
    }
}

/// All lanes of a worker.
#[derive(Debug)]
pub(crate) struct LaneMap {
    pub(crate) lanes: BTreeMap<PartitionId, Lane>,
    pub(crate) rules: Rules,
}

impl LaneMap {
    /// A lane that takes messages: open, and not halted.
    pub(crate) fn open_mut(&mut self, partition: &PartitionId) -> Option<&mut Serving> {
        match &mut self.lanes.get_mut(partition)?.phase {
            Phase::Open(serving) => Some(serving),
            _ => None,
        }
    }

    /// A lane that takes messages: open, and not halted.
    pub(crate) fn open(&self, partition: &PartitionId) -> Option<&Serving> {
        match &self.lanes.get(partition)?.phase {
            Phase::Open(serving) => Some(serving),
            _ => None,
        }
    }

    /// The first offset that an open lane still needs.
    pub(crate) fn next_of(&self, partition: &PartitionId) -> Option<Offset> {
        self.open(partition).map(Serving::next)
    }

    /// A lane whose log went back.
    pub(crate) fn halted_mut(&mut self, partition: &PartitionId) -> Option<&mut Serving> {
        match &mut self.lanes.get_mut(partition)?.phase {
            Phase::Halted(serving) => Some(serving),
            _ => None,
        }
    }

    /// Stops a lane whose log went back.
    pub(crate) fn halt(&mut self, partition: &PartitionId, out: &mut Outbox) {
        if let Some(lane) = self.lanes.get_mut(partition) {
            if lane.serving().is_some_and(Serving::would_go_on) {
                out.halt(partition);
            }
            lane.phase = match std::mem::replace(&mut lane.phase, Phase::Prepared) {
                Phase::Open(serving) => Phase::Halted(serving),
                other => other,
            };
        }
    }
}
