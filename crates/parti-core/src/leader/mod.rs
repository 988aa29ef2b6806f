//! The leader: ends silent sessions, decides who should serve what, publishes it.
//!
//! ```text
//! won an election
//!   │ watch workers/ and requests/, list assignments/, read plan, list partitions,
//!   │ write overrides anew
//!   ▼
//! planner: members + partitions + what the predecessor left ──▶ decisions
//!   │                                                             │
//!   │ silent sessions: compare-and-set to `evicted`,              ▼
//!   │ those that an operator wants to end: to `revoked`           │
//!   └──────────────────────────────────────────── assignments/<worker>, plan: compare-and-set,
//!                                                 until each landed or a higher term is met
//! ```
//!
//! A wrong or stale leader costs time, never a message: nothing here touches a partition's record.

pub mod clerk;
mod crew;
pub mod election;
#[cfg(test)]
mod election_tests;
mod membership;
pub mod moves;
mod occasion;
pub mod orders;
mod overrides;
pub mod planner;
pub mod publisher;
pub mod requests;
pub mod sessions;
pub mod slots;
mod spread;
mod takeover;
#[cfg(test)]
mod tests;
pub mod windows;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::config::Config;
use crate::ids::{Revision, Term, WorkerId};
use crate::io::{Scope, StoreOp, StoreReply, Stored, WatchEvent};
use crate::key::{Key, Prefix};
use crate::leader::clerk::Clerk;
use crate::leader::moves::Handoff;
use crate::leader::planner::{Decision, Member, Planner, Recovered};
use crate::leader::publisher::Publisher;
use crate::leader::requests::Sight;
pub use crate::leader::sessions::{Reaper, Sessions};
use crate::partition::{self, Partition};
use crate::record::{AssignmentRecord, Moves, PlanRecord, Ready, Record, SessionStatus};
use crate::session::silence::Silence;
use crate::strategy::Strategy;
use crate::text::few;
use crate::time::Time;
use crate::worker::numbers::PlanNumbers;
use crate::worker::outbox::{Outbox, Purpose};
use crate::worker::{Action, Report};

/// What only the leader watches.
pub const WATCHED: [Prefix; 2] = [Prefix::Workers, Prefix::Requests];

/// So many moves are named in one line of the history.
const MOVES_NAMED: usize = 8;

#[derive(Debug)]
enum Stage {
    /// Gathering what the predecessor left.
    Recovering {
        assignments: Option<Vec<Stored>>,
        plan: Option<Option<(Revision, Arc<PlanRecord>)>>,
        retry_at: Time,
    },
    /// Planning.
    Planning {
        planner: Box<Planner>,
        wake_at: Time,
    },
}

/// The leader machine, alive for one term.
#[derive(Debug)]
pub struct Leader {
    term: Term,
    me: WorkerId,
    ttl: Duration,
    id_ttl: Duration,
    timeout: Duration,
    config: Arc<Config>,
    strategy: Arc<dyn Strategy>,
    capacity: Option<u32>,
    /// Lives up to this one were there before it led.
    elected: Revision,
    stage: Stage,
    reaper: Reaper,
    publisher: Publisher,
    clerk: Clerk,
    sessions_changed: bool,
}

impl Leader {
    /// Won an election: starts by finding out what there is.
    pub fn begin(
        config: Arc<Config>,
        strategy: Arc<dyn Strategy>,
        capacity: Option<u32>,
        (term, elected): (Term, Revision),
        me: WorkerId,
        out: &mut Outbox,
    ) -> Self {
        for prefix in WATCHED {
            out.push(Action::Watch(Scope::Prefix(prefix)));
        }
        let timeout = config.operation_timeout;
        let leader = Self {
            term,
            me,
            ttl: config.heartbeat_ttl,
            id_ttl: config.worker_id_ttl,
            timeout,
            config,
            strategy,
            capacity,
            // The first leader of a group tells who came to it.
            elected: if term == Term(1) {
                Revision(0)
            } else {
                elected
            },
            stage: Stage::Recovering {
                assignments: None,
                plan: None,
                retry_at: Time::NEVER,
            },
            reaper: Reaper::default(),
            publisher: Publisher::new(term),
            clerk: Clerk::new(term, timeout),
            sessions_changed: true,
        };
        out.ask(
            Purpose::RecoverAssignments,
            StoreOp::List(Prefix::Assignments),
            timeout,
        );
        out.ask(Purpose::RecoverPlan, StoreOp::Read(Key::Plan), timeout);
        leader
    }

    /// For metrics.
    pub fn numbers(&self) -> PlanNumbers {
        match &self.stage {
            Stage::Recovering { .. } => PlanNumbers::default(),
            Stage::Planning { planner, .. } => planner.numbers(),
        }
    }

    /// The term under which it leads.
    pub fn term(&self) -> Term {
        self.term
    }

    /// Sessions have news.
    pub fn sessions_changed(&mut self) {
        self.sessions_changed = true;
    }

    /// The partition list is known, or changed.
    pub fn partitions_changed(&mut self, list: &Arc<[Partition]>, now: Time) {
        if let Stage::Planning { planner, wake_at } = &mut self.stage {
            planner.partitions(now, list.clone());
            *wake_at = now;
        }
    }

    /// Whether everything is as it should be, as far as the leader knows.
    pub fn is_settled(&self) -> bool {
        matches!(&self.stage, Stage::Planning { planner, .. } if planner.is_settled())
    }

    /// Who leads.
    pub fn me(&self) -> &WorkerId {
        &self.me
    }

    /// When to act next.
    pub fn next_deadline(&self, sessions: &Sessions, silence: &Silence) -> Time {
        let stage = match &self.stage {
            Stage::Recovering { retry_at, .. } => *retry_at,
            // Sessions are ended only by who knows what they held.
            Stage::Planning { wake_at, .. } => {
                let (ttl, id_ttl) = (self.ttl, self.id_ttl);
                let reaper = &self.reaper;
                reaper
                    .next_deadline(&self.me, sessions, silence, ttl, id_ttl)
                    .min(*wake_at)
            }
        };
        // Requests are judged once there is a plan; what they changed before is needed for it.
        let planning = matches!(self.stage, Stage::Planning { .. });
        let clerk = if planning || self.clerk.overrides().is_none() {
            self.clerk.next_deadline()
        } else {
            Time::NEVER
        };
        stage.min(self.publisher.next_deadline()).min(clerk)
    }

    /// Does whatever is due. A higher term that was found means that this leader is outdated.
    pub fn step(
        &mut self,
        sessions: &Sessions,
        silence: &Silence,
        partitions: Option<&Arc<[Partition]>>,
        out: &mut Outbox,
    ) -> Option<Term> {
        let now = out.now();
        if let Some(higher) = self.recover(sessions, partitions, out) {
            return Some(higher);
        }
        self.follow_operators(out);
        if let Stage::Planning { planner, wake_at } = &mut self.stage {
            if std::mem::take(&mut self.sessions_changed) {
                let list = partitions.map_or(0, |list| partition::hash(list));
                let mut members = members(sessions, self.term, &self.me, list);
                if crate::planted!(EvictionWithoutWrite) {
                    for (id, member) in &mut members {
                        if self.reaper.is_ending(id) && member.status == SessionStatus::Live {
                            member.status = SessionStatus::Evicted;
                        }
                    }
                }
                planner.members(now, &members);
                *wake_at = now;
            }
            if now >= *wake_at {
                let mut moved = Vec::new();
                for decision in planner.step(now, out.wall_ms()) {
                    match decision {
                        Decision::Publish(worker, record) => self.publisher.publish(worker, record),
                        Decision::Plan(record) => self.publisher.plan(record),
                        Decision::Forget(worker) => self.publisher.forget(worker),
                        Decision::Planned {
                            cause,
                            placed,
                            moves,
                        } => out.report(Report::Planned {
                            cause,
                            placed,
                            moves,
                        }),
                        Decision::Moved(handoff) => {
                            moved.push(handoff.clone());
                            out.report(handoff.report());
                        }
                        Decision::Trouble(trouble) => out.trouble(trouble),
                        Decision::History(kind, line) => out.tell(kind, line),
                    }
                }
                tell_moved(&moved, out);
                // A planner that is due again at once has decided all it can for now.
                *wake_at = planner.next_deadline().max(now + Duration::from_millis(1));
            }
            let named = |id: &WorkerId| {
                sessions.get(id).is_some_and(|(revision, record)| {
                    planner.still_names(id, record.incarnation_at(revision))
                })
            };
            let (ttl, id_ttl) = (self.ttl, self.id_ttl);
            self.reaper
                .step(&self.me, sessions, silence, ttl, id_ttl, named, out);
        }
        self.publisher.step(self.timeout, out);
        None
    }

    /// Lets the clerk work on requests, and the planner follow the overrides.
    fn follow_operators(&mut self, out: &mut Outbox) {
        let now = out.now();
        match &mut self.stage {
            Stage::Recovering { .. } => {
                self.clerk.step(None, out);
            }
            Stage::Planning { planner, wake_at } => {
                if let Some(overrides) = self.clerk.overrides() {
                    planner.override_by(now, overrides);
                }
                if let Some(evictions) = self.clerk.evictions() {
                    planner.evict(&evictions);
                    self.reaper.evict(evictions);
                }
                let sight = planner.has_begun().then_some(&**planner as &dyn Sight);
                if self.clerk.step(sight, out).rebalance {
                    planner.rebalance(now);
                }
                *wake_at = (*wake_at).min(planner.next_deadline().max(now));
            }
        }
    }

    /// Requests have news.
    pub fn requests_watched(&mut self, event: &WatchEvent) {
        self.clerk.watched(event);
    }

    /// What became of the clerk's look at the overrides. A higher term that was met means that this
    /// leader is outdated.
    pub fn overrides_read(&mut self, reply: StoreReply, out: &mut Outbox) -> Option<Term> {
        self.clerk.read_answered(reply, out)
    }

    /// What became of the overrides.
    pub fn overrides_written(&mut self, reply: StoreReply, out: &mut Outbox) -> Option<Term> {
        self.clerk.written(reply, out)
    }

    /// What became of answers to requests.
    pub fn requests_answered(&mut self, ids: Vec<Arc<str>>, reply: StoreReply, out: &mut Outbox) {
        self.clerk.answered(ids, reply, out);
    }

    fn recover(
        &mut self,
        sessions: &Sessions,
        partitions: Option<&Arc<[Partition]>>,
        out: &mut Outbox,
    ) -> Option<Term> {
        let now = out.now();
        let Stage::Recovering {
            assignments,
            plan,
            retry_at,
        } = &mut self.stage
        else {
            return None;
        };
        if now >= *retry_at {
            *retry_at = Time::NEVER;
            if assignments.is_none() {
                let op = StoreOp::List(Prefix::Assignments);
                out.ask(Purpose::RecoverAssignments, op, self.timeout);
            }
            if plan.is_none() {
                out.ask(Purpose::RecoverPlan, StoreOp::Read(Key::Plan), self.timeout);
            }
        }
        let (Some(found), Some(plan), Some(list)) = (&assignments, &plan, partitions) else {
            return None;
        };
        let (Some(overrides), Some(evictions)) = (self.clerk.overrides(), self.clerk.evictions())
        else {
            return None;
        };
        if !sessions.synced {
            return None;
        }
        // Workers that saw a higher term would not listen: there is another leader, or the record
        // that counts terms was lost.
        let terms = found.iter().filter_map(|stored| match &stored.record {
            Record::Assignment(record) => Some(record.term),
            _ => None,
        });
        let highest = terms
            .chain(plan.as_ref().map(|(_, record)| record.term))
            .max();
        if highest > Some(self.term) && !planted!(OldLeaderPublishes) {
            return highest;
        }
        let mut recovered: BTreeMap<WorkerId, AssignmentRecord> = BTreeMap::new();
        for stored in found {
            if let (Key::Assignment(id), Record::Assignment(record)) = (&stored.key, &stored.record)
            {
                recovered.insert(id.clone(), (**record).clone());
                self.publisher.found(stored);
            }
        }
        if let Some((revision, _)) = plan {
            self.publisher.found_plan(*revision);
        }
        let plan = plan.as_ref().map(|(_, record)| (**record).clone());
        let recovered = Recovered {
            plan,
            assignments: recovered,
            elected: self.elected,
        };
        let mut planner = Planner::new(
            &self.config,
            self.strategy.clone(),
            self.term,
            self.me.clone(),
            now,
            recovered,
        );
        planner.set_capacity(self.capacity);
        planner.override_by(now, overrides);
        planner.evict(&evictions);
        planner.partitions(now, list.clone());
        self.sessions_changed = true;
        self.stage = Stage::Planning {
            planner: Box::new(planner),
            wake_at: now,
        };
        None
    }

    /// The answer to the list of assignments.
    pub fn recovered_assignments(&mut self, reply: StoreReply, out: &mut Outbox) {
        if let Stage::Recovering {
            assignments,
            retry_at,
            ..
        } = &mut self.stage
        {
            match reply {
                StoreReply::List(Ok(found)) => *assignments = Some(found),
                _ => *retry_at = out.now() + self.config.retry.initial_delay / 4,
            }
        }
    }

    /// The answer to the read of the plan.
    pub fn recovered_plan(&mut self, reply: StoreReply, out: &mut Outbox) {
        if let Stage::Recovering { plan, retry_at, .. } = &mut self.stage {
            match reply {
                StoreReply::Read(Ok(None)) => *plan = Some(None),
                StoreReply::Read(Ok(Some(stored))) => {
                    *plan = Some(match stored.record {
                        Record::Plan(record) => Some((stored.revision, record)),
                        _ => None,
                    });
                }
                _ => *retry_at = out.now() + self.config.retry.initial_delay / 4,
            }
        }
    }

    /// What became of publications. A higher term that was met means that this leader is outdated.
    pub fn published(
        &mut self,
        keys: Vec<Key>,
        reply: StoreReply,
        out: &mut Outbox,
    ) -> Option<Term> {
        let met = self.publisher.answered(keys, reply, out);
        if let Stage::Planning { planner, wake_at } = &mut self.stage
            && planner.version_is_at_least(met.version)
        {
            *wake_at = out.now();
        }
        met.higher_term
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
        self.sessions_changed = true;
    }
}

/// For each reason one line about all its moves that ended together, which names the first few.
fn tell_moved(moved: &[Handoff], out: &mut Outbox) {
    let mut by_reason: BTreeMap<&str, Vec<&Handoff>> = BTreeMap::new();
    for handoff in moved {
        by_reason.entry(&handoff.reason).or_default().push(handoff);
    }
    for (reason, moved) in by_reason {
        let longest = |of: fn(&Handoff) -> Duration| {
            let longest = moved.iter().map(|handoff| of(handoff)).max();
            u64::try_from(longest.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
        };
        let moves = Moves {
            count: moved.len() as u64,
            reason: reason.to_owned(),
            took_ms: longest(|handoff| handoff.took),
            pause_ms: longest(|handoff| handoff.pause),
        };
        let named = moved.iter().map(|handoff| {
            let (partition, from, to) = (&handoff.partition, &handoff.from, &handoff.to);
            format!("{partition} from {from} to {to}")
        });
        let (took, pause) = (moves.took_ms, moves.pause_ms);
        let line = format!(
            "{reason}: moved {} in {took} ms, of which nobody served for up to {pause} ms",
            few(named, MOVES_NAMED)
        );
        out.tell_moves(line, moves);
    }
}

/// The sessions as the planner sees them: what they say about other terms does not count, and who
/// goes by another partition list gets nothing new until both agree.
fn members(
    sessions: &Sessions,
    term: Term,
    me: &WorkerId,
    list: u64,
) -> BTreeMap<WorkerId, Member> {
    sessions
        .iter()
        .map(|(id, revision, record)| {
            let current = record.term == term;
            let member = Member {
                incarnation: record.incarnation_at(revision),
                status: record.status,
                released: if current {
                    record.released
                } else {
                    Default::default()
                },
                applied: if current {
                    record.applied
                } else {
                    Default::default()
                },
                ready: if current {
                    record.ready.clone()
                } else {
                    Ready::default()
                },
                blocked_by: if current {
                    record.blocked_by.clone()
                } else {
                    Vec::new()
                },
                degraded: record.degraded.is_some()
                    || (id != me && record.partitions != 0 && record.partitions != list),
            };
            (id.clone(), member)
        })
        .collect()
}
