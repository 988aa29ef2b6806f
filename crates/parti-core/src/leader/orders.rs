//! From slots to records: what each worker is told, and the plan that everybody can read.
//!
//! A worker is told again whenever its serve, prepare or release set differs from what it was told
//! last in this life. Lifecycle and `added` ride along; they alone are no reason to tell.

use std::collections::{BTreeMap, BTreeSet};

use super::crew::Standing;
use super::planner::{Decision, Planner, Unserved};
use super::slots::{Reason, Seat, Slot};
use crate::ids::{Nonce, PartitionId, Version, WorkerId};
use crate::partition::Partition;
use crate::record::{AssignmentRecord, Fingerprint, PlanRecord, PlanState};
use crate::text;
use crate::worker::Trouble;

/// How many unserved partitions the plan names; the count of all is in its reason.
pub const UNSERVED_EXAMPLES: usize = 16;

/// What one worker should do.
#[derive(Clone, Debug, Default)]
struct Wanted {
    serve: Vec<PartitionId>,
    prepare: Vec<(PartitionId, WorkerId)>,
    release: Vec<PartitionId>,
}

impl Wanted {
    fn is_empty(&self) -> bool {
        self.serve.is_empty() && self.prepare.is_empty() && self.release.is_empty()
    }

    fn is_told_by(&self, told: &AssignmentRecord) -> bool {
        self.serve == told.serve && self.prepare == told.prepare && self.release == told.release
    }
}

impl Planner {
    /// Tells every worker whose assignment differs from what it was told.
    pub(super) fn publish(&mut self, list: &[Partition]) -> Vec<Decision> {
        let hints = self.release_hints(list);
        if hints != self.hints {
            self.hints = hints;
            self.touched = true;
        }
        if !std::mem::take(&mut self.touched) {
            return Vec::new();
        }
        let mut wanted = self.wanted(list);
        let unserved = self.count_unserved(list);
        if unserved.over_cap != self.unserved.over_cap
            && unserved.over_cap > 0
            && let Some(cap) = self.capacity
        {
            let partitions = unserved.over_cap as u64;
            self.notes
                .push(Decision::Trouble(Trouble::OverCap { partitions, cap }));
        }
        self.unserved = unserved;
        let version = self.coming();
        let mut decisions = Vec::new();
        let mut forgotten = Vec::new();
        for seat in self.crew.by_id().collect::<Vec<_>>() {
            let wanted = std::mem::take(&mut wanted[seat]);
            let Some(life) = self.crew[seat].life() else {
                let named = |slot: &Slot| slot.names(seat);
                if self.crew[seat].recorded && !self.slots.iter().any(named) {
                    let desk = &mut self.crew[seat];
                    (desk.recorded, desk.published) = (false, None);
                    forgotten.push(Decision::Forget(desk.id.clone()));
                }
                continue;
            };
            let desk = &self.crew[seat];
            let told = desk
                .published
                .as_ref()
                .filter(|told| told.incarnation == life);
            let waits = matches!(desk.standing, Standing::Joined(_)) && told.is_none();
            let news = told.is_none_or(|told| !wanted.is_told_by(told));
            if !desk.must_publish && (!news || (waits && wanted.is_empty())) {
                continue;
            }
            let added = self.added_among(&wanted);
            let record = AssignmentRecord {
                version,
                term: self.term,
                incarnation: life,
                lifecycle: self.lifecycle,
                serve: wanted.serve,
                prepare: wanted.prepare,
                release: wanted.release,
                added,
                nonce: Nonce(0),
            };
            let desk = &mut self.crew[seat];
            desk.must_publish = false;
            desk.recorded = true;
            desk.published = Some(record.clone());
            decisions.push(Decision::Publish(desk.id.clone(), record));
        }
        if !decisions.is_empty() {
            self.version = version;
        }
        decisions.append(&mut forgotten);
        decisions
    }

    /// Those of an assignment that were added to the running group and not taken yet, sorted.
    fn added_among(&self, wanted: &Wanted) -> Vec<PartitionId> {
        if self.added.is_empty() {
            return Vec::new();
        }
        let prepared = wanted.prepare.iter().map(|(partition, _)| partition);
        let all: BTreeSet<_> = wanted.serve.iter().chain(prepared).collect();
        all.into_iter()
            .filter(|id| self.added.contains(*id))
            .cloned()
            .collect()
    }

    /// Derives everybody's assignment from the slots.
    fn wanted(&self, list: &[Partition]) -> Vec<Wanted> {
        let mut wanted = vec![Wanted::default(); self.crew.len()];
        for (slot, partition) in self.slots.iter().zip(list) {
            if let Some(seat) = slot.server() {
                wanted[seat].serve.push(partition.id.clone());
            }
            if let Some(mv) = slot.moving() {
                let owner = self.crew[mv.from].id.clone();
                wanted[mv.to].prepare.push((partition.id.clone(), owner));
            }
        }
        for (&seat, partitions) in &self.hints {
            wanted[seat].release = partitions.iter().cloned().collect();
        }
        wanted
    }

    /// Whoever holds what another was told to serve is told to let go of it.
    fn release_hints(&self, list: &[Partition]) -> BTreeMap<Seat, BTreeSet<PartitionId>> {
        let mut hints: BTreeMap<Seat, BTreeSet<PartitionId>> = BTreeMap::new();
        for seat in self.crew.by_id() {
            let Some(member) = self.crew[seat].alive() else {
                continue;
            };
            for blocked in &member.blocked_by {
                let Some(owner) = self.crew.find(&blocked.owner) else {
                    continue;
                };
                let Ok(i) = list.binary_search_by(|p| p.id.cmp(&blocked.partition)) else {
                    continue;
                };
                let server = self.slots[i].server();
                let holds = self.crew[owner].life() == Some(blocked.incarnation);
                if server == Some(seat) && server != Some(owner) && holds {
                    hints
                        .entry(owner)
                        .or_default()
                        .insert(blocked.partition.clone());
                }
            }
        }
        hints
    }

    fn count_unserved(&self, list: &[Partition]) -> Unserved {
        let mut unserved = Unserved::default();
        for (slot, partition) in self.slots.iter().zip(list) {
            let reason = match slot {
                Slot::Unassigned(reason) => *reason,
                Slot::Revoking { mv, .. } if self.crew[mv.to].alive().is_none() => Reason::LetsGo,
                _ => continue,
            };
            unserved.count += 1;
            unserved.over_cap += usize::from(reason == Reason::OverCap);
            unserved.all_drained += usize::from(reason == Reason::AllDrained);
            unserved.paused += usize::from(reason == Reason::Paused);
            if unserved.examples.len() < UNSERVED_EXAMPLES {
                unserved
                    .examples
                    .push((partition.id.clone(), reason.text().into()));
            }
        }
        unserved
    }

    /// The plan as it should be, if that is not what it was.
    pub(super) fn plan_record(&mut self, wall_ms: u64, list: &[Partition]) -> Option<Decision> {
        let state = self.plan_state();
        let mut plan = PlanRecord {
            // Zero until the group has its first plan, so that a later leader knows.
            version: if self.planned_once {
                self.version
            } else {
                Version(0)
            },
            term: self.term,
            lifecycle: self.lifecycle,
            state,
            reason: self.plan_reason(),
            started_at: wall_ms,
            workers: self.crew.planned() as u64,
            partitions: list.len() as u64,
            moving: self.moving.len() as u64,
            unserved: self.unserved.examples.clone(),
            added: self.added.iter().cloned().collect(),
            fingerprint: Fingerprint {
                partitions: self.list_hash,
                strategy: self.strategy.name(),
                coordination: self.config.coordination.name().into(),
            },
            nonce: Nonce(0),
        };
        if let Some(told) = &self.told_plan {
            if told.state == plan.state && told.reason == plan.reason {
                plan.started_at = told.started_at;
            }
            plan.nonce = told.nonce;
            if *told == plan {
                return None;
            }
            plan.nonce = Nonce(0);
        }
        self.told_plan = Some(plan.clone());
        Some(Decision::Plan(plan))
    }

    fn plan_state(&self) -> PlanState {
        match self.phase {
            Some(phase) if phase.emergency => PlanState::Emergency,
            _ if self.window.is_cold_start() => PlanState::Scaling,
            Some(_) => PlanState::Rebalancing,
            None if !self.moving.is_empty() => PlanState::Rebalancing,
            None if self.window.is_open() => PlanState::Scaling,
            None => PlanState::Stable,
        }
    }

    fn plan_reason(&self) -> String {
        let Unserved {
            count, over_cap, ..
        } = self.unserved;
        let partitions = |number: usize| text::count(number as u64, "partition");
        match (over_cap, count) {
            (0, 0) => self.reason.clone(),
            (0, _) if self.unserved.all_drained > 0 => format!(
                "{}; {} unserved: all living workers are drained, undrain one",
                self.reason,
                partitions(count)
            ),
            (0, _) => format!("{}; {} unserved", self.reason, partitions(count)),
            _ => format!(
                "{}; {} unserved, {over_cap} of them over cap: add workers or raise \
                 jetstream.subject_cap",
                self.reason,
                partitions(count)
            ),
        }
    }
}
