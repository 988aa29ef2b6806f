//! A new leader builds on what the one before it told the workers.
//!
//! ```text
//!  in A's serve                          ──▶ Serving{A}      (a prepare of it is rolled back)
//!  in nobody's serve, B prepares it      ──▶ Revoking{A → B} (A may still hold it)
//!            … and A is gone             ──▶ Serving{B}, unless B may not have it either
//!  nowhere                               ──▶ Unassigned
//! ```
//!
//! Then everybody is told again under the new term, so that nothing of the old one can land.

use super::crew::{Desk, Owed, Standing};
use super::occasion::ReasonId;
use super::planner::{Dropped, Planner, Recovered};
use super::slots::{Move, Reason, Seat, Slot};
use crate::ids::{PartitionId, Revision, Term, Version};
use crate::partition::Partition;
use crate::record::{EventKind, Lifecycle};
use crate::text::few;
use crate::time::Time;
use crate::worker::Cause;

/// So many workers are named in a line of the history.
const WORKERS_NAMED: usize = 8;

impl Planner {
    /// Builds slots and standings from what was recovered.
    pub(super) fn take_over(&mut self, now: Time, list: &[Partition], recovered: Recovered) {
        let Recovered {
            plan, assignments, ..
        } = recovered;
        let is_first = plan.is_none() && assignments.is_empty();
        if self.elected > Revision(0) {
            let there = self.crew.by_id().map(|seat| &self.crew[seat]);
            let there = there.filter(|desk| desk.alive().is_some());
            let found = few(there.map(|desk| &desk.id), WORKERS_NAMED);
            let line = format!("{} takes over, and finds {found}", self.me);
            self.history(EventKind::Plan, line);
        }
        // Only a plan that told somebody something counts: a group whose first leader died in the
        // cold start has none, and none of its partitions was added later.
        self.planned_once = plan.as_ref().is_some_and(|plan| plan.version > Version(0))
            || assignments
                .values()
                .any(|told| !told.serve.is_empty() || !told.prepare.is_empty());
        self.lifecycle = plan
            .as_ref()
            .map_or(Lifecycle::ColdStart, |plan| plan.lifecycle);
        self.version = assignments
            .values()
            .map(|told| told.version)
            .chain(plan.as_ref().map(|plan| plan.version))
            .max()
            .unwrap_or(Version(0));
        self.reason = format!("{} leads under term {}", self.me, self.term);
        self.due.fill.want(Cause::NewLeader, self.reason.clone());

        let find = |id: &PartitionId| list.binary_search_by(|p| p.id.cmp(id)).ok();
        let mut claims: Vec<Option<(Term, Version, Seat)>> = vec![None; list.len()];
        let mut prepared: Vec<Option<(Seat, Seat)>> = vec![None; list.len()];
        for (id, told) in &assignments {
            let seat = self.crew.seat(id);
            for partition in &told.serve {
                match find(partition) {
                    Some(i) => claims[i] = claims[i].max(Some((told.term, told.version, seat))),
                    None => {
                        let (life, version) = (told.incarnation, self.version.next());
                        let dropped = Dropped {
                            seat,
                            life,
                            version,
                        };
                        self.dropped.insert(partition.clone(), dropped);
                    }
                }
            }
            for (partition, owner) in &told.prepare {
                let life = assignments.get(owner).map(|told| told.incarnation);
                let owner = self.crew.seat(owner);
                match (find(partition), life) {
                    (Some(i), _) => prepared[i] = Some((owner, seat)),
                    // It may have been told to let go, and not have done so yet.
                    (None, Some(life)) => {
                        let version = self.version.next();
                        let seat = owner;
                        let dropped = Dropped {
                            seat,
                            life,
                            version,
                        };
                        self.dropped.entry(partition.clone()).or_insert(dropped);
                    }
                    (None, None) => {}
                }
            }
            // The plan knows better, unless its last write was lost.
            if plan.as_ref().is_none_or(|plan| plan.version < told.version) {
                self.added
                    .extend(told.added.iter().filter(|id| find(id).is_some()).cloned());
            }
        }
        for (id, told) in assignments {
            let seat = self.crew.seat(&id);
            let desk = &mut self.crew[seat];
            desk.recorded = true;
            // Moves to it are rolled back: its share comes with the next window.
            let owed = !told.prepare.is_empty() && desk.is_staying();
            desk.owed = owed.then_some(Owed::PutOff);
            if !told.serve.is_empty() {
                desk.standing = Standing::Planned(told.incarnation);
            }
            desk.published = Some(told);
        }
        if let Some(plan) = plan {
            // A list that changed while nobody led has added what nobody was told of.
            if self.planned_once && plan.fingerprint.partitions != self.list_hash {
                let unheard =
                    (0..list.len()).filter(|&i| claims[i].is_none() && prepared[i].is_none());
                self.added.extend(unheard.map(|i| list[i].id.clone()));
            }
            self.added
                .extend(plan.added.iter().filter(|id| find(id).is_some()).cloned());
            self.told_plan = Some(plan);
        }
        self.heed_drains();
        self.slots = (0..list.len())
            .map(|i| match (claims[i], prepared[i]) {
                (Some((_, _, worker)), _) => Slot::Serving { worker },
                (None, Some((from, to))) => self.half_moved(now, from, to),
                (None, None) => Slot::Unassigned(Reason::New),
            })
            .collect();
        self.shed_what_is_over_cap();
        self.moving = (0..list.len())
            .filter(|&i| self.slots[i].moving().is_some())
            .collect();
        self.due.balance = true;
        // When the old leader last moved anything is not known: as if it had been just now.
        self.last_plan = Some(now);
        if !is_first && !crate::planted!(OldTermRepublishSkipped) {
            self.crew
                .iter_mut()
                .for_each(|desk| desk.must_publish = desk.alive().is_some());
        }
    }

    /// A partition that `from` was told to let go of, while `to` was not yet told to serve it.
    fn half_moved(&self, now: Time, from: Seat, to: Seat) -> Slot {
        let (owner, next) = (&self.crew[from], &self.crew[to]);
        let owner_was = owner.published.as_ref().map(|told| told.incarnation);
        let may_have_it = |desk: &Desk| desk.is_staying() && !desk.is_drained();
        match owner.life() {
            Some(from_life) if owner_was == Some(from_life) => {
                let mv = Move {
                    from,
                    from_life,
                    to,
                    to_life: next.life().unwrap_or_default(),
                    began: now,
                    since: now,
                    version: self.coming(),
                    // What its reason was is not known any more.
                    why: ReasonId::default(),
                };
                Slot::Revoking { mv, warned: false }
            }
            _ if may_have_it(next) => Slot::Serving { worker: to },
            _ if may_have_it(owner) => Slot::Serving { worker: from },
            _ => Slot::Unassigned(Reason::OwnerGone),
        }
    }

    /// A cap that was lowered meanwhile: nobody keeps more than it can serve.
    fn shed_what_is_over_cap(&mut self) {
        let Some(cap) = self.capacity else { return };
        let mut load = vec![0; self.crew.len()];
        for slot in &mut self.slots {
            let Some(seat) = slot.counts_for() else {
                continue;
            };
            load[seat] += 1;
            if let Some(mv) = slot.moving() {
                load[mv.from] += 1;
            }
            if load[seat] > cap {
                *slot = Slot::Unassigned(Reason::OverCap);
            }
        }
    }
}
