//! Leaderless mode: every worker computes the same target from the same membership, releases its
//! surplus and claims what is free.
//!
//! The target is a pure function of members and partitions. What its target owner does not take
//! goes, after a grace, to the next in rank, who gives it back when the target owner asks for it
//! (by reporting that it is blocked). Nobody stands in beyond its capacity.
//!
//! Everybody goes by the same overrides, too: who is drained counts as none, what is paused is
//! nobody's, a pin beats the strategy. Operators write them by themselves, by compare-and-set: two who
//! both carried out requests could each go by an old view of them.
//!
//! ```text
//! sessions ──▶ members ──▶ strategy ──▶ target ──┬─ mine ───────────────────────▶ serve
//!                                                │                                  ▲
//! every claim_interval: list partitions/         └─ another's, free for too long ───┤ stand in
//!   (who owns what)                                 until its target owner is blocked by us
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::config::Config;
use crate::ids::{Incarnation, PartitionId, Revision, WorkerId};
use crate::io::{StoreOp, StoreReply, WatchEvent};
use crate::key::{Key, Prefix};
use crate::leader::{Reaper, Sessions};
use crate::partition::Partition;
use crate::record::{EventKind, OverridesRecord, Record, SessionStatus};
use crate::session::silence::Silence;
use crate::strategy::{Input, Strategy, put_pins};
use crate::text::{count, few};
use crate::time::Time;
use crate::worker::Trouble;
use crate::worker::holding::Holdings;
use crate::worker::numbers::PlanNumbers;
use crate::worker::outbox::{Outbox, Purpose};

mod decided;
#[cfg(test)]
mod tests;

use decided::Decided;

/// So many partitions are named in one line of the history.
const NAMED: usize = 8;

/// The machine of a worker without a leader.
#[derive(Debug)]
pub struct Leaderless {
    ttl: Duration,
    id_ttl: Duration,
    claim_interval: Duration,
    grace: Duration,
    timeout: Duration,
    strategy: Arc<dyn Strategy>,
    capacity: Option<u32>,
    reaper: Reaper,
    changed: bool,
    /// Whether this worker was fit to serve when last looked at.
    was_fit: bool,
    members: Vec<WorkerId>,
    /// Who should own each partition, parallel to the partition list.
    target: Vec<Option<u32>>,
    next_look: Time,
    looking: bool,
    /// Since when a partition was seen without an owner.
    free_since: BTreeMap<PartitionId, Time>,
    /// Held in place of a target owner that did not come.
    stand_in: BTreeSet<PartitionId>,
    /// Not to be claimed again before: just released.
    resting: BTreeMap<PartitionId, Time>,
    serve: Vec<PartitionId>,
    /// Something is not taken yet, because what is being let go of takes up the room.
    waits_for_room: bool,
    /// How many partitions fit nowhere, when that was last told.
    over_cap: u64,
    /// What the last look around found.
    seen: PlanNumbers,
    /// Taken from the dead, and not told yet.
    seized: BTreeMap<WorkerId, Vec<PartitionId>>,
    /// The overrides as they are.
    decided: Decided,
    /// The overrides that the target goes by.
    overrides: Arc<OverridesRecord>,
    heeding: Revision,
}

impl Leaderless {
    /// A worker without a leader.
    pub fn new(config: &Config, strategy: Arc<dyn Strategy>, capacity: Option<u32>) -> Self {
        Self {
            ttl: config.leaderless.lease_ttl,
            id_ttl: config.worker_id_ttl,
            claim_interval: config.leaderless.claim_interval,
            grace: config.leaderless.grace_period,
            timeout: config.operation_timeout,
            strategy,
            capacity,
            reaper: Reaper::default(),
            changed: true,
            was_fit: true,
            members: Vec::new(),
            target: Vec::new(),
            next_look: Time::ZERO,
            looking: false,
            free_since: BTreeMap::new(),
            stand_in: BTreeSet::new(),
            resting: BTreeMap::new(),
            serve: Vec::new(),
            waits_for_room: false,
            over_cap: 0,
            seen: PlanNumbers::default(),
            seized: BTreeMap::new(),
            decided: Decided::new(),
            overrides: Arc::default(),
            heeding: Revision(0),
        }
    }

    /// News of the overrides.
    pub fn overrides_watched(&mut self, event: &WatchEvent, out: &mut Outbox) {
        self.changed |= self.decided.watched(event, out);
    }

    /// What became of the write that proves them.
    pub fn overrides_proved(&mut self, reply: StoreReply, out: &mut Outbox) {
        self.changed |= self.decided.proved(reply, out);
    }

    /// The revision of the overrides that the present choice goes by.
    pub fn heeding(&self) -> Revision {
        self.heeding
    }

    /// What it last saw of the group, for metrics.
    pub fn numbers(&self) -> PlanNumbers {
        self.seen
    }

    /// Whether an operator wants this life to serve nothing.
    pub fn drains(&self, me: &WorkerId, life: Incarnation) -> bool {
        let certain = self.decided.certain();
        certain.is_some_and(|(_, overrides)| overrides.drains(me, life))
    }

    /// Membership or the partition list may have changed.
    pub fn changed(&mut self) {
        self.changed = true;
    }

    /// When to act next.
    pub fn next_deadline(&self, me: &WorkerId, sessions: &Sessions, silence: &Silence) -> Time {
        if !sessions.synced || self.decided.certain().is_none() {
            // Nothing else is done before members and overrides are known.
            return self.decided.next_deadline();
        }
        let resting = self.resting.values().min().copied().unwrap_or(Time::NEVER);
        let look = if self.looking {
            Time::NEVER
        } else {
            self.next_look
        };
        let reaper = self
            .reaper
            .next_deadline(me, sessions, silence, self.ttl, self.id_ttl);
        resting.min(look).min(reaper)
    }

    /// Ends silent sessions, looks around, and says what to serve when that changed.
    #[allow(clippy::too_many_arguments)]
    pub fn step(
        &mut self,
        me: &WorkerId,
        fit: bool,
        partitions: &[Partition],
        sessions: &Sessions,
        silence: &Silence,
        holdings: &Holdings,
        out: &mut Outbox,
    ) -> Option<Vec<PartitionId>> {
        self.decided.step(self.timeout, out);
        let (Some((revision, overrides)), true) = (self.decided.certain(), sessions.synced) else {
            return None;
        };
        let now = out.now();
        self.reaper
            .step(me, sessions, silence, self.ttl, self.id_ttl, |_| false, out);
        if now >= self.next_look && !self.looking {
            self.looking = true;
            self.next_look = now + self.claim_interval;
            self.tell_seized(me, out);
            out.ask(
                Purpose::LookAround,
                StoreOp::List(Prefix::Partitions),
                self.timeout,
            );
        }
        let rested = self.resting.values().any(|at| now >= *at);
        self.resting.retain(|_, at| now < *at);
        let fitness = std::mem::replace(&mut self.was_fit, fit) != fit;
        if !std::mem::take(&mut self.changed) && !rested && !fitness {
            return self
                .waits_for_room
                .then(|| self.choose(me, fit, partitions, holdings, now))
                .flatten();
        }
        self.members = sessions
            .iter()
            .filter(|(id, revision, record)| {
                *id != me
                    && record.status == SessionStatus::Live
                    && record.degraded.is_none()
                    && !overrides.drains(id, record.incarnation_at(*revision))
            })
            .map(|(id, ..)| id.clone())
            .chain(fit.then(|| me.clone()))
            .collect();
        self.members.sort();
        self.heeding = revision;
        self.overrides = overrides;
        self.aim(partitions, sessions, out);
        self.give_back(me, partitions, sessions);
        self.choose(me, fit, partitions, holdings, now)
    }

    /// These were taken from the dead.
    pub fn seized(&mut self, from: BTreeMap<WorkerId, Vec<PartitionId>>) {
        for (owner, mut partitions) in from {
            let told = self.seized.entry(owner).or_default();
            told.append(&mut partitions);
        }
    }

    /// One line for each of the dead: partitions are taken one by one, and a history is short. What
    /// was released has nobody's name on it.
    fn tell_seized(&mut self, me: &WorkerId, out: &mut Outbox) {
        for (owner, partitions) in std::mem::take(&mut self.seized) {
            let whose = if owner == *me {
                "its life before".to_owned()
            } else {
                format!("{owner}, whose session is over")
            };
            let line = format!(
                "{me} took {} of {whose}: {}",
                count(partitions.len() as u64, "partition"),
                few(partitions, NAMED)
            );
            out.tell(EventKind::Handoff, line);
        }
    }

    /// Asks the strategy, and puts what operators decided above its answer.
    fn aim(&mut self, partitions: &[Partition], sessions: &Sessions, out: &mut Outbox) {
        let overrides = self.overrides.clone();
        // Of all, also of those that are paused: a pause, or its end, moves nothing else.
        let input = Input {
            workers: &self.members,
            partitions,
            previous: &[],
            capacity: self.capacity,
        };
        let mut owners = self.strategy.assign(input).owners;
        self.tell_over_cap(&owners, out);
        let pinned = |partition: &PartitionId| {
            let pin = overrides.pin_of(partition)?;
            let (revision, record) = sessions.get(&pin.worker)?;
            let life = record.incarnation_at(revision);
            let place = self.members.binary_search(&pin.worker).ok()?;
            let holds = pin.incarnation.is_none_or(|pinned| pinned == life);
            u32::try_from(place).ok().filter(|_| holds)
        };
        put_pins(partitions, &mut owners, pinned);
        let placed = partitions.iter().zip(owners);
        self.target = placed
            .map(|(partition, owner)| owner.filter(|_| !overrides.pauses(&partition.id)))
            .collect();
        self.stand_in.retain(|id| !overrides.pauses(id));
    }

    /// Says once per change how many partitions fit nowhere.
    fn tell_over_cap(&mut self, owners: &[Option<u32>], out: &mut Outbox) {
        let (Some(cap), false) = (self.capacity, self.members.is_empty()) else {
            return;
        };
        let partitions = owners.iter().filter(|owner| owner.is_none()).count() as u64;
        if std::mem::replace(&mut self.over_cap, partitions) != partitions && partitions > 0 {
            out.trouble(Trouble::OverCap { partitions, cap });
        }
    }

    /// What is held for others goes back when its target owner stands at the door.
    fn give_back(&mut self, me: &WorkerId, partitions: &[Partition], sessions: &Sessions) {
        for (id, _, record) in sessions.iter() {
            if record.status != SessionStatus::Live {
                continue;
            }
            for blocked in record.blocked_by.iter().filter(|b| b.owner == *me) {
                let place = partitions.binary_search_by(|p| p.id.cmp(&blocked.partition));
                // Another who would stand in has to see that this one was faster.
                if place.is_ok_and(|place| self.target_of(place) == Some(id)) {
                    self.stand_in.remove(&blocked.partition);
                }
            }
        }
    }

    /// Who should own the partition at this place of the list.
    fn target_of(&self, place: usize) -> Option<&WorkerId> {
        let owner = self.target.get(place).copied().flatten()?;
        self.members.get(owner as usize)
    }

    fn choose(
        &mut self,
        me: &WorkerId,
        fit: bool,
        partitions: &[Partition],
        holdings: &Holdings,
        now: Time,
    ) -> Option<Vec<PartitionId>> {
        let owns = |place| fit && self.target_of(place) == Some(me);
        let mine: Vec<bool> = (0..partitions.len()).map(owns).collect();
        // What is held in place of others must fit beside what is one's own.
        let own = mine.iter().filter(|mine| **mine).count();
        let mut room = (self.capacity.unwrap_or(u32::MAX) as usize).saturating_sub(own);
        let mut wanted = Vec::with_capacity(partitions.len());
        let mut leaving = 0;
        for (partition, mine) in partitions.iter().zip(mine) {
            if mine {
                self.stand_in.remove(&partition.id);
            }
            let stands_in = fit && self.stand_in.contains(&partition.id) && room > 0;
            room -= usize::from(stands_in);
            wanted.push(mine || stands_in);
            if !(mine || stands_in) && holdings.holds(&partition.id) {
                leaving += 1;
                self.resting.insert(partition.id.clone(), now + self.grace);
            }
        }
        // What is still being let go of takes up room, too.
        let keeps = |id: &PartitionId| holdings.holds(id) || self.serve.binary_search(id).is_ok();
        let with = partitions
            .iter()
            .zip(&wanted)
            .filter(|(_, wanted)| **wanted);
        let kept = with.clone().filter(|(p, _)| keeps(&p.id)).count();
        let cap = self.capacity.unwrap_or(u32::MAX) as usize;
        let mut room = cap.saturating_sub(kept + leaving);
        let (mut serve, mut waits) = (Vec::new(), false);
        for (partition, _) in with {
            let id = &partition.id;
            if !keeps(id) {
                if self.resting.contains_key(id) {
                    continue;
                }
                if room == 0 {
                    waits = true;
                    continue;
                }
                room -= 1;
            }
            serve.push(id.clone());
        }
        self.waits_for_room = waits && leaving > 0;
        if serve == self.serve {
            return None;
        }
        self.serve.clone_from(&serve);
        Some(serve)
    }

    /// What was found when looking around.
    pub fn looked(
        &mut self,
        reply: StoreReply,
        me: &WorkerId,
        partitions: &[Partition],
        holdings: &mut Holdings,
        out: &mut Outbox,
    ) {
        self.looking = false;
        let now = out.now();
        holdings.nudge(now);
        let StoreReply::List(Ok(records)) = reply else {
            return;
        };
        let mut owned = BTreeSet::new();
        for stored in &records {
            if let (Key::Partition(id), Record::Partition(record)) = (&stored.key, &stored.record)
                && let Some((owner, life)) = &record.owner
                && !holdings.is_over(owner, *life)
            {
                owned.insert(id.clone());
            }
        }
        let mut seen = PlanNumbers::default();
        for (place, partition) in partitions.iter().enumerate() {
            let id = &partition.id;
            if owned.contains(id) || holdings.holds(id) {
                self.free_since.remove(id);
                // Somebody was faster: no need to stand in.
                if !holdings.holds(id) && self.stand_in.remove(id) {
                    self.changed = true;
                }
                continue;
            }
            if self.overrides.pauses(id) {
                self.free_since.remove(id);
                seen.unserved += 1;
                seen.paused += 1;
                continue;
            }
            let since = *self.free_since.entry(id.clone()).or_insert(now);
            let target = self.target_of(place);
            if now.since(since) > self.grace {
                let full = self.capacity.is_some() && !self.members.is_empty();
                seen.unserved += 1;
                seen.over_cap += u64::from(full && target.is_none());
            }
            if target == Some(me) {
                continue;
            }
            // Whoever comes next in rank waits one look longer than the one before.
            let patience = self.grace + self.claim_interval * (1 + self.rank(id, me, target));
            if now.since(since) >= patience {
                self.stand_in.insert(id.clone());
                self.changed = true;
            }
        }
        self.seen = seen;
    }

    fn rank(&self, id: &PartitionId, me: &WorkerId, target: Option<&WorkerId>) -> u32 {
        let score = |worker: &WorkerId| {
            let seed = xxh3_64_with_seed(worker.as_str().as_bytes(), 0);
            xxh3_64_with_seed(id.as_str().as_bytes(), seed)
        };
        let mine = score(me);
        let before = self
            .members
            .iter()
            .filter(|member| *member != me && Some(*member) != target && score(member) < mine);
        u32::try_from(before.count()).unwrap_or(u32::MAX)
    }

    /// What became of the marks on silent sessions.
    pub fn sessions_ended(
        &mut self,
        ids: Vec<WorkerId>,
        reply: StoreReply,
        sessions: &mut Sessions,
        silence: &mut Silence,
        out: &mut Outbox,
    ) {
        self.reaper.answered(ids, reply, sessions, silence, out);
        self.changed = true;
    }
}
