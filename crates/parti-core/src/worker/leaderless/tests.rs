//! One real worker among peers that are only records, on a store in memory.
//!
//! Two members deal partitions out in turn (`p0` to worker-0, `p1` to worker-1, …), and the real
//! one is worker-0.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::config::{Config, Coordination};
use crate::ids::{Incarnation, Nonce, Offset, PartitionId, Revision, Term, Version, WorkerId};
use crate::io::{
    Bounds, ConsumerState, Expect, ReadBatch, Retention, Scope, SourceError, SourceEvent,
    SourceKind, SourceRequest, StoreOp, StoreReply, StoreRequest, Stored, WatchEvent, Write,
    WriteOutcome,
};
use crate::key::Key;
use crate::leader::election::Agent;
use crate::partition::Partition;
use crate::record::{
    Blocked, OverridesRecord, PartitionRecord, Ready, Record, SessionStatus, WorkerRecord,
};
use crate::strategy::RoundRobin;
use crate::time::Time;
use crate::worker::{Action, Event, Options, Report, Trouble, Worker};

const SECOND: Duration = Duration::from_secs(1);
/// More than the claim interval: a look around was made.
const LOOK: Duration = Duration::from_secs(4);

struct Group {
    worker: Worker,
    now: Time,
    inbox: VecDeque<Event>,
    revision: u64,
    records: BTreeMap<Key, Stored>,
    watches: Vec<Scope>,
    partitions: Arc<[Partition]>,
    /// Fake peers that renew their sessions.
    beating: Vec<WorkerId>,
    source_fails: bool,
    troubles: Vec<Trouble>,
    watches_are_mute: bool,
    /// Whoever begins to watch the overrides is shown how things were before anything was decided.
    watches_lag: bool,
}

fn id(name: &str) -> WorkerId {
    WorkerId::new(name)
}

fn part(name: &str) -> PartitionId {
    PartitionId::new(name)
}

impl Group {
    fn new(partitions: usize, source: SourceKind, cap: u32) -> Self {
        let mut config = Config {
            coordination: Coordination::Leaderless,
            ..Config::default()
        };
        config.jetstream.subject_cap = cap;
        let worker = Worker::new(Options {
            config,
            strategy: Arc::new(RoundRobin),
            source,
            stream: 1.into(),
            preferred: Some(0),
            belongs: Default::default(),
            agent: Agent::Store,
            seed: 1,
        });
        let partitions = (0..partitions).map(|n| Partition {
            keys: vec![format!("p{n}")],
            weight: 1,
            id: part(&format!("p{n}")),
        });
        let mut group = Self {
            worker,
            now: Time(1_000_000_000),
            inbox: VecDeque::new(),
            revision: 0,
            records: BTreeMap::new(),
            watches: Vec::new(),
            partitions: partitions.collect(),
            beating: Vec::new(),
            source_fails: false,
            troubles: Vec::new(),
            watches_are_mute: false,
            watches_lag: false,
        };
        group.inbox.push_back(Event::Start);
        group
    }

    /// A group of the real worker alone, at rest.
    fn alone(partitions: usize) -> Self {
        let mut group = Self::new(partitions, SourceKind::Log, 500);
        group.run(SECOND);
        group
    }

    /// A peer joins, as a record; it renews its session from now on.
    fn peer(&mut self, name: &str) {
        self.beating.push(id(name));
        self.change(name, |_| ());
    }

    /// A peer says something else.
    fn change(&mut self, name: &str, change: impl Fn(&mut WorkerRecord)) {
        let key = Key::Worker(id(name));
        let mut record = match self.records.get(&key).map(|stored| &stored.record) {
            Some(Record::Worker(record)) => (**record).clone(),
            _ => WorkerRecord {
                incarnation: Some(Incarnation(self.revision + 1)),
                beat: 0,
                status: SessionStatus::Live,
                state: 4,
                term: Term(0),
                released: Version(0),
                applied: Version(0),
                ready: Ready::default(),
                blocked_by: Vec::new(),
                load: 0,
                degraded: None,
                partitions: 0,
                heeds: Revision(0),
                renewed_at: 0,
                badge: None,
                nonce: Nonce(0),
            },
        };
        record.beat += 1;
        change(&mut record);
        self.put(key, Record::Worker(Arc::new(record)));
    }

    fn session(&self, name: &str) -> WorkerRecord {
        match self.records.get(&Key::Worker(id(name))).map(|s| &s.record) {
            Some(Record::Worker(record)) => (**record).clone(),
            other => panic!("{name} has {other:?}"),
        }
    }

    /// A peer takes a partition that nobody has.
    fn take(&mut self, name: &str, partition: &str) {
        let life = self.session(name).incarnation.expect("a life");
        let key = Key::Partition(part(partition));
        let mut record = match self.records.get(&key).map(|stored| &stored.record) {
            Some(Record::Partition(record)) => (**record).clone(),
            _ => PartitionRecord::default(),
        };
        assert_eq!(record.owner, None, "{partition} is free");
        record.epoch = record.epoch.next();
        record.owner = Some((id(name), life));
        self.put(key, Record::Partition(Arc::new(record)));
    }

    fn put(&mut self, key: Key, record: Record) -> Revision {
        self.revision += 1;
        let revision = Revision(self.revision);
        let stored = Stored {
            key: key.clone(),
            revision,
            record,
        };
        for scope in &self.watches {
            if covers(scope, &key) {
                let event = WatchEvent::Changed(stored.clone());
                self.inbox.push_back(Event::Watch(scope.clone(), event));
            }
        }
        self.records.insert(key, stored);
        revision
    }

    /// Lets time pass, from deadline to deadline; beating peers renew every half second.
    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            for steps in 0.. {
                let Some(event) = self.inbox.pop_front() else {
                    break;
                };
                assert!(steps < 10_000, "no end in sight");
                self.deliver(event);
            }
            let next = self.worker.next_deadline().min(self.now + SECOND / 2);
            if next > end {
                self.now = end;
                return;
            }
            if next >= self.now + SECOND / 2 {
                for name in self.beating.clone() {
                    self.change(name.as_str(), |_| ());
                }
            }
            self.now = next;
            self.inbox.push_back(Event::Tick);
        }
    }

    fn deliver(&mut self, event: Event) {
        let mut actions = Vec::new();
        self.worker.handle(self.now, event, &mut actions);
        for action in actions {
            match action {
                Action::Store(request) => self.store(request),
                Action::Watch(_) if self.watches_are_mute => {}
                Action::Watch(Scope::Key(Key::Overrides)) if self.watches_lag => {
                    let (scope, nothing) = (Scope::Key(Key::Overrides), Vec::new());
                    let event = Event::Watch(scope, WatchEvent::Snapshot(nothing));
                    self.inbox.push_back(event);
                }
                Action::Watch(scope) => {
                    let found = self.records.values().filter(|s| covers(&scope, &s.key));
                    let snapshot = WatchEvent::Snapshot(found.cloned().collect());
                    self.inbox.push_back(Event::Watch(scope.clone(), snapshot));
                    self.watches.retain(|watch| *watch != scope);
                    self.watches.push(scope);
                }
                Action::ListPartitions => {
                    let list = self.partitions.clone();
                    self.inbox.push_back(Event::Partitions(Ok(list)));
                }
                Action::Source(request) => self.source(request),
                Action::Stopped(result) => result.expect("no reason to end"),
                Action::Report(Report::Trouble(trouble)) => self.troubles.push(trouble),
                Action::Unwatch(_)
                | Action::Handle(_)
                | Action::Halt(_)
                | Action::Committed(..)
                | Action::Report(_) => {}
            }
        }
    }

    fn store(&mut self, request: StoreRequest) {
        let reply = match request.op {
            StoreOp::Read(key) => StoreReply::Read(Ok(self.records.get(&key).cloned())),
            StoreOp::List(prefix) => {
                let found = self.records.values().filter(|s| prefix.holds(&s.key));
                StoreReply::List(Ok(found.cloned().collect()))
            }
            StoreOp::Write(writes) => {
                StoreReply::Write(writes.into_iter().map(|w| self.write(w)).collect())
            }
        };
        self.inbox.push_back(Event::Store(request.id, reply));
    }

    fn write(&mut self, write: Write) -> WriteOutcome {
        let found = self.records.get(&write.key);
        let expected = match write.expect {
            Expect::Absent => found.is_none(),
            Expect::At(revision) => found.is_some_and(|found| found.revision == revision),
        };
        if !expected {
            return WriteOutcome::Conflict(found.cloned());
        }
        let record = write
            .value
            .expect("a worker without a leader deletes nothing");
        WriteOutcome::Done(self.put(write.key, record))
    }

    /// An empty log, or a consumer that is as wanted; or neither.
    fn source(&mut self, request: SourceRequest) {
        let trouble = || SourceError::Unavailable("down".into());
        let event = match request {
            SourceRequest::Resolve { ask, .. } => SourceEvent::Resolved {
                ask,
                result: Ok(Offset(1)),
            },
            SourceRequest::Read { ask, from, .. } => {
                let batch = ReadBatch {
                    messages: Vec::new(),
                    next: from,
                    first: Offset(1),
                    end: from,
                };
                let result = Ok(batch);
                SourceEvent::Read { ask, result }
            }
            SourceRequest::Bounds { ask } => SourceEvent::Bounds {
                ask,
                result: Ok(Bounds {
                    first: Offset(1),
                    last: Offset(0),
                }),
            },
            SourceRequest::UpdateConsumer { ask, .. }
            | SourceRequest::DeleteConsumer { ask }
            | SourceRequest::ResetConsumer { ask }
            | SourceRequest::InspectConsumer { ask, .. } => {
                let state = ConsumerState {
                    identity: 1,
                    delivered: 0,
                    as_wanted: true,
                };
                let result = if self.source_fails {
                    Err(trouble())
                } else {
                    Ok(state)
                };
                SourceEvent::Consumer { ask, result }
            }
            _ => return,
        };
        self.inbox.push_back(Event::Source(event));
    }

    /// Partitions that it sees served by nobody, those of them over cap, and those that are paused.
    fn unserved(&self) -> (u64, u64, u64) {
        let seen = self.worker.numbers().plan.expect("it has a lease");
        (seen.unserved, seen.over_cap, seen.paused)
    }

    /// The lines of the group's history.
    fn history(&self) -> Vec<&str> {
        let records = self.records.values();
        records
            .filter_map(|stored| match &stored.record {
                Record::Event(event) => Some(event.text.as_str()),
                _ => None,
            })
            .collect()
    }

    fn held(&self) -> String {
        let held: Vec<_> = self.worker.held().map(ToString::to_string).collect();
        held.join(" ")
    }
}

fn covers(scope: &Scope, key: &Key) -> bool {
    match scope {
        Scope::Key(wanted) => wanted == key,
        Scope::Prefix(prefix) => prefix.holds(key),
    }
}

#[test]
fn a_worker_that_joins_goes_by_no_old_view_of_what_is_paused() {
    let mut group = Group::new(2, SourceKind::Log, 500);
    let paused = OverridesRecord {
        paused: vec![part("p0")],
        ..OverridesRecord::default()
    };
    let at = group.put(Key::Overrides, Record::Overrides(Arc::new(paused)));
    group.watches_lag = true;
    group.run(SECOND);
    assert_eq!(
        group.held(),
        "p1",
        "the store knows better than its replicas"
    );
    assert_eq!(group.session("worker-0").heeds, at);
}

#[test]
fn a_pause_moves_nothing_else() {
    let mut group = Group::alone(4);
    group.peer("worker-1");
    group.run(SECOND / 10);
    assert_eq!(group.held(), "p0 p2");
    group.take("worker-1", "p1");
    group.take("worker-1", "p3");
    let mut decided = OverridesRecord::default();
    for (paused, held) in [(true, "p2"), (false, "p0 p2")] {
        if paused {
            decided.pause(&part("p0"));
        } else {
            decided.resume(&part("p0"));
        }
        let record = Record::Overrides(Arc::new(decided.clone()));
        group.put(Key::Overrides, record);
        group.run(LOOK);
        assert_eq!(group.held(), held);
        let paused = u64::from(paused);
        assert_eq!(group.unserved(), (paused, 0, paused));
    }
}

#[test]
fn one_alone_takes_everything() {
    let group = Group::alone(4);
    assert_eq!(group.held(), "p0 p1 p2 p3");
    assert_eq!(group.unserved(), (0, 0, 0), "free, but not for long");
}

#[test]
fn a_joiner_gets_its_share_and_what_it_leaves_comes_back() {
    let mut group = Group::alone(4);
    group.peer("worker-1");
    group.run(SECOND / 10);
    assert_eq!(group.held(), "p0 p2", "the surplus is released at once");
    group.take("worker-1", "p1");
    group.take("worker-1", "p3");
    group.run(LOOK * 3);
    assert_eq!(group.held(), "p0 p2", "what others own is left alone");
    group.beating.clear();
    for partition in ["p1", "p3"] {
        let key = Key::Partition(part(partition));
        let mut record = match &group.records[&key].record {
            Record::Partition(record) => (**record).clone(),
            other => panic!("{other:?}"),
        };
        record.owner = None;
        group.put(key, Record::Partition(Arc::new(record)));
    }
    group.change("worker-1", |session| {
        session.status = SessionStatus::Goodbye
    });
    group.run(LOOK);
    assert_eq!(group.held(), "p0 p1 p2 p3");
}

#[test]
fn a_silent_peer_is_ended_after_its_lease_and_its_partitions_are_seized() {
    let mut group = Group::alone(4);
    group.peer("worker-1");
    group.run(SECOND / 10);
    group.take("worker-1", "p1");
    group.take("worker-1", "p3");
    group.run(LOOK);
    group.beating.clear();
    group.run(SECOND * 4);
    assert_eq!(group.session("worker-1").status, SessionStatus::Live);
    assert_eq!(group.held(), "p0 p2", "not before its lease is over");
    group.run(SECOND * 2);
    assert_eq!(group.session("worker-1").status, SessionStatus::Evicted);
    group.run(LOOK);
    assert_eq!(group.held(), "p0 p1 p2 p3");
}

#[test]
fn each_tells_of_its_own_coming_and_going_and_of_the_dead_whose_partitions_it_takes() {
    let mut group = Group::alone(4);
    group.peer("worker-1");
    group.run(SECOND / 10);
    group.take("worker-1", "p1");
    group.take("worker-1", "p3");
    group.run(LOOK);
    group.beating.clear();
    group.run(SECOND * 6 + LOOK);
    assert_eq!(group.held(), "p0 p1 p2 p3");
    group.inbox.push_back(Event::Stop { within: None });
    group.run(SECOND);
    assert_eq!(
        group.history(),
        [
            "worker-0 joined",
            "worker-1 was silent, its session is over",
            "worker-0 took 2 partitions of worker-1, whose session is over: p1, p3",
            "worker-0 leaves",
        ]
    );
}

#[test]
fn what_its_target_does_not_take_is_served_by_a_stand_in_until_it_asks() {
    let mut group = Group::alone(4);
    group.peer("worker-1");
    group.run(SECOND * 3);
    assert_eq!(group.held(), "p0 p2", "their owner may still come");
    assert_eq!(group.unserved(), (2, 0, 0), "though nobody has them");
    group.run(LOOK * 3);
    assert_eq!(group.held(), "p0 p1 p2 p3", "better by anyone than by none");
    assert_eq!(group.unserved(), (0, 0, 0));
    let me = group.session("worker-0").incarnation.expect("a life");
    let blocked = Blocked {
        partition: part("p1"),
        owner: id("worker-0"),
        incarnation: me,
    };
    group.change("worker-1", |session| {
        session.blocked_by.push(blocked.clone())
    });
    group.run(SECOND / 10);
    assert_eq!(group.held(), "p0 p2 p3", "only what it asked for");
    group.take("worker-1", "p1");
    group.change("worker-1", |session| session.blocked_by.clear());
    group.run(LOOK * 3);
    assert_eq!(group.held(), "p0 p2 p3");
}

#[test]
fn a_stand_in_gives_nothing_to_who_would_merely_stand_in_too() {
    let mut group = Group::alone(3);
    group.peer("worker-1");
    group.peer("worker-2");
    group.run(LOOK * 5);
    assert_eq!(group.held(), "p0 p1 p2");
    let blocked = Blocked {
        partition: part("p1"),
        owner: id("worker-0"),
        incarnation: group.session("worker-0").incarnation.expect("a life"),
    };
    group.change("worker-2", |session| {
        session.blocked_by.push(blocked.clone())
    });
    group.run(SECOND);
    assert_eq!(group.held(), "p0 p1 p2", "p1 is meant for worker-1");
}

#[test]
fn a_degraded_peer_counts_as_none() {
    let mut group = Group::alone(4);
    group.peer("worker-1");
    group.run(SECOND / 10);
    assert_eq!(group.held(), "p0 p2");
    group.change("worker-1", |session| session.degraded = Some("ill".into()));
    group.run(LOOK);
    assert_eq!(group.held(), "p0 p1 p2 p3");
}

#[test]
fn a_degraded_worker_leaves_the_membership_and_comes_back() {
    let mut group = Group::new(2, SourceKind::Stream(Retention::Limits), 500);
    group.run(SECOND);
    assert_eq!(group.held(), "p0 p1");
    group.peer("worker-1");
    group.run(SECOND / 10);
    assert_eq!(group.held(), "p0");
    group.source_fails = true;
    // Its consumer must change, and does not: p1 is to be served here too.
    group.change("worker-1", |session| session.degraded = Some("ill".into()));
    group.run(SECOND * 60);
    assert!(group.session("worker-0").degraded.is_some());
    assert_eq!(group.held(), "");
    group.source_fails = false;
    group.run(SECOND * 60);
    assert_eq!(group.session("worker-0").degraded, None);
    assert_eq!(group.held(), "p0 p1");
}

#[test]
fn nobody_stands_in_beyond_its_capacity() {
    let mut group = Group::new(6, SourceKind::Stream(Retention::Limits), 3);
    group.run(LOOK * 10);
    assert_eq!(group.held(), "p0 p1 p2", "the rest has to wait for others");
    assert_eq!(group.session("worker-0").degraded, None);
    let over_cap = |partitions| Trouble::OverCap { partitions, cap: 3 };
    assert_eq!(group.troubles, [over_cap(3)], "said once");
    assert_eq!(group.unserved(), (3, 3, 0));
    group.peer("worker-1");
    group.run(SECOND);
    assert_eq!(group.held(), "p0 p2 p4", "p4 waits until p1 is released");
    assert_eq!(group.session("worker-0").degraded, None);
    group.beating.clear();
    group.run(LOOK * 10);
    assert_eq!(group.held(), "p0 p1 p2");
    assert_eq!(group.troubles, [over_cap(3), over_cap(3)], "and again");
}

#[test]
fn nothing_is_due_before_the_members_are_known() {
    let mut group = Group::new(1, SourceKind::Log, 500);
    group.watches_are_mute = true;
    group.run(SECOND);
    let deadline = group.worker.next_deadline();
    assert!(deadline > group.now + SECOND / 10, "it does not spin");
    assert_eq!(group.held(), "");
}
