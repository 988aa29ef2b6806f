//! What shares a task, and what does not wait for it.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::SystemTime;

use parti_core::ids::Offset;
use parti_core::io::Body;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::DropGuard;

use super::*;
use crate::HandlerError;
use crate::clock::SystemClock;
use crate::source::Record;

/// When all messages came.
const LONG_AGO: SystemTime = SystemTime::UNIX_EPOCH;

struct Scene {
    runs: Runs,
    events: UnboundedReceiver<Event>,
    _sender: mpsc::UnboundedSender<Event>,
    _tasks: DropGuard,
}

impl Scene {
    fn new(handler: impl Handler) -> Self {
        let (sender, events) = mpsc::unbounded_channel();
        let (tasks, guard) = Tasks::new();
        let lease = Arc::new(Lease::new(Arc::new(SystemClock)));
        lease.set(Time::NEVER);
        Self {
            runs: Runs::new(Arc::new(handler), lease, sender.downgrade(), tasks),
            events,
            _sender: sender,
            _tasks: guard,
        }
    }

    /// Runs of so many messages, all begun at once.
    fn start(&mut self, runs: &[(&str, u64)]) {
        for (partition, count) in runs {
            let messages = (0..*count).map(|offset| io::Message {
                offset: Offset(offset),
                key: 0,
                size: 0,
                body: Body::new(Received {
                    record: Record::default(),
                    at: LONG_AGO,
                }),
            });
            self.runs.gather(Run {
                partition: PartitionId::new(partition),
                epoch: Epoch(1),
                messages: messages.collect(),
                attempt: 1,
                // However slow this machine is: only what a test does makes a run late.
                within: Duration::from_secs(3600),
            });
        }
        let worker = WorkerId::new("worker-0");
        self.runs.start(Some(&worker), None);
    }

    async fn next(&mut self) -> (String, Ran) {
        match self.events.recv().await {
            Some(Event::Handled { partition, ran, .. }) => (partition.to_string(), ran),
            other => panic!("{other:?}"),
        }
    }

    fn stays_apart(&self) -> bool {
        self.runs.caller.apart.load(Ordering::Relaxed) > 0
    }
}

fn ran(first: u64, done: u32, then: Then) -> Ran {
    let first = Offset(first);
    Ran { first, done, then }
}

#[tokio::test]
async fn a_handler_is_told_when_its_message_came_and_not_when_it_was_called() {
    let (sender, mut told) = mpsc::unbounded_channel();
    let mut scene = Scene::new(move |message: Message| {
        let _ = sender.send(message.received_at);
        async { Ok::<(), HandlerError>(()) }
    });
    scene.start(&[("a", 2)]);
    for _ in 0..2 {
        assert_eq!(told.recv().await, Some(LONG_AGO));
    }
}

#[tokio::test]
async fn short_runs_share_a_task_and_long_ones_have_their_own() {
    let tasks = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = tasks.clone();
    let mut scene = Scene::new(move |_: Message| {
        let own = tokio::task::id().to_string();
        seen.lock().expect("no panic").insert(own);
        async { Ok::<(), HandlerError>(()) }
    });
    scene.start(&[("a", 2), ("b", 1), ("c", 3)]);
    for (partition, count) in [("a", 2), ("b", 1), ("c", 3)] {
        let told = scene.next().await;
        assert_eq!(told, (partition.into(), ran(0, count, Then::Ended)));
    }
    assert_eq!(tasks.lock().expect("no panic").len(), 1);
    let long = SHARED as u64;
    scene.start(&[("a", long), ("b", long)]);
    for _ in 0..2 {
        scene.next().await;
    }
    assert_eq!(tasks.lock().expect("no panic").len(), 3);
    assert!(!scene.stays_apart());
}

#[tokio::test]
async fn nobody_waits_for_a_call_that_waits() {
    let gate = Arc::new(Notify::new());
    let opened = gate.clone();
    let mut scene = Scene::new(move |message: Message| {
        let gate = gate.clone();
        async move {
            if message.partition.as_str() == "a" {
                gate.notified().await;
            }
            Ok::<(), HandlerError>(())
        }
    });
    scene.start(&[("a", 2), ("b", 1), ("c", 1)]);
    let told = scene.next().await;
    assert_eq!(told, ("a".into(), ran(0, 0, Then::GoesOn(Offset(0)))));
    let others = BTreeSet::from([scene.next().await.0, scene.next().await.0]);
    assert_eq!(others, ["b", "c"].map(String::from).into());
    assert!(scene.stays_apart());
    opened.notify_one();
    let told = scene.next().await;
    assert_eq!(told, ("a".into(), ran(0, 1, Then::Ended)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_a_call_that_blocks_its_thread() {
    let (entered, inside) = (Arc::new(Semaphore::new(0)), std::sync::mpsc::channel());
    let (let_go, inside) = (inside.0, Mutex::new(inside.1));
    let enters = entered.clone();
    let mut scene = Scene::new(move |message: Message| {
        if message.partition.as_str() == "b" {
            enters.add_permits(1);
            // An error means that the test is over.
            let _ = inside.lock().expect("no panic").recv();
        }
        async { Ok::<(), HandlerError>(()) }
    });
    scene.start(&[("a", 1), ("b", 1), ("c", 1)]);
    let _inside = entered.acquire().await.expect("open");
    assert!(scene.events.is_empty(), "told together");
    assert!(scene.runs.next_deadline() < Time::NEVER);
    scene
        .runs
        .relieve(Time::NEVER, Some(&WorkerId::new("w")), None);
    let others = BTreeSet::from([scene.next().await.0, scene.next().await.0]);
    assert_eq!(others, ["a", "c"].map(String::from).into());
    let_go.send(()).expect("it waits");
    assert_eq!(scene.next().await.0, "b");
    assert_eq!(scene.runs.next_deadline(), Time::NEVER);
}

#[tokio::test]
async fn a_halt_and_the_end_of_the_lease_reach_what_is_still_in_the_queue() {
    let mut scene = Scene::new(|_: Message| async { Ok::<(), HandlerError>(()) });
    scene.start(&[("a", 2), ("b", 2), ("c", 2)]);
    scene.runs.halt(&PartitionId::new("b"));
    for (partition, count) in [("a", 2), ("b", 0), ("c", 2)] {
        let told = scene.next().await;
        assert_eq!(told, (partition.into(), ran(0, count, Then::Ended)));
    }
    scene.start(&[("a", 1), ("b", 2)]);
    scene.runs.caller.lease.set(Time::ZERO);
    for partition in ["a", "b"] {
        let told = scene.next().await;
        assert_eq!(told, (partition.into(), ran(0, 0, Then::Ended)));
    }
}
