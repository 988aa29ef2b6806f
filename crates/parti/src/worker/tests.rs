//! Whole workers on the memory store and a log in memory, with time that stands still unless all
//! wait for it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use parti_core::config::{Config, Coordination};
use parti_core::ids::{PartitionId, WorkerId};
use parti_core::worker::{Fatal, Report, State};
use tokio::sync::mpsc;

use super::*;
use crate::clock::TestClock;
use crate::source::MemoryLog;
use crate::store::Memory;
use crate::{HandlerError, Message, Offset, StaticPartitions};

/// Everything that was handled, in order, by partition.
#[derive(Clone, Default)]
struct Handled(Arc<Mutex<BTreeMap<PartitionId, Vec<u64>>>>);

impl Handled {
    fn note(&self, message: &Message) {
        let mut all = self.0.lock().expect("no panic under the lock");
        let partition = all.entry(message.partition.clone()).or_default();
        partition.push(message.offset.0);
    }

    fn take(&self) -> BTreeMap<PartitionId, Vec<u64>> {
        std::mem::take(&mut *self.0.lock().expect("no panic under the lock"))
    }
}

struct Group {
    store: Memory,
    log: MemoryLog,
    handled: Handled,
    reports: mpsc::UnboundedSender<Report>,
    seen: mpsc::UnboundedReceiver<Report>,
    produced: BTreeMap<PartitionId, u64>,
}

const PARTITIONS: u32 = 8;

impl Group {
    fn new() -> Self {
        let (reports, seen) = mpsc::unbounded_channel();
        Self {
            store: Memory::new(),
            log: MemoryLog::new(),
            handled: Handled::default(),
            reports,
            seen,
            produced: BTreeMap::new(),
        }
    }

    fn builder(&self) -> WorkerBuilder {
        let reports = self.reports.clone();
        let config = Config {
            processing: parti_core::config::ProcessingConfig {
                start: parti_core::config::StartPosition::Earliest,
                ..Default::default()
            },
            ..Config::default()
        };
        let partitions = StaticPartitions::numbered(PARTITIONS);
        Worker::builder("g", self.store.clone(), self.log.clone(), partitions)
            .clock(TestClock::new())
            .config(config)
            .observer(move |report: &Report| drop(reports.send(report.clone())))
    }

    async fn worker(&self) -> Worker {
        let handled = self.handled.clone();
        let handler = move |message: Message| {
            handled.note(&message);
            async { Ok::<(), HandlerError>(()) }
        };
        self.builder().start(handler).await.expect("starts")
    }

    fn produce(&mut self, count: u64) {
        for n in 0..count {
            let partition = PartitionId::new((n % u64::from(PARTITIONS)).to_string());
            self.log.append(&partition, format!("{n}"));
            *self.produced.entry(partition).or_default() += 1;
        }
    }

    /// Waits until everything produced so far was handled at least once.
    async fn drained(&self) {
        loop {
            let all = self.handled.0.lock().expect("no panic").clone();
            let count = |id| all.get(id).and_then(|o| o.last()).map_or(0, |o| o + 1);
            if self.produced.iter().all(|(id, n)| count(id) == *n) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn until(&mut self, wanted: impl Fn(&Report) -> bool) {
        while let Some(report) = self.seen.recv().await {
            if wanted(&report) {
                return;
            }
        }
    }

    fn assert_each_once(&self) {
        let handled = self.handled.take();
        assert_eq!(handled.len(), self.produced.len());
        for (id, count) in &self.produced {
            let expected: Vec<u64> = (0..*count).collect();
            assert_eq!(handled[id], expected, "partition {id}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn join_and_leave_lose_and_repeat_nothing() {
    let mut group = Group::new();
    group.produce(100);
    let first = group.worker().await;
    group.drained().await;
    group.produce(100);
    let second = group.worker().await;
    group
        .until(|report| matches!(report, Report::Released { .. }))
        .await;
    group.produce(400);
    group.drained().await;
    while second.assignment().serve.len() != 4 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(first.is_leader() && !second.is_leader());
    first.stop().await.expect("stops");
    group.produce(400);
    group.drained().await;
    assert_eq!(second.assignment().serve.len(), 8);
    second.stop().await.expect("stops");
    group.assert_each_once();
}

#[tokio::test(start_paused = true)]
async fn a_poison_message_delays_only_its_own_partition() {
    let mut group = Group::new();
    group.produce(16);
    let handled = group.handled.clone();
    let handler = move |message: Message| {
        let poison = message.partition.as_str() == "3" && message.offset == Offset(0);
        let attempt = message.attempt;
        if !poison {
            handled.note(&message);
        }
        async move {
            match (poison, attempt) {
                (false, _) => Ok::<(), HandlerError>(()),
                (true, 1) => panic!("as a test would"),
                (true, _) => Err("still bad".into()),
            }
        }
    };
    let worker = group.builder().start(handler).await.expect("starts");
    group
        .until(|report| matches!(report, Report::DeadLettered { .. }))
        .await;
    group.drained().await;
    worker.stop().await.expect("stops");
    let letters = group.log.dead_letters();
    assert_eq!(letters.len(), 1);
    assert_eq!(
        (letters[0].attempts, letters[0].error.as_str()),
        (3, "still bad")
    );
    let handled = group.handled.take();
    assert_eq!(handled[&PartitionId::new("3")], [1]);
    assert!(handled.values().map(Vec::len).sum::<usize>() == 15);
}

#[tokio::test(start_paused = true)]
async fn an_id_that_nobody_may_have_is_a_clear_error_and_a_stopped_worker_gives_its_id_back() {
    let group = Group::new();
    let config = Config {
        worker_id_max: 0,
        ..Config::default()
    };
    let start = || {
        let builder = group.builder().config(config.clone());
        builder.start(|_: Message| async { Ok::<(), HandlerError>(()) })
    };
    let only = start().await.expect("starts");
    assert_eq!(only.id(), Some(WorkerId::new("worker-0")));
    let error = start().await.expect_err("no id left");
    let exhausted = matches!(error, WorkerError::Fatal(Fatal::StableIdExhausted(1)));
    assert!(exhausted, "{error}");
    only.stop().await.expect("stops");
    let next = start().await.expect("starts");
    assert_eq!(next.id(), Some(WorkerId::new("worker-0")));
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_given_up_gives_its_id_back() {
    let group = Group::new();
    let start = || {
        group
            .builder()
            .start(|_: Message| async { Ok::<(), HandlerError>(()) })
    };
    let early = tokio::time::timeout(Duration::from_secs(1), start()).await;
    assert!(early.is_err(), "a group waits for its members first");
    let worker = start().await.expect("starts");
    assert_eq!(worker.id(), Some(WorkerId::new("worker-0")));
}

#[tokio::test(start_paused = true)]
async fn a_worker_without_a_leader_starts_with_its_own_assignment() {
    let mut group = Group::new();
    group.produce(16);
    let config = Config {
        coordination: Coordination::Leaderless,
        processing: parti_core::config::ProcessingConfig {
            start: parti_core::config::StartPosition::Earliest,
            ..Default::default()
        },
        ..Config::default()
    };
    let handled = group.handled.clone();
    let handler = move |message: Message| {
        handled.note(&message);
        async { Ok::<(), HandlerError>(()) }
    };
    let worker = group.builder().config(config).start(handler).await;
    let worker = worker.expect("starts");
    assert_eq!(worker.assignment().serve.len(), 8);
    assert!(!worker.is_leader());
    worker.wait_for(State::Stable).await.expect("runs");
    group.drained().await;
    worker.stop().await.expect("stops");
    group.assert_each_once();
}

#[tokio::test(start_paused = true)]
async fn a_shorter_limit_of_the_caller_ends_a_stop_that_waits_for_a_handler() {
    let mut group = Group::new();
    group.produce(1);
    let (begun, mut begins) = mpsc::unbounded_channel();
    let handler = move |_: Message| {
        let _ = begun.send(());
        std::future::pending::<Result<(), HandlerError>>()
    };
    let worker = group.builder().start(handler).await.expect("starts");
    begins.recv().await.expect("the message is being handled");
    let asked = tokio::time::Instant::now();
    let limit = Duration::from_secs(2);
    let Err(WorkerError::Fatal(late)) = worker.stop_within(limit).await else {
        panic!("a message was given up, and nobody says so")
    };
    let message = (PartitionId::new("0"), Offset(0));
    let named = Fatal::StopTimedOut {
        cut_off: vec![message],
        not_released: 0,
    };
    assert_eq!(late, named);
    // Time is the test's own here: it moves only to the next deadline.
    assert!(asked.elapsed() <= limit, "{:?}", asked.elapsed());
}
