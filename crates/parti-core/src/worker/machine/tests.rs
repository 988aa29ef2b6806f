//! One whole worker on a store in memory, in a group that is otherwise only records.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::Worker;
use crate::config::Config;
use crate::ids::{Incarnation, Nonce, Offset, PartitionId, Revision, Term, Version, WorkerId};
use crate::io::{
    Body, Expect, Message, Ran, ReadBatch, Run, Scope, SourceError, SourceEvent, SourceKind,
    SourceRequest, StoreError, StoreOp, StoreReply, StoreRequest, Stored, Then, WatchEvent, Write,
    WriteOutcome,
};
use crate::key::Key;
use crate::leader::election::Agent;
use crate::partition::{self, Partition};
use crate::record::{
    AssignmentRecord, EventKind, Fingerprint, LeaderRecord, Lifecycle, PartitionRecord, PlanRecord,
    PlanState, Record, SessionStatus, WorkerRecord,
};
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
    /// Writes to partitions fail.
    partitions_fail: bool,
    /// So many listings fail.
    listings_fail: usize,
    listed_at: Vec<Time>,
    /// What the source was asked, and the handlers.
    asked: Vec<SourceRequest>,
    runs: Vec<Run>,
    ended: Option<Result<(), Fatal>>,
}

impl Group {
    /// A worker that is about to start, with fair share in a group with a leader.
    fn new() -> Self {
        let worker = Worker::new(Options {
            config: Config::default(),
            strategy: Arc::new(FairShare),
            source: SourceKind::Log,
            stream: 1.into(),
            preferred: Some(0),
            belongs: Default::default(),
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
            partitions_fail: false,
            listings_fail: 0,
            listed_at: Vec::new(),
            asked: Vec::new(),
            runs: Vec::new(),
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
        let of = |scope: &&Scope| match scope {
            Scope::Key(watched) => *watched == key,
            Scope::Prefix(prefix) => prefix.holds(&key),
        };
        for scope in self.watches.iter().filter(of) {
            let event = WatchEvent::Changed(stored.clone());
            self.inbox.push_back(Event::Watch(scope.clone(), event));
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

    /// The leader resigns.
    fn other_resigns(&mut self) {
        let record = LeaderRecord {
            holder: None,
            term: Term(3),
            beat: 99,
            nonce: Nonce(0),
        };
        self.put(Key::Leader, Record::Leader(Arc::new(record)));
    }

    /// How the other worker fares.
    fn other_is(&mut self, status: SessionStatus) {
        let (_, mine) = self.session();
        let record = WorkerRecord {
            incarnation: Some(Incarnation(1)),
            status,
            ..mine
        };
        let key = Key::Worker(WorkerId::new("worker-9"));
        self.put(key, Record::Worker(Arc::new(record)));
    }

    /// The worker's own session.
    fn session(&self) -> (Incarnation, WorkerRecord) {
        let stored = &self.records[&Key::Worker(WorkerId::new("worker-0"))];
        match &stored.record {
            Record::Worker(record) => {
                let life = record.incarnation_at(stored.revision);
                (life, (**record).clone())
            }
            other => panic!("a session, not {other:?}"),
        }
    }

    /// A member of a group that another leads owns a partition.
    fn owning() -> Self {
        let mut group = Self::new();
        let key = Key::Partition(PartitionId::new("p"));
        group.put(key, Record::Partition(Arc::default()));
        group.told_to_serve()
    }

    /// A member of a group that another leads is told to serve a partition.
    fn told_to_serve(mut self) -> Self {
        let group = &mut self;
        group.other_leads(1);
        group.plan_by("fair_share");
        group.run(Duration::from_millis(100));
        let record = AssignmentRecord {
            version: Version(6),
            term: Term(3),
            incarnation: group.session().0,
            lifecycle: Lifecycle::Stable,
            serve: vec![PartitionId::new("p")],
            prepare: Vec::new(),
            release: Vec::new(),
            added: Vec::new(),
            nonce: Nonce(0),
        };
        let key = Key::Assignment(WorkerId::new("worker-0"));
        group.put(key, Record::Assignment(Arc::new(record)));
        group.run(Duration::from_millis(100));
        self
    }

    /// The same, and it is told to stop.
    fn stopping() -> Self {
        let mut group = Self::new().told_to_serve();
        group.inbox.push_back(Event::Stop { within: None });
        group.run(Duration::from_millis(100));
        assert_eq!(group.session().1.status, SessionStatus::Leaving);
        group
    }

    /// A member that owns a partition is in the middle of the first of two messages.
    fn handling() -> Self {
        let mut group = Self::owning();
        let read = group.asked.iter().find_map(|request| match request {
            SourceRequest::Read { ask, .. } => Some(*ask),
            _ => None,
        });
        let message = |n| Message {
            offset: Offset(n),
            key: n,
            size: 1,
            body: Body::EMPTY,
        };
        let batch = ReadBatch {
            messages: vec![message(0), message(1)],
            next: Offset(2),
            first: Offset(0),
            end: Offset(2),
        };
        let read = SourceEvent::Read {
            ask: read.expect("it asks for messages"),
            result: Ok(batch),
        };
        group.inbox.push_back(Event::Source(read));
        group.run(Duration::from_millis(1));
        assert_eq!(group.runs.len(), 1, "{:?}", group.runs);
        group
    }

    /// What the history says of trouble.
    fn troubles(&self) -> Vec<&str> {
        let texts = self
            .records
            .values()
            .filter_map(|stored| match &stored.record {
                Record::Event(event) if event.kind == EventKind::Trouble => {
                    Some(event.text.as_str())
                }
                _ => None,
            });
        texts.collect()
    }

    /// All reads that are not answered yet end like this.
    fn reads_end(&mut self, result: &Result<ReadBatch, SourceError>) {
        for request in std::mem::take(&mut self.asked) {
            if let SourceRequest::Read { ask, .. } = request {
                let result = result.clone();
                let read = SourceEvent::Read { ask, result };
                self.inbox.push_back(Event::Source(read));
            }
        }
    }

    /// It is told to stop, and has all the time that it gets for that.
    fn stopped(&mut self) -> Option<Result<(), Fatal>> {
        self.inbox.push_back(Event::Stop { within: None });
        self.run(Config::default().shutdown_timeout);
        self.ended.clone()
    }

    /// The record of the partition.
    fn partition(&self) -> PartitionRecord {
        match &self.records[&Key::Partition(PartitionId::new("p"))].record {
            Record::Partition(record) => (**record).clone(),
            other => panic!("a partition, not {other:?}"),
        }
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
                    let fails = self.listed_at.len() < self.listings_fail;
                    self.listed_at.push(self.now);
                    let result = if fails { Err("no".into()) } else { Ok(none) };
                    self.inbox.push_back(Event::Partitions(result));
                }
                Action::Source(request) => self.asked.push(request),
                Action::Handle(run) => self.runs.push(run),
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
        if self.partitions_fail && matches!(write.key, Key::Partition(_)) {
            return WriteOutcome::Failed(StoreError::Unavailable);
        }
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
fn a_stopping_worker_waits_for_relief_while_somebody_leads() {
    let mut group = Group::stopping();
    let half = Config::default().shutdown_timeout / 2;
    for beat in 2..12 {
        group.other_leads(beat);
        group.run(half / 10);
    }
    assert_eq!(group.ended, None);
}

#[test]
fn when_everybody_stops_nobody_is_waited_for() {
    let mut group = Group::stopping();
    group.other_is(SessionStatus::Live);
    group.other_resigns();
    group.run(Config::default().heartbeat_interval / 2);
    assert_eq!(group.ended, None, "the other may still stand");
    group.other_is(SessionStatus::Leaving);
    group.run(Duration::from_millis(1));
    assert_eq!(group.ended, Some(Ok(())));
    assert_eq!(group.session().1.status, SessionStatus::Goodbye);
}

#[test]
fn a_call_that_outlasts_the_stop_is_named_though_all_is_released() {
    let mut group = Group::handling();
    let late = Fatal::StopTimedOut {
        cut_off: vec![(PartitionId::new("p"), Offset(0))],
        not_released: 0,
    };
    let told = late.to_string();
    for part in [
        "1 message,",
        "partition p offset 0",
        "raise shutdown_timeout",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(!told.contains("not released"), "{told}");
    assert_eq!(group.stopped(), Some(Err(late)));
    assert_eq!(group.session().1.status, SessionStatus::Goodbye);
    let left = group.partition();
    assert_eq!((left.owner, left.offset), (None, None));
}

#[test]
fn a_call_that_outlasts_the_stop_is_named_also_where_nothing_can_be_released() {
    let mut group = Group::handling();
    group.partitions_fail = true;
    let late = Fatal::StopTimedOut {
        cut_off: vec![(PartitionId::new("p"), Offset(0))],
        not_released: 1,
    };
    let told = late.to_string();
    for part in ["partition p offset 0", "with 1 partition not released"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert_eq!(group.stopped(), Some(Err(late)));
}

#[test]
fn a_stop_whose_calls_end_in_time_says_nothing() {
    let mut group = Group::handling();
    let run = group.runs.remove(0);
    group.inbox.push_back(Event::Stop { within: None });
    group.run(Config::default().shutdown_timeout / 2);
    assert_eq!(group.ended, None, "it waits for the call");
    let ran = Ran {
        first: Offset(0),
        done: 2,
        then: Then::Ended,
    };
    group.inbox.push_back(Event::Handled {
        partition: run.partition,
        epoch: run.epoch,
        ran,
    });
    group.run(Config::default().shutdown_timeout / 2);
    assert_eq!(group.ended, Some(Ok(())));
    assert_eq!(group.partition().offset, Some(Offset(1)));
}

#[test]
fn a_successor_who_never_comes_is_waited_for_one_heartbeat() {
    let mut group = Group::stopping();
    group.other_is(SessionStatus::Live);
    group.other_resigns();
    group.run(Config::default().heartbeat_interval);
    assert_eq!(group.ended, Some(Ok(())));
}

#[test]
fn a_successor_is_worth_waiting_for() {
    let mut group = Group::stopping();
    group.other_is(SessionStatus::Live);
    group.other_resigns();
    group.run(Config::default().heartbeat_interval / 2);
    group.other_leads(100);
    group.run(Config::default().heartbeat_interval);
    assert_eq!(group.ended, None);
}

#[test]
fn a_listing_that_fails_is_tried_again_after_growing_waits() {
    let mut group = Group::new();
    group.listings_fail = 8;
    group.run(Duration::from_secs(300));
    let waits = group.listed_at.windows(2);
    let waits: Vec<u64> = waits.map(|at| at[1].since(at[0]).as_secs()).collect();
    assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30, 30]);
}

#[test]
fn a_replaced_stream_ends_the_worker_by_name() {
    let mut group = Group::new();
    group.inbox.push_back(Event::Source(SourceEvent::Replaced));
    group.run(Duration::from_secs(1));
    assert_eq!(group.ended, Some(Err(Fatal::StreamReplaced)));
}

#[test]
fn what_the_source_refuses_is_in_the_history_once_and_that_it_does_no_more() {
    let mut group = Group::owning();
    let gone = Err(SourceError::Rejected("it is gone".into()));
    for beat in 2..120 {
        group.reads_end(&gone);
        group.run(Duration::from_secs(1));
        group.other_leads(beat);
    }
    let why = "partition p cannot be read: the source refuses: it is gone";
    assert_eq!(group.troubles(), [why]);
    assert_eq!(group.worker.source_refuses().as_deref(), Some(why));
    let nothing = ReadBatch {
        messages: Vec::new(),
        next: Offset(0),
        first: Offset(0),
        end: Offset(0),
    };
    for beat in 120..160 {
        group.reads_end(&Ok(nothing.clone()));
        group.run(Duration::from_secs(1));
        group.other_leads(beat);
    }
    let over = "the source refuses nothing any more";
    assert_eq!(group.troubles(), [why, over]);
    assert_eq!(group.worker.source_refuses(), None);
}

#[test]
fn whoever_was_still_finds_out_that_a_partition_is_not_its_own_any_more() {
    let mut group = Group::owning();
    let before = group.partition();
    let me = before.owner.clone();
    assert!(me.is_some());
    // It stands still. Nobody ends its session, and an operator writes over it.
    group.now = group.now + 2 * Config::default().heartbeat_ttl;
    let forced = PartitionRecord {
        epoch: before.epoch.next(),
        owner: None,
        ..before.clone()
    };
    let key = Key::Partition(PartitionId::new("p"));
    group.put(key, Record::Partition(Arc::new(forced)));
    group.other_leads(2);
    group.run(Duration::from_millis(500));
    let now = group.partition();
    assert_eq!(now.owner, me, "nothing arrived, and it is served again");
    assert_eq!(now.epoch, before.epoch.next().next());
}

#[test]
fn a_lease_that_came_back_counts_once_all_is_confirmed() {
    let mut group = Group::owning();
    let before = group.partition();
    group.now = group.now + 2 * Config::default().heartbeat_ttl;
    group.other_leads(2);
    group.partitions_fail = true;
    group.run(Duration::from_millis(500));
    assert_eq!(group.worker.lease_until(), Time::ZERO);
    group.partitions_fail = false;
    group.run(Duration::from_secs(1));
    assert!(group.worker.lease_until() > group.now);
    let now = group.partition();
    assert_eq!((now.epoch, &now.owner), (before.epoch, &before.owner));
    assert_ne!(now.nonce, before.nonce, "it was written");
}
