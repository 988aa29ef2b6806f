//! The leader's brain: who should serve what, and the next step towards it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::Config;
use crate::ids::{Incarnation, Term, Version, WorkerId};
use crate::partition::Partition;
use crate::record::{AssignmentRecord, Blocked, PlanRecord, Ready, SessionStatus};
use crate::strategy::Strategy;
use crate::time::Time;
use crate::worker::Trouble;

/// A session as the leader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Which life of the id.
    pub incarnation: Incarnation,
    /// Whether the session lives.
    pub status: SessionStatus,
    /// Up to this assignment version, nothing outside `serve` is held any more.
    pub released: Version,
    /// Up to this assignment version, all of `serve` is held too.
    pub applied: Version,
    /// Which prepared partitions are ready, and which version that answers.
    pub ready: Ready,
    /// Takes that were refused, with who stood in the way.
    pub blocked_by: Vec<Blocked>,
    /// Whether it says that something is wrong with it.
    pub degraded: bool,
}

/// What an earlier leader left behind.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// Its plan.
    pub plan: Option<PlanRecord>,
    /// What it told the workers.
    pub assignments: BTreeMap<WorkerId, AssignmentRecord>,
}

/// What the leader wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// This worker's whole assignment, to be written until it lands; a newer one for the same
    /// worker replaces it. The caller fills in the nonce.
    Publish(WorkerId, AssignmentRecord),
    /// This worker's session is over and nothing refers to it: delete its assignment.
    Forget(WorkerId),
    /// The plan as it should be now. The caller fills in the nonce.
    Plan(PlanRecord),
    /// Something is wrong, named.
    Trouble(Trouble),
    /// A line for the group's history.
    History(String),
}

/// Decides who should serve what, step by step.
#[derive(Debug)]
pub struct Planner {
    config: Config,
    strategy: Arc<dyn Strategy>,
    term: Term,
    me: WorkerId,
    recovered: Recovered,
}

impl Planner {
    /// A planner for the leader of this term, on top of what earlier leaders left.
    pub fn new(
        config: &Config,
        strategy: Arc<dyn Strategy>,
        term: Term,
        me: WorkerId,
        _now: Time,
        recovered: Recovered,
    ) -> Self {
        Self {
            config: config.clone(),
            strategy,
            term,
            me,
            recovered,
        }
    }

    /// The most partitions one worker may serve and prepare together; none at first.
    pub fn set_capacity(&mut self, _capacity: Option<u32>) {}

    /// The sessions as they are now. A level, not an edge: called whenever anything changed, with
    /// sessions that are over until they are cleared.
    pub fn members(&mut self, _now: Time, _members: &BTreeMap<WorkerId, Member>) {}

    /// The partitions as they are now: at the start, and on every refresh.
    pub fn partitions(&mut self, _now: Time, _list: Arc<[Partition]>) {}

    /// Decides. Says nothing twice: a second call without news is empty.
    pub fn step(&mut self, _now: Time, _wall_ms: u64) -> Vec<Decision> {
        Vec::new()
    }

    /// When to call [`Planner::step`] again at the latest.
    pub fn next_deadline(&self) -> Time {
        Time::NEVER
    }

    /// No window open, no move under way, everything applied.
    pub fn is_settled(&self) -> bool {
        false
    }

    /// Whether the end of this life may still be needed as evidence: its mark must stay.
    pub fn still_names(&self, _worker: &WorkerId, _incarnation: Incarnation) -> bool {
        true
    }
}
