//! A worker: takes its share of a group's partitions, and hands their messages to a handler.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use parti_core::ids::SourceId;
use parti_core::partition;
use tokio::time::timeout;

use crate::builder::{Builder, Consumption, IntoStore};
use crate::driver::Observer;
use crate::driver::tasks::caught;
use crate::handler::Handler;
use crate::member::{Member, WorkerError};
use crate::partitions::{PartitionSource, PartitionsOf};
#[cfg(feature = "nats")]
use crate::source::jetstream::{JetStream, StreamTransport};
use crate::source::{LogTransport, Source, Transport};

/// Consumption by Parti itself, from a source.
#[derive(Debug)]
pub struct FromSource(AnySource);

/// A source of any kind.
#[derive(Clone, Debug)]
pub struct AnySource(Kind);

#[derive(Clone, Debug)]
enum Kind {
    /// Read by partition and offset.
    Log(Arc<dyn Source>),
    /// Behind one durable consumer per worker.
    #[cfg(feature = "nats")]
    Stream(Box<JetStream>),
}

/// Settings of a worker that is to be started.
pub type WorkerBuilder = Builder<FromSource>;

impl WorkerBuilder {
    /// Starts the worker, and waits until it has its first assignment (an empty one counts). A
    /// start that fails, or whose future is dropped, gives its id back.
    pub async fn start(mut self, handler: impl Handler) -> Result<Worker, WorkerError> {
        self.check()?;
        self.check_partitions().await?;
        let (transport, observer, stream): (
            Arc<dyn Transport>,
            Option<Arc<dyn Observer>>,
            SourceId,
        ) = match self.consumption.0.0.clone() {
            Kind::Log(source) => {
                let stream = source.identity().await?;
                let transport = LogTransport::new(source, self.config.operation_timeout);
                (Arc::new(transport), None, stream.into())
            }
            #[cfg(feature = "nats")]
            Kind::Stream(source) => {
                let transport = StreamTransport::new(&source, &self.group, &self.config)?;
                let transport = Arc::new(transport);
                (transport.clone(), Some(transport), source.identity().into())
            }
        };
        let consume = self.launch(|_| Consumption {
            transport,
            handler: Arc::new(handler),
            observer,
            stream,
        });
        consume.await.map(Worker)
    }

    /// A log that was made with so many partitions is consumed with these and no others. What is
    /// wrong from the beginning is said at once; of a later list, the last good one stays in force.
    async fn check_partitions(&mut self) -> Result<(), WorkerError> {
        let Some((log, count)) = self.consumption.0.made_with() else {
            return Ok(());
        };
        let listed = caught(self.partitions.shared());
        // A list that cannot be had now is asked for again.
        if let Ok(Ok(Ok(list))) = timeout(self.config.operation_timeout, listed).await {
            let fits = partition::made_with(&list, &log, count);
            fits.map_err(|problem| WorkerError::Config(problem.into()))?;
        }
        self.partitions = Arc::new(PartitionsOf {
            log,
            count,
            listed: self.partitions.clone(),
        });
        Ok(())
    }
}

impl AnySource {
    /// What it is called, and with how many partitions it was made, if that is known.
    fn made_with(&self) -> Option<(String, u32)> {
        match &self.0 {
            Kind::Log(source) => Some((source.name().to_owned(), source.partitions()?)),
            #[cfg(feature = "nats")]
            Kind::Stream(source) => Some((
                format!("the stream {}", source.stream()),
                source.partitions()?,
            )),
        }
    }
}

/// A worker that runs.
///
/// ```
/// use parti::source::MemoryLog;
/// use parti::store::Memory;
/// use parti::{Config, HandlerError, Message, StaticPartitions, Worker};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), HandlerError> {
/// let log = MemoryLog::new();
/// let partitions = StaticPartitions::numbered(4);
/// let config = Config::from_yaml("expected_workers: 1")?;
/// let worker = Worker::builder("orders", Memory::new(), log.clone(), partitions)
///     .config(config)
///     .start(|message: Message| async move {
///         println!("{}/{}: {:?}", message.partition, message.offset, message.payload());
///         Ok::<(), HandlerError>(())
///     })
///     .await?;
/// assert_eq!(worker.assignment().serve.len(), 4);
/// worker.stop().await?;
/// # Ok(())
/// # }
/// ```
///
/// What it has in common with a [`Manager`](crate::Manager) is in [`Member`]. Dropping it is a stop
/// without waiting: the rest happens in the background, as long as the runtime lives, and what is cut
/// off by its time limit is logged.
pub struct Worker(Member);

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Worker").field(&self.0).finish()
    }
}

impl Deref for Worker {
    type Target = Member;

    fn deref(&self) -> &Member {
        &self.0
    }
}

impl Worker {
    /// A worker of this group, on this store, for these partitions of this source.
    pub fn builder(
        group: &str,
        store: impl IntoStore,
        source: impl IntoSource,
        partitions: impl PartitionSource,
    ) -> WorkerBuilder {
        let source = FromSource(source.into_source());
        Builder::new(source, group, store.into_store(), partitions)
    }

    /// Hands over everything, commits, says goodbye; within `shutdown_timeout`. A handler call that
    /// outlasts it is cut off, and [`Fatal::StopTimedOut`](crate::Fatal::StopTimedOut) names its
    /// message, which is handled again. Ok: nothing is repeated because of the stop.
    pub async fn stop(self) -> Result<(), WorkerError> {
        self.0.end(None).await
    }

    /// The same within a shorter time.
    pub async fn stop_within(self, limit: Duration) -> Result<(), WorkerError> {
        self.0.end(Some(limit)).await
    }
}

/// Whatever can be shared as a source.
pub trait IntoSource {
    /// The shared source.
    fn into_source(self) -> AnySource;
}

impl<S: Source> IntoSource for S {
    fn into_source(self) -> AnySource {
        AnySource(Kind::Log(Arc::new(self)))
    }
}

impl IntoSource for Arc<dyn Source> {
    fn into_source(self) -> AnySource {
        AnySource(Kind::Log(self))
    }
}

#[cfg(feature = "nats")]
impl IntoSource for JetStream {
    fn into_source(self) -> AnySource {
        AnySource(Kind::Stream(Box::new(self)))
    }
}

impl IntoSource for AnySource {
    fn into_source(self) -> AnySource {
        self
    }
}

#[cfg(test)]
mod tests;
