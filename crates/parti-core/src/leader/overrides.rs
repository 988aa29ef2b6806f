//! The planner under overrides: drained workers, paused and pinned partitions.
//!
//! ```text
//!  drained worker  ──▶ sheds like one that leaves, and receives nothing
//!  pause p         ──▶ Unassigned(Paused): whoever has p lets go, nobody gets it
//!                      done once everybody who lives has let go of all that is not its own
//!  pin p to w      ──▶ a handoff to w, and no plan moves it away while w is there
//! ```

use std::sync::Arc;

use super::crew::{Owed, Standing};
use super::planner::{Dropped, Phase, Planner};
use super::requests::Sight;
use super::sessions::Evictions;
use super::slots::{Reason, Seat, Slot};
use crate::ids::{Incarnation, PartitionId, Version, WorkerId};
use crate::partition::Partition;
use crate::record::{EventKind, OverridesRecord};
use crate::text::count;
use crate::time::Time;
use crate::worker::Cause;

/// Why a partition moves to where it is pinned.
const PINNED: &str = "pinned by an operator";

impl Planner {
    /// What operators decided, as it is now.
    pub fn override_by(&mut self, now: Time, overrides: Arc<OverridesRecord>) {
        if *self.overrides != *overrides {
            self.overrides = overrides;
            self.heeded = false;
            self.news = Some(now);
        }
    }

    /// Lives that operators want to end, or have ended: what such a life served is not its
    /// successor's.
    pub fn evict(&mut self, evictions: &Evictions) {
        for (worker, eviction) in evictions {
            let seat = self.crew.seat(worker);
            self.crew[seat].evicted = Some(eviction.life);
        }
    }

    /// Whether it knows the group: what its predecessor left, and who is there.
    pub fn has_begun(&self) -> bool {
        self.recovered.is_none()
    }

    /// Everybody gets a share now, whatever threshold and cooldown say.
    pub fn rebalance(&mut self, now: Time) {
        self.reason = "an operator asked for it".into();
        self.due.full.want(Cause::Operator, self.reason.clone());
        self.news = Some(now);
    }

    /// Makes workers follow the overrides: before any move is judged, as a drained worker gets
    /// nothing back.
    pub(super) fn heed_drains(&mut self) {
        if self.heeded {
            return;
        }
        for desk in self.crew.iter_mut() {
            let was = desk.is_drained();
            desk.drained = self.overrides.drained_life(&desk.id);
            if desk.is_drained() == was {
                continue;
            }
            // Who serves again gets its share with the next window.
            desk.owed = (was && desk.is_staying()).then_some(Owed::Undrained);
            let id = &desk.id;
            if was {
                self.reason = format!("{id} undrained");
                // What nobody serves does not wait for the window.
                self.due.fill.want(Cause::Operator, self.reason.clone());
            } else {
                self.reason = format!("{id} drained");
            }
            self.due.relieve = true;
            self.due.balance = true;
            self.touched = true;
        }
    }

    /// Makes slots follow the overrides.
    pub(super) fn heed_pauses(&mut self, list: &[Partition]) {
        self.confirm_pauses();
        if std::mem::replace(&mut self.heeded, true) {
            return;
        }
        let overrides = self.overrides.clone();
        self.pausing.retain(|id| overrides.pauses(id));
        for (i, partition) in list.iter().enumerate() {
            let is_paused = self.slots[i] == Slot::Unassigned(Reason::Paused);
            match (overrides.pauses(&partition.id), is_paused) {
                (true, false) => self.pause(i, &partition.id),
                (false, true) => self.resume(i, &partition.id),
                _ => {}
            }
        }
    }

    /// Whoever has the partition is told to let go of it.
    fn pause(&mut self, i: usize, id: &PartitionId) {
        let version = self.coming();
        let slot = std::mem::replace(&mut self.slots[i], Slot::Unassigned(Reason::Paused));
        let owner = slot.moving().map(|mv| mv.from).or(slot.server());
        if let Some(seat) = owner {
            let desk = &mut self.crew[seat];
            (desk.dropping, desk.must_publish) = (Some(version), true);
            if let Some(life) = desk.life() {
                let dropped = Dropped {
                    seat,
                    life,
                    version,
                };
                self.dropped.insert(id.clone(), dropped);
            }
        }
        self.pausing.insert(id.clone());
        self.moving.remove(&i);
        self.touched = true;
        // The end of a move makes room.
        self.due.fill.again();
        self.due.balance = true;
        if let Some(why) = self.deferred.take() {
            self.due.full.want_all(why);
        }
    }

    /// The partition goes back to who may still hold it, else to anybody.
    fn resume(&mut self, i: usize, id: &PartitionId) {
        self.slots[i] = Slot::Unassigned(Reason::New);
        if let Some(held) = self.dropped.remove(id)
            && self.may_still_hold(&held)
            && !self.crew[held.seat].is_shedding()
        {
            self.slots[i] = Slot::Serving { worker: held.seat };
            self.tell_again(held.seat);
        }
        self.touched = true;
        let resumed = format!("partition {id} is resumed");
        self.due.fill.want(Cause::Operator, resumed);
        self.due.balance = true;
    }

    /// A pause is done once everybody who lives has said, to this leader, that it holds nothing but
    /// what it is to serve. Who has the partition may be another than this leader was told, so
    /// everybody is asked.
    fn confirm_pauses(&mut self) {
        if self.pausing.is_empty() {
            return;
        }
        let term = self.term;
        let mut all = true;
        for seat in self.crew.by_id().collect::<Vec<_>>() {
            let desk = &self.crew[seat];
            all &= desk.has_let_go(term) && !desk.must_publish;
            let told = desk.published.as_ref().map(|told| told.incarnation);
            if desk.alive().is_some() && told != desk.life() {
                self.tell_again(seat);
            }
        }
        if all {
            self.pausing.clear();
        }
    }

    /// Where an operator wants this partition, if that worker is there.
    pub(super) fn pinned_to(&self, partition: &PartitionId) -> Option<Seat> {
        let pin = self.overrides.pin_of(partition)?;
        let seat = self.crew.find(&pin.worker)?;
        let life = self.crew[seat].life()?;
        pin.incarnation
            .is_none_or(|wanted| wanted == life)
            .then_some(seat)
    }

    /// Moves what is pinned to where it should be.
    pub(super) fn enforce_pins(&mut self, now: Time, list: &[Partition]) {
        if self.overrides.pinned.is_empty() || self.window.is_cold_start() {
            return;
        }
        let overrides = self.overrides.clone();
        let mut loads = None;
        let mut moves = 0;
        let why = self.enter_reason(PINNED);
        for pin in &overrides.pinned {
            let place = list.binary_search_by(|partition| partition.id.cmp(&pin.partition));
            let (Ok(i), Some(seat)) = (place, self.pinned_to(&pin.partition)) else {
                continue;
            };
            let desk = &self.crew[seat];
            let fit = desk.is_staying()
                && !desk.is_drained()
                && !desk.is_held_back()
                && matches!(desk.standing, Standing::Planned(_));
            if !fit {
                continue;
            }
            let weight = list[i].weight;
            let from = match self.slots[i] {
                Slot::Serving { worker } => worker,
                Slot::Preparing(mv) if mv.to != seat && !crate::planted!(PlansIgnorePins) => {
                    self.slots[i] = Slot::Serving { worker: mv.from };
                    self.moving.remove(&i);
                    self.touched = true;
                    loads = None;
                    mv.from
                }
                // Nobody's yet, on its way, or on a way that cannot be stopped: later.
                Slot::Preparing(_) | Slot::Revoking { .. } | Slot::Unassigned(_) => continue,
            };
            if from == seat {
                continue;
            }
            let mut now_carried = loads.take().unwrap_or_else(|| self.loads(list));
            let (carried, route) = (&mut now_carried, (from, seat, why));
            moves += u64::from(self.begin_move(now, i, route, carried, weight));
            loads = Some(now_carried);
        }
        if moves > 0 {
            let emergency = self.phase.is_some_and(|phase| phase.emergency);
            self.phase = Some(Phase {
                emergency,
                version: self.coming(),
            });
            self.reason = PINNED.into();
            let begun = format!("{PINNED}: {} begun", count(moves, "move"));
            self.history(EventKind::Plan, begun);
        }
    }
}

impl Sight for Planner {
    fn lists(&self, partition: &PartitionId) -> bool {
        self.place_of(partition).is_some()
    }

    fn life_of(&self, worker: &WorkerId) -> Option<Incarnation> {
        let desk = &self.crew[self.crew.find(worker)?];
        desk.life().filter(|_| desk.is_staying())
    }

    fn present_life(&self, worker: &WorkerId) -> Option<Incarnation> {
        self.crew[self.crew.find(worker)?].life()
    }

    fn is_over(&self, worker: &WorkerId, life: Incarnation) -> bool {
        let desk = self.crew.find(worker).map(|seat| &self.crew[seat]);
        let member = desk.and_then(|desk| desk.member.as_ref());
        member.is_some_and(|member| {
            member.incarnation > life || (member.incarnation == life && member.status.is_over())
        })
    }

    fn staying(&self) -> Vec<(WorkerId, Incarnation)> {
        let staying = self.crew.iter().filter(|desk| desk.is_staying());
        staying
            .filter_map(|desk| Some((desk.id.clone(), desk.life()?)))
            .collect()
    }

    fn is_free(&self, partition: &PartitionId) -> bool {
        let slot = self.place_of(partition).map(|i| &self.slots[i]);
        let confirmed = !self.pausing.contains(partition) || crate::planted!(PauseDoneTooSoon);
        slot == Some(&Slot::Unassigned(Reason::Paused)) && confirmed
    }

    fn holds_nothing(&self, worker: &WorkerId, life: Incarnation) -> bool {
        let Some(seat) = self.crew.find(worker) else {
            return false;
        };
        let desk = &self.crew[seat];
        desk.life() == Some(life)
            && desk.is_drained()
            && desk.has_let_go(self.term)
            && !desk.must_publish
            && !self.slots.iter().any(|slot| slot.names(seat))
    }

    fn serves(&self, worker: &WorkerId, partition: &PartitionId) -> bool {
        let (Some(i), Some(seat)) = (self.place_of(partition), self.crew.find(worker)) else {
            return false;
        };
        let desk = &self.crew[seat];
        self.slots[i] == Slot::Serving { worker: seat }
            && !desk.must_publish
            && desk.has_applied(Version(u64::MAX))
    }
}

impl Planner {
    fn place_of(&self, partition: &PartitionId) -> Option<usize> {
        let list = self.partitions.as_ref()?;
        let place = list.binary_search_by(|p| p.id.cmp(partition)).ok()?;
        (place < self.slots.len()).then_some(place)
    }
}
