//! Hooks of whole workers, with time that stands still unless all wait for it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parti_core::config::Config;

use super::*;
use crate::clock::TestClock;
use crate::source::MemoryLog;
use crate::store::Memory;
use crate::{Message, StaticPartitions, Worker, WorkerBuilder};

/// Writes down what it is told, slowly, and fails where it is told to.
#[derive(Default)]
struct Scribe {
    lines: Mutex<Vec<String>>,
    running: AtomicUsize,
    fails: bool,
    panics: bool,
}

impl Scribe {
    async fn write(&self, line: String) -> Result<(), HandlerError> {
        assert_eq!(self.running.fetch_add(1, Ordering::SeqCst), 0, "at once");
        tokio::time::sleep(Duration::from_secs(3)).await;
        self.running.fetch_sub(1, Ordering::SeqCst);
        self.lines.lock().expect("no panic").push(line);
        assert!(!self.panics, "as a test would");
        if self.fails {
            return Err("no ink".into());
        }
        Ok(())
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.lock().expect("no panic"))
    }
}

#[async_trait]
impl Hooks for Arc<Scribe> {
    async fn assignment_changed(&self, change: &AssignmentChange) -> Result<(), HandlerError> {
        let (old, new) = (change.old.serve.len(), change.new.serve.len());
        let (added, removed) = (change.added.len(), change.removed.len());
        assert_eq!(change.version, change.new.version);
        let worker = &change.worker;
        self.write(format!("{worker}: {old} to {new}, +{added} -{removed}"))
            .await
    }

    async fn state_changed(&self, from: State, to: State) -> Result<(), HandlerError> {
        self.write(format!("{from:?} to {to:?}")).await
    }

    async fn leadership_changed(&self, leading: Option<Term>) -> Result<(), HandlerError> {
        self.write(format!("leading: {}", leading.is_some())).await
    }

    async fn error(&self, failure: &Failure) -> Result<(), HandlerError> {
        self.write(failure.to_string()).await
    }
}

fn builder(store: &Memory) -> WorkerBuilder {
    let partitions = StaticPartitions::numbered(4);
    let config = Config {
        // Hooks are slow here, and are waited for.
        shutdown_timeout: Duration::from_secs(300),
        ..Config::default()
    };
    Worker::builder("g", store.clone(), MemoryLog::new(), partitions)
        .config(config)
        .clock(TestClock::new())
}

async fn nothing(_: Message) -> Result<(), HandlerError> {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn hooks_are_told_everything_in_order_one_at_a_time_and_to_the_end() {
    let (store, scribe) = (Memory::new(), Arc::new(Scribe::default()));
    let (first, second) = (scribe.clone(), Arc::new(Scribe::default()));
    let worker = builder(&store).hooks(first).hooks(second.clone());
    let worker = worker.start(nothing).await.expect("starts");
    worker.stop().await.expect("stops");
    let lines = scribe.take();
    let expected = [
        "Init to ClaimingId",
        "ClaimingId to Election",
        "leading: true",
        "Election to WaitingAssignment",
        "worker-0: 0 to 4, +4 -0",
        "leading: false",
    ];
    let told = |wanted: &str| lines.iter().position(|line| line == wanted);
    let places: Vec<_> = expected.iter().map(|line| told(line)).collect();
    assert!(places.iter().all(Option::is_some), "{lines:#?}");
    assert!(places.is_sorted(), "{lines:#?}");
    assert!(lines.last().expect("told").ends_with("to Shutdown"));
    assert_eq!(second.take(), lines);
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_fails_is_told_so_and_nothing_goes_round_in_a_circle() {
    let store = Memory::new();
    for panics in [false, true] {
        let scribe = Arc::new(Scribe {
            fails: true,
            panics,
            ..Scribe::default()
        });
        let worker = builder(&store).hooks(scribe.clone());
        let worker = worker.start(nothing).await.expect("starts");
        worker.stop().await.expect("stops");
        let lines = scribe.take();
        let why = if panics {
            "it panicked: as a test would"
        } else {
            "no ink"
        };
        let pairs: Vec<_> = lines.chunks(2).collect();
        assert!(pairs.len() >= 5, "{lines:#?}");
        for pair in pairs {
            let [told, failed] = pair else {
                panic!("{lines:#?}")
            };
            assert!(!told.contains("failed"), "{lines:#?}");
            assert!(failed.starts_with("hook ") && failed.ends_with(why));
        }
    }
}

/// Never comes back.
struct Stuck(mpsc::UnboundedSender<()>);

#[async_trait]
impl Hooks for Stuck {
    async fn state_changed(&self, _: State, _: State) -> Result<(), HandlerError> {
        let _ = self.0.send(());
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_never_returns_keeps_nothing_but_hooks_from_going_on() {
    let store = Memory::new();
    let log = MemoryLog::new();
    let (calls, mut called) = mpsc::unbounded_channel();
    let (handled, mut done) = mpsc::unbounded_channel();
    let partitions = StaticPartitions::numbered(4);
    let worker = Worker::builder("g", store, log.clone(), partitions)
        .clock(TestClock::new())
        .hooks(Stuck(calls))
        .start(move |message: Message| {
            let _ = handled.send(message.offset);
            async { Ok::<(), HandlerError>(()) }
        })
        .await
        .expect("starts");
    worker.wait_for(State::Stable).await.expect("runs");
    log.append(&PartitionId::new("2"), "a message");
    done.recv().await.expect("handled");
    worker.stop().await.expect("stops");
    called.recv().await.expect("called");
    assert!(
        called.recv().await.is_none(),
        "once, and then it was waited for"
    );
}
