//! A manager: takes its share of a group's partitions for those who bring their own consumption.
//!
//! ```text
//!  assignment ──▶ your hook ──▶ updater.update(serve, prepare) ──ok──▶ ready
//!  taken      ──▶ updater.start(grant) ──▶ you read from grant.next_offset, and grant.commit(…)
//!  to move    ──▶ updater.revoke(partition) ──ok: drained──▶ final commit, released
//!  fenced     ──▶ updater.lost(partition): stop at once
//! ```

mod bridge;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parti_core::config::StartPosition;
use parti_core::ids::{Epoch, Offset, PartitionId, SourceId, Version, WorkerId};
use parti_core::io::CommitRefused;
use parti_core::session::Belonging;
use parti_core::worker::Answer;

use crate::builder::{Builder, Consumption, IntoStore};
use crate::driver::commits::Committer;
use crate::handler::HandlerError;
use crate::member::{Member, WorkerError};
use crate::message::Message;
use crate::partitions::PartitionSource;
use bridge::Bridge;

/// Consumption by the user.
#[derive(Debug)]
pub struct Own {
    log: SourceId,
}

/// Settings of a manager that is to be started.
pub type ManagerBuilder = Builder<Own>;

/// What a consumer is to be ready for: the whole set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerUpdate {
    /// Whose consumer.
    pub worker: WorkerId,
    /// The assignment's version. Versions may be skipped, and the same one may come again.
    pub version: Version,
    /// What it serves, or is to serve once it is told to start; sorted. A partition stays here until
    /// it was revoked.
    pub serve: Vec<PartitionId>,
    /// What it may be told to start soon; sorted.
    pub prepare: Vec<PartitionId>,
}

/// A partition that is yours, until it is revoked or lost.
#[derive(Clone)]
pub struct Grant {
    /// Which partition.
    pub partition: PartitionId,
    /// Under which epoch: the fencing token for whatever you write elsewhere.
    pub epoch: Epoch,
    /// Where to start: everything below is done.
    pub next_offset: Offset,
    /// Until it is revoked or lost.
    mine: Arc<AtomicBool>,
    committer: Committer,
}

impl Grant {
    /// Everything up to and with this offset is done. It counts from now on; it is in the store with
    /// the next flush (`checkpoint_flush_interval`, or [`Member::flush`]), and in any case before the
    /// partition is released. A crash before that repeats what was done since.
    pub async fn commit(&self, offset: Offset) -> Result<(), CommitRefused> {
        self.committed(offset, Answer::Counted).await
    }

    /// The same, and waits until it is in the store, which is asked at once: a crash after that
    /// repeats nothing of it. Commits that come meanwhile share the next write.
    pub async fn commit_stored(&self, offset: Offset) -> Result<(), CommitRefused> {
        self.committed(offset, Answer::Stored).await
    }

    async fn committed(&self, offset: Offset, answer: Answer) -> Result<(), CommitRefused> {
        let partition = self.partition.clone();
        let committer = &self.committer;
        committer
            .commit(partition, self.epoch, offset, answer)
            .await
    }

    /// Whether the lease of this worker's session is alive. While it has lapsed, because the store
    /// could not be reached for too long, somebody else may be about to take over.
    pub fn is_leased(&self) -> bool {
        self.committer.lease_is_alive()
    }

    /// For how long that lease lasts if it is not renewed: whoever handles messages elsewhere, and
    /// may not hear of this worker again, stops by then.
    pub fn leased_for(&self) -> Duration {
        self.committer.lease_left()
    }

    /// Whether messages may be handled now: look before each one. False once it is to be revoked, or
    /// is lost; and while the lease of this worker's session has lapsed, because then somebody else
    /// may be about to take over.
    pub fn may_handle(&self) -> bool {
        self.mine.load(Ordering::Acquire) && self.is_leased()
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant")
            .field("partition", &self.partition)
            .field("epoch", &self.epoch)
            .field("next_offset", &self.next_offset)
            .finish_non_exhaustive()
    }
}

/// Your consumption, as a [`Manager`] drives it.
///
/// A failed call is reported to hooks, and made again after a while: calls must bear repetition.
/// Of one partition there is never more than one call at a time; calls of several partitions, and an
/// update, may run at once. All but `revoke` are given up after `operation_timeout`.
#[async_trait]
pub trait ConsumerUpdater: Send + Sync + 'static {
    /// Gets ready for exactly these partitions; none is fine. Ok means ready. Called only for the
    /// latest set, after the assignment hook, one call at a time. While it fails, others keep what
    /// was to come here, and nothing new starts.
    async fn update(&self, update: &ConsumerUpdate) -> Result<(), HandlerError>;

    /// The partition is yours: begin, exactly at `next_offset`.
    async fn start(&self, grant: Grant) -> Result<(), HandlerError>;

    /// Handle no more of it. Ok means drained: nothing is in flight, and everything done is
    /// committed. The partition moves on only then, so this takes as long as it has to; on a stop,
    /// `shutdown_timeout` wins.
    async fn revoke(&self, partition: &PartitionId, epoch: Epoch) -> Result<(), HandlerError>;

    /// Somebody else has it, or the session is lost: stop at once. Nothing can be committed any
    /// more. Until this returns, the partition does not start here again. By default a revoke.
    async fn lost(&self, partition: &PartitionId, epoch: Epoch) -> Result<(), HandlerError> {
        self.revoke(partition, epoch).await
    }

    /// The offset that a start position stands for, for a partition that nobody ever had; never
    /// past its end.
    async fn resolve(
        &self,
        partition: &PartitionId,
        start: StartPosition,
    ) -> Result<Offset, HandlerError>;
}

impl ManagerBuilder {
    /// Which log is consumed: another number once it was deleted and made anew, so that nobody goes
    /// on at an offset of the old one. Give one from the beginning: without it, or with 0, none is
    /// told, and a group that began like that goes on with no log that has one. Where there is no log
    /// at all, and offsets are numbers of your own, give [`SourceId::NoLog`]: then operators' tools
    /// never take a log's offsets for this group's.
    #[must_use]
    pub fn log_identity(mut self, identity: impl Into<SourceId>) -> Self {
        self.consumption.log = identity.into();
        self
    }

    /// Hosts a consumer that is elsewhere, and shows a badge (the hash of a secret of its own): its
    /// session can go on at another host. When it is lost, the manager ends with
    /// [`WorkerError`] instead of joining anew.
    #[must_use]
    pub fn hosting(mut self, consumer: Belonging) -> Self {
        self.belongs = consumer;
        self
    }

    /// Starts the manager, and waits until it has its first assignment (an empty one counts). A
    /// start that fails, or whose future is dropped, gives its id back.
    pub async fn start(self, updater: impl ConsumerUpdater) -> Result<Manager, WorkerError> {
        self.check()?;
        let stream = self.consumption.log;
        let consume = self.launch(|wiring| {
            let bridge = Bridge::new(Arc::new(updater), wiring);
            Consumption {
                transport: Arc::new(bridge.clone()),
                handler: Arc::new(nothing_to_handle),
                observer: Some(Arc::new(bridge)),
                stream,
            }
        });
        consume.await.map(Manager)
    }
}

/// The core hands no message to a manager.
async fn nothing_to_handle(_: Message) -> Result<(), HandlerError> {
    Err("a manager handles no messages".into())
}

/// A manager that runs: Parti decides who has which partition and keeps the progress, you read and
/// handle.
///
/// ```
/// use parti::store::Memory;
/// use parti::{Config, ConsumerUpdate, ConsumerUpdater, Epoch, Grant, HandlerError, Manager};
/// use parti::{Offset, PartitionId, StaticPartitions, StartPosition, async_trait};
///
/// struct Consumer;
///
/// #[async_trait]
/// impl ConsumerUpdater for Consumer {
///     async fn update(&self, update: &ConsumerUpdate) -> Result<(), HandlerError> {
///         println!("subscribe to {:?} and {:?}", update.serve, update.prepare);
///         Ok(())
///     }
///     async fn start(&self, grant: Grant) -> Result<(), HandlerError> {
///         // Read from `grant.next_offset` on, in a task of your own; after each message:
///         Ok(grant.commit(grant.next_offset).await?)
///     }
///     async fn revoke(&self, partition: &PartitionId, _: Epoch) -> Result<(), HandlerError> {
///         println!("{partition} is drained");
///         Ok(())
///     }
///     async fn resolve(&self, _: &PartitionId, _: StartPosition) -> Result<Offset, HandlerError> {
///         Ok(Offset(0))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), HandlerError> {
/// let manager = Manager::builder("orders", Memory::new(), StaticPartitions::numbered(4))
///     .config(Config::from_yaml("expected_workers: 1")?)
///     .start(Consumer)
///     .await?;
/// assert_eq!(manager.assignment().serve.len(), 4);
/// manager.stop().await?;
/// # Ok(())
/// # }
/// ```
///
/// What it has in common with a [`Worker`](crate::Worker) is in [`Member`]. Dropping it is a stop
/// without waiting: the rest happens in the background, as long as the runtime lives.
pub struct Manager(Member);

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Manager").field(&self.0).finish()
    }
}

impl Deref for Manager {
    type Target = Member;

    fn deref(&self) -> &Member {
        &self.0
    }
}

impl Manager {
    /// A manager of this group, on this store, for these partitions.
    pub fn builder(
        group: &str,
        store: impl IntoStore,
        partitions: impl PartitionSource,
    ) -> ManagerBuilder {
        Builder::new(
            Own {
                log: SourceId::Untold,
            },
            group,
            store.into_store(),
            partitions,
        )
    }

    /// The same as [`Grant::commit`], for those who keep partition and epoch themselves.
    pub async fn commit(
        &self,
        partition: &PartitionId,
        epoch: Epoch,
        offset: Offset,
    ) -> Result<(), CommitRefused> {
        let partition = partition.clone();
        let committer = self.committer();
        committer
            .commit(partition, epoch, offset, Answer::Counted)
            .await
    }

    /// Has everything revoked, commits, says goodbye; within `shutdown_timeout`.
    pub async fn stop(self) -> Result<(), WorkerError> {
        self.0.end(None).await
    }

    /// The same within a shorter time. What is not drained when it is over may be handled again by
    /// others.
    pub async fn stop_within(self, limit: Duration) -> Result<(), WorkerError> {
        self.0.end(Some(limit)).await
    }
}
