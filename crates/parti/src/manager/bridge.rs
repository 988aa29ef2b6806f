//! From the core's calls to the user's consumer updater, and back.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use parti_core::config::StartPosition;
use parti_core::ids::{Epoch, Offset, PartitionId, Version, WorkerId};
use parti_core::io::{ExternalCall, SourceError, SourceEvent, SourceKind, SourceRequest};
use parti_core::worker::{Event, Report};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;

use super::{ConsumerUpdate, ConsumerUpdater, Grant};
use crate::builder::Wiring;
use crate::call::{CallError, unbounded, within};
use crate::driver::Observer;
use crate::driver::commits::Committer;
use crate::driver::tasks::Tasks;
use crate::hooks::{Failure, Reporter};
use crate::source::{Transport, refused};

/// What reports told so far. The event loop tells them before it makes the calls that follow.
#[derive(Debug, Default)]
struct Told {
    worker: Option<WorkerId>,
    version: Version,
    /// Sorted.
    prepare: Vec<PartitionId>,
    assignments: u64,
    /// Whether what was granted still holds.
    grants: BTreeMap<PartitionId, (Epoch, Arc<AtomicBool>)>,
}

impl Told {
    /// A grant for this epoch, in place of any other.
    fn grant(&mut self, partition: &PartitionId, epoch: Epoch) -> Arc<AtomicBool> {
        let mine = Arc::new(AtomicBool::new(true));
        let grant = (epoch, mine.clone());
        if let Some((_, before)) = self.grants.insert(partition.clone(), grant) {
            before.store(false, Ordering::Release);
        }
        mine
    }

    /// What was granted under this epoch holds no more.
    fn withdraw(&mut self, partition: &PartitionId, epoch: Epoch) {
        if let Some((of, mine)) = self.grants.get(partition)
            && *of == epoch
        {
            mine.store(false, Ordering::Release);
            self.grants.remove(partition);
        }
    }
}

/// Carries calls to the updater.
#[derive(Clone)]
pub(super) struct Bridge(Arc<Inner>);

struct Inner {
    updater: Arc<dyn ConsumerUpdater>,
    told: Mutex<Told>,
    hooked: watch::Receiver<u64>,
    committer: Committer,
    reporter: Reporter,
    limit: Duration,
}

impl fmt::Debug for Bridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bridge").finish_non_exhaustive()
    }
}

impl Bridge {
    pub(super) fn new(updater: Arc<dyn ConsumerUpdater>, wiring: &Wiring) -> Self {
        Self(Arc::new(Inner {
            updater,
            told: Mutex::default(),
            hooked: wiring.hooked.clone(),
            committer: wiring.committer.clone(),
            reporter: wiring.reporter.clone(),
            limit: wiring.operation_timeout,
        }))
    }
}

impl Observer for Bridge {
    fn observe(&self, report: &Report) {
        let mut told = self.0.told();
        match report {
            Report::Claimed(worker, _) => told.worker = Some(worker.clone()),
            Report::SessionLost => {
                told.worker = None;
                told.prepare.clear();
            }
            Report::Assigned {
                version, prepare, ..
            } => {
                told.version = *version;
                told.prepare.clone_from(prepare);
                told.assignments += 1;
            }
            // The updater hears of it later, when it has answered what it was asked before.
            Report::Fenced { partition, epoch } => told.withdraw(partition, *epoch),
            _ => {}
        }
    }
}

impl Transport for Bridge {
    fn kind(&self) -> SourceKind {
        SourceKind::External
    }

    fn start(&self, _events: &UnboundedSender<Event>, _tasks: &Tasks) {}

    fn request(&self, request: SourceRequest, events: &UnboundedSender<Event>, tasks: &Tasks) {
        let (inner, events) = (self.0.clone(), events.clone());
        tasks.spawn(async move {
            let answer = match request {
                SourceRequest::External { ask, call } => Some(SourceEvent::External {
                    ask,
                    result: inner.call(call).await,
                }),
                SourceRequest::Resolve {
                    ask,
                    partition,
                    start,
                } => Some(SourceEvent::Resolved {
                    ask,
                    result: inner.resolve(&partition, start).await,
                }),
                other => refused(other, "a manager reads no messages"),
            };
            if let Some(answer) = answer {
                // Whoever asked may have gone meanwhile.
                let _ = events.send(Event::Source(answer));
            }
        });
    }
}

impl Inner {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn call(&self, call: ExternalCall) -> Result<(), SourceError> {
        let (updater, limit) = (&self.updater, self.limit);
        match call {
            ExternalCall::Prepare { partitions } => self.update(partitions).await,
            ExternalCall::Start {
                partition,
                epoch,
                next,
            } => {
                let grant = Grant {
                    partition: partition.clone(),
                    epoch,
                    next_offset: next,
                    mine: self.told().grant(&partition, epoch),
                    committer: self.committer.clone(),
                };
                let started = within(limit, updater.start(grant)).await;
                self.settle("start", Some(&partition), started)
            }
            ExternalCall::Revoke { partition, epoch } => {
                self.told().withdraw(&partition, epoch);
                let revoked = unbounded(updater.revoke(&partition, epoch)).await;
                self.settle("revoke", Some(&partition), revoked)
            }
            ExternalCall::Lost { partition, epoch } => {
                self.told().withdraw(&partition, epoch);
                let lost = within(limit, updater.lost(&partition, epoch)).await;
                self.settle("lost", Some(&partition), lost)
            }
        }
    }

    async fn update(&self, partitions: Vec<PartitionId>) -> Result<(), SourceError> {
        let assignments = self.told().assignments;
        let mut hooked = self.hooked.clone();
        // The user's hook comes first. One that takes too long is told as a failed update, and
        // waited for again.
        let hook = within(self.limit, async {
            hooked.wait_for(|hooked| *hooked >= assignments).await?;
            Ok(())
        });
        self.settle("update, after the assignment hook", None, hook.await)?;
        let update = {
            let told = self.told();
            let Some(worker) = told.worker.clone() else {
                self.reporter.failure(Failure::NoWorkerId);
                return Err(unavailable("the worker has no id"));
            };
            let prepared = |id: &PartitionId| told.prepare.binary_search(id).is_ok();
            let (prepare, serve) = partitions.into_iter().partition(prepared);
            ConsumerUpdate {
                worker,
                version: told.version,
                serve,
                prepare,
            }
        };
        let updated = within(self.limit, self.updater.update(&update)).await;
        self.settle("update", None, updated)
    }

    async fn resolve(
        &self,
        partition: &PartitionId,
        start: StartPosition,
    ) -> Result<Offset, SourceError> {
        let resolved = within(self.limit, self.updater.resolve(partition, start)).await;
        self.settle("resolve", Some(partition), resolved)
    }

    fn settle<T>(
        &self,
        call: &'static str,
        partition: Option<&PartitionId>,
        result: Result<T, CallError>,
    ) -> Result<T, SourceError> {
        result.map_err(|error| {
            let answer = unavailable(&error.to_string());
            self.reporter.failure(Failure::Updater {
                call,
                partition: partition.cloned(),
                error,
            });
            answer
        })
    }
}

fn unavailable(why: &str) -> SourceError {
    SourceError::Unavailable(why.into())
}
