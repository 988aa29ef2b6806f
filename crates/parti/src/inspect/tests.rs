//! Groups as they are shown, from records written by hand.

use std::collections::BTreeMap;
use std::sync::Arc;

use parti_core::ids::{
    Epoch, Incarnation, Nonce, Offset, PartitionId, Revision, SourceId, Term, Version, WorkerId,
};
use parti_core::io::{Expect, Write, WriteOutcome};
use parti_core::key::Key;
use parti_core::record::{
    AssignmentRecord, GroupRecord, LeaderRecord, Lifecycle, Outcome, OverridesRecord,
    PartitionRecord, Ready, Record, Request, RequestRecord, SessionStatus, WorkerRecord,
};

use super::*;
use crate::store::Memory;

/// A group whose records a test writes.
pub(crate) struct Desk {
    pub store: GroupStore,
}

pub(crate) fn worker(name: &str) -> WorkerId {
    WorkerId::new(name)
}

pub(crate) fn partition(name: &str) -> PartitionId {
    PartitionId::new(name)
}

impl Desk {
    pub fn new() -> Self {
        let store = GroupStore::new(Arc::new(Memory::new()), "g").expect("a name");
        Self { store }
    }

    /// Writes over whatever is there.
    pub async fn put(&self, key: Key, record: Record) -> Revision {
        let found = self.store.read(&key).await.expect("readable");
        let write = Write {
            key,
            expect: found.map_or(Expect::Absent, |stored| Expect::At(stored.revision)),
            value: Some(record),
        };
        match self.store.write(&[write]).await.pop() {
            Some(WriteOutcome::Done(revision)) => revision,
            other => panic!("not written: {other:?}"),
        }
    }

    pub async fn group(&self) {
        self.group_of("leader").await;
    }

    pub async fn group_of(&self, coordination: &str) {
        self.group_with(coordination, 7.into()).await;
    }

    pub async fn group_with(&self, coordination: &str, stream: SourceId) {
        let group = GroupRecord {
            store: Nonce(1),
            stream,
            coordination: coordination.into(),
            strategy: None,
            nonce: Nonce(1),
        };
        self.put(Key::Group, Record::Group(Arc::new(group))).await;
    }

    /// A session in its first life; answers which life that is.
    pub async fn session(&self, name: &str, status: SessionStatus) -> Incarnation {
        let claim = self.renew(name, None, status, 0).await;
        Incarnation(claim.0)
    }

    pub async fn renew(
        &self,
        name: &str,
        life: Option<Incarnation>,
        status: SessionStatus,
        beat: u64,
    ) -> Revision {
        let record = WorkerRecord {
            incarnation: life,
            beat,
            status,
            state: 4,
            term: Term(1),
            released: Version(1),
            applied: Version(1),
            ready: Ready {
                version: Version(2),
                partitions: vec![partition("2")],
            },
            blocked_by: Vec::new(),
            load: 0,
            degraded: None,
            partitions: 0,
            heeds: Revision(0),
            renewed_at: 1_000 + beat,
            badge: None,
            nonce: Nonce(beat),
        };
        let key = Key::Worker(worker(name));
        self.put(key, Record::Worker(Arc::new(record))).await
    }

    pub async fn owned(&self, id: &str, owner: Option<(&str, Incarnation)>, offset: Option<u64>) {
        let record = PartitionRecord {
            epoch: Epoch(3),
            owner: owner.map(|(name, life)| (worker(name), life)),
            start: Offset(0),
            offset: offset.map(Offset),
            claimed_at: 10,
            updated_at: 20,
            ..PartitionRecord::default()
        };
        let key = Key::Partition(partition(id));
        self.put(key, Record::Partition(Arc::new(record))).await;
    }

    pub async fn told(
        &self,
        name: &str,
        life: Incarnation,
        serve: &[&str],
        prepare: &[(&str, &str)],
    ) {
        let prepare = prepare.iter();
        let record = AssignmentRecord {
            version: Version(2),
            term: Term(1),
            incarnation: life,
            lifecycle: Lifecycle::Stable,
            serve: serve.iter().map(|id| partition(id)).collect(),
            prepare: prepare
                .map(|(id, of)| (partition(id), worker(of)))
                .collect(),
            release: Vec::new(),
            added: Vec::new(),
            nonce: Nonce(0),
        };
        let key = Key::Assignment(worker(name));
        self.put(key, Record::Assignment(Arc::new(record))).await;
    }

    /// What operators decided changes.
    pub async fn decide(&self, change: impl FnOnce(&mut OverridesRecord)) {
        let found = self.store.read(&Key::Overrides).await.expect("readable");
        let mut overrides = match found.map(|stored| stored.record) {
            Some(Record::Overrides(record)) => (*record).clone(),
            _ => OverridesRecord::default(),
        };
        change(&mut overrides);
        let record = Record::Overrides(Arc::new(overrides));
        self.put(Key::Overrides, record).await;
    }

    pub async fn seen(&self) -> Group {
        let group = group(&self.store).await.expect("readable");
        group.expect("there is a group")
    }
}

#[tokio::test]
async fn without_its_own_record_there_is_no_group() {
    let desk = Desk::new();
    desk.owned("0", None, None).await;
    assert_eq!(group(&desk.store).await, Ok(None));
    let waits = waiting(&desk.store).await.expect("readable");
    assert_eq!(
        waits.expect("a checkpoint").partition_ids(),
        [partition("0")]
    );
    desk.group().await;
    assert_eq!(desk.seen().await.partitions.len(), 1);
    assert_eq!(waiting(&desk.store).await, Ok(None), "it is there");
}

#[tokio::test]
async fn workers_say_how_they_are_and_when_they_last_said_so() {
    let desk = Desk::new();
    desk.group().await;
    let a = desk.session("worker-0", SessionStatus::Live).await;
    desk.renew("worker-0", Some(a), SessionStatus::Live, 5)
        .await;
    desk.session("worker-1", SessionStatus::Evicted).await;
    desk.session("worker-2", SessionStatus::Free).await;
    desk.owned("0", Some(("worker-0", a)), Some(4)).await;
    desk.told("worker-0", a, &["0", "1"], &[]).await;
    let leader = LeaderRecord {
        holder: Some((worker("worker-0"), a)),
        term: Term(9),
        beat: 1,
        nonce: Nonce(0),
    };
    desk.put(Key::Leader, Record::Leader(Arc::new(leader)))
        .await;
    let seen = desk.seen().await;
    assert_eq!(
        (seen.leader, seen.term),
        (Some(worker("worker-0")), Some(Term(9)))
    );
    let [first, second] = &seen.workers[..] else {
        panic!("a free id is nobody's: {:?}", seen.workers)
    };
    assert_eq!((first.owns, first.serve, first.leader), (1, Some(2), true));
    assert_eq!((first.renewed_ms, first.incarnation), (Some(1_005), a));
    assert_eq!(first.silent_ms(3_005), Some(2_000));
    assert_eq!(first.silent_ms(1_000), None, "clocks differ");
    assert_eq!(
        (second.status, second.leader),
        (SessionStatus::Evicted, false)
    );
}

#[tokio::test]
async fn partitions_have_their_owner_its_session_and_their_lag() {
    let desk = Desk::new();
    desk.group().await;
    let a = desk.session("worker-0", SessionStatus::Live).await;
    let old = Incarnation(a.0 - 1);
    let b = desk.session("worker-1", SessionStatus::Goodbye).await;
    desk.owned("10", Some(("worker-0", a)), Some(4)).await;
    desk.owned("2", Some(("worker-0", old)), None).await;
    desk.owned("3", Some(("worker-1", b)), None).await;
    desk.owned("4", Some(("worker-9", b)), None).await;
    desk.owned("5", None, Some(9)).await;
    desk.told("worker-0", a, &["6"], &[]).await;
    let mut seen = desk.seen().await;
    let ids: Vec<&str> = seen.partitions.iter().map(|p| p.id.as_str()).collect();
    assert_eq!(
        ids,
        ["2", "3", "4", "5", "6", "10"],
        "numbers by their value"
    );
    let sessions: Vec<_> = seen.partitions.iter().map(|p| p.owner_session).collect();
    let (over, live) = (Some(OwnerSession::Over), Some(OwnerSession::Live));
    assert_eq!(
        sessions,
        [over, over, live, None, None, live],
        "worker-9 has no record that would say that it is gone"
    );
    let untaken = seen.partition(&partition("6")).expect("told of").clone();
    assert_eq!((untaken.epoch, untaken.next_offset), (Epoch(0), None));
    assert_eq!(untaken.assigned, Some(worker("worker-0")));
    assert_eq!(seen.lag(), None, "nobody asked the source");
    let bounds = |first, head| Bounds {
        first: Offset(first),
        end: Offset(head),
        head: Offset(head),
    };
    let all = [
        ("10", bounds(0, 12)),
        ("5", bounds(11, 15)),
        ("6", bounds(0, 3)),
    ];
    let all: BTreeMap<_, _> = all.map(|(id, bounds)| (partition(id), bounds)).into();
    seen.locate(&all);
    let lag = |id: &str| seen.partition(&partition(id)).and_then(|p| p.lag);
    assert_eq!(lag("10"), Some(7));
    assert_eq!(
        lag("5"),
        Some(4),
        "what retention removed is not left to do"
    );
    assert_eq!((lag("6"), lag("2")), (None, None));
    assert_eq!(seen.lag(), Some(11));
}

fn stages(group: &Group) -> Vec<(&str, Stage)> {
    (group.handoffs.iter())
        .map(|handoff| (handoff.partition.as_str(), handoff.stage))
        .collect()
}

#[tokio::test]
async fn only_its_own_end_or_a_later_life_shows_that_an_owner_is_gone() {
    use OwnerSession::{Leaving, Live, Over};
    for (status, own) in [
        (SessionStatus::Live, Live),
        (SessionStatus::Leaving, Leaving),
        (SessionStatus::Revoked, Live),
        (SessionStatus::Goodbye, Over),
        (SessionStatus::Evicted, Over),
        (SessionStatus::Free, Over),
    ] {
        let desk = Desk::new();
        desk.group().await;
        let life = desk.session("worker-0", status).await;
        for (known, expected) in [
            (Incarnation(life.0 - 1), Over),
            (life, own),
            // The record is older than its owner.
            (Incarnation(life.0 + 1), Live),
        ] {
            desk.owned("0", Some(("worker-0", known)), None).await;
            let seen = desk.seen().await;
            let session = seen.partitions[0].owner_session;
            assert_eq!(session, Some(expected), "{status:?} {known}");
        }
    }
}

#[tokio::test]
async fn handoffs_under_way_name_both_sides() {
    let desk = Desk::new();
    desk.group().await;
    let a = desk.session("worker-0", SessionStatus::Live).await;
    let b = desk.session("worker-1", SessionStatus::Live).await;
    for id in ["1", "2", "3"] {
        desk.owned(id, Some(("worker-0", a)), None).await;
    }
    desk.told("worker-0", a, &["1", "2", "3"], &[]).await;
    let prepare = [("1", "worker-0"), ("2", "worker-0")];
    desk.told("worker-1", b, &[], &prepare).await;
    let seen = desk.seen().await;
    assert_eq!(
        stages(&seen),
        [("1", Stage::Preparing), ("2", Stage::Ready)]
    );
    assert!(
        seen.handoffs
            .iter()
            .all(|h| h.from == Some(worker("worker-0")) && h.to == worker("worker-1"))
    );
    // What an earlier life was told does not count.
    desk.session("worker-1", SessionStatus::Live).await;
    assert_eq!(desk.seen().await.handoffs, []);
}

#[tokio::test]
async fn an_owner_that_is_to_let_go_releases_until_nobody_holds_it() {
    let desk = Desk::new();
    desk.group().await;
    let a = desk.session("worker-0", SessionStatus::Live).await;
    let b = desk.session("worker-1", SessionStatus::Live).await;
    let dead = desk.session("worker-2", SessionStatus::Evicted).await;
    let leaving = desk.session("worker-3", SessionStatus::Leaving).await;
    // Not told to serve them any more; the next one is ready for the second.
    for id in ["1", "2", "3"] {
        desk.owned(id, Some(("worker-0", a)), None).await;
    }
    desk.owned("4", Some(("worker-3", leaving)), None).await;
    // Let go of, never taken, and of a session that is over.
    desk.owned("5", None, Some(7)).await;
    desk.owned("7", Some(("worker-2", dead)), None).await;
    desk.told("worker-0", a, &[], &[]).await;
    let prepare = [
        ("1", "worker-0"),
        ("2", "worker-0"),
        ("4", "worker-3"),
        ("5", "worker-0"),
    ];
    desk.told("worker-1", b, &["3", "6", "7"], &prepare).await;
    assert_eq!(
        stages(&desk.seen().await),
        [
            ("1", Stage::Releasing),
            ("2", Stage::Releasing),
            ("3", Stage::Releasing),
            ("4", Stage::Releasing),
            ("5", Stage::Taking),
            ("6", Stage::Taking),
            ("7", Stage::Taking),
        ]
    );
    desk.owned("2", None, Some(7)).await;
    assert_eq!(stages(&desk.seen().await)[1], ("2", Stage::Taking));
    // Told to serve it again: the move was taken back.
    desk.told("worker-0", a, &["1"], &[]).await;
    assert_eq!(stages(&desk.seen().await)[0], ("1", Stage::Preparing));
}

#[tokio::test]
async fn what_operators_paused_is_shown_as_paused() {
    let desk = Desk::new();
    desk.group().await;
    desk.owned("0", None, None).await;
    desk.owned("1", None, None).await;
    let (id, other) = (partition("0"), partition("1"));
    let is_paused = async |id: &PartitionId| {
        let seen = desk.seen().await;
        seen.partition(id).map(|p| p.paused)
    };
    assert_eq!(is_paused(&id).await, Some(false));
    desk.decide(|overrides| overrides.pause(&id)).await;
    assert_eq!(is_paused(&id).await, Some(true));
    assert_eq!(is_paused(&other).await, Some(false));
    desk.decide(|overrides| overrides.resume(&id)).await;
    assert_eq!(is_paused(&id).await, Some(false));
}

#[tokio::test]
async fn what_was_asked_for_and_is_not_carried_out_is_shown() {
    let desk = Desk::new();
    desk.group().await;
    let ask = async |id: &str, name: &str, outcome: Outcome| {
        let record = RequestRecord {
            request: Request::Drain {
                worker: worker(name),
            },
            by: "alice".into(),
            why: "new kernel".into(),
            at: 5,
            outcome,
            nonce: Nonce(0),
        };
        let key = Key::Request(id.into());
        desk.put(key, Record::Request(Arc::new(record))).await;
    };
    let why = "no".to_owned();
    ask("b", "worker-0", Outcome::Accepted).await;
    ask("a", "worker-1", Outcome::Open).await;
    ask("c", "worker-2", Outcome::Done).await;
    ask("d", "worker-3", Outcome::Refused { why: why.clone() }).await;
    ask("e", "worker-4", Outcome::Overtaken { by: why }).await;
    let seen = desk.seen().await.requests;
    let told: Vec<_> = (seen.iter())
        .map(|one| (one.text.as_str(), one.progress))
        .collect();
    assert_eq!(
        told,
        [
            ("drain worker-0", Progress::UnderWay),
            ("drain worker-1", Progress::Waiting)
        ],
        "in the order in which they were asked for"
    );
    let asked = (seen[0].by.as_str(), seen[0].why.as_str(), seen[0].asked_ms);
    assert_eq!(asked, ("alice", "new kernel", 5));
}

#[tokio::test]
async fn a_group_whose_living_workers_are_all_drained_is_stranded() {
    let desk = Desk::new();
    desk.group_of("leaderless").await;
    let a = desk.session("worker-0", SessionStatus::Live).await;
    let b = desk.session("worker-1", SessionStatus::Live).await;
    desk.owned("0", None, None).await;
    desk.owned("1", Some(("worker-1", b)), None).await;
    desk.owned("2", None, None).await;
    desk.decide(|overrides| {
        overrides.drain(&worker("worker-0"), a);
        overrides.pause(&partition("2"));
    })
    .await;
    assert_eq!(desk.seen().await.stranded(), None, "worker-1 serves");
    desk.renew("worker-1", Some(b), SessionStatus::Evicted, 1)
        .await;
    let seen = desk.seen().await;
    let stranded = Stranded {
        partitions: 2,
        workers: vec![worker("worker-0")],
    };
    assert_eq!(seen.stranded(), Some(stranded));
    let why: Vec<bool> = (seen.partitions.iter())
        .map(|own| own.unserved.is_some())
        .collect();
    assert_eq!(why, [true, true, false], "a paused one is another matter");
    desk.renew("worker-0", Some(a), SessionStatus::Goodbye, 1)
        .await;
    assert_eq!(desk.seen().await.stranded(), None, "nobody lives");
}
