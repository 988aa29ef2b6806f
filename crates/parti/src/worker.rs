//! A worker: takes its share of a group's partitions, and hands their messages to a handler.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::builder::{Builder, Consumption, IntoStore};
use crate::handler::Handler;
use crate::member::{Member, WorkerError};
use crate::partitions::PartitionSource;
use crate::source::{LogTransport, Source};

/// Consumption by Parti itself, from a source.
#[derive(Debug)]
pub struct FromSource(Arc<dyn Source>);

/// Settings of a worker that is to be started.
pub type WorkerBuilder = Builder<FromSource>;

impl WorkerBuilder {
    /// Starts the worker, and waits until it has its first assignment (an empty one counts). A
    /// start that fails, or whose future is dropped, gives its id back.
    pub async fn start(self, handler: impl Handler) -> Result<Worker, WorkerError> {
        self.check()?;
        let source = self.consumption.0.clone();
        let stream = source.identity().await?;
        let consume = self.launch(|wiring| Consumption {
            transport: Arc::new(LogTransport::new(source, wiring.operation_timeout)),
            handler: Arc::new(handler),
            observer: None,
            stream,
        });
        consume.await.map(Worker)
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
/// without waiting: the rest happens in the background, as long as the runtime lives.
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

    /// Hands over everything, commits, says goodbye; within `shutdown_timeout`.
    pub async fn stop(self) -> Result<(), WorkerError> {
        self.0.end(None).await
    }

    /// The same within a shorter time. What is still in flight when it is over may be handled
    /// again by others.
    pub async fn stop_within(self, limit: Duration) -> Result<(), WorkerError> {
        self.0.end(Some(limit)).await
    }
}

/// Whatever can be shared as a source.
pub trait IntoSource {
    /// The shared source.
    fn into_source(self) -> Arc<dyn Source>;
}

impl<S: Source> IntoSource for S {
    fn into_source(self) -> Arc<dyn Source> {
        Arc::new(self)
    }
}

impl IntoSource for Arc<dyn Source> {
    fn into_source(self) -> Arc<dyn Source> {
        self
    }
}

#[cfg(test)]
mod tests;
