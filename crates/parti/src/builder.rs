//! Settings of a worker or a manager that is to be started, and the start itself.
//!
//! ```text
//!  builder ──▶ launch ──┬─ task: driver (the event loop)
//!                       ├─ task: hooks          ◀── reports, failures
//!                       └─ task: election agent, if there is one
//! ```

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parti_core::config::{Config, Coordination};
use parti_core::ids::SourceId;
use parti_core::io::SourceKind;
use parti_core::leader::election::Agent;
use parti_core::problem::Problem;
use parti_core::session::Belonging;
use parti_core::strategy::{self, Strategy};
use parti_core::worker::Options;
use tokio::sync::watch;

use crate::clock::{Clock, SystemClock};
use crate::driver::commits::{Committer, Lease, commits};
use crate::driver::tasks::Tasks;
use crate::driver::{self, Observer, Parts};
use crate::election::{Candidate, ElectionAgent};
use crate::handler::Handler;
use crate::hooks::{self, Hooks, Reporter};
use crate::member::{Member, Running, WorkerError};
use crate::metrics::{Meters, Metrics, Probe, Timed};
use crate::partitions::PartitionSource;
use crate::source::Transport;
use crate::store::metered::Metered;
use crate::store::{self, GroupStore, Store};

/// Settings of a worker or a manager that is to be started; `C` says how it consumes.
pub struct Builder<C> {
    pub(crate) consumption: C,
    pub(crate) group: String,
    store: Arc<dyn Store>,
    pub(crate) partitions: Arc<dyn PartitionSource>,
    pub(crate) config: Config,
    strategy: Option<Arc<dyn Strategy>>,
    preferred: Option<u64>,
    pub(crate) belongs: Belonging,
    observers: Vec<Arc<dyn Observer>>,
    hooks: Vec<Arc<dyn Hooks>>,
    agent: Option<Arc<dyn ElectionAgent>>,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
}

impl<C: fmt::Debug> fmt::Debug for Builder<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("group", &self.group)
            .field("store", &self.store.name())
            .field("consumption", &self.consumption)
            .finish_non_exhaustive()
    }
}

/// What a way of consumption may use.
pub(crate) struct Wiring {
    pub(crate) reporter: Reporter,
    /// How many assignments hooks have been told.
    pub(crate) hooked: watch::Receiver<u64>,
    pub(crate) committer: Committer,
    pub(crate) operation_timeout: Duration,
}

/// A way of consumption.
pub(crate) struct Consumption {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) handler: Arc<dyn Handler>,
    /// Told first, before hooks are.
    pub(crate) observer: Option<Arc<dyn Observer>>,
    /// Which source this is.
    pub(crate) stream: SourceId,
}

impl<C> Builder<C> {
    pub(crate) fn new(
        consumption: C,
        group: &str,
        store: Arc<dyn Store>,
        partitions: impl PartitionSource,
    ) -> Self {
        Self {
            consumption,
            group: group.to_owned(),
            store,
            partitions: Arc::new(partitions),
            config: Config::default(),
            strategy: None,
            preferred: None,
            belongs: Belonging::Own,
            observers: Vec::new(),
            hooks: Vec::new(),
            agent: None,
            clock: Arc::new(SystemClock),
            metrics: Metrics::default(),
        }
    }

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

    /// Hooks that are told what changes, in order, outside the event loop. Several are told one
    /// after the other.
    #[must_use]
    pub fn hooks(mut self, hooks: impl Hooks) -> Self {
        self.hooks.push(Arc::new(hooks));
        self
    }

    /// Somebody outside who decides who leads. Every worker of a group should have the same.
    #[must_use]
    pub fn election_agent(mut self, agent: impl ElectionAgent) -> Self {
        self.agent = Some(Arc::new(agent));
        self
    }

    /// Where its metrics go; by default to the recorder that the process has installed, if it has.
    #[must_use]
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self
    }

    #[cfg(test)]
    pub(crate) fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    pub(crate) fn check(&self) -> Result<(), WorkerError> {
        self.config.validate().map_err(WorkerError::Config)?;
        if self.agent.is_some() && self.config.coordination == Coordination::Leaderless {
            let problem = Problem::new(
                "coordination",
                "leaderless",
                "has nobody for an election agent to elect",
                "leave out the agent, or set it to leader",
            );
            return Err(WorkerError::Config(problem.into()));
        }
        Ok(())
    }

    /// Refuses a group's name that no store can have, and one that nobody could read, unless the
    /// group is there already.
    async fn check_name(&self) -> Result<(), WorkerError> {
        let records = GroupStore::new(self.store.clone(), &self.group)?;
        let limit = self.config.operation_timeout;
        let unfit = tokio::time::timeout(limit, records.unfit_to_begin("group")).await;
        let silent = |_| store::Error::unavailable(format!("no answer within {limit:?}"));
        match unfit.map_err(silent)?? {
            Some(problem) => Err(WorkerError::Config(problem.into())),
            None => Ok(()),
        }
    }

    /// Starts all tasks, and waits for the first assignment.
    pub(crate) async fn launch(
        self,
        consume: impl FnOnce(&Wiring) -> Consumption,
    ) -> Result<Member, WorkerError> {
        // A name that is refused is refused before anything is started.
        self.check_name().await?;
        let lease = Arc::new(Lease::new(self.clock.clone()));
        let (committer, inbox) = commits(lease.clone());
        let (caller, reporter, hooked) = hooks::caller(self.hooks);
        let wiring = Wiring {
            reporter,
            hooked,
            committer,
            operation_timeout: self.config.operation_timeout,
        };
        let consumption = consume(&wiring);
        let Wiring {
            reporter,
            committer,
            ..
        } = wiring;
        let kind = consumption.transport.kind();
        let meters = self.metrics.recorder().map(|recorder| {
            let cap = self.config.jetstream.subject_cap;
            let cap = matches!(kind, SourceKind::Stream(_)).then_some(cap);
            Arc::new(Meters::new(recorder, &self.group, cap))
        });
        let mut observers: Vec<Arc<dyn Observer>> = consumption.observer.into_iter().collect();
        observers.push(Arc::new(match kind {
            SourceKind::External => reporter.clone().without_source_trouble(),
            SourceKind::Log | SourceKind::Stream(_) => reporter.clone(),
        }));
        observers.extend(self.observers);
        observers.extend(meters.clone().map(|meters| meters as Arc<dyn Observer>));
        let (tasks, guard) = Tasks::new();
        let hooks = tasks.spawn(caller.run());
        let mut strategy = self
            .strategy
            .unwrap_or_else(|| strategy::from_choice(&self.config.strategy));
        let mut store = self.store;
        if let Some(meters) = &meters {
            strategy = Arc::new(Timed::new(strategy, meters.clone()));
            store = Arc::new(Metered::recording(store, meters.clone()));
        }
        let store = GroupStore::new(store, &self.group)?;
        let parts = Parts {
            options: Options {
                strategy,
                source: kind,
                stream: consumption.stream,
                preferred: self.preferred,
                belongs: self.belongs,
                agent: match self.agent {
                    Some(_) => Agent::External { elected: false },
                    None => Agent::Store,
                },
                seed: seed(),
                config: self.config.clone(),
            },
            store,
            transport: consumption.transport,
            partitions: self.partitions,
            handler: consumption.handler,
            observers,
            clock: self.clock,
            commits: inbox,
            lease,
            probe: meters.map(|meters| Probe::new(meters, &self.metrics)),
        };
        let handles = driver::start(parts, &tasks);
        let candidate = self.agent.map(|agent| {
            let (status, events) = (handles.status.clone(), &handles.events);
            let candidate = Candidate::new(agent, &self.config, status, events, reporter.clone());
            tasks.spawn(candidate.run())
        });
        let running = Running {
            handles,
            reporter,
            hooks,
            candidate,
            guard,
        };
        // From here on a drop stops it gracefully, also when this future is dropped.
        Member::new(running, committer, &self.config)
            .started()
            .await
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
