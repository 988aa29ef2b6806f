//! A worker: takes its share of a group's partitions, and hands their messages to a handler.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parti_core::config::Config;
use parti_core::ids::{PartitionId, Version, WorkerId};
use parti_core::leader::election::Agent;
use parti_core::problem::Problems;
use parti_core::strategy::{self, Strategy};
use parti_core::worker::{Event, Fatal, Options, State};
use tokio::sync::watch;

use crate::clock::{Clock, SystemClock};
use crate::driver::{self, Handles, Observer, Parts, Status};
use crate::handler::Handler;
use crate::partitions::PartitionSource;
use crate::source::{LogTransport, Source, SourceError, Transport};
use crate::store::{self, GroupStore, Store};

/// Why a worker did not start, or did not stop as it should.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WorkerError {
    /// The configuration has mistakes, all of them listed.
    #[error("{0}")]
    Config(Problems),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The source cannot be used.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// It ended against its will.
    #[error(transparent)]
    Fatal(#[from] Fatal),
    /// The start took too long; the id was given back.
    #[error(
        "not started within {limit:?}: the worker got no further than {state:?}; check the store, the partitions and the leader, or raise startup_timeout"
    )]
    StartTimeout {
        /// How long it was given, windows not counted.
        limit: Duration,
        /// How far it came.
        state: State,
    },
    /// It was stopped before.
    #[error("the worker was stopped before")]
    AlreadyStopped,
}

/// What a worker should serve and prepare now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// Grows with every assignment of the group.
    pub version: Version,
    /// What to serve, sorted.
    pub serve: Vec<PartitionId>,
    /// What to get ready for, sorted.
    pub prepare: Vec<PartitionId>,
}

/// Settings of a worker that is to be started.
pub struct WorkerBuilder {
    group: String,
    store: Arc<dyn Store>,
    source: Arc<dyn Source>,
    partitions: Arc<dyn PartitionSource>,
    config: Config,
    strategy: Option<Arc<dyn Strategy>>,
    preferred: Option<u64>,
    observers: Vec<Arc<dyn Observer>>,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for WorkerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerBuilder")
            .field("group", &self.group)
            .field("store", &self.store.name())
            .field("source", &self.source.name())
            .finish_non_exhaustive()
    }
}

impl WorkerBuilder {
    /// All settings; every worker of a group should have the same.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// A strategy of one's own, in place of the configured one.
    #[must_use]
    pub fn strategy(mut self, strategy: Arc<dyn Strategy>) -> Self {
        self.strategy = Some(strategy);
        self
    }

    /// The number that this worker would like in its id, such as a StatefulSet's ordinal.
    #[must_use]
    pub fn preferred_number(mut self, number: u64) -> Self {
        self.preferred = Some(number);
        self
    }

    /// Somebody who is told what happens, in order, in the event loop itself.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observers.push(Arc::new(observer));
        self
    }

    #[cfg(test)]
    pub(crate) fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Starts the worker, and waits until it has its first assignment (an empty one counts). A
    /// start that fails, or whose future is dropped, gives its id back.
    pub async fn start(self, handler: impl Handler) -> Result<Worker, WorkerError> {
        self.config.validate().map_err(WorkerError::Config)?;
        let stream = self.source.identity().await?;
        let limits = Limits::of(&self.config);
        let strategy = self
            .strategy
            .unwrap_or_else(|| strategy::from_choice(&self.config.strategy));
        let transport = LogTransport::new(self.source, self.config.operation_timeout);
        let transport = Arc::new(transport);
        let handles = driver::start(Parts {
            options: Options {
                strategy,
                source: transport.kind(),
                stream,
                preferred: self.preferred,
                agent: Agent::Store,
                seed: seed(),
                config: self.config,
            },
            store: GroupStore::new(self.store, &self.group)?,
            transport,
            partitions: self.partitions,
            handler: Arc::new(handler),
            observers: self.observers,
            clock: self.clock,
        });
        // From here on dropping the worker stops it gracefully, also when this future is dropped.
        let mut worker = Worker {
            handles: Some(handles),
            limits,
        };
        match worker.first_assignment().await {
            Ok(()) => Ok(worker),
            Err(error) => {
                // It says goodbye in the background at the latest; what matters is the reason.
                let _ = worker.stop().await;
                Err(error)
            }
        }
    }
}

/// How long things may take.
#[derive(Clone, Copy, Debug)]
struct Limits {
    start: Duration,
    window: Duration,
}

impl Limits {
    fn of(config: &Config) -> Self {
        Self {
            start: config.startup_timeout,
            window: config.cold_start_window,
        }
    }
}

fn seed() -> u64 {
    // Without randomness from the system, nonces could repeat those of another process: the time
    // and the process id are the next best thing.
    getrandom::u64().unwrap_or_else(|_| {
        let clock = SystemClock;
        clock.wall_ms() ^ (clock.now().0 << 20) ^ (u64::from(std::process::id()) << 44)
    })
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
/// Dropping it is a stop without waiting: the rest happens in the background, as long as the
/// runtime lives.
pub struct Worker {
    /// `None` once stopped.
    handles: Option<Handles>,
    limits: Limits,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("id", &self.id())
            .field("state", &self.state())
            .finish_non_exhaustive()
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
        WorkerBuilder {
            group: group.to_owned(),
            store: store.into_store(),
            source: source.into_source(),
            partitions: Arc::new(partitions),
            config: Config::default(),
            strategy: None,
            preferred: None,
            observers: Vec::new(),
            clock: Arc::new(SystemClock),
        }
    }

    fn status(&self) -> Status {
        match &self.handles {
            Some(handles) => handles.status.borrow().clone(),
            None => Status {
                state: State::Shutdown,
                ..Status::INIT
            },
        }
    }

    /// Its stable id; `None` while it has no session.
    pub fn id(&self) -> Option<WorkerId> {
        self.status().id
    }

    /// Whether it leads the group. May change at any time.
    pub fn is_leader(&self) -> bool {
        self.status().leader
    }

    /// Its state.
    pub fn state(&self) -> State {
        self.status().state
    }

    /// What it was last told to serve and prepare.
    pub fn assignment(&self) -> Assignment {
        let assignment = self.status().assignment;
        assignment.map_or_else(Assignment::default, |told| Assignment {
            version: told.version,
            serve: told.serve.clone(),
            prepare: told.prepare.iter().map(|(id, _)| id.clone()).collect(),
        })
    }

    /// Waits for a state; also ends when the worker does, with the reason.
    pub async fn wait_for(&self, state: State) -> Result<(), WorkerError> {
        let Some(handles) = &self.handles else {
            return Err(WorkerError::AlreadyStopped);
        };
        let status = handles.status.clone();
        wait(status, |status| status.state == state).await
    }

    /// Has the partitions listed again.
    pub fn refresh_partitions(&self) {
        self.send(Event::RefreshPartitions);
    }

    /// Has all progress committed now.
    pub fn flush(&self) {
        self.send(Event::Flush);
    }

    /// Waits until the worker ends against its will, and says why.
    pub async fn ended(&self) -> Result<(), WorkerError> {
        match &self.handles {
            Some(handles) => wait(handles.status.clone(), |_| false).await,
            None => Err(WorkerError::AlreadyStopped),
        }
    }

    /// Hands over everything, commits, says goodbye; within `shutdown_timeout`.
    pub async fn stop(mut self) -> Result<(), WorkerError> {
        let Some(handles) = self.handles.take() else {
            return Err(WorkerError::AlreadyStopped);
        };
        let _ = handles.events.send(Event::Stop);
        wait(handles.status.clone(), |_| false).await
    }

    fn send(&self, event: Event) {
        if let Some(handles) = &self.handles {
            // Once it has ended there is nobody to tell.
            let _ = handles.events.send(event);
        }
    }

    async fn first_assignment(&mut self) -> Result<(), WorkerError> {
        let Some(handles) = &self.handles else {
            return Err(WorkerError::AlreadyStopped);
        };
        let status = handles.status.clone();
        let limit = self.limits.start;
        let assigned = wait(status.clone(), |status| status.assignment.is_some());
        tokio::pin!(assigned);
        let last = |status: &watch::Receiver<Status>| status.borrow().state;
        // The window in which a group waits for its members is not this worker's delay.
        for extra in [limit, self.limits.window] {
            if let Ok(started) = tokio::time::timeout(extra, &mut assigned).await {
                return started;
            }
            if last(&status) < State::WaitingAssignment {
                break;
            }
        }
        Err(WorkerError::StartTimeout {
            limit,
            state: last(&status),
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let Some(handles) = self.handles.take() else {
            return;
        };
        let _ = handles.events.send(Event::Stop);
        // Without a runtime nothing runs any more anyway.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let _ = wait(handles.status.clone(), |_| false).await;
                drop(handles);
            });
        }
    }
}

/// Waits until the status is as wanted, or the worker ended: then with its reason.
async fn wait(
    mut status: watch::Receiver<Status>,
    wanted: impl Fn(&Status) -> bool,
) -> Result<(), WorkerError> {
    let seen = status.wait_for(|status| status.end.is_some() || wanted(status));
    match seen.await {
        Ok(status) => match &status.end {
            Some(Err(fatal)) => Err(WorkerError::Fatal(fatal.clone())),
            Some(Ok(())) | None => Ok(()),
        },
        // The loop is gone without a word: it was cancelled.
        Err(_) => Err(WorkerError::AlreadyStopped),
    }
}

/// Whatever can be shared as a store.
pub trait IntoStore {
    /// The shared store.
    fn into_store(self) -> Arc<dyn Store>;
}

impl<S: Store> IntoStore for S {
    fn into_store(self) -> Arc<dyn Store> {
        Arc::new(self)
    }
}

impl IntoStore for Arc<dyn Store> {
    fn into_store(self) -> Arc<dyn Store> {
        self
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
