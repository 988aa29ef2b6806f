//! Where a scenario is played: servers, a stream, a store, a load and worker processes.
//!
//! ```text
//!   Stage::set ──▶ servers, stream S with subjects p.0 … p.<n-1>, folder for settings and logs
//!      │ hire · leave · kill · freeze · …      the scenario
//!      ▼
//!   finish: no more load ──▶ everything is done ──▶ everybody leaves ──▶ audit
//! ```

use std::sync::Arc;
use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::{self, Context, stream};
use parti::inspect;
use parti::store::{self, GroupStore};
use tempfile::TempDir;

use crate::args::StreamKind;
use crate::audit::Counts;
use crate::crew::Crew;
use crate::failure::{Failure, While};
use crate::ledger::{Ledger, PATIENCE};
use crate::load::{Load, connect};
use crate::servers::Servers;
use crate::stored::stored;

/// The group that all workers belong to.
pub const GROUP: &str = "chaos";
/// The stream.
pub const STREAM: &str = "S";

/// If everything that was published is not done by then, somebody looks whether it is stored.
const WONDER_AFTER: Duration = Duration::from_secs(60);

/// What a run is about: the same for all scenarios of a command.
#[derive(Clone, Debug)]
pub struct Run {
    /// The kind of stream.
    pub kind: StreamKind,
    /// Messages per second.
    pub rate: u32,
    /// Partitions.
    pub partitions: u32,
    /// Version of nats-server.
    pub server: String,
    /// How long the slow handler takes.
    pub slow: Duration,
}

/// What a scenario needs.
#[derive(Clone, Debug)]
pub struct Needs {
    /// Partitions, if not those of the run.
    pub partitions: Option<u32>,
    /// After how much silence a session is over. Long where nobody dies: a slow machine must not
    /// look like a death.
    pub ttl: Duration,
    /// A cluster of three.
    pub cluster: bool,
    /// How long the server keeps an idle consumer.
    pub inactive: Duration,
    /// The most messages that the stream keeps.
    pub keep: Option<i64>,
}

impl Default for Needs {
    fn default() -> Self {
        Self {
            partitions: None,
            ttl: Duration::from_secs(30),
            cluster: false,
            inactive: Duration::from_secs(24 * 60 * 60),
            keep: None,
        }
    }
}

impl Needs {
    /// Somebody dies, and the others should notice soon.
    pub fn deaths() -> Self {
        Self {
            ttl: Duration::from_secs(5),
            ..Self::default()
        }
    }

    /// Three servers.
    pub fn cluster() -> Self {
        Self {
            cluster: true,
            ..Self::default()
        }
    }
}

/// Everything of a scenario.
pub struct Stage {
    /// The run.
    pub run: Run,
    /// The servers.
    pub servers: Servers,
    /// What was published and said.
    pub ledger: Ledger,
    /// The processes.
    pub crew: Crew,
    /// How many partitions there are.
    pub partitions: u32,
    /// A connection of our own.
    pub client: Client,
    keep: Option<i64>,
    addresses: String,
    store: GroupStore,
    load: Option<Load>,
    folder: TempDir,
}

impl Stage {
    /// Starts servers, makes the stream, and writes down the workers' settings.
    pub async fn set(run: &Run, needs: &Needs) -> Result<Self, Failure> {
        let mut servers = Servers::start(&run.server, needs.cluster)?;
        let addresses = servers.addresses();
        let folder = tempfile::Builder::new()
            .prefix("parti-chaos-")
            .tempdir()
            .during("making a folder")?;
        std::fs::write(folder.path().join("config.yaml"), settings(run, needs))
            .during("writing settings")?;
        let client = connect(&addresses).await?;
        let ledger = Ledger::default();
        let url = store_url(&addresses, servers.replicas());
        let store = insist("opening the store", async || store::open(&url).await).await?;
        let stage = Self {
            store: GroupStore::new(store, GROUP).during("naming the group")?,
            crew: Crew::new(&ledger, folder.path()),
            partitions: needs.partitions.unwrap_or(run.partitions),
            run: run.clone(),
            servers,
            ledger,
            client,
            keep: needs.keep,
            addresses,
            load: None,
            folder,
        };
        stage.make_stream().await?;
        Ok(stage)
    }

    /// The JetStream API.
    pub fn context(&self) -> Context {
        jetstream::new(self.client.clone())
    }

    /// Makes the stream.
    pub async fn make_stream(&self) -> Result<(), Failure> {
        let config = stream::Config {
            name: STREAM.into(),
            subjects: vec!["p.*".into()],
            retention: match self.run.kind {
                StreamKind::Workqueue => stream::RetentionPolicy::WorkQueue,
                StreamKind::Limits | StreamKind::Unacked => stream::RetentionPolicy::Limits,
            },
            num_replicas: self.servers.replicas(),
            max_messages: self.keep.unwrap_or(-1),
            ..stream::Config::default()
        };
        let context = self.context();
        insist("making the stream", async || {
            context.create_stream(config.clone()).await
        })
        .await
        .map(drop)
    }

    /// The folder with settings and logs; stays when asked for.
    pub fn keep_folder(self) -> std::path::PathBuf {
        self.folder.keep()
    }

    /// Arguments of a worker that reaches the servers at these addresses.
    pub fn arguments_at(&self, addresses: &str) -> Vec<String> {
        let config = self.folder.path().join("config.yaml");
        [
            "--source",
            &format!("jetstream://{addresses}/{STREAM}"),
            "--store",
            &store_url(addresses, self.servers.replicas()),
            "--group",
            GROUP,
            "--config",
            &config.to_string_lossy(),
            "--partitions",
            &self.partitions.to_string(),
        ]
        .map(str::to_owned)
        .to_vec()
    }

    /// Starts a worker with further arguments, and does not wait.
    pub fn spawn(&mut self, more: &[&str]) -> Result<usize, Failure> {
        let mut arguments = self.arguments_at(&self.addresses);
        arguments.extend(more.iter().map(|&argument| argument.to_owned()));
        self.crew.spawn(&arguments)
    }

    /// Starts so many workers, and waits until each has an assignment.
    pub async fn hire(&mut self, count: usize) -> Result<Vec<usize>, Failure> {
        self.hire_with(count, &[]).await
    }

    /// The same with further arguments.
    pub async fn hire_with(&mut self, count: usize, more: &[&str]) -> Result<Vec<usize>, Failure> {
        let hired: Result<Vec<usize>, Failure> = (0..count).map(|_| self.spawn(more)).collect();
        let hired = hired?;
        for process in &hired {
            self.started(*process).await?;
        }
        Ok(hired)
    }

    /// Waits until a worker has an assignment.
    pub async fn started(&self, process: usize) -> Result<(), Failure> {
        use crate::line::Event::{Ended, Started};
        let is_start = |event: &_| matches!(event, Started | Ended { .. });
        self.ledger
            .until("a worker's start", |facts| {
                facts.said_by(process).any(is_start)
            })
            .await?;
        match self.ledger.facts().end_of(process) {
            None => Ok(()),
            Some(why) => Err(Failure::new(format!("a worker did not start: {why:?}"))),
        }
    }

    /// Starts one worker, and waits until it handles messages.
    pub async fn join(&mut self) -> Result<usize, Failure> {
        let process = self.spawn(&[])?;
        self.handles(process).await?;
        Ok(process)
    }

    /// Waits until a worker handles further messages.
    pub async fn handles(&self, process: usize) -> Result<(), Failure> {
        let before = self.ledger.facts().handled_by(process);
        self.ledger
            .until("a message for this worker", |facts| {
                facts.handled_by(process) > before
            })
            .await
    }

    /// Waits until so many further messages of every partition are done.
    pub async fn next_of_all(&self, count: u64) -> Result<(), Failure> {
        self.ledger.next_of_all(self.partitions, count).await
    }

    /// The process that leads the group.
    pub async fn leader(&self) -> Result<usize, Failure> {
        let running = self.crew.running();
        let leader = |facts: &crate::ledger::Facts| {
            let leaders: Vec<usize> = running
                .iter()
                .copied()
                .filter(|p| facts.leads(*p))
                .collect();
            leaders.first().copied()
        };
        self.ledger
            .until("a leader", |facts| leader(facts).is_some())
            .await?;
        let found = leader(&self.ledger.facts());
        found.ok_or_else(|| Failure::new("the leader is gone"))
    }

    /// The name of a worker's durable.
    pub fn durable(&self, process: usize) -> Result<String, Failure> {
        let facts = self.ledger.facts();
        let id = facts.id_of(process);
        let id = id.ok_or_else(|| Failure::new("a worker without an id"))?;
        Ok(format!("parti-{GROUP}-{id}"))
    }

    /// Begins to publish.
    pub async fn load(&mut self) -> Result<(), Failure> {
        let load = Load::start(
            &self.addresses,
            &self.ledger,
            self.partitions,
            self.run.rate,
        );
        self.load = Some(load.await?);
        Ok(())
    }

    /// Publishes no more.
    pub async fn end_load(&mut self) -> Result<(), Failure> {
        match self.load.take() {
            Some(load) => load.stop().await,
            None => Ok(()),
        }
    }

    /// Publishes no more, and waits until everything is done.
    pub async fn drain(&mut self) -> Result<(), Failure> {
        self.end_load().await?;
        let drained = self
            .ledger
            .until("the end of the stream", |facts| facts.drained());
        let mut drained = std::pin::pin!(drained);
        if let Ok(drained) = tokio::time::timeout(WONDER_AFTER, &mut drained).await {
            return drained;
        }
        // A stream that keeps everything can be asked whether there is anything to wait for.
        if self.run.kind != StreamKind::Workqueue && self.keep.is_none() {
            let context = self.context();
            let held = insist("reading the stream", async || stored(&context).await).await?;
            self.ledger.holds(&held);
        }
        drained.await
    }

    /// Ends the load, waits until everything is done, and lets everybody go.
    pub async fn finish(&mut self) -> Result<(), Failure> {
        self.drain().await?;
        self.crew.dismiss().await
    }

    /// What the ledger shows.
    pub fn audit(&self) -> Counts {
        self.ledger.audit()
    }

    /// The group as the store has it.
    pub async fn group(&self) -> Result<inspect::Group, Failure> {
        let group = insist("reading the group", async || {
            inspect::group(&self.store).await
        })
        .await?;
        group.ok_or_else(|| Failure::new("the store knows no group"))
    }

    /// How many keys the store has, the history not counted.
    pub async fn keys(&self) -> Result<usize, Failure> {
        let mut keys = 0;
        for side in [
            "group/",
            "workers/",
            "leader/",
            "plan/",
            "assignments/",
            "partitions/",
            "requests/",
            "overrides/",
        ] {
            keys += self.under(side).await?;
        }
        Ok(keys)
    }

    /// How many lines the group's history has.
    pub async fn events(&self) -> Result<usize, Failure> {
        self.under("events/").await
    }

    async fn under(&self, side: &str) -> Result<usize, Failure> {
        let store: Arc<dyn store::Store> = self.store.store().clone();
        let scope = store::Scope::Under(side.into());
        Ok(store.list(&scope).await.during("listing keys")?.len())
    }
}

fn store_url(addresses: &str, replicas: usize) -> String {
    format!("nats://{addresses}/chaos?replicas={replicas}")
}

/// Tries again: while a cluster chooses leaders it may not answer.
pub async fn insist<T, E: std::fmt::Display>(
    what: &str,
    attempt: impl AsyncFn() -> Result<T, E>,
) -> Result<T, Failure> {
    let begun = tokio::time::Instant::now();
    loop {
        match attempt().await {
            Ok(done) => return Ok(done),
            Err(error) if begun.elapsed() > PATIENCE => {
                return Err(Failure::new(format!("{what}: {error}")));
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// The workers' settings: short times where nothing depends on them, long ones where a slow machine
/// would be taken for a death.
fn settings(run: &Run, needs: &Needs) -> String {
    let ack = match run.kind {
        StreamKind::Unacked => "none",
        StreamKind::Limits | StreamKind::Workqueue => "explicit",
    };
    let ttl = needs.ttl.as_millis();
    let inactive = needs.inactive.as_millis();
    format!(
        "\
heartbeat_interval: {}ms
heartbeat_ttl: {ttl}ms
worker_id_ttl: {ttl}ms
cold_start_window: 10s
planned_scale_window: 1s
settle_time: 500ms
operation_timeout: 10s
election_timeout: 2s
startup_timeout: 150s
shutdown_timeout: 30s
checkpoint_flush_interval: 1s
assignment:
  rebalance_cooldown: 0s
handoff:
  prepare_timeout: 60s
  release_warning: 60s
processing:
  start: earliest
jetstream:
  ack: {ack}
  retry_backoff: [200ms]
  reconcile_interval: 5s
  inactive_threshold: {inactive}ms
",
        (ttl / 10).min(1_000)
    )
}
