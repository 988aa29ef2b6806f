//! Lists of partitions that do not fit into one record: a clear error, and more workers are the
//! remedy that it names.

use std::sync::Arc;
use std::time::Duration;

use parti::source::MemoryLog;
use parti::store::{Memory, Store};
use parti::{Config, HandlerError, Message, Partition, Report, StaticPartitions, Trouble, Worker};
use tokio::sync::mpsc;

/// What does not come within this time never will. A guard: nothing is measured against it.
const PATIENCE: Duration = Duration::from_secs(120);

/// Too many for one worker, and not for two.
const PARTITIONS: u32 = 9_000;

fn partitions() -> StaticPartitions {
    let name = |number: u32| format!("{number:05}-{}", "x".repeat(60));
    let all = (0..PARTITIONS).map(|number| Partition::new([name(number)], None).expect("a name"));
    StaticPartitions::new(all.collect()).expect("a list")
}

async fn start(
    store: Arc<dyn Store>,
    expected: u32,
    told: mpsc::UnboundedSender<String>,
) -> Worker {
    let text =
        format!("expected_workers: {expected}\nstartup_timeout: 10m\nstrategy: fair_share\n");
    let config = Config::from_yaml(&text).expect("settings");
    Worker::builder("g", store, MemoryLog::new(), partitions())
        .config(config)
        .observer(move |report: &Report| {
            if let Report::Trouble(Trouble::Store(why)) = report {
                let _ = told.send(why.clone());
            }
        })
        .start(|_: Message| async { Ok::<(), HandlerError>(()) })
        .await
        .expect("starts")
}

async fn too_large_for_one(store: Arc<dyn Store>) {
    let (told, mut trouble) = mpsc::unbounded_channel();
    let alone = tokio::spawn(start(store, 1, told));
    let why = tokio::time::timeout(PATIENCE, trouble.recv()).await;
    let why = why.expect("nothing was said").expect("it runs");
    assert!(why.contains("assignments/worker-0"), "{why}");
    assert!(why.contains("too many partitions for one worker"), "{why}");
    alone.abort();
}

#[tokio::test]
async fn a_list_too_large_for_one_worker_is_a_clear_error_in_memory() {
    too_large_for_one(Arc::new(Memory::new())).await;
}

#[cfg(feature = "nats")]
#[tokio::test]
async fn a_list_too_large_for_one_worker_is_a_clear_error_on_nats() {
    let server = parti_servers::nats::Server::start();
    let store = parti::store::open(&server.url()).await.expect("a store");
    too_large_for_one(store).await;
}

#[tokio::test]
async fn two_workers_share_what_is_too_large_for_one() {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let (told, mut trouble) = mpsc::unbounded_channel();
    let both = async {
        tokio::join!(
            start(store.clone(), 2, told.clone()),
            start(store.clone(), 2, told)
        )
    };
    let (a, b) = tokio::time::timeout(PATIENCE, both).await.expect("never");
    let served = a.assignment().serve.len() + b.assignment().serve.len();
    assert_eq!(served, PARTITIONS as usize);
    assert!(trouble.try_recv().is_err());
}
