//! NATS JetStream as a source: one durable pull consumer per worker, for all of its partitions.
//!
//! ```text
//!   worker ──update, delete, reset, inspect──▶ consumer ──┐
//!          ──pull, ack, extend──▶ pull: one loop ─────────┤
//!          ──head, read, resolve──▶ read ─────────────────┼──▶ api ──▶ nats-server
//!          ──dead letter──▶ letters ──────────────────────┘
//!   partition "tool1.a" ◀── subjects: dc.{0}.{1}.done ──▶ subject dc.tool1.a.done
//! ```
//!
//! The checkpoint in the group's store is the truth, the consumer only transport: whatever it
//! skipped, lost or repeated is read past it, or rewound to. Needs nats-server 2.10 or newer, and a
//! stream with limits or workqueue retention.
//!
//! ```no_run
//! use parti::source::JetStream;
//! use parti::{HandlerError, Message, StaticPartitions, Worker};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), HandlerError> {
//! let source = JetStream::connect("jetstream://localhost:4222/ORDERS?subject=orders.{0}").await?;
//! let store = parti::store::open("nats://localhost:4222").await?;
//! let partitions = StaticPartitions::numbered(12);
//! let worker = Worker::builder("billing", store, source, partitions)
//!     .start(|message: Message| async move {
//!         println!("{}: {:?}", message.subject(), message.payload());
//!         Ok::<(), HandlerError>(())
//!     })
//!     .await?;
//! worker.ended().await?;
//! # Ok(())
//! # }
//! ```

mod address;
mod api;
mod bare;
mod check;
mod consumer;
mod delivery;
mod letters;
mod producer;
mod published;
mod pull;
mod read;
mod reader;
mod settings;
mod subjects;
mod topic;
mod transport;
mod trial;

use std::fmt;
use std::time::Duration;

use parti_core::codec::Template;
use parti_core::config::Config;
use parti_core::io::Retention;

use crate::nats::connect::connect;
use crate::nats::link::Link;
use crate::source::{Offset, PartitionId, SourceError, StartPosition};
use address::Target;
use api::{Api, ConsumerLimits, StreamConfig};
use letters::Letters;
pub use producer::{NewMessage, Producer};
use read::Reads;
use settings::Settings;
pub use topic::{MAX_REPLICAS, StreamSettings, numbered_template};
pub(crate) use transport::StreamTransport;
pub use trial::Tried;

/// A JetStream stream to consume from. Clones share one connection.
#[derive(Clone)]
pub struct JetStream {
    api: Api,
    retention: Retention,
    template: Template,
    letters: Letters,
    partitions: Option<u32>,
    consumer_limits: ConsumerLimits,
}

/// How a stream is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamAbout {
    /// The server's version.
    pub server: String,
    /// What the server's clock showed when it answered, as RFC 3339, if it says.
    pub clock: Option<String>,
    /// `limits` or `workqueue`.
    pub retention: String,
    /// `file` or `memory`.
    pub storage: String,
    /// How many servers keep it.
    pub replicas: usize,
    /// Whether the server is one of several.
    pub clustered: bool,
    /// What goes away by itself.
    pub limits: StreamLimits,
    /// How many messages it has.
    pub messages: u64,
}

/// What a stream removes by itself, handled or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamLimits {
    /// Messages that are older.
    pub max_age: Option<Duration>,
    /// The oldest, so that it has no more.
    pub max_messages: Option<u64>,
    /// The oldest, so that it has no more bytes.
    pub max_bytes: Option<u64>,
    /// The oldest of each subject, so that it has no more.
    pub max_messages_per_subject: Option<u64>,
    /// A stream that has reached a limit refuses new messages, and removes none for it; only age
    /// still does.
    pub refuses_new: bool,
}

impl StreamLimits {
    fn of(config: &StreamConfig) -> Self {
        let limit = |most: i64| u64::try_from(most).ok().filter(|most| *most > 0);
        Self {
            max_age: (config.max_age > 0).then(|| Duration::from_nanos(config.max_age)),
            max_messages: limit(config.max_msgs),
            max_bytes: limit(config.max_bytes),
            max_messages_per_subject: limit(config.max_msgs_per_subject),
            refuses_new: config.discard == "new",
        }
    }
}

impl fmt::Debug for JetStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JetStream({:?}, {})", self.api, self.template)
    }
}

impl JetStream {
    /// Connects to the stream that a URL names, and makes sure that it can be consumed without
    /// loss: `jetstream://[user:password@]host[:4222][,host…]/STREAM[?…]`.
    ///
    /// | parameter | what |
    /// |---|---|
    /// | `subject` | how a partition becomes a subject, such as `dc.{0}.{1}.completion`; by default what was recorded with the stream, or what follows from its one subject (`orders.*`: `orders.{0}`). Wildcards are for subjects that a server computes: `orders.{0}.*` consumes what the transform `orders.{{partition(12,1)}}.{{wildcard(1)}}` made, and what the `*` stands for is the message's key |
    /// | `dead_letters` | where messages go that cannot be handled; by default `parti.dlq.<stream>`, in a stream of its own |
    /// | `creds`, `token`, `nkey` | how to log in: a credentials file, a token, a file with a seed |
    /// | `tls`, `ca`, `cert`, `key` | TLS, and its files |
    pub async fn connect(url: &str) -> Result<Self, SourceError> {
        let target = Target::parse(url)?;
        Self::open(Self::link(&target).await?, &target).await
    }

    /// Whether a URL has the form of a stream's, and names files that can be read, without asking any
    /// server.
    pub fn check_url(url: &str) -> Result<(), SourceError> {
        let files = Target::parse(url)?.servers.check_files();
        files.map_err(api::of_connection)
    }

    /// Connects to the servers of a URL.
    async fn link(target: &Target) -> Result<Link, SourceError> {
        let connecting = connect(&target.servers);
        let (client, health) = connecting.await.map_err(api::of_connection)?;
        Ok(Link::new(client, health, target.servers.name.clone()))
    }

    /// Opens the stream of a URL on a connection.
    async fn open(link: Link, target: &Target) -> Result<Self, SourceError> {
        let (api, info) = Api::open(link, &target.stream).await?;
        let (stream, config) = (&target.stream, &info.config);
        let retention = check::retention(stream, config)?;
        let template = check::template(stream, target.subject.as_deref(), config)?;
        let letters = target.dead_letters.as_deref();
        Ok(Self {
            api,
            retention,
            letters: Letters::new(stream, letters, config, &template)?,
            partitions: check::partitions(stream, config)?,
            consumer_limits: config.consumer_limits,
            template,
        })
    }

    /// The stream's name.
    pub fn stream(&self) -> &str {
        &self.api.stream
    }

    /// How a partition becomes a subject.
    pub fn template(&self) -> &Template {
        &self.template
    }

    /// How many virtual partitions it was made with; `None` if it was not made for them.
    pub fn partitions(&self) -> Option<u32> {
        self.partitions
    }

    /// The oldest offset that is still there, and one past the newest.
    pub async fn range(&self) -> Result<(Offset, Offset), SourceError> {
        let state = self.api.stream_info().await?.state;
        Ok((Offset(state.first().min(state.end())), Offset(state.end())))
    }

    /// The offset that a start position stands for, never past the end.
    pub async fn resolve(
        &self,
        partition: &PartitionId,
        start: StartPosition,
    ) -> Result<Offset, SourceError> {
        let reads = Reads::new(self.api.clone(), self.template.clone());
        reads.resolve(partition, start).await
    }

    /// How the stream is set up, and by which server, for those who check that.
    pub async fn about(&self) -> Result<StreamAbout, SourceError> {
        let info = self.api.stream_info().await?;
        let config = info.config;
        Ok(StreamAbout {
            server: self.api.link.client.server_info().version,
            clock: info.ts,
            replicas: config.num_replicas,
            clustered: self.api.link.client.server_info().cluster.is_some(),
            limits: StreamLimits::of(&config),
            retention: config.retention,
            storage: config.storage,
            messages: info.state.messages,
        })
    }

    /// Which stream this is: another number once it was deleted and made anew.
    pub fn identity(&self) -> u64 {
        self.api.identity()
    }

    fn check(&self, own: &Settings, config: &Config) -> Result<(), SourceError> {
        check::settings(&self.api.stream, self.consumer_limits, own, config)
    }
}
