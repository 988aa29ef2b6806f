//! A member of a group that runs: what workers and managers have in common.

use std::fmt;
use std::time::Duration;

use parti_core::config::Config;
use parti_core::ids::{PartitionId, Version, WorkerId};
use parti_core::problem::Problems;
use parti_core::worker::{Event, Fatal, State};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::DropGuard;

use crate::driver::commits::Committer;
use crate::driver::{Handles, Status};
use crate::hooks::Reporter;
use crate::source::SourceError;
use crate::store;

/// Why a worker or a manager did not start, or did not stop as it should.
///
/// Where the errors of other libraries of this kind are to be found here:
///
/// | error | here |
/// |---|---|
/// | all stable ids in range are claimed | [`WorkerError::Fatal`] with [`Fatal::StableIdExhausted`] |
/// | connection lost, at the start | [`WorkerError::Store`], or [`Fatal::GaveUp`] after all retries |
/// | connection lost, later | [`Failure::ConnectionLost`](crate::Failure::ConnectionLost) to the error hook; it goes on once the store is back |
/// | assignment version mismatch | nobody meets it: an assignment of an older version or term is ignored. Work that goes on under an old one is refused as [`CommitRefused::Fenced`](crate::CommitRefused::Fenced), and told as [`Failure::Fenced`](crate::Failure::Fenced) |
/// | leader election failed | [`Failure::ElectionFailed`](crate::Failure::ElectionFailed) for an agent of one's own, [`Trouble::NoElection`](crate::Trouble::NoElection) for the store's election; it is tried again |
/// | started or stopped twice | does not compile: both take what they act on |
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

/// How long things may take.
#[derive(Clone, Copy, Debug)]
struct Limits {
    start: Duration,
    window: Duration,
    stop: Duration,
}

/// Everything of a member that runs.
pub(crate) struct Running {
    pub(crate) handles: Handles,
    pub(crate) reporter: Reporter,
    pub(crate) hooks: JoinHandle<()>,
    pub(crate) candidate: Option<JoinHandle<()>>,
    /// All tasks end when this is dropped.
    pub(crate) guard: DropGuard,
}

impl Running {
    /// After the event loop has ended: gives leadership back, and tells hooks what they have not
    /// heard yet.
    async fn wind_up(self, deadline: Instant) {
        let ended = async {
            if let Some(candidate) = self.candidate {
                let _ = candidate.await;
            }
            self.reporter.end();
            let _ = self.hooks.await;
        };
        if tokio::time::timeout_at(deadline, ended).await.is_err() {
            tracing::warn!("stopped by its time limit: a hook or the election agent still runs");
        }
        drop(self.guard);
    }
}

/// A member of a group: what a [`Worker`](crate::Worker) and a [`Manager`](crate::Manager) have in
/// common.
pub struct Member {
    /// `None` once stopped.
    running: Option<Running>,
    committer: Committer,
    limits: Limits,
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member")
            .field("id", &self.id())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

impl Member {
    /// From here on dropping it stops it gracefully.
    pub(crate) fn new(running: Running, committer: Committer, config: &Config) -> Self {
        Self {
            running: Some(running),
            committer,
            limits: Limits {
                start: config.startup_timeout,
                window: config.cold_start_window,
                stop: config.shutdown_timeout,
            },
        }
    }

    fn status(&self) -> Status {
        match &self.running {
            Some(running) => running.handles.status.borrow().clone(),
            None => Status {
                state: State::Shutdown,
                ..Status::INIT
            },
        }
    }

    fn watch(&self) -> Result<watch::Receiver<Status>, WorkerError> {
        let running = self.running.as_ref().ok_or(WorkerError::AlreadyStopped)?;
        Ok(running.handles.status.clone())
    }

    pub(crate) fn committer(&self) -> &Committer {
        &self.committer
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
        assignment.as_deref().cloned().unwrap_or_default()
    }

    /// Whether it is ready, for whoever has to know that from outside, such as a readiness probe.
    pub fn readiness(&self) -> Readiness {
        let running = self.running.as_ref();
        Readiness {
            status: running.map(|running| running.handles.status.clone()),
            committer: self.committer.clone(),
        }
    }

    /// Waits for a state; also ends when the member does, with the reason.
    pub async fn wait_for(&self, state: State) -> Result<(), WorkerError> {
        wait(self.watch()?, |status| status.state == state).await
    }

    /// Has the partitions listed again.
    pub fn refresh_partitions(&self) {
        self.send(Event::RefreshPartitions);
    }

    /// Has all progress committed now.
    pub fn flush(&self) {
        self.send(Event::Flush);
    }

    /// Waits until the member ends against its will, and says why.
    pub async fn ended(&self) -> Result<(), WorkerError> {
        wait(self.watch()?, |_| false).await
    }

    fn send(&self, event: Event) {
        if let Some(running) = &self.running {
            // Once it has ended there is nobody to tell.
            let _ = running.handles.events.send(event);
        }
    }

    /// Hands over everything, commits, says goodbye; within `shutdown_timeout`, or a shorter time.
    pub(crate) async fn end(mut self, within: Option<Duration>) -> Result<(), WorkerError> {
        let running = self.running.take().ok_or(WorkerError::AlreadyStopped)?;
        let limit = self.limits.stop;
        let deadline = Instant::now() + within.map_or(limit, |within| within.min(limit));
        let _ = running.handles.events.send(Event::Stop { within });
        let ended = wait(running.handles.status.clone(), |_| false).await;
        running.wind_up(deadline).await;
        ended
    }

    /// Waits for the first assignment; an empty one counts. Without one, everything is given back.
    pub(crate) async fn started(self) -> Result<Self, WorkerError> {
        match self.first_assignment().await {
            Ok(()) => Ok(self),
            Err(error) => {
                // It says goodbye in the background at the latest; what matters is the reason.
                let _ = self.end(None).await;
                Err(error)
            }
        }
    }

    async fn first_assignment(&self) -> Result<(), WorkerError> {
        let status = self.watch()?;
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

/// Tells whether a member is ready, as long as anybody asks.
#[derive(Clone)]
pub struct Readiness {
    /// None: it was stopped before.
    status: Option<watch::Receiver<Status>>,
    committer: Committer,
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Readiness({:?})", self.not_ready())
    }
}

impl Readiness {
    /// Whether it has its assignment and a live lease, and its source refuses nothing.
    pub fn is_ready(&self) -> bool {
        self.not_ready().is_none()
    }

    /// Why it is not ready; none if it is. A source that cannot be reached just now is no reason: that
    /// passes by itself. One that refuses is, until a person has mended what it says.
    pub fn not_ready(&self) -> Option<String> {
        let status = self.status.as_ref().map(|status| status.borrow());
        let why = match status {
            None => "the worker was stopped",
            Some(status) if status.end.is_some() => "the worker has ended",
            Some(status) if status.state == State::Shutdown => "the worker is stopping",
            Some(status) if status.assignment.is_none() => "the worker has no assignment yet",
            Some(_) if !self.committer.lease_is_alive() => {
                "the worker's lease has lapsed: the store is not reached"
            }
            Some(status) => return status.refused.clone(),
        };
        Some(why.to_owned())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let Some(running) = self.running.take() else {
            return;
        };
        let _ = running.handles.events.send(Event::Stop { within: None });
        let limit = self.limits.stop;
        // Without a runtime nothing runs any more anyway.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let deadline = Instant::now() + limit;
                let ended = wait(running.handles.status.clone(), |_| false).await;
                // Nobody else is there to hear it.
                if let Err(WorkerError::Fatal(late @ Fatal::StopTimedOut { .. })) = &ended {
                    tracing::warn!("{late}");
                }
                running.wind_up(deadline).await;
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
