//! A server, a stream, a publisher, and workers that live in runtimes of their own, so that one can
//! be killed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_nats::jetstream::{self, stream};
use async_nats::{HeaderMap, ServerAddr};
use parti::source::JetStream;
use parti::store::{GroupStore, Memory};
use parti::{
    Config, HandlerError, Message, PartitionId, Report, StaticPartitions, Trouble, Worker,
    WorkerError, inspect,
};
use parti_servers::nats::Server;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::ledger::{Ledger, PATIENCE};

/// Settings with short times, except for those after which somebody is taken for dead: that must
/// not happen by itself, however busy the machine.
pub const CONFIG: &str = "\
heartbeat_interval: 500ms
heartbeat_ttl: 60s
worker_id_ttl: 60s
planned_scale_window: 500ms
cold_start_window: 5s
settle_time: 500ms
operation_timeout: 5s
election_timeout: 2s
startup_timeout: 90s
shutdown_timeout: 60s
checkpoint_flush_interval: 200ms
assignment:
  rebalance_cooldown: 0s
handoff:
  prepare_timeout: 60s
processing:
  start: earliest
jetstream:
  min_update_interval: 100ms
";

/// What a scenario runs on.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub version: &'static str,
    pub retention: &'static str,
    pub ack: &'static str,
}

/// Every setup that a scenario must hold on, each a test of its own.
macro_rules! on_every_setup {
    ($($scenario:ident),* $(,)?) => { $(
        mod $scenario {
            use crate::scene::Setup;
            const NEW: &str = parti_servers::install::NATS_LATEST;
            const OLD: &str = parti_servers::install::NATS_OLDEST;
            #[tokio::test]
            async fn limits() {
                super::$scenario(Setup { version: NEW, retention: "limits", ack: "explicit" }).await;
            }
            #[tokio::test]
            async fn limits_without_acks() {
                super::$scenario(Setup { version: NEW, retention: "limits", ack: "none" }).await;
            }
            #[tokio::test]
            async fn work_queue() {
                super::$scenario(Setup { version: NEW, retention: "workqueue", ack: "explicit" }).await;
            }
            #[tokio::test]
            async fn limits_on_the_oldest_server() {
                super::$scenario(Setup { version: OLD, retention: "limits", ack: "explicit" }).await;
            }
            #[tokio::test]
            async fn work_queue_on_the_oldest_server() {
                super::$scenario(Setup { version: OLD, retention: "workqueue", ack: "explicit" }).await;
            }
        }
    )* };
}
pub(crate) use on_every_setup;

/// What every worker reported, in order.
type Reports = Arc<watch::Sender<Vec<(usize, Report)>>>;

/// A worker that starts.
pub struct Starting {
    runtime: Runtime,
    task: JoinHandle<Result<Worker, WorkerError>>,
}

/// A worker in a runtime of its own.
struct Alive {
    runtime: Runtime,
    worker: Worker,
}

/// Everything of a scenario.
pub struct Scene {
    /// None where a cluster of the test's own stands for it.
    server: Option<Server>,
    /// Host and port of every server.
    addresses: Vec<String>,
    pub ledger: Ledger,
    pub partitions: u32,
    replicas: usize,
    pub config: Config,
    store: Memory,
    workers: Vec<Option<Alive>>,
    reports: Reports,
}

impl Scene {
    /// A stream `S` with the subjects `p.0` to `p.<n-1>`.
    pub async fn new(setup: Setup, partitions: u32) -> Self {
        let server = Server::start_version(setup.version);
        let addresses = vec![server.address()];
        let mut scene = Self::at(addresses, setup, partitions, 1).await;
        scene.server = Some(server);
        scene
    }

    /// The same on servers that run already, so many of which keep the stream.
    pub async fn at(
        addresses: Vec<String>,
        setup: Setup,
        partitions: u32,
        replicas: usize,
    ) -> Self {
        let config = format!("{CONFIG}  ack: {}\n", setup.ack);
        let scene = Self {
            server: None,
            addresses,
            replicas,
            ledger: Ledger::default(),
            partitions,
            config: Config::from_yaml(&config).expect("valid"),
            store: Memory::new(),
            workers: Vec::new(),
            reports: Arc::new(watch::channel(Vec::new()).0),
        };
        scene.make_stream(setup.retention).await;
        scene
    }

    fn servers(&self) -> Vec<ServerAddr> {
        let parsed = self.addresses.iter().map(|address| address.parse());
        parsed.collect::<Result<_, _>>().expect("addresses")
    }

    /// The one server.
    pub fn server(&mut self) -> &mut Server {
        self.server.as_mut().expect("a server of its own")
    }

    pub async fn context(&self) -> jetstream::Context {
        let client = async_nats::connect(self.servers()).await;
        jetstream::new(client.expect("connects"))
    }

    pub async fn make_stream(&self, retention: &str) {
        let retention = match retention {
            "workqueue" => stream::RetentionPolicy::WorkQueue,
            _ => stream::RetentionPolicy::Limits,
        };
        let context = self.context().await;
        let config = stream::Config {
            name: "S".into(),
            subjects: vec!["p.*".into()],
            retention,
            num_replicas: self.replicas,
            ..stream::Config::default()
        };
        let making = async {
            // A cluster that chooses a leader loses requests.
            while let Err(error) = context.create_stream(config.clone()).await {
                println!("not made yet: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let made = tokio::time::timeout(PATIENCE, making).await;
        assert!(made.is_ok(), "the stream cannot be made");
    }

    /// The stream's URL.
    pub fn url(&self) -> String {
        self.url_at(&self.addresses.join(","))
    }

    /// The stream's URL through another address.
    pub fn url_at(&self, address: &str) -> String {
        format!("jetstream://{address}/S")
    }

    /// Starts a worker that handles well.
    pub async fn start(&mut self) -> usize {
        let url = self.url();
        self.start_with(&url, |_, _| async { Ok(()) }).await
    }

    /// Starts a worker on this URL; what its handler does well is in the ledger.
    pub async fn start_with<F, R>(&mut self, url: &str, handle: F) -> usize
    where
        F: Fn(usize, Message) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        let starting = self.start_by(url, handle);
        self.started(starting).await
    }

    /// Begins to start a worker that handles well.
    pub fn starting(&self, url: &str) -> Starting {
        self.start_by(url, |_, _| async { Ok(()) })
    }

    fn start_by<F, R>(&self, url: &str, handle: F) -> Starting
    where
        F: Fn(usize, Message) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        let index = self.workers.len();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("threads");
        let (url, store, config) = (url.to_owned(), self.store.clone(), self.config.clone());
        let partitions = StaticPartitions::numbered(self.partitions);
        let (ledger, reports) = (self.ledger.clone(), self.reports.clone());
        let handle = Arc::new(handle);
        let task = runtime.spawn(async move {
            let source = JetStream::connect(&url).await?;
            Worker::builder("g", store, source, partitions)
                .config(config)
                .observer(move |report: &Report| {
                    let reports = &reports;
                    reports.send_modify(|all| all.push((index, report.clone())));
                })
                .start(move |message: Message| {
                    let (ledger, handle) = (ledger.clone(), handle.clone());
                    async move {
                        handle(index, message.clone()).await?;
                        ledger.handled(index, &message);
                        Ok::<(), HandlerError>(())
                    }
                })
                .await
        });
        Starting { runtime, task }
    }

    /// Waits until a worker has started.
    pub async fn started(&mut self, starting: Starting) -> usize {
        let Starting { runtime, task } = starting;
        let worker = tokio::time::timeout(PATIENCE, task).await;
        let worker = worker.expect("in time").expect("no panic").expect("starts");
        self.workers.push(Some(Alive { runtime, worker }));
        self.workers.len() - 1
    }

    /// Why a worker does not start.
    pub async fn refused(&self) -> String {
        let Starting { runtime, task } = self.starting(&self.url());
        let outcome = tokio::time::timeout(PATIENCE, task).await;
        let outcome = outcome.expect("in time").expect("no panic");
        runtime.shutdown_background();
        outcome.expect_err("refused").to_string()
    }

    /// Waits until what workers reported is as wanted.
    pub async fn reported(&self, what: &str, wanted: impl Fn(&[(usize, Report)]) -> bool) {
        let mut reports = self.reports.subscribe();
        let came = reports.wait_for(|all| wanted(all));
        let came = tokio::time::timeout(PATIENCE, came).await;
        assert!(came.is_ok(), "{what} never came");
    }

    /// Waits until the troubles with the source that workers told of are as wanted.
    pub async fn troubles(&self, what: &str, wanted: impl Fn(&[(usize, &str)]) -> bool) {
        self.reported(what, |reports| {
            let mut troubles = Vec::new();
            for (worker, report) in reports {
                if let Report::Trouble(Trouble::Source(why) | Trouble::SourceRefuses(why)) = report
                {
                    troubles.push((*worker, why.as_str()));
                }
            }
            wanted(&troubles)
        })
        .await;
    }

    /// Stops a worker as it should be.
    pub async fn stop(&mut self, index: usize) {
        let Alive { runtime, worker } = self.workers[index].take().expect("alive");
        let stopped = runtime.spawn(worker.stop()).await;
        stopped.expect("no panic").expect("stops");
        runtime.shutdown_background();
    }

    /// Kills a worker: nothing of it runs on, and nobody says goodbye.
    pub fn kill(&mut self, index: usize) {
        let Alive { runtime, worker } = self.workers[index].take().expect("alive");
        runtime.shutdown_background();
        // Its end has nobody left to wait for.
        std::mem::forget(worker);
    }

    pub fn worker(&self, index: usize) -> &Worker {
        &self.workers[index].as_ref().expect("alive").worker
    }

    /// Waits until a worker has handled something.
    pub async fn handles(&self, index: usize) {
        self.ledger
            .until("a message for this worker", |all| {
                all.iter().any(|handled| handled.worker == index)
            })
            .await;
    }

    /// How many reports are like this so far.
    pub fn count_reports(&self, like: impl Fn(&Report) -> bool) -> usize {
        let reports = self.reports.borrow();
        reports.iter().filter(|(_, report)| like(report)).count()
    }

    /// Waits until so many partitions were taken.
    pub async fn taken(&self, count: usize) {
        self.reported("all partitions", |reports| {
            let taken = |(_, report): &&(usize, Report)| matches!(report, Report::Taken { .. });
            reports.iter().filter(taken).count() >= count
        })
        .await;
    }

    /// Waits until a worker is not ready, with this in the reason. (What it reports comes first.)
    pub async fn unready(&self, index: usize, part: &str) {
        let readiness = self.worker(index).readiness();
        let waiting = async {
            while !readiness.not_ready().is_some_and(|why| why.contains(part)) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let came = tokio::time::timeout(PATIENCE, waiting).await;
        assert!(came.is_ok(), "{index} stays ready: {readiness:?}");
    }

    /// The group's records.
    pub fn records(&self) -> GroupStore {
        GroupStore::new(Arc::new(self.store.clone()), "g").expect("a name")
    }

    /// Waits until a worker's session says that it is degraded, with this in the reason.
    pub async fn degraded(&self, index: usize, part: &str) {
        let store = self.records();
        let id = self.worker(index).id().expect("a session");
        let waiting = async {
            loop {
                let group = inspect::group(&store).await.expect("readable");
                let workers = group.map(|group| group.workers).unwrap_or_default();
                let own = workers.into_iter().find(|worker| worker.id == id);
                let why = own.and_then(|worker| worker.degraded).unwrap_or_default();
                if why.contains(part) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let came = tokio::time::timeout(PATIENCE, waiting).await;
        assert!(came.is_ok(), "{id} is never degraded by {part}");
    }

    /// Publishes so many messages, to all partitions in turn, as fast as possible.
    pub async fn publish_many(&self, count: u32) {
        let context = self.context().await;
        let mut acks = Vec::new();
        for turn in 0..count {
            let partition = (turn % self.partitions).to_string();
            let number = self.ledger.next_number(&partition);
            let payload = number.to_string().into();
            let sent = context.publish(format!("p.{partition}"), payload);
            acks.push(sent.await.expect("sent"));
            self.ledger.published(&partition);
            if acks.len() == 500 {
                for ack in acks.drain(..) {
                    ack.await.expect("stored");
                }
            }
        }
        for ack in acks {
            ack.await.expect("stored");
        }
    }

    /// Consumes so many numbered messages of another stream; answers each one's partition and key.
    pub async fn consume_keys(
        &self,
        url: &str,
        partitions: u32,
        count: usize,
    ) -> BTreeMap<usize, (PartitionId, Option<String>)> {
        let source = JetStream::connect(url).await.expect("connects");
        let found = Arc::new(watch::channel(BTreeMap::new()).0);
        let seen = found.clone();
        let partitions = StaticPartitions::numbered(partitions);
        let worker = Worker::builder("keys", Memory::new(), source, partitions)
            .config(self.config.clone())
            .start(move |message: Message| {
                let seen = seen.clone();
                async move {
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    let number: usize = text(message.payload()).parse()?;
                    let key = message.key().map(|key| text(key));
                    seen.send_modify(|all: &mut BTreeMap<_, _>| {
                        all.insert(number, (message.partition.clone(), key));
                    });
                    Ok::<(), HandlerError>(())
                }
            })
            .await
            .expect("starts");
        let mut news = found.subscribe();
        let all = news.wait_for(|all| all.len() == count);
        let all = tokio::time::timeout(PATIENCE, all).await;
        let all = all.expect("in time").expect("alive").clone();
        worker.stop().await.expect("stops");
        all
    }

    /// Publishes to all partitions in turn, again and again, until told to stop.
    pub async fn publisher(&self, pause: Duration) -> Publisher {
        let client = async_nats::ConnectOptions::new()
            .reconnect_delay_callback(|_| Duration::from_millis(50))
            .connect(self.servers())
            .await
            .expect("connects");
        let (ledger, partitions) = (self.ledger.clone(), self.partitions);
        let (stopped, count) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let (stop, counted) = (stopped.clone(), count.clone());
        let task = tokio::spawn(async move {
            let context = jetstream::new(client);
            while !stop.load(Ordering::Acquire) {
                let turn = counted.fetch_add(1, Ordering::AcqRel);
                let partition = (turn % u64::from(partitions)).to_string();
                publish(&context, &ledger, &partition).await;
                tokio::time::sleep(pause).await;
            }
        });
        Publisher { stopped, task }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for alive in self.workers.iter_mut().filter_map(Option::take) {
            alive.runtime.shutdown_background();
            std::mem::forget(alive.worker);
        }
    }
}

/// Publishes the next number of a partition, until the stream says that it has it, once.
pub async fn publish(context: &jetstream::Context, ledger: &Ledger, partition: &str) {
    let number = ledger.next_number(partition);
    loop {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Msg-Id", format!("{partition}/{number}").as_str());
        headers.insert("traceparent", "00-11-22-01");
        let payload = number.to_string().into();
        let sent = context.publish_with_headers(format!("p.{partition}"), headers, payload);
        let stored = async { sent.await.ok()?.await.ok() };
        if let Ok(Some(_)) = tokio::time::timeout(Duration::from_secs(3), stored).await {
            ledger.published(partition);
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A publisher that runs.
pub struct Publisher {
    stopped: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Publisher {
    /// Publishes no more.
    pub async fn stop(self) {
        self.stopped.store(true, Ordering::Release);
        self.task.await.expect("no panic");
    }
}
