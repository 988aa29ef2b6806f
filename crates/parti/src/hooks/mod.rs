//! Hooks: the user is told what changes, in order, one call at a time.
//!
//! ```text
//!  driver ──report──▶ queue ──▶ task: hook, hook, … ──error──▶ log, error hook
//!  updater, election agent ──failure──▲
//! ```
//!
//! The queue has no end, and the task is of its own: a slow hook delays only hooks (and, in a
//! [`Manager`](crate::Manager), the update that follows an assignment hook).

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use parti_core::ids::{Epoch, PartitionId, Term, Version, WorkerId};
use parti_core::worker::{Report, State, Trouble};
use tokio::sync::{mpsc, watch};

use crate::call::{CallError, unbounded};
use crate::driver::Observer;
use crate::handler::HandlerError;
use crate::member::Assignment;

/// Gets told what changes: in order, and never two calls at once.
///
/// A hook may take its time: only other hooks wait for it. Its error, or its panic, is logged and
/// told to [`Hooks::error`]; nothing else comes of it.
///
/// ```
/// use parti::{AssignmentChange, HandlerError, Hooks, async_trait};
///
/// struct Caches;
///
/// #[async_trait]
/// impl Hooks for Caches {
///     async fn assignment_changed(&self, change: &AssignmentChange) -> Result<(), HandlerError> {
///         println!("{}: +{:?} -{:?}", change.version, change.added, change.removed);
///         Ok(())
///     }
/// }
/// ```
#[async_trait]
pub trait Hooks: Send + Sync + 'static {
    /// The worker was told to serve or prepare something else.
    async fn assignment_changed(&self, _change: &AssignmentChange) -> Result<(), HandlerError> {
        Ok(())
    }

    /// The worker's state changed.
    async fn state_changed(&self, _from: State, _to: State) -> Result<(), HandlerError> {
        Ok(())
    }

    /// The worker leads under this term now, or leads no more.
    async fn leadership_changed(&self, _leading: Option<Term>) -> Result<(), HandlerError> {
        Ok(())
    }

    /// Something went wrong that the worker goes on after. An error of this very hook is only
    /// logged.
    async fn error(&self, _failure: &Failure) -> Result<(), HandlerError> {
        Ok(())
    }
}

/// From one assignment to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssignmentChange {
    /// Whose.
    pub worker: WorkerId,
    /// The version of the new one.
    pub version: Version,
    /// What it was before. Versions in between may have been skipped.
    pub old: Assignment,
    /// What it is now. Empty when the session was lost.
    pub new: Assignment,
    /// What is to be served now, and was not before.
    pub added: Vec<PartitionId>,
    /// What is to be served no more.
    pub removed: Vec<PartitionId>,
}

impl AssignmentChange {
    fn between(worker: WorkerId, old: Assignment, new: Assignment) -> Self {
        // Both lists are sorted.
        let without = |these: &Assignment, those: &Assignment| {
            let missing = |id: &&PartitionId| those.serve.binary_search(id).is_err();
            these.serve.iter().filter(missing).cloned().collect()
        };
        Self {
            worker,
            version: new.version,
            added: without(&new, &old),
            removed: without(&old, &new),
            old,
            new,
        }
    }
}

/// What went wrong without ending the worker: told to [`Hooks::error`], and logged.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Trouble that has a name.
    #[error(transparent)]
    Trouble(Trouble),
    /// The store was not reached for nearly a `heartbeat_ttl` (or the clock jumped): handling pauses
    /// until it is reached again.
    #[error(
        "the connection to the store is lost: the lease could not be renewed in time, handling pauses"
    )]
    ConnectionLost,
    /// The group gave this worker up: everything stopped, and it joins anew.
    #[error("the session was ended by others: everything stopped, joining anew")]
    SessionLost,
    /// Somebody else owns a partition now: its handling stopped at once.
    #[error("partition {partition} was taken by somebody else: epoch {epoch} is over")]
    Fenced {
        /// Which.
        partition: PartitionId,
        /// The epoch that is over.
        epoch: Epoch,
    },
    /// A hook failed.
    #[error("hook {hook} failed: {error}")]
    Hook {
        /// Which.
        hook: &'static str,
        /// Why.
        error: CallError,
    },
    /// A [`ConsumerUpdater`](crate::ConsumerUpdater) failed. It is called again after a while.
    #[error("consumer updater: {call} failed: {error}")]
    Updater {
        /// Which of its methods.
        call: &'static str,
        /// About which partition, if about one.
        partition: Option<PartitionId>,
        /// Why.
        error: CallError,
    },
    /// An update was due while the worker had no id. It comes again once there is one.
    #[error("the consumer was not updated: the worker has no id")]
    NoWorkerId,
    /// An [`ElectionAgent`](crate::ElectionAgent) failed: this worker counts as not elected.
    #[error("leader election failed: {call}: {error}")]
    ElectionFailed {
        /// Which of its methods.
        call: &'static str,
        /// Why.
        error: CallError,
    },
}

/// What the task of hooks is told.
enum Notice {
    Report(Report),
    Failure(Failure),
    /// Nothing follows.
    End,
}

/// The way to the task of hooks.
#[derive(Clone)]
pub(crate) struct Reporter {
    notices: mpsc::UnboundedSender<Notice>,
    source_trouble: bool,
}

impl Reporter {
    pub(crate) fn failure(&self, failure: Failure) {
        // After the end there is nobody to tell.
        let _ = self.notices.send(Notice::Failure(failure));
    }

    /// One that keeps trouble of the source to itself, because whoever has it tells it by `failure`.
    #[must_use]
    pub(crate) fn without_source_trouble(mut self) -> Self {
        self.source_trouble = false;
        self
    }

    /// Once everything before this was told, the task ends.
    pub(crate) fn end(&self) {
        let _ = self.notices.send(Notice::End);
    }
}

impl Observer for Reporter {
    fn observe(&self, report: &Report) {
        let wanted = match report {
            Report::Trouble(Trouble::Source(_) | Trouble::SourceRefuses(_)) => self.source_trouble,
            Report::State { .. }
            | Report::Claimed(..)
            | Report::SessionLost
            | Report::Lease { alive: false }
            | Report::Leading(_)
            | Report::Assigned { .. }
            | Report::Fenced { .. }
            | Report::Trouble(_) => true,
            Report::Lease { alive: true }
            | Report::Taken { .. }
            | Report::Released { .. }
            | Report::DeadLettered { .. }
            | Report::Flushed { .. }
            | Report::Planned { .. }
            | Report::Moved { .. }
            | Report::History(_) => false,
        };
        if wanted {
            let _ = self.notices.send(Notice::Report(report.clone()));
        }
    }
}

/// The task that calls hooks, before it runs.
pub(crate) struct Caller {
    hooks: Vec<Arc<dyn Hooks>>,
    notices: mpsc::UnboundedReceiver<Notice>,
    /// How many assignments all hooks have been told.
    told: watch::Sender<u64>,
    worker: Option<WorkerId>,
    /// Whether there is a session.
    joined: bool,
    assignment: Assignment,
}

/// A task for these hooks, the way to it, and how many assignments it has told them.
pub(crate) fn caller(hooks: Vec<Arc<dyn Hooks>>) -> (Caller, Reporter, watch::Receiver<u64>) {
    let (sender, notices) = mpsc::unbounded_channel();
    let (told, seen) = watch::channel(0);
    let caller = Caller {
        hooks,
        notices,
        told,
        worker: None,
        joined: false,
        assignment: Assignment::default(),
    };
    let reporter = Reporter {
        notices: sender,
        source_trouble: true,
    };
    (caller, reporter, seen)
}

impl Caller {
    pub(crate) async fn run(mut self) {
        while let Some(notice) = self.notices.recv().await {
            match notice {
                Notice::Report(report) => self.report(report).await,
                Notice::Failure(failure) => self.error(failure).await,
                Notice::End => return,
            }
        }
    }

    async fn report(&mut self, report: Report) {
        match report {
            Report::Claimed(worker, _) => {
                self.worker = Some(worker);
                self.joined = true;
            }
            Report::Assigned {
                version,
                serve,
                prepare,
                ..
            } => {
                let assignment = Assignment {
                    version,
                    serve,
                    prepare,
                };
                self.assigned(assignment).await;
                self.told.send_modify(|told| *told += 1);
            }
            Report::State { from, to } => {
                for hooks in self.hooks.clone() {
                    self.call("state_changed", hooks.state_changed(from, to))
                        .await;
                }
            }
            Report::Leading(leading) => {
                for hooks in self.hooks.clone() {
                    self.call("leadership_changed", hooks.leadership_changed(leading))
                        .await;
                }
            }
            Report::SessionLost => {
                self.joined = false;
                self.error(Failure::SessionLost).await;
                let version = self.assignment.version;
                self.assigned(Assignment {
                    version,
                    ..Assignment::default()
                })
                .await;
            }
            // Without a session there is no lease either: that is told already.
            Report::Lease { alive: false } if self.joined => {
                self.error(Failure::ConnectionLost).await;
            }
            Report::Fenced { partition, epoch } => {
                self.error(Failure::Fenced { partition, epoch }).await;
            }
            Report::Trouble(trouble) => self.error(Failure::Trouble(trouble)).await,
            _ => {}
        }
    }

    async fn assigned(&mut self, new: Assignment) {
        let old = std::mem::replace(&mut self.assignment, new.clone());
        let Some(worker) = self.worker.clone() else {
            return;
        };
        let change = AssignmentChange::between(worker, old, new);
        for hooks in self.hooks.clone() {
            self.call("assignment_changed", hooks.assignment_changed(&change))
                .await;
        }
    }

    async fn call(
        &self,
        hook: &'static str,
        work: impl Future<Output = Result<(), HandlerError>> + Send,
    ) {
        if let Err(error) = unbounded(work).await {
            self.error(Failure::Hook { hook, error }).await;
        }
    }

    async fn error(&self, failure: Failure) {
        let worker = self.worker.as_ref().map_or("-", WorkerId::as_str);
        tracing::warn!(worker, "{failure}");
        for hooks in &self.hooks {
            // Telling the hook of its own failure would go round in a circle.
            if let Err(error) = unbounded(hooks.error(&failure)).await {
                tracing::warn!(worker, "hook error failed: {error}");
            }
        }
    }
}

#[cfg(test)]
mod tests;
