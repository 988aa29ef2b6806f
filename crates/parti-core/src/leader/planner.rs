//! The leader's brain: who should serve what, and the next step towards it.
//!
//! It is told levels (the sessions as they are, the partitions as they are) and keeps one slot per
//! partition. What each worker is told follows from the slots alone, so nothing can be told twice
//! in different ways, and a change that is undone before it was told never happened.
//!
//! ```text
//!  members ──▶ membership.rs   who came, left, crashed ─┐
//!  partitions ─▶ planner.rs    what came, went ─────────┼─▶ windows.rs   wait, or plan now?
//!                                                       │       │
//!  overrides ─▶ overrides.rs   drained, paused, pinned ──┤       │
//!  ready, released ─▶ moves.rs (rules: slots.rs) ───────┤       ▼
//!                                                       │   spread.rs    ask the strategy
//!                                                       ▼       │
//!                                                     slots ◀───┘
//!                                                       │
//!                                                       ▼
//!                              orders.rs    assignments that differ, plan record
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::crew::{Crew, Owed, Standing};
use super::moves::{Granted, Handoff};
use super::occasion::{self, Occasions, Reasons, Wish};
use super::slots::{self, Reason, Seat, Slot};
use super::windows::{self, Window};
use crate::config::Config;
use crate::ids::{Incarnation, PartitionId, Revision, Term, Version, WorkerId};
use crate::partition::{self, Partition};
use crate::record::{
    AssignmentRecord, Blocked, EventKind, Lifecycle, OverridesRecord, PlanRecord, Ready,
    SessionStatus,
};
use crate::strategy::Strategy;
use crate::text::count;
use crate::time::Time;
use crate::worker::numbers::PlanNumbers;
use crate::worker::{Cause, Trouble};

/// A session as the leader sees it. What it answered to other terms than the leader's own counts as
/// nothing.
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
    /// When it was replaced: lives up to this one were there before.
    pub elected: Revision,
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
    /// Partitions get owners.
    Planned {
        /// Why.
        cause: Cause,
        /// How many of them had none.
        placed: u64,
        /// How many handoffs begin.
        moves: u64,
    },
    /// A handoff is done.
    Moved(Handoff),
    /// Something is wrong, named.
    Trouble(Trouble),
    /// A line for the group's history.
    History(EventKind, String),
}

/// What should be done as soon as it may.
#[derive(Clone, Debug, Default)]
pub(super) struct Due {
    /// Partitions without an owner need one.
    pub fill: Wish,
    /// A leaving worker's partitions need another.
    pub relieve: bool,
    /// Everybody gets a share.
    pub full: Wish,
    /// Balance may have suffered.
    pub balance: bool,
    /// Owners were lost: whatever is filled is an emergency.
    pub emergency: bool,
}

/// A plan that was told and is not yet carried out by all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phase {
    pub emergency: bool,
    /// The version that told it.
    pub version: Version,
}

/// The last owner of a partition that left the list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dropped {
    pub seat: Seat,
    /// In which life: a later one owns nothing of it.
    pub life: Incarnation,
    /// The version that tells it to let go.
    pub version: Version,
}

/// Decides who should serve what, step by step.
#[derive(Debug)]
pub struct Planner {
    pub(super) config: Config,
    pub(super) strategy: Arc<dyn Strategy>,
    pub(super) term: Term,
    pub(super) me: WorkerId,
    pub(super) capacity: Option<u32>,
    /// What earlier leaders left, until the first step has built on it.
    pub(super) recovered: Option<Recovered>,
    pub(super) crew: Crew,
    /// Sorted by id; none until the first list came.
    pub(super) partitions: Option<Arc<[Partition]>>,
    /// One per partition.
    pub(super) slots: Vec<Slot>,
    /// The slots with a move under way.
    pub(super) moving: BTreeSet<usize>,
    /// The highest version told so far, by anyone.
    pub(super) version: Version,
    pub(super) lifecycle: Lifecycle,
    /// The group had a plan at some time: partitions that are new now were added to it.
    pub(super) planned_once: bool,
    pub(super) window: Window,
    /// Crashes that may still turn out to be part of a restart.
    pub(super) losses: Vec<(Time, Seat)>,
    pub(super) due: Due,
    pub(super) phase: Option<Phase>,
    /// A move did not fit under the cap; tried again once others are done.
    pub(super) deferred: Option<Occasions>,
    /// The last full plan wanted something else with moves that could not be stopped any more:
    /// what it gave away is not made up for yet, so it is asked again once they are done.
    pub(super) overtaken: Option<Occasions>,
    pub(super) last_plan: Option<Time>,
    /// Added to a running group, and not taken yet.
    pub(super) added: BTreeSet<PartitionId>,
    /// What left the list, as long as its last owner may not have let go of it.
    pub(super) dropped: BTreeMap<PartitionId, Dropped>,
    /// What operators decided.
    pub(super) overrides: Arc<OverridesRecord>,
    /// Whether slots and workers are as they want it, since they or the list last changed.
    pub(super) heeded: bool,
    /// Paused partitions of which it is not known for certain that nobody holds them.
    pub(super) pausing: BTreeSet<PartitionId>,
    /// Per worker, what it should let go of because it stands in somebody's way.
    pub(super) hints: BTreeMap<Seat, BTreeSet<PartitionId>>,
    /// What happened or was planned last.
    pub(super) reason: String,
    /// Of the moves under way.
    pub(super) reasons: Reasons,
    /// Lives up to this one were there before this leader.
    pub(super) elected: Revision,
    /// Handoffs whose new owner was told, and has not said yet that it has the partition.
    pub(super) granted: BTreeMap<PartitionId, Granted>,
    pub(super) list_hash: u64,
    pub(super) unserved: Unserved,
    pub(super) told_plan: Option<PlanRecord>,
    /// Since when membership is another one than was last reviewed.
    pub(super) membership_changed: Option<Time>,
    /// Slots or workers changed since assignments were last derived.
    pub(super) touched: bool,
    /// Something was heard since the last step.
    pub(super) news: Option<Time>,
    heard_members: bool,
    pub(super) notes: Vec<Decision>,
}

/// The partitions that nobody serves.
#[derive(Clone, Debug, Default)]
pub(super) struct Unserved {
    pub count: usize,
    pub over_cap: usize,
    pub all_drained: usize,
    pub paused: usize,
    /// The first few, with the reason.
    pub examples: Vec<(PartitionId, String)>,
}

impl Planner {
    /// A planner for the leader of this term, on top of what earlier leaders left.
    pub fn new(
        config: &Config,
        strategy: Arc<dyn Strategy>,
        term: Term,
        me: WorkerId,
        now: Time,
        recovered: Recovered,
    ) -> Self {
        Self {
            config: config.clone(),
            strategy,
            term,
            me,
            capacity: None,
            elected: recovered.elected,
            recovered: Some(recovered),
            crew: Crew::default(),
            partitions: None,
            slots: Vec::new(),
            moving: BTreeSet::new(),
            version: Version(0),
            lifecycle: Lifecycle::ColdStart,
            planned_once: false,
            window: Window::Closed,
            losses: Vec::new(),
            due: Due::default(),
            phase: None,
            deferred: None,
            overtaken: None,
            last_plan: None,
            added: BTreeSet::new(),
            dropped: BTreeMap::new(),
            overrides: Arc::default(),
            heeded: true,
            pausing: BTreeSet::new(),
            hints: BTreeMap::new(),
            reason: String::new(),
            reasons: Reasons::default(),
            granted: BTreeMap::new(),
            list_hash: 0,
            unserved: Unserved::default(),
            told_plan: None,
            membership_changed: Some(now),
            touched: true,
            news: None,
            heard_members: false,
            notes: Vec::new(),
        }
    }

    /// The most partitions one worker may serve and prepare together; unlimited at first. To be
    /// set before the first step.
    pub fn set_capacity(&mut self, capacity: Option<u32>) {
        self.capacity = capacity;
    }

    /// The sessions as they are now. A level, not an edge: called whenever anything changed, with
    /// sessions that are over until they are cleared.
    pub fn members(&mut self, now: Time, members: &BTreeMap<WorkerId, Member>) {
        let mut changed = false;
        for (id, member) in members {
            let seat = self.crew.seat(id);
            let desk = &mut self.crew[seat];
            let life = |m: &Member| (m.incarnation, m.status);
            if desk.member.as_ref().map(life) != Some(life(member)) {
                changed = true;
                // Whatever is over may have been somebody's owner: its mark stays until all is
                // known to be taken.
                desk.evidence = member.status.is_over();
            }
            if desk.member.as_ref() != Some(member) {
                desk.member = Some(member.clone());
            }
        }
        for desk in self.crew.iter_mut() {
            if desk.member.is_some() && !members.contains_key(&desk.id) {
                desk.member = None;
                changed = true;
            }
        }
        if changed {
            self.membership_changed = Some(now);
            // A worker that was not known yet may be drained.
            self.heeded &= self.overrides.drained.is_empty();
        }
        self.heard_members = true;
        self.news = Some(now);
    }

    /// The partitions as they are now: at the start, and on every refresh.
    pub fn partitions(&mut self, now: Time, list: Arc<[Partition]>) {
        let list = sorted(list);
        let hash = partition::hash(&list);
        if self.partitions.is_some() && hash == self.list_hash {
            return;
        }
        self.news = Some(now);
        self.list_hash = hash;
        let old = self.partitions.replace(list.clone());
        if let (Some(old), None) = (old, &self.recovered) {
            self.change_list(&old, &list);
            self.heeded = false;
        }
    }

    /// Decides. Says nothing twice: a second call without news is empty.
    pub fn step(&mut self, now: Time, wall_ms: u64) -> Vec<Decision> {
        self.news = None;
        if !self.heard_members {
            return Vec::new();
        }
        let Some(list) = self.partitions.clone() else {
            return Vec::new();
        };
        if let Some(recovered) = self.recovered.take() {
            self.take_over(now, &list, recovered);
        }
        self.review_members(now);
        self.hear_sessions(now);
        self.end_phase();
        self.end_handoffs(now);
        self.heed_drains();
        self.advance_moves(now, &list);
        self.heed_pauses(&list);
        self.open_window(now);
        self.close_window(now);
        self.plan_what_is_due(now, &list);
        self.enforce_pins(now, &list);
        let mut decisions = self.publish(&list);
        self.settle(&list);
        decisions.extend(self.plan_record(wall_ms, &list));
        decisions.append(&mut self.notes);
        decisions
    }

    /// When to call [`Planner::step`] again at the latest.
    pub fn next_deadline(&self) -> Time {
        if let Some(news) = self.news {
            return news;
        }
        if !self.heard_members || self.partitions.is_none() {
            return Time::NEVER;
        }
        let window = if self.crew.present() > 0 {
            self.window_ends()
        } else {
            Time::NEVER
        };
        let moves = self
            .moving
            .iter()
            .map(|&i| slots::deadline(&self.slots[i], &self.config.handoff));
        let suspensions = self.crew.iter().filter_map(|desk| desk.suspended_until);
        let balance = if self.may_balance() {
            windows::cooldown_ends(&self.config, self.last_plan)
        } else {
            Time::NEVER
        };
        moves
            .chain(suspensions)
            .chain([window, balance])
            .min()
            .unwrap_or(Time::NEVER)
    }

    /// No window open, no move under way, everything applied.
    pub fn is_settled(&self) -> bool {
        self.recovered.is_none()
            && self.news.is_none()
            && !self.window.is_open()
            && self.moving.is_empty()
            && self.all_applied()
    }

    /// Whether the end of this life may still be needed as evidence, by a taker of something that
    /// it owned: its mark must stay.
    pub fn still_names(&self, worker: &WorkerId, incarnation: Incarnation) -> bool {
        let Some(seat) = self.crew.find(worker) else {
            return true;
        };
        let desk = &self.crew[seat];
        if self.recovered.is_some() || desk.kept_marks.contains(&incarnation) {
            return true;
        }
        match &desk.member {
            // A later life is there, and is itself the evidence.
            Some(member) if member.incarnation > incarnation => false,
            _ => desk.evidence || self.slots.iter().any(|slot| slot.names(seat)),
        }
    }

    /// A predecessor's version came to light: ours must be above it. True when that makes a new
    /// round of publications necessary.
    pub fn version_is_at_least(&mut self, version: Version) -> bool {
        if version == Version(0) {
            return false;
        }
        self.version = self.version.max(version);
        self.touched = true;
        for seat in self.crew.by_id().collect::<Vec<_>>() {
            self.crew[seat].must_publish = self.crew[seat].published.is_some();
        }
        true
    }

    /// For metrics.
    pub fn numbers(&self) -> PlanNumbers {
        PlanNumbers {
            moving: self.moving.len() as u64,
            unserved: self.unserved.count as u64,
            over_cap: self.unserved.over_cap as u64,
            paused: self.unserved.paused as u64,
        }
    }

    /// The version that this step's assignments will have, if there are any.
    pub(super) fn coming(&self) -> Version {
        self.version.next()
    }

    pub(super) fn window_ends(&self) -> Time {
        self.window.ends(&self.config, self.crew.present() as u64)
    }

    pub(super) fn all_applied(&self) -> bool {
        self.crew
            .iter()
            .all(|desk| desk.has_applied(Version(u64::MAX)))
    }

    /// Whether balance is waiting for nothing but the cooldown.
    pub(super) fn may_balance(&self) -> bool {
        self.due.balance
            && self.lifecycle != Lifecycle::ColdStart
            && !self.window.is_open()
            && self.moving.is_empty()
            && self.phase.is_none()
    }

    /// This worker is told again, whether or not that is something new.
    pub(super) fn tell_again(&mut self, seat: Seat) {
        self.crew[seat].must_publish = true;
        self.touched = true;
    }

    pub(super) fn history(&mut self, kind: EventKind, line: String) {
        self.notes.push(Decision::History(kind, line));
    }

    /// Waits where there is reason to: for a group's workers, or for further ones after one joined.
    fn open_window(&mut self, now: Time) {
        if self.window.is_open() || self.crew.present() == 0 {
            return;
        }
        let span = windows::Span::at(now);
        if self.lifecycle == Lifecycle::ColdStart {
            self.window = Window::ColdStart(span);
            self.reason = "cold start: waiting for workers".into();
        } else if self.crew.joined() > 0
            || self
                .crew
                .iter()
                .any(|d| d.owed.is_some() && !d.is_held_back())
        {
            self.window = Window::PlannedScale(span);
        }
    }

    /// The wait is over: everybody who is there counts from now on.
    fn close_window(&mut self, now: Time) {
        if !self.window.is_open() || self.crew.present() == 0 || self.window_ends() > now {
            return;
        }
        let mut shares: Vec<(Owed, WorkerId)> = Vec::new();
        for seat in self.crew.by_id().collect::<Vec<_>>() {
            let desk = &mut self.crew[seat];
            if let Standing::Joined(life) = desk.standing {
                desk.standing = Standing::Planned(life);
                desk.owed = Some(if life.0 > self.elected.0 {
                    Owed::Joined
                } else {
                    Owed::PutOff
                });
                self.touched = true;
            }
            if !desk.is_held_back()
                && let Some(owed) = desk.owed.take()
            {
                shares.push((owed, desk.id.clone()));
            }
        }
        if self.window.is_cold_start() {
            self.lifecycle = Lifecycle::PostColdStart;
            let workers = count(self.crew.planned() as u64, "worker");
            self.reason = match std::mem::replace(&mut self.planned_once, true) {
                false => format!("first plan for {workers}"),
                true => format!("plan after a restart for {workers}"),
            };
            self.due.full.want(Cause::ColdStart, self.reason.clone());
        } else {
            for (owed, cause, did) in [
                (Owed::Joined, Cause::Join, "joined"),
                (Owed::Undrained, Cause::Operator, "undrained"),
                (Owed::PutOff, Cause::Join, "owed a share"),
            ] {
                let of = shares.iter().filter(|(why, _)| *why == owed);
                let of: Vec<_> = of.map(|(_, id)| id).collect();
                if !of.is_empty() {
                    let text = occasion::of_workers(of, did);
                    self.due.full.want(cause, text);
                }
            }
        }
        self.window = Window::Closed;
    }

    /// A plan that everybody has carried out is over.
    fn end_phase(&mut self) {
        let is_over = |phase: &mut Phase| self.crew.iter().all(|d| d.has_applied(phase.version));
        self.phase.take_if(is_over);
    }

    /// Once all is carried out, the group is stable, and ends need no proof any more.
    fn settle(&mut self, list: &[Partition]) {
        let (slots, crew) = (&self.slots, &self.crew);
        self.added.retain(|id| {
            // Once it was taken, its record says where it starts.
            let Ok(i) = list.binary_search_by(|p| p.id.cmp(id)) else {
                return false;
            };
            !matches!(&slots[i], Slot::Serving { worker }
                if crew[*worker].alive().is_some() && crew[*worker].has_applied(Version(u64::MAX)))
        });
        if !self.moving.is_empty() || !self.all_applied() {
            return;
        }
        if self.lifecycle == Lifecycle::PostColdStart {
            self.lifecycle = Lifecycle::Stable;
        }
        if self.unserved.count == 0 {
            // Every record names a living owner now: nobody needs to prove an end any more.
            self.crew.iter_mut().for_each(|desk| desk.evidence = false);
        }
    }

    /// Carries slots over to another list: what stayed keeps its slot.
    fn change_list(&mut self, old: &[Partition], new: &[Partition]) {
        let mut before: BTreeMap<&PartitionId, (Slot, u64)> = old
            .iter()
            .zip(std::mem::take(&mut self.slots))
            .map(|(partition, slot)| (&partition.id, (slot, partition.weight)))
            .collect();
        let (mut added, mut reweighted) = (0, 0);
        for partition in new {
            let slot = match before.remove(&partition.id) {
                Some((slot, weight)) => {
                    reweighted += usize::from(weight != partition.weight);
                    slot
                }
                None => {
                    added += 1;
                    if self.planned_once {
                        self.added.insert(partition.id.clone());
                    }
                    Slot::Unassigned(Reason::New)
                }
            };
            self.slots.push(slot);
        }
        let removed = before.len();
        let coming = self.coming();
        for (id, (slot, _)) in before {
            self.added.remove(id);
            let owner = slot.moving().map(|mv| mv.from).or(slot.server());
            if let Some(seat) = owner {
                self.crew[seat].dropping = Some(coming);
                self.crew[seat].must_publish = true;
                if let Some(life) = self.crew[seat].life() {
                    let version = coming;
                    let dropped = Dropped {
                        seat,
                        life,
                        version,
                    };
                    self.dropped.insert(id.clone(), dropped);
                }
            }
        }
        self.give_back_what_is_still_held(new);
        self.moving = (0..self.slots.len())
            .filter(|&i| self.slots[i].moving().is_some())
            .collect();
        self.touched = true;
        let changed = format!("partition list changed: {added} added, {removed} removed");
        self.due.fill.want(Cause::Partitions, changed.clone());
        self.due.balance = true;
        if !self.window.is_cold_start() {
            self.reason = changed;
        }
        self.history(
            EventKind::Plan,
            format!(
                "partition list changed: {added} added, {removed} removed, {reweighted} reweighted"
            ),
        );
    }

    /// What is in the list again, while its last owner may not have let go of it, stays there: two
    /// would be told to serve it otherwise.
    fn give_back_what_is_still_held(&mut self, list: &[Partition]) {
        let cap = self.capacity.unwrap_or(u32::MAX) as usize;
        for (i, partition) in list.iter().enumerate() {
            let Some(held) = self.dropped.remove(&partition.id) else {
                continue;
            };
            let has = |slot: &&Slot| slot.names(held.seat);
            let room = self.slots.iter().filter(has).count() < cap;
            if self.may_still_hold(&held) && room {
                self.slots[i] = Slot::Serving { worker: held.seat };
                self.tell_again(held.seat);
                self.due.relieve |= self.crew[held.seat].is_shedding();
            }
        }
    }

    /// Whether an owner of something that left the list has not yet said that it let go.
    pub(super) fn may_still_hold(&self, dropped: &Dropped) -> bool {
        let owner = self.crew[dropped.seat].party();
        owner.life == Some(dropped.life) && owner.released < dropped.version
    }
}

/// The list in the order of ids, without duplicates.
fn sorted(list: Arc<[Partition]>) -> Arc<[Partition]> {
    if list.windows(2).all(|pair| pair[0].id < pair[1].id) {
        return list;
    }
    let mut sorted = list.to_vec();
    sorted.sort_by(|a, b| a.id.cmp(&b.id));
    sorted.dedup_by(|a, b| a.id == b.id);
    sorted.into()
}
