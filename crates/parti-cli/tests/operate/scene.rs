//! Groups whose records are written by hand, so that what is shown is known to the letter.

#![allow(dead_code, reason = "the bench uses the fleet, the tests use the rest")]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parti::core::ids::{
    Epoch, Incarnation, Nonce, Offset, PartitionId, Revision, Term, Version, WorkerId,
};
use parti::core::io::{Expect, Stored, Write, WriteOutcome};
use parti::core::key::{Key, Prefix};
use parti::core::record::{
    AssignmentRecord, Fingerprint, GroupRecord, LeaderRecord, Lifecycle, PartitionRecord,
    PlanRecord, PlanState, Ready, Record, SessionStatus, WorkerRecord,
};
use parti::store::{self, GroupStore};

/// What one command said.
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// Runs `parti` in a folder.
pub fn parti(folder: &Path, arguments: &[&str], input: &str) -> Said {
    let mut child = Command::new(env!("CARGO_BIN_EXE_parti"))
        .current_dir(folder)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    let mut stdin = child.stdin.take().expect("piped");
    // A command that ends early does not read its input.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().expect("ended");
    Said {
        code: status.code(),
        out: String::from_utf8(stdout).expect("text"),
        err: String::from_utf8(stderr).expect("text"),
    }
}

/// Runs `parti`, which must succeed; answers its stdout.
#[track_caller]
pub fn said(folder: &Path, arguments: &[&str]) -> String {
    let said = parti(folder, arguments, "");
    assert_eq!(said.code, Some(0), "{arguments:?}: {}", said.err);
    said.out
}

/// Records of one group, written one after the other.
pub struct Desk {
    store: GroupStore,
}

impl Desk {
    pub async fn open(url: &str, group: &str) -> Self {
        let store = store::open(url).await.expect("a store");
        Self {
            store: GroupStore::new(store, group).expect("a name"),
        }
    }

    /// Writes all of these where nothing is.
    pub async fn put(&self, records: Vec<(Key, Record)>) -> Vec<Revision> {
        let mut revisions = Vec::new();
        for batch in records.chunks(500) {
            let writes: Vec<Write> = batch
                .iter()
                .map(|(key, record)| Write {
                    key: key.clone(),
                    expect: Expect::Absent,
                    value: Some(record.clone()),
                })
                .collect();
            for outcome in self.store.write(&writes).await {
                match outcome {
                    WriteOutcome::Done(revision) => revisions.push(revision),
                    other => panic!("not written: {other:?}"),
                }
            }
        }
        revisions
    }

    /// Lets the fleet live for a while: sessions are renewed every two seconds, checkpoints are
    /// written every five, in turn. Answers how many writes that were.
    pub async fn live(&self, span: Duration, workers: usize, partitions: usize) -> usize {
        let mut known = self.store.list(Prefix::Partitions).await.expect("listed");
        known.extend(self.store.list(Prefix::Workers).await.expect("listed"));
        let mut known: BTreeMap<Key, Stored> = (known.into_iter())
            .map(|stored| (stored.key.clone(), stored))
            .collect();
        let (began, mut writes) = (Instant::now(), 0);
        let mut tick = tokio::time::interval(Duration::from_millis(100));
        let mut turn = 0;
        while began.elapsed() < span {
            tick.tick().await;
            let name = |n: usize| Key::Worker(WorkerId::new(format!("worker-{}", n % workers)));
            let id = |n: usize| Key::Partition(PartitionId::new((n % partitions).to_string()));
            let renewed = (turn * workers / 20..(turn + 1) * workers / 20).map(name);
            let flushed = (turn * partitions / 50..(turn + 1) * partitions / 50).map(id);
            let batch: Vec<Write> = renewed
                .chain(flushed)
                .filter_map(|key| Some(later(known.get(&key)?)))
                .collect();
            for (write, outcome) in batch.iter().zip(self.store.write(&batch).await) {
                let WriteOutcome::Done(revision) = outcome else {
                    panic!("not written: {outcome:?}")
                };
                let record = write.value.clone().expect("a record");
                let key = write.key.clone();
                known.insert(
                    key.clone(),
                    Stored {
                        key,
                        revision,
                        record,
                    },
                );
            }
            writes += batch.len();
            turn += 1;
        }
        writes
    }

    /// Leaves the group as a deletion that was interrupted does.
    pub async fn close(&self) {
        let found = self.store.read(&Key::Group).await.expect("readable");
        let found = found.expect("there is a group");
        let Record::Group(record) = &found.record else {
            panic!("not a group: {found:?}")
        };
        let closed = GroupRecord {
            store: Nonce(99),
            coordination: "being deleted (`parti group delete` ends that)".into(),
            ..(**record).clone()
        };
        let write = Write {
            key: Key::Group,
            expect: Expect::At(found.revision),
            value: Some(Record::Group(Arc::new(closed))),
        };
        let outcome = self.store.write(&[write]).await.pop();
        assert!(
            matches!(outcome, Some(WriteOutcome::Done(_))),
            "{outcome:?}"
        );
    }
}

/// The next state of a session or a checkpoint.
fn later(found: &Stored) -> Write {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_millis() as u64);
    let record = match &found.record {
        Record::Worker(session) => Record::Worker(Arc::new(WorkerRecord {
            incarnation: Some(session.incarnation_at(found.revision)),
            beat: session.beat + 1,
            renewed_at: now,
            ..(**session).clone()
        })),
        Record::Partition(checkpoint) => Record::Partition(Arc::new(PartitionRecord {
            offset: Some(checkpoint.next_offset()),
            updated_at: now,
            ..(**checkpoint).clone()
        })),
        other => other.clone(),
    };
    Write {
        key: found.key.clone(),
        expect: Expect::At(found.revision),
        value: Some(record),
    }
}

pub fn group_record(stream: u64) -> (Key, Record) {
    let record = GroupRecord {
        store: Nonce(1),
        stream: stream.into(),
        coordination: "leader".into(),
        strategy: None,
        nonce: Nonce(1),
    };
    (Key::Group, Record::Group(Arc::new(record)))
}

pub fn session(name: &str, status: SessionStatus, ready: &[&str]) -> (Key, Record) {
    let record = WorkerRecord {
        incarnation: None,
        beat: 0,
        status,
        state: 4,
        term: Term(3),
        released: Version(7),
        applied: Version(7),
        ready: Ready {
            version: Version(8),
            partitions: ready.iter().map(PartitionId::new).collect(),
        },
        blocked_by: Vec::new(),
        load: 2,
        degraded: None,
        partitions: 0,
        heeds: Revision(0),
        renewed_at: 0,
        badge: None,
        nonce: Nonce(1),
    };
    (
        Key::Worker(WorkerId::new(name)),
        Record::Worker(Arc::new(record)),
    )
}

pub fn assignment(
    name: &str,
    life: Incarnation,
    serve: Vec<PartitionId>,
    prepare: &[(&str, &str)],
) -> (Key, Record) {
    let record = AssignmentRecord {
        version: Version(8),
        term: Term(3),
        incarnation: life,
        lifecycle: Lifecycle::Stable,
        serve,
        prepare: prepare
            .iter()
            .map(|(id, of)| (PartitionId::new(id), WorkerId::new(of)))
            .collect(),
        release: Vec::new(),
        added: Vec::new(),
        nonce: Nonce(1),
    };
    (
        Key::Assignment(WorkerId::new(name)),
        Record::Assignment(Arc::new(record)),
    )
}

pub fn checkpoint(
    id: &str,
    owner: Option<(&str, Incarnation)>,
    epoch: u64,
    offset: Option<u64>,
) -> (Key, Record) {
    let record = PartitionRecord {
        epoch: Epoch(epoch),
        owner: owner.map(|(name, life)| (WorkerId::new(name), life)),
        start: Offset(0),
        offset: offset.map(Offset),
        claimed_at: 1_700_000_000_000,
        updated_at: 1_700_000_060_000,
        ..PartitionRecord::default()
    };
    (
        Key::Partition(PartitionId::new(id)),
        Record::Partition(Arc::new(record)),
    )
}

fn leader(name: &str, life: Incarnation) -> (Key, Record) {
    let record = LeaderRecord {
        holder: Some((WorkerId::new(name), life)),
        term: Term(3),
        beat: 9,
        nonce: Nonce(1),
    };
    (Key::Leader, Record::Leader(Arc::new(record)))
}

fn plan(workers: u64, partitions: u64, moving: u64) -> (Key, Record) {
    let record = PlanRecord {
        version: Version(8),
        term: Term(3),
        lifecycle: Lifecycle::Stable,
        state: PlanState::Rebalancing,
        reason: "worker-1 joined".into(),
        started_at: 1_700_000_000_000,
        workers,
        partitions,
        moving,
        unserved: Vec::new(),
        added: Vec::new(),
        fingerprint: Fingerprint {
            partitions: 1,
            strategy: "consistent_hash(virtual_nodes=150)".into(),
            coordination: "leader".into(),
        },
        nonce: Nonce(1),
    };
    (Key::Plan, Record::Plan(Arc::new(record)))
}

/// The group "billing": worker-0 leads and has partitions 0 and 1, of which 1 moves to worker-1;
/// worker-2 was killed, and partition 2 still names it; 3 is free.
pub async fn billing(url: &str) {
    let desk = Desk::open(url, "billing").await;
    let sessions = vec![
        session("worker-0", SessionStatus::Live, &[]),
        session("worker-1", SessionStatus::Live, &["1"]),
        session("worker-2", SessionStatus::Evicted, &[]),
    ];
    let lives: Vec<Incarnation> = (desk.put(sessions).await.into_iter())
        .map(|revision| Incarnation(revision.0))
        .collect();
    let own = ["0", "1"].map(PartitionId::new).to_vec();
    desk.put(vec![
        // Of any source: tests make their own.
        group_record(0),
        leader("worker-0", lives[0]),
        plan(2, 4, 1),
        assignment("worker-0", lives[0], own, &[]),
        assignment("worker-1", lives[1], Vec::new(), &[("1", "worker-0")]),
        checkpoint("0", Some(("worker-0", lives[0])), 4, Some(41)),
        checkpoint("1", Some(("worker-0", lives[0])), 2, None),
        checkpoint("2", Some(("worker-2", lives[2])), 9, Some(99)),
        checkpoint("3", None, 1, Some(4)),
    ])
    .await;
}

/// A group of so many workers with so many partitions.
pub async fn fleet(url: &str, workers: usize, partitions: usize) {
    let desk = Desk::open(url, "fleet").await;
    let names: Vec<String> = (0..workers).map(|n| format!("worker-{n}")).collect();
    let sessions = names
        .iter()
        .map(|name| session(name, SessionStatus::Live, &[]));
    let lives: Vec<Incarnation> = (desk.put(sessions.collect()).await.into_iter())
        .map(|revision| Incarnation(revision.0))
        .collect();
    let mut records = vec![
        group_record(1),
        leader(&names[0], lives[0]),
        plan(workers as u64, partitions as u64, 0),
    ];
    for (number, (name, life)) in names.iter().zip(&lives).enumerate() {
        let own = (0..partitions).filter(|p| p % workers == number);
        let own = own.map(|p| PartitionId::new(p.to_string())).collect();
        records.push(assignment(name, *life, own, &[]));
    }
    for partition in 0..partitions {
        let owner = partition % workers;
        let owner = (names[owner].as_str(), lives[owner]);
        let id = partition.to_string();
        records.push(checkpoint(&id, Some(owner), 1, Some(partition as u64)));
    }
    desk.put(records).await;
}
