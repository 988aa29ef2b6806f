//! A tiny group around the planner: workers that obey (or do not), and rules that hold after every
//! step whatever happens.

mod changes;
mod chaos;
mod handoff;
mod limits;
mod operators;
mod reasons;
mod start;
mod takeover;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::planner::{Decision, Member, Planner, Recovered};
use crate::config::Config;
use crate::ids::{Incarnation, PartitionId, Revision, Term, Version, WorkerId};
use crate::partition::Partition;
use crate::record::{AssignmentRecord, Blocked, PlanRecord, Ready, SessionStatus};
use crate::strategy::{Answer, Input, Strategy};
use crate::time::Time;

/// Equal counts, fewest moves.
#[derive(Debug)]
pub(super) struct Even;

impl Strategy for Even {
    fn name(&self) -> String {
        "even".into()
    }

    fn assign(&self, input: Input<'_>) -> Answer {
        let (workers, partitions) = (input.workers.len(), input.partitions.len());
        let mut owners = vec![None; partitions];
        if workers == 0 {
            return Answer { owners };
        }
        let mut has = vec![0usize; workers];
        input
            .previous
            .iter()
            .flatten()
            .for_each(|&w| has[w as usize] += 1);
        let mut order: Vec<usize> = (0..workers).collect();
        order.sort_by_key(|&w| (std::cmp::Reverse(has[w]), w));
        let mut room = vec![partitions / workers; workers];
        order
            .iter()
            .take(partitions % workers)
            .for_each(|&w| room[w] += 1);
        if let Some(cap) = input.capacity {
            room.iter_mut()
                .for_each(|room| *room = (*room).min(cap as usize));
        }
        for (owner, previous) in owners.iter_mut().zip(input.previous) {
            if let Some(w) = previous.filter(|&w| room[w as usize] > 0) {
                room[w as usize] -= 1;
                *owner = Some(w);
            }
        }
        for owner in owners.iter_mut().filter(|owner| owner.is_none()) {
            if let Some(w) = (0..workers).find(|&w| room[w] > 0) {
                room[w] -= 1;
                *owner = Some(w as u32);
            }
        }
        Answer { owners }
    }
}

/// One after the other, whoever had them before.
#[derive(Debug)]
pub(super) struct Careless;

impl Strategy for Careless {
    fn name(&self) -> String {
        "careless".into()
    }

    fn assign(&self, input: Input<'_>) -> Answer {
        let workers = input.workers.len();
        let owner = |i| (workers > 0).then(|| (i % workers) as u32);
        Answer {
            owners: (0..input.partitions.len()).map(owner).collect(),
        }
    }
}

/// A worker that obeys.
#[derive(Clone, Debug)]
pub(super) struct Fake {
    member: Member,
    told: Option<AssignmentRecord>,
    held: BTreeSet<PartitionId>,
    /// Never gets ready.
    unready: bool,
    /// Never lets go.
    stubborn: bool,
}

pub(super) struct World {
    planner: Planner,
    config: Config,
    capacity: Option<u32>,
    strategy: Arc<dyn Strategy>,
    now: Time,
    term: u64,
    lives: u64,
    list: Arc<[Partition]>,
    workers: BTreeMap<WorkerId, Fake>,
    /// The store: assignments and plan as written.
    records: BTreeMap<WorkerId, AssignmentRecord>,
    plan: Option<PlanRecord>,
    /// Held though no record says so: it had left the list, its owner was slow to let go, and the
    /// leader that knew is gone. The next one cannot know.
    excused: BTreeSet<PartitionId>,
    /// How often a partition changed from one server to another.
    served_by: BTreeMap<PartitionId, WorkerId>,
    moves: usize,
}

pub(super) fn id(name: &str) -> WorkerId {
    WorkerId::new(name)
}

pub(super) fn part(name: &str, weight: u64) -> Partition {
    Partition {
        keys: vec![name.into()],
        weight,
        id: PartitionId::new(name),
    }
}

/// Partitions `p0`, `p1`, … (up to ten, so that their order is the numbers').
pub(super) fn parts(count: usize) -> Vec<Partition> {
    (0..count).map(|n| part(&format!("p{n}"), 1)).collect()
}

pub(super) const fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

impl World {
    pub fn new(config: Config, partitions: Vec<Partition>) -> Self {
        Self::with(config, partitions, Arc::new(Even), None)
    }

    pub fn with(
        config: Config,
        partitions: Vec<Partition>,
        strategy: Arc<dyn Strategy>,
        capacity: Option<u32>,
    ) -> Self {
        let now = Time(1_000_000_000);
        let planner = Planner::new(
            &config,
            strategy.clone(),
            Term(0),
            id("none"),
            now,
            Recovered::default(),
        );
        let mut world = Self {
            planner,
            config,
            capacity,
            strategy,
            now,
            term: 0,
            lives: 0,
            list: partitions.into(),
            workers: BTreeMap::new(),
            records: BTreeMap::new(),
            plan: None,
            excused: BTreeSet::new(),
            served_by: BTreeMap::new(),
            moves: 0,
        };
        world.elect("a");
        world
    }

    /// A group without windows, started with these workers and settled.
    pub fn settled(partitions: usize, workers: &[&str]) -> Self {
        let config = Config {
            settle_time: Some(secs(1)),
            ..Config::default()
        };
        let mut world = Self::new(config, parts(partitions));
        workers.iter().for_each(|worker| world.join(worker));
        world.run();
        world.pass(secs(1));
        world.run();
        assert!(world.planner.is_settled());
        world.pass(secs(60));
        world
    }

    /// Somebody (else) leads from now on.
    pub fn elect(&mut self, leader: &str) {
        self.term += 1;
        let told = |partition: &PartitionId| {
            self.records.values().any(|record| {
                let mut prepared = record.prepare.iter();
                record.serve.contains(partition) || prepared.any(|(id, _)| id == partition)
            })
        };
        let held = self.workers.values().flat_map(|fake| &fake.held);
        let unknown: Vec<_> = held.filter(|id| !told(id)).cloned().collect();
        self.excused.extend(unknown);
        let recovered = Recovered {
            plan: self.plan.clone(),
            assignments: self.records.clone(),
            elected: Revision(if self.term == 1 { 0 } else { self.lives }),
        };
        self.planner = Planner::new(
            &self.config,
            self.strategy.clone(),
            Term(self.term),
            id(leader),
            self.now,
            recovered,
        );
        self.planner.set_capacity(self.capacity);
        self.planner.partitions(self.now, self.list.clone());
    }

    pub fn join(&mut self, name: &str) {
        self.lives += 1;
        let member = Member {
            incarnation: Incarnation(self.lives),
            status: SessionStatus::Live,
            released: Version(0),
            applied: Version(0),
            ready: Ready::default(),
            blocked_by: Vec::new(),
            degraded: false,
        };
        let fake = Fake {
            member,
            told: None,
            held: BTreeSet::new(),
            unready: false,
            stubborn: false,
        };
        self.workers.insert(id(name), fake);
    }

    pub fn fake(&mut self, name: &str) -> &mut Fake {
        self.workers.get_mut(&id(name)).expect("a worker")
    }

    pub fn leave(&mut self, name: &str) {
        self.fake(name).member.status = SessionStatus::Leaving;
    }

    pub fn crash(&mut self, name: &str) {
        self.fake(name).member.status = SessionStatus::Evicted;
    }

    pub fn goodbye(&mut self, name: &str) {
        let fake = self.fake(name);
        fake.member.status = SessionStatus::Goodbye;
        fake.held.clear();
    }

    pub fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    pub fn refresh(&mut self, partitions: Vec<Partition>) {
        self.list = partitions.into();
        self.planner.partitions(self.now, self.list.clone());
    }

    /// One look at the sessions and one step; nobody obeys yet.
    pub fn step(&mut self) -> Vec<Decision> {
        let members = self
            .workers
            .iter()
            .map(|(id, fake)| (id.clone(), fake.member.clone()))
            .collect();
        self.planner.members(self.now, &members);
        let decisions = self.planner.step(self.now, self.now.0 / 1000);
        for decision in &decisions {
            self.record(decision);
        }
        self.check();
        decisions
    }

    /// One step, as text; without what is only counted.
    pub fn say(&mut self) -> Vec<String> {
        let counted = |d: &&Decision| matches!(d, Decision::Planned { .. } | Decision::Moved(_));
        let decisions = self.step();
        let told = decisions.iter().filter(|decision| !counted(decision));
        told.map(render).collect()
    }

    fn record(&mut self, decision: &Decision) {
        match decision {
            Decision::Publish(worker, record) => {
                for partition in &record.serve {
                    let holder = self.workers.iter().find(|(id, fake)| {
                        *id != worker
                            && !fake.member.status.is_over()
                            && fake.held.contains(partition)
                    });
                    if let (Some((holder, _)), false) = (holder, self.excused.contains(partition)) {
                        panic!("{partition} given to {worker} while {holder} holds it");
                    }
                    let before = self.served_by.insert(partition.clone(), worker.clone());
                    self.moves += usize::from(before.is_some_and(|before| before != *worker));
                }
                let old = self.records.insert(worker.clone(), record.clone());
                if let Some(old) = old {
                    let order = |r: &AssignmentRecord| (r.term, r.version);
                    assert!(order(record) > order(&old), "versions grow");
                }
            }
            Decision::Forget(worker) => {
                self.records.remove(worker).expect("forgets what is there");
            }
            Decision::Plan(plan) => self.plan = Some(plan.clone()),
            Decision::Planned { .. }
            | Decision::Moved(_)
            | Decision::Trouble(_)
            | Decision::History(..) => {}
        }
    }

    /// What holds after every step.
    fn check(&mut self) {
        assert_eq!(
            self.planner.step(self.now, 0),
            [],
            "a second step says nothing"
        );
        assert!(
            self.planner.next_deadline() > self.now,
            "no deadline is in the past"
        );
        let Some(plan) = &self.plan else { return };
        let alive = |id: &WorkerId, record: &AssignmentRecord| {
            self.workers.get(id).is_some_and(|fake| {
                !fake.member.status.is_over() && fake.member.incarnation == record.incarnation
            })
        };
        let mut cover: BTreeMap<&PartitionId, usize> = BTreeMap::new();
        let mut prepared: BTreeMap<&PartitionId, usize> = BTreeMap::new();
        for (_, record) in self.records.iter().filter(|(id, record)| alive(id, record)) {
            record
                .serve
                .iter()
                .for_each(|p| *cover.entry(p).or_default() += 1);
            record
                .prepare
                .iter()
                .for_each(|(p, _)| *prepared.entry(p).or_default() += 1);
            if let Some(cap) = self.capacity {
                assert!(
                    record.serve.len() + record.prepare.len() <= cap as usize,
                    "cap"
                );
            }
        }
        let mut unserved = 0;
        for partition in self.list.iter() {
            let id = &partition.id;
            let (serve, prepare) = (
                cover.remove(id).unwrap_or(0),
                prepared.remove(id).unwrap_or(0),
            );
            assert!(
                serve <= 1 && prepare <= 1,
                "{id}: served by {serve}, prepared by {prepare}"
            );
            unserved += usize::from(serve + prepare == 0);
        }
        assert!(
            cover.is_empty() && prepared.is_empty(),
            "only what is in the list"
        );
        assert_eq!(
            unserved.min(16),
            plan.unserved.len(),
            "unserved ones are listed: {plan:?}"
        );
    }

    /// Everybody does what it was told.
    pub fn obey(&mut self) {
        let names: Vec<WorkerId> = self.workers.keys().cloned().collect();
        for name in &names {
            let fake = self.workers.get_mut(name).expect("a worker");
            let Some(record) = self.records.get(name) else {
                continue;
            };
            if fake.member.status.is_over() || record.incarnation != fake.member.incarnation {
                continue;
            }
            let version = record.version;
            fake.told = Some(record.clone());
            if !fake.stubborn {
                fake.held.retain(|p| record.serve.contains(p));
                fake.member.released = version;
            }
            if !fake.unready {
                let partitions = record.prepare.iter().map(|(p, _)| p.clone()).collect();
                fake.member.ready = Ready {
                    version,
                    partitions,
                };
            }
        }
        for name in &names {
            let fake = &self.workers[name];
            let Some(told) = &fake.told else { continue };
            if fake.member.status.is_over() {
                continue;
            }
            let (version, serve) = (told.version, told.serve.clone());
            let mut blocked = Vec::new();
            for partition in serve {
                let holder = self.workers.iter().find(|(id, other)| {
                    *id != name && !other.member.status.is_over() && other.held.contains(&partition)
                });
                if let Some((owner, other)) = holder {
                    let incarnation = other.member.incarnation;
                    blocked.push(Blocked {
                        partition,
                        owner: owner.clone(),
                        incarnation,
                    });
                } else {
                    self.workers
                        .get_mut(name)
                        .expect("a worker")
                        .held
                        .insert(partition);
                }
            }
            let fake = self.workers.get_mut(name).expect("a worker");
            if blocked.is_empty() && fake.member.released >= version {
                fake.member.applied = version;
            }
            fake.member.blocked_by = blocked;
        }
    }

    /// Steps and obedience until nothing is said any more. Time stands still.
    pub fn run(&mut self) -> Vec<Decision> {
        let mut all = Vec::new();
        for _ in 0..50 {
            let decisions = self.step();
            let sessions = |world: &Self| -> Vec<Member> {
                world
                    .workers
                    .values()
                    .map(|fake| fake.member.clone())
                    .collect()
            };
            let before = sessions(self);
            self.obey();
            if decisions.is_empty() && before == sessions(self) {
                return all;
            }
            all.extend(decisions);
        }
        panic!(
            "no end in sight: {:?}",
            all.iter().map(render).collect::<Vec<_>>()
        );
    }

    /// Runs, and lets time pass from deadline to deadline, for at most this long.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.run();
            let next = self.planner.next_deadline();
            if next > end {
                self.now = end;
                break;
            }
            self.now = next;
        }
        self.run();
    }

    /// Who holds what, as text.
    pub fn held(&self) -> String {
        let mut all = Vec::new();
        for (id, fake) in &self.workers {
            if !fake.member.status.is_over() {
                let held: Vec<_> = fake.held.iter().map(ToString::to_string).collect();
                all.push(format!("{id}[{}]", held.join(" ")));
            }
        }
        all.join(" ")
    }

    pub fn plan(&self) -> &PlanRecord {
        self.plan.as_ref().expect("a plan")
    }
}

/// A decision in a line.
pub(super) fn render(decision: &Decision) -> String {
    let names = |ids: &[PartitionId]| {
        ids.iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(" ")
    };
    match decision {
        Decision::Publish(worker, record) => {
            let mut text = format!("{worker} v{} [{}]", record.version, names(&record.serve));
            for (partition, owner) in &record.prepare {
                text += &format!(" {partition}<-{owner}");
            }
            if !record.release.is_empty() {
                text += &format!(" release[{}]", names(&record.release));
            }
            if !record.added.is_empty() {
                text += &format!(" added[{}]", names(&record.added));
            }
            text
        }
        Decision::Forget(worker) => format!("forget {worker}"),
        Decision::Plan(plan) => {
            let mut text = format!(
                "plan v{} {:?} {:?}, {} moving: {}",
                plan.version, plan.lifecycle, plan.state, plan.moving, plan.reason
            );
            if !plan.added.is_empty() {
                text += &format!(" added[{}]", names(&plan.added));
            }
            text
        }
        Decision::Planned {
            cause,
            placed,
            moves,
        } => format!(
            "planned for {}: {placed} placed, {moves} moves",
            cause.name()
        ),
        Decision::Moved(handoff) => format!("moved: {handoff:?}"),
        Decision::Trouble(trouble) => format!("trouble: {trouble}"),
        Decision::History(_, line) => format!("history: {line}"),
    }
}
