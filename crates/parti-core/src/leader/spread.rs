//! Asking the strategy, and taking from its answer only what the occasion allows.
//!
//! | occasion | who may receive | what may move |
//! |---|---|---|
//! | fill (crash, goodbye, new partition) | planned workers | what nobody serves: directly, nobody holds it |
//! | relieve (somebody leaves, or is drained) | planned and joined workers | what those serve: by handoff |
//! | full (a window closed) | everybody | anything: by handoff |
//! | balance | everybody | anything, once the cooldown is over, if it is worth it or somebody has nothing |
//!
//! A worker that is held back (degraded, or it did not get ready) keeps what it has and receives
//! nothing; its partitions are left out of the question. Only what nobody serves goes to such
//! workers too, when there is no other. Who is drained gets nothing at all, and what is paused is
//! nobody's. A pin beats the strategy.

use super::crew::{Desk, Standing};
use super::occasion::{self, Occasions, ReasonId};
use super::planner::{Decision, Phase, Planner};
use super::slots::{Move, Reason, Seat, Slot};
use super::windows;
use crate::ids::WorkerId;
use crate::partition::Partition;
use crate::record::EventKind;
use crate::strategy::{Input, Question};
use crate::text::count;
use crate::time::Time;
use crate::worker::Cause;

/// The occasion of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Fill,
    Relieve,
    Full,
}

/// The strategy's answer, in seats.
struct Targets {
    /// Who may receive, in the order of ids.
    eligible: Vec<Seat>,
    /// Per partition; none also where it was not asked about.
    owners: Vec<Option<Seat>>,
}

/// Why a plan places what nobody serves, and moves the rest.
struct Why {
    placed: Occasions,
    moved: Occasions,
}

impl Why {
    /// Both for the same reason.
    fn all(why: Occasions) -> Self {
        Self {
            placed: why.clone(),
            moved: why,
        }
    }
}

/// Moves that one plan begins: those that relieve somebody, and the others.
struct Begun {
    relief: (Occasions, ReasonId, u64),
    others: (ReasonId, u64),
}

impl Begun {
    fn new(planner: &mut Planner, why: &Why) -> Self {
        let shedding = planner.shedding();
        let others = planner.enter_reason(&why.moved.text());
        // No move refers to the other one yet.
        let relief = planner.reasons.enter(&shedding.text());
        Self {
            relief: (shedding, relief, 0),
            others: (others, 0),
        }
    }

    fn reason(&self, relieves: bool) -> ReasonId {
        if relieves {
            self.relief.1
        } else {
            self.others.0
        }
    }

    fn count(&mut self, reason: ReasonId) {
        if reason == self.relief.1 {
            self.relief.2 += 1;
        } else {
            self.others.1 += 1;
        }
    }

    fn is_empty(&self) -> bool {
        self.relief.2 + self.others.1 == 0
    }

    /// Every reason with how many were placed and moved for it, if any were.
    fn by_reason(self, why: &Why, placed: u64) -> Vec<(Occasions, u64, u64)> {
        let (relief, _, relieved) = self.relief;
        let moved = self.others.1;
        let mut lines = vec![(relief, 0, relieved)];
        if why.placed == why.moved {
            lines.push((why.placed.clone(), placed, moved));
        } else {
            lines.push((why.placed.clone(), placed, 0));
            lines.push((why.moved.clone(), 0, moved));
        }
        lines.retain(|(_, placed, moved)| placed + moved > 0);
        lines
    }
}

/// What every worker has to serve and prepare.
pub(super) struct Loads {
    count: Vec<u32>,
    weight: Vec<u64>,
    cap: u32,
}

impl Loads {
    fn has_room(&self, seat: Seat) -> bool {
        self.count[seat] < self.cap
    }

    fn add(&mut self, seat: Seat, weight: u64) {
        self.count[seat] += 1;
        self.weight[seat] += weight;
    }

    fn remove(&mut self, seat: Seat, weight: u64) {
        self.count[seat] -= 1;
        self.weight[seat] -= weight;
    }
}

impl Planner {
    /// Plans for whatever is due and may be done now.
    pub(super) fn plan_what_is_due(&mut self, now: Time, list: &[Partition]) {
        if self.window.is_cold_start() {
            // The plan at its end covers all; only who leaves cannot wait for it.
            self.due.fill.take();
            self.due.emergency = false;
        }
        let emergency = std::mem::take(&mut self.due.emergency);
        // Not a matter of balance: somebody's whole share may be among what went elsewhere.
        if self.moving.is_empty()
            && !self.window.is_cold_start()
            && let Some(why) = &self.overtaken
        {
            self.due.full.want_all(why.clone());
        }
        let (full, fill) = (self.due.full.take(), self.due.fill.take());
        let relieve = std::mem::take(&mut self.due.relieve);
        // A full plan covers the others, unless there is nobody who may receive anything new.
        let covered = full.as_ref().is_some_and(|full| {
            let fill = fill.clone().filter(|fill| !fill.is_empty());
            let why = Why {
                placed: fill.unwrap_or_else(|| full.clone()),
                moved: full.clone(),
            };
            self.plan(now, list, Scope::Full, &why, emergency)
        });
        if !covered && (fill.is_some() || full.is_some()) {
            let why = fill.unwrap_or_default().and(full.unwrap_or_default());
            self.plan(now, list, Scope::Fill, &Why::all(why), emergency);
        }
        if !covered && relieve {
            let why = Why::all(Occasions::default());
            self.plan(now, list, Scope::Relieve, &why, false);
        }
        if self.may_balance() && windows::cooldown_ends(&self.config, self.last_plan) <= now {
            self.due.balance = false;
            self.plan_for_balance(now, list);
        }
    }

    /// Asks and applies; false when there was nobody to ask for.
    fn plan(
        &mut self,
        now: Time,
        list: &[Partition],
        scope: Scope,
        why: &Why,
        emergency: bool,
    ) -> bool {
        let is_open =
            |slot: &Slot| matches!(slot, Slot::Unassigned(reason) if *reason != Reason::Paused);
        if scope == Scope::Fill && !self.slots.iter().any(is_open) {
            return true;
        }
        let targets = self.ask(list, scope);
        if targets.eligible.is_empty() && scope == Scope::Full {
            return false;
        }
        self.apply(now, list, scope, &targets, why, emergency);
        true
    }

    /// Moves partitions merely for balance, if that is worth it.
    fn plan_for_balance(&mut self, now: Time, list: &[Partition]) {
        let targets = self.ask(list, Scope::Full);
        let spread = |owner: &dyn Fn(usize) -> Option<Seat>| {
            let mut loads = vec![0u64; self.crew.len()];
            for (i, partition) in list.iter().enumerate() {
                if let (Some(_), Some(seat)) = (targets.owners[i], owner(i)) {
                    loads[seat] += partition.weight;
                }
            }
            Spread::of(targets.eligible.iter().map(|&seat| loads[seat]))
        };
        let before = spread(&|i| self.slots[i].counts_for());
        let after = spread(&|i| targets.owners[i]);
        let gains = windows::is_worth_moving(&self.config, before.imbalance, after.imbalance);
        // The heaviest load does not show who has nothing (its partitions left with the list, say):
        // that is worth moving for, however small the gain elsewhere.
        let idle_gets_some = after.idle < before.idle;
        if gains || idle_gets_some {
            let why = if idle_gets_some {
                format!("balance: {} had nothing to serve", before.idle)
            } else {
                format!("balance: {:.2} to {:.2}", before.imbalance, after.imbalance)
            };
            let why = Why::all(Occasions::one(Cause::Balance, why));
            self.apply(now, list, Scope::Full, &targets, &why, false);
        }
    }

    /// Who may receive partitions on this occasion, in the order of ids.
    fn eligible(&self, scope: Scope) -> Vec<Seat> {
        let pick = |wanted: &dyn Fn(&Desk) -> bool| -> Vec<Seat> {
            let fits = |seat: &Seat| {
                let desk = &self.crew[*seat];
                let drained = desk.is_drained() && !crate::planted!(DrainedStillReceives);
                desk.is_staying() && !drained && wanted(desk)
            };
            self.crew.by_id().filter(fits).collect()
        };
        let free = |desk: &Desk| !desk.is_held_back();
        if scope != Scope::Fill {
            return pick(&free);
        }
        let is_planned = |desk: &Desk| matches!(desk.standing, Standing::Planned(_));
        // Whoever joined waits for the window, so that one that comes and goes costs nothing; but
        // being served by anyone is better than by none.
        [
            pick(&|desk| free(desk) && is_planned(desk)),
            pick(&free),
            pick(&|desk| !desk.is_degraded()),
            pick(&|_| true),
        ]
        .into_iter()
        .find(|seats| !seats.is_empty())
        .unwrap_or_default()
    }

    /// Puts the question to the strategy.
    fn ask(&self, list: &[Partition], scope: Scope) -> Targets {
        let eligible = self.eligible(scope);
        let mut index = vec![None; self.crew.len()];
        for (i, &seat) in eligible.iter().enumerate() {
            index[seat] = u32::try_from(i).ok();
        }
        let mut asked = vec![false; list.len()];
        let mut previous: Vec<Option<u32>> = vec![None; list.len()];
        for (i, slot) in self.slots.iter().enumerate() {
            if *slot == Slot::Unassigned(Reason::Paused) {
                continue;
            }
            let owner = slot.counts_for();
            previous[i] = owner.and_then(|seat| index[seat]);
            let stays_out = owner.is_some_and(|seat| {
                let desk = &self.crew[seat];
                let stays = desk.is_staying() && !desk.is_drained();
                index[seat].is_none() && (scope == Scope::Fill || stays)
            });
            asked[i] = !stays_out;
        }
        if crate::planted!(EmergencyMovesEverything) && scope == Scope::Fill {
            previous.fill(None);
        }
        let workers: Vec<_> = eligible
            .iter()
            .map(|&seat| self.crew[seat].id.clone())
            .collect();
        let whole = Input {
            workers: &workers,
            partitions: list,
            previous: &previous,
            capacity: self.capacity,
        };
        let question = Question::about(whole, |i| asked[i]);
        let answer = question.answer(&*self.strategy, |partition| {
            let seat = self.pinned_to(partition);
            index[seat.filter(|_| !crate::planted!(PlansIgnorePins))?]
        });
        let seat = |owner: Option<u32>| eligible.get(owner? as usize).copied();
        let owners = question.owners(&answer).into_iter().map(seat).collect();
        Targets { eligible, owners }
    }

    /// Takes over from the answer what the occasion allows.
    fn apply(
        &mut self,
        now: Time,
        list: &[Partition],
        scope: Scope,
        targets: &Targets,
        why: &Why,
        emergency: bool,
    ) {
        let mut loads = self.loads(list);
        let (mut placed, mut blocked, mut overtaken) = (0_u64, 0, 0);
        let mut moves = Begun::new(self, why);
        let nobody = if self.crew.present() > 0 {
            Reason::AllDrained
        } else {
            Reason::NoWorker
        };
        for (i, partition) in list.iter().enumerate() {
            let target = targets.owners[i];
            match self.slots[i] {
                Slot::Unassigned(Reason::Paused) => {}
                Slot::Unassigned(reason) if scope != Scope::Relieve => {
                    if crate::planted!(PlanForgetsPartition) && scope == Scope::Fill && placed > 0 {
                        continue;
                    }
                    let seat = if crate::planted!(StrategyDropsWhatDoesNotFit) {
                        target
                    } else {
                        place(target, &targets.eligible, &loads)
                    };
                    let next = match seat {
                        Some(worker) => {
                            loads.add(worker, partition.weight);
                            placed += 1;
                            Slot::Serving { worker }
                        }
                        None if targets.eligible.is_empty() => Slot::Unassigned(nobody),
                        None => Slot::Unassigned(Reason::OverCap),
                    };
                    self.touched |= next != Slot::Unassigned(reason);
                    self.slots[i] = next;
                }
                Slot::Serving { worker } => {
                    let may_move = scope == Scope::Full
                        || (scope == Scope::Relieve && self.crew[worker].is_shedding())
                        || crate::planted!(EmergencyMovesEverything);
                    let Some(to) = target.filter(|&to| may_move && to != worker) else {
                        continue;
                    };
                    let reason = moves.reason(self.crew[worker].is_shedding());
                    let route = (worker, to, reason);
                    if self.begin_move(now, i, route, &mut loads, partition.weight) {
                        moves.count(reason);
                    } else {
                        blocked += 1;
                    }
                }
                Slot::Preparing(mv) if scope == Scope::Full => {
                    let Some(to) = target.filter(|&to| to != mv.to) else {
                        continue;
                    };
                    self.slots[i] = Slot::Serving { worker: mv.from };
                    self.moving.remove(&i);
                    self.touched = true;
                    loads.remove(mv.to, partition.weight);
                    let reason = moves.reason(self.crew[mv.from].is_shedding());
                    let route = (mv.from, to, reason);
                    if to != mv.from && self.begin_move(now, i, route, &mut loads, partition.weight)
                    {
                        moves.count(reason);
                    }
                }
                // A move that cannot be stopped goes on, and is made up for once it is done.
                Slot::Revoking { mv, .. } if scope == Scope::Full => {
                    overtaken += usize::from(target.is_some_and(|to| to != mv.to));
                }
                Slot::Unassigned(_) | Slot::Preparing(_) | Slot::Revoking { .. } => {}
            }
        }
        if scope == Scope::Full {
            self.deferred = None;
            self.overtaken = (overtaken > 0).then(|| why.moved.clone());
        }
        if blocked > 0 && !self.moving.is_empty() {
            self.deferred.get_or_insert_with(|| why.moved.clone());
        }
        if placed == 0 && moves.is_empty() {
            return;
        }
        self.touched = true;
        self.last_plan = Some(now);
        let emergency = emergency || self.phase.is_some_and(|phase| phase.emergency);
        self.phase = Some(Phase {
            emergency,
            version: self.coming(),
        });
        for (why, placed, moves) in moves.by_reason(why, placed) {
            self.tell_plan(&why, placed, moves);
        }
    }

    /// One line about what was planned for one reason.
    fn tell_plan(&mut self, why: &Occasions, placed: u64, moves: u64) {
        self.notes.push(Decision::Planned {
            cause: why.cause(),
            placed,
            moves,
        });
        self.reason = why.text();
        let placed = (placed > 0).then(|| format!("{} placed", count(placed, "partition")));
        let moves = (moves > 0).then(|| format!("{} begun", count(moves, "move")));
        let what: Vec<String> = placed.into_iter().chain(moves).collect();
        let line = format!("{}: {}", self.reason, what.join(", "));
        self.history(EventKind::Plan, line);
    }

    /// Who sheds what it serves, as the reason of moves.
    fn shedding(&self) -> Occasions {
        let mut serving = vec![false; self.crew.len()];
        let served = self.slots.iter().filter_map(Slot::server);
        served.for_each(|seat| serving[seat] = true);
        let who = |wanted: &dyn Fn(&Desk) -> bool| -> Vec<&WorkerId> {
            let seats = self.crew.by_id().filter(|&seat| serving[seat]);
            let desks = seats.map(|seat| &self.crew[seat]);
            desks.filter(|desk| wanted(desk)).map(|d| &d.id).collect()
        };
        let mut why = Occasions::default();
        let leaving = who(&|desk| desk.is_leaving());
        if !leaving.is_empty() {
            why.add(Cause::Leave, occasion::of_workers(leaving, "leaving"));
        }
        let drained = who(&|desk| desk.is_drained() && !desk.is_leaving());
        if !drained.is_empty() {
            why.add(Cause::Operator, occasion::of_workers(drained, "drained"));
        }
        why
    }

    /// A reason for moves that begin now; those of moves that ended are forgotten.
    pub(super) fn enter_reason(&mut self, text: &str) -> ReasonId {
        let under_way = self.moving.iter().filter_map(|&i| self.slots[i].moving());
        let granted = self.granted.values().map(|granted| &granted.mv);
        let used = under_way.chain(granted).map(|mv| mv.why).collect();
        self.reasons.keep(&used);
        self.reasons.enter(text)
    }

    /// Starts the handoff of a partition, unless the new owner is full.
    pub(super) fn begin_move(
        &mut self,
        now: Time,
        i: usize,
        (from, to, why): (Seat, Seat, ReasonId),
        loads: &mut Loads,
        weight: u64,
    ) -> bool {
        let (Some(from_life), Some(to_life)) = (self.crew[from].life(), self.crew[to].life())
        else {
            return false;
        };
        if !loads.has_room(to) {
            return false;
        }
        loads.add(to, weight);
        let mv = Move {
            from,
            from_life,
            to,
            to_life,
            began: now,
            since: now,
            version: self.coming(),
            why,
        };
        self.slots[i] = Slot::Preparing(mv);
        self.moving.insert(i);
        self.tell_again(to);
        true
    }

    /// What everybody has to serve and prepare now.
    pub(super) fn loads(&self, list: &[Partition]) -> Loads {
        let mut loads = Loads {
            count: vec![0; self.crew.len()],
            weight: vec![0; self.crew.len()],
            cap: self.capacity.unwrap_or(u32::MAX),
        };
        for (slot, partition) in self.slots.iter().zip(list) {
            match slot {
                Slot::Unassigned(_) => {}
                Slot::Serving { worker } => loads.add(*worker, partition.weight),
                // Either side may end up with it.
                Slot::Preparing(mv) | Slot::Revoking { mv, .. } => {
                    loads.add(mv.from, partition.weight);
                    loads.add(mv.to, partition.weight);
                }
            }
        }
        loads
    }
}

/// The strategy's choice, or the least loaded if that one is full.
fn place(target: Option<Seat>, eligible: &[Seat], loads: &Loads) -> Option<Seat> {
    if let Some(seat) = target.filter(|&seat| loads.has_room(seat)) {
        return Some(seat);
    }
    let with_room = eligible
        .iter()
        .copied()
        .filter(|&seat| loads.has_room(seat));
    with_room.min_by_key(|&seat| (loads.weight[seat], loads.count[seat]))
}

/// How evenly loads lie.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Spread {
    /// The heaviest load over the mean one.
    imbalance: f64,
    /// How many have none.
    idle: usize,
}

impl Spread {
    fn of(loads: impl Iterator<Item = u64>) -> Self {
        let (mut sum, mut most, mut workers, mut idle) = (0u64, 0u64, 0u64, 0);
        for load in loads {
            (sum, most, workers) = (sum + load, most.max(load), workers + 1);
            idle += usize::from(load == 0);
        }
        let imbalance = if sum == 0 {
            1.0
        } else {
            most as f64 * workers as f64 / sum as f64
        };
        Self { imbalance, idle }
    }
}
