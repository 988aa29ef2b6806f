//! One whole worker on a store in memory, in a group that is otherwise only records.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::Worker;
use crate::config::Config;
use crate::ids::{Incarnation, Nonce, Revision, Term, Version, WorkerId};
use crate::io::{
    Expect, Scope, SourceEvent, SourceKind, StoreOp, StoreReply, StoreRequest, Stored, WatchEvent,
    Write, WriteOutcome,
};
use crate::key::Key;
use crate::leader::election::Agent;
use crate::partition::{self, Partition};
use crate::record::{Fingerprint, LeaderRecord, Lifecycle, PlanRecord, PlanState, Record};
use crate::strategy::FairShare;
use crate::time::Time;
use crate::worker::{Action, Event, Fatal, Options};

struct Group {
    worker: Worker,
    now: Time,
    inbox: VecDeque<Event>,
    revision: u64,
    records: BTreeMap<Key, Stored>,
    watches: Vec<Scope>,
    ended: Option<Result<(), Fatal>>,
}

impl Group {
    /// A worker that is about to start, with fair share in a group with a leader.
    fn new() -> Self {
        let worker = Worker::new(Options {
            config: Config::default(),
            strategy: Arc::new(FairShare),
            source: SourceKind::Log,
            stream: 1,
            preferred: Some(0),
            agent: Agent::Store,
            seed: 1,
        });
        Self {
            worker,
            now: Time(1_000_000_000),
            inbox: VecDeque::from([Event::Start]),
            revision: 0,
            records: BTreeMap::new(),
            watches: Vec::new(),
            ended: None,
        }
    }

    fn put(&mut self, key: Key, record: Record) -> Revision {
        self.revision += 1;
        let stored = Stored {
            key: key.clone(),
            revision: Revision(self.revision),
            record,
        };
        let scope = Scope::Key(key.clone());
        if self.watches.contains(&scope) {
            let event = WatchEvent::Changed(stored.clone());
            self.inbox.push_back(Event::Watch(scope, event));
        }
        self.records.insert(key, stored);
        Revision(self.revision)
    }

    /// Another worker leads under term 3, and renews with this beat.
    fn other_leads(&mut self, beat: u64) {
        let record = LeaderRecord {
            holder: Some((WorkerId::new("worker-9"), Incarnation(1))),
            term: Term(3),
            beat,
            nonce: Nonce(0),
        };
        self.put(Key::Leader, Record::Leader(Arc::new(record)));
    }

    fn plan_by(&mut self, strategy: &str) {
        let record = PlanRecord {
            version: Version(5),
            term: Term(3),
            lifecycle: Lifecycle::Stable,
            state: PlanState::Stable,
            reason: String::new(),
            started_at: 0,
            workers: 1,
            partitions: 0,
            moving: 0,
            unserved: Vec::new(),
            added: Vec::new(),
            fingerprint: Fingerprint {
                partitions: partition::hash(&[]),
                strategy: strategy.into(),
                coordination: "leader".into(),
            },
            nonce: Nonce(0),
        };
        self.put(Key::Plan, Record::Plan(Arc::new(record)));
    }

    /// Lets time pass, from deadline to deadline.
    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.ended.is_none() {
            while let Some(event) = self.inbox.pop_front() {
                self.deliver(event);
            }
            let next = self.worker.next_deadline();
            if next > end {
                self.now = end;
                return;
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
                Action::Watch(scope) => {
                    let found = match &scope {
                        Scope::Key(key) => self.records.get(key).cloned().into_iter().collect(),
                        Scope::Prefix(prefix) => self.under(*prefix),
                    };
                    let event = WatchEvent::Snapshot(found);
                    self.inbox.push_back(Event::Watch(scope.clone(), event));
                    self.watches.push(scope);
                }
                Action::ListPartitions => {
                    let none: Arc<[Partition]> = Arc::new([]);
                    self.inbox.push_back(Event::Partitions(Ok(none)));
                }
                Action::Stopped(result) => self.ended = Some(result),
                _ => {}
            }
        }
    }

    fn under(&self, prefix: crate::key::Prefix) -> Vec<Stored> {
        let of = |stored: &&Stored| prefix.holds(&stored.key);
        self.records.values().filter(of).cloned().collect()
    }

    fn store(&mut self, request: StoreRequest) {
        let reply = match request.op {
            StoreOp::Read(key) => StoreReply::Read(Ok(self.records.get(&key).cloned())),
            StoreOp::List(prefix) => StoreReply::List(Ok(self.under(prefix))),
            StoreOp::Write(writes) => {
                StoreReply::Write(writes.into_iter().map(|write| self.write(write)).collect())
            }
        };
        self.inbox.push_back(Event::Store(request.id, reply));
    }

    fn write(&mut self, write: Write) -> WriteOutcome {
        let found = self.records.get(&write.key);
        let expected = match (write.expect, found) {
            (Expect::Absent, None) => true,
            (Expect::At(revision), Some(found)) => found.revision == revision,
            _ => false,
        };
        match write.value {
            Some(record) if expected => WriteOutcome::Done(self.put(write.key, record)),
            _ => WriteOutcome::Conflict(found.cloned()),
        }
    }
}

#[test]
fn a_living_leader_with_another_strategy_refuses_a_worker_by_name() {
    let mut group = Group::new();
    group.other_leads(1);
    group.plan_by("round_robin");
    group.run(Duration::from_millis(100));
    assert_eq!(group.ended, None, "the leader may be long gone");
    group.other_leads(2);
    group.run(Duration::from_millis(100));
    let Some(Err(Fatal::Disagreement(why))) = &group.ended else {
        panic!("{:?}", group.ended)
    };
    for part in ["strategy", "round_robin", "fair_share"] {
        assert!(why.contains(part), "{part} is missing in {why:?}");
    }
}

#[test]
fn a_group_that_was_stopped_may_come_back_with_another_strategy() {
    let mut group = Group::new();
    group.other_leads(1);
    group.plan_by("round_robin");
    group.run(Config::default().heartbeat_ttl * 3);
    assert_eq!(group.ended, None);
    assert!(group.worker.is_leader(), "nobody else does");
}

#[test]
fn a_leader_with_the_same_settings_refuses_nobody() {
    let mut group = Group::new();
    group.other_leads(1);
    group.plan_by("fair_share");
    for beat in 2..20 {
        group.run(Duration::from_secs(1));
        group.other_leads(beat);
    }
    assert_eq!(group.ended, None);
    assert!(!group.worker.is_leader());
}

#[test]
fn a_replaced_stream_ends_the_worker_by_name() {
    let mut group = Group::new();
    group.inbox.push_back(Event::Source(SourceEvent::Replaced));
    group.run(Duration::from_secs(1));
    assert_eq!(group.ended, Some(Err(Fatal::StreamReplaced)));
}
