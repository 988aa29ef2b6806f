//! Durable subscriptions on the embedded log: progress is kept, and read again.
#![cfg(feature = "sqlite")]

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use parti::core::ids::{Epoch, PartitionId, WorkerId};
use parti::core::io::{Expect, Scope, WatchEvent, Write, WriteOutcome};
use parti::core::key::Key;
use parti::core::record::{PartitionRecord, Record, SessionStatus};
use parti::source::log::{Log, NewRecord, Topic, TopicSettings};
use parti::store::{self, GroupChange, GroupStore, Store};
use parti::{Config, HandlerError, Message, Offset, StaticPartitions, Worker};
use tokio::sync::mpsc;

/// What does not come within this time never will. A guard: nothing is measured against it.
const PATIENCE: Duration = Duration::from_secs(180);

/// A store that remembers every write.
#[derive(Debug)]
struct Recording {
    inner: Arc<dyn Store>,
    writes: Mutex<Vec<store::Write>>,
}

#[parti::async_trait]
impl Store for Recording {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn read(&self, key: &str) -> Result<Option<store::Entry>, store::Error> {
        self.inner.read(key).await
    }

    async fn list(&self, scope: &store::Scope) -> Result<Vec<store::Entry>, store::Error> {
        self.inner.list(scope).await
    }

    async fn write(&self, batch: Vec<store::Write>) -> Vec<Result<store::Revision, store::Error>> {
        let mut written = batch.clone();
        self.writes.lock().expect("no panic").append(&mut written);
        self.inner.write(batch).await
    }

    fn watch(&self, scope: store::Scope) -> store::Watch {
        self.inner.watch(scope)
    }
}

struct Place {
    _folder: tempfile::TempDir,
    topic: Topic,
    store: Arc<dyn Store>,
}

impl Place {
    async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let topic = Self::open(folder.path()).await;
        let url = format!("sqlite:{}", folder.path().join("store.db").display());
        let store = store::open(&url).await.expect("a store");
        Self {
            _folder: folder,
            topic,
            store,
        }
    }

    async fn open(folder: &Path) -> Topic {
        let log = Log::open(folder.join("log")).await.expect("a log");
        let settings = TopicSettings::partitions(1);
        log.create_topic("t", settings).await.expect("a topic")
    }

    async fn produce(&self, numbers: std::ops::Range<u64>) {
        let records = numbers.map(|number| NewRecord::new(number.to_string()));
        let placed = self.topic.append(records.collect()).await;
        placed.expect("appended");
    }

    fn group(&self) -> GroupStore {
        GroupStore::new(self.store.clone(), "g").expect("a name")
    }

    /// A worker that handles everything, and tells the offsets.
    async fn consume(&self, config: Config) -> (Worker, mpsc::UnboundedReceiver<u64>) {
        let (told, offsets) = mpsc::unbounded_channel();
        let handler = move |message: Message| {
            let told = told.send(message.offset.0);
            async move { told.map_err(HandlerError::from) }
        };
        let partitions = StaticPartitions::numbered(1);
        let builder = Worker::builder("g", self.store.clone(), self.topic.clone(), partitions);
        let worker = builder.config(config).start(handler).await;
        (worker.expect("starts"), offsets)
    }

    /// Waits until the checkpoint is at this offset.
    async fn checkpoint(&self, offset: u64) {
        let key = Key::Partition(PartitionId::new("0"));
        let mut changes = self.group().watch(&Scope::Key(key));
        let reached = async {
            while let Some(change) = changes.next().await {
                let GroupChange::Event(event) = change else {
                    continue;
                };
                let record = match event {
                    WatchEvent::Snapshot(all) => all.into_iter().next(),
                    WatchEvent::Changed(stored) => Some(stored),
                    WatchEvent::Removed(..) => None,
                };
                if let Some(Record::Partition(record)) = record.map(|stored| stored.record)
                    && record.offset == Some(Offset(offset))
                {
                    return;
                }
            }
        };
        let came = tokio::time::timeout(PATIENCE, reached).await;
        came.expect("the checkpoint never came");
    }
}

fn config(flush: &str, start: &str) -> Config {
    let text = format!(
        "expected_workers: 1\ncheckpoint_flush_interval: {flush}\nprocessing:\n  start: {start}\n"
    );
    Config::from_yaml(&text).expect("settings")
}

async fn next(offsets: &mut mpsc::UnboundedReceiver<u64>) -> u64 {
    let next = tokio::time::timeout(PATIENCE, offsets.recv()).await;
    next.expect("a message never came")
        .expect("the worker ended")
}

#[tokio::test]
async fn progress_is_persisted_after_an_ack_with_a_flush_of_50_ms() {
    let place = Place::new().await;
    place.produce(0..5).await;
    let (worker, mut offsets) = place.consume(config("50ms", "earliest")).await;
    for offset in 0..5 {
        assert_eq!(next(&mut offsets).await, offset);
    }
    // The worker runs on: it is the flush that writes, not the stop.
    place.checkpoint(4).await;
    worker.stop().await.expect("stops");
}

#[tokio::test]
async fn a_subscription_resumes_from_a_seeded_cursor() {
    let place = Place::new().await;
    place.produce(0..10).await;
    let seeded = PartitionRecord {
        epoch: Epoch(3),
        offset: Some(Offset(6)),
        ..PartitionRecord::default()
    };
    let write = Write {
        key: Key::Partition(PartitionId::new("0")),
        expect: Expect::Absent,
        value: Some(Record::Partition(Arc::new(seeded))),
    };
    let written = place.group().write(&[write]).await;
    assert!(matches!(written[..], [WriteOutcome::Done(_)]));
    let (worker, mut offsets) = place.consume(config("5s", "latest")).await;
    for offset in 7..10 {
        assert_eq!(next(&mut offsets).await, offset);
    }
    worker.stop().await.expect("stops");
}

#[tokio::test]
async fn n_produced_k_acked_restarted_continues_at_k_plus_1() {
    let place = Place::new().await;
    place.produce(0..4).await;
    let (worker, mut offsets) = place.consume(config("5s", "earliest")).await;
    for offset in 0..4 {
        assert_eq!(next(&mut offsets).await, offset);
    }
    worker.stop().await.expect("stops");
    place.produce(4..10).await;
    let (worker, mut offsets) = place.consume(config("5s", "earliest")).await;
    for offset in 4..10 {
        assert_eq!(next(&mut offsets).await, offset);
    }
    worker.stop().await.expect("stops");
}

#[tokio::test]
async fn a_new_subscription_starts_at_the_latest_message_unless_told_otherwise() {
    let place = Place::new().await;
    place.produce(0..4).await;
    let (worker, mut offsets) = place.consume(config("5s", "latest")).await;
    // It has taken the partition once its record says where it starts.
    let key = Key::Partition(PartitionId::new("0"));
    let taken = async {
        loop {
            let found = place.group().read(&key).await.expect("read");
            let owned = matches!(&found, Some(stored) if matches!(&stored.record,
                Record::Partition(record) if record.owner.is_some() && record.start == Offset(4)));
            if owned {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let taken = tokio::time::timeout(PATIENCE, taken).await;
    taken.expect("it was never taken");
    place.produce(4..6).await;
    assert_eq!(next(&mut offsets).await, 4);
    assert_eq!(next(&mut offsets).await, 5);
    worker.stop().await.expect("stops");
}

/// Every write to the partition's record so far, by who owns it then.
fn written(recording: &Recording) -> Vec<Option<String>> {
    let key = Key::Partition(PartitionId::new("0"));
    let writes = recording.writes.lock().expect("no panic");
    let to_partitions = writes
        .iter()
        .filter(|write| write.key.starts_with("partitions/"));
    let owner = |write: &store::Write| {
        let bytes = write.value.as_ref().expect("a record is never deleted");
        let Record::Partition(record) = Record::decode(&key, bytes) else {
            panic!("a partition record, not {write:?}");
        };
        assert_eq!(record.start, Offset(0), "where the first take started");
        assert_eq!((record.offset, record.begun), (None, None), "{write:?}");
        assert!(record.done_above.is_empty(), "{write:?}");
        record.owner.as_ref().map(|(owner, _)| owner.to_string())
    };
    to_partitions.map(owner).collect()
}

#[tokio::test]
async fn non_reliable_writes_nothing() {
    let mut place = Place::new().await;
    let recording = Arc::new(Recording {
        inner: place.store.clone(),
        writes: Mutex::default(),
    });
    place.store = recording.clone();
    place.produce(0..5).await;
    let mut keeps_nothing = config("50ms", "earliest");
    keeps_nothing.processing.reliable = false;
    let (worker, mut offsets) = place.consume(keeps_nothing.clone()).await;
    for offset in 0..5 {
        assert_eq!(next(&mut offsets).await, offset);
    }
    worker.flush();
    worker.stop().await.expect("stops");
    // It took and released, and wrote nothing else, and nothing of its progress.
    let me = Some("worker-0".to_owned());
    assert_eq!(written(&recording), [me.clone(), None]);
    // So a new process starts at the start position again.
    let (worker, mut offsets) = place.consume(keeps_nothing).await;
    for offset in 0..5 {
        assert_eq!(next(&mut offsets).await, offset);
    }
    worker.stop().await.expect("stops");
    assert_eq!(written(&recording), [me.clone(), None, me, None]);
}

#[tokio::test]
async fn non_reliable_continues_in_memory_while_the_process_lives() {
    let place = Place::new().await;
    place.produce(0..5).await;
    let mut keeps_nothing = config("50ms", "earliest");
    keeps_nothing.processing.reliable = false;
    keeps_nothing.heartbeat_interval = Duration::from_millis(100);
    let (worker, mut offsets) = place.consume(keeps_nothing).await;
    for offset in 0..5 {
        assert_eq!(next(&mut offsets).await, offset);
    }
    // Somebody ends its session: it notices, comes back, and takes the partition again.
    let key = Key::Worker(WorkerId::new("worker-0"));
    let ended = async {
        loop {
            let found = place.group().read(&key).await.expect("read");
            let found = found.expect("its session");
            let Record::Worker(session) = &found.record else {
                panic!("a session, not {found:?}");
            };
            let mut session = (**session).clone();
            session.status = SessionStatus::Evicted;
            let write = Write {
                key: key.clone(),
                expect: Expect::At(found.revision),
                value: Some(Record::Worker(Arc::new(session))),
            };
            if let [WriteOutcome::Done(_)] = place.group().write(&[write]).await[..] {
                return;
            }
        }
    };
    let ended = tokio::time::timeout(PATIENCE, ended).await;
    ended.expect("the session never ended");
    let partition = Key::Partition(PartitionId::new("0"));
    let again = async {
        loop {
            let found = place.group().read(&partition).await.expect("read");
            let taken = matches!(&found, Some(stored) if matches!(&stored.record,
                Record::Partition(record) if record.owner.is_some() && record.epoch == Epoch(2)));
            if taken {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let again = tokio::time::timeout(PATIENCE, again).await;
    again.expect("it never came back");
    place.produce(5..8).await;
    for offset in 5..8 {
        assert_eq!(next(&mut offsets).await, offset);
    }
    worker.stop().await.expect("stops");
}
