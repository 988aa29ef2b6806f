//! Progress that comes from outside, and the lease that whoever makes it must look at.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parti_core::ids::{Epoch, Offset, PartitionId};
use parti_core::io::{Ask, CommitRefused};
use parti_core::time::Time;
use parti_core::worker::{Answer, Event};
use tokio::sync::{mpsc, oneshot};

use crate::clock::Clock;

/// Where the answer to a commit goes.
type Asker = oneshot::Sender<Result<(), CommitRefused>>;

/// Commits that wait for the event loop.
pub(crate) type CommitInbox = mpsc::UnboundedReceiver<CommitRequest>;

/// One commit.
pub(crate) struct CommitRequest {
    partition: PartitionId,
    epoch: Epoch,
    offset: Offset,
    answer: Answer,
    asker: Asker,
}

/// Those who wait for an answer.
#[derive(Debug, Default)]
pub(super) struct Askers {
    last: u64,
    waiting: BTreeMap<Ask, Asker>,
}

impl Askers {
    /// Remembers who asks.
    pub(super) fn take_in(&mut self, request: CommitRequest) -> Event {
        self.last += 1;
        let ask = Ask(self.last);
        self.waiting.insert(ask, request.asker);
        Event::Commit {
            ask,
            partition: request.partition,
            epoch: request.epoch,
            offset: request.offset,
            answer: request.answer,
        }
    }

    /// Tells whoever asked, if they are still there.
    pub(super) fn answer(&mut self, ask: Ask, result: Result<(), CommitRefused>) {
        if let Some(asker) = self.waiting.remove(&ask) {
            let _ = asker.send(result);
        }
    }
}

/// How long this worker may handle messages, by its own clock. Shared by the event loop, which sets
/// it, and those who look.
#[derive(Debug)]
pub(crate) struct Lease {
    until: AtomicU64,
    clock: Arc<dyn Clock>,
    /// The process's time zero.
    origin: Time,
}

impl Lease {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            until: AtomicU64::new(0),
            origin: clock.now(),
            clock,
        }
    }

    pub(super) fn origin(&self) -> Time {
        self.origin
    }

    pub(super) fn set(&self, until: Time) {
        self.until.store(until.0, Ordering::Release);
    }

    /// The time by the process's own clock.
    pub(super) fn now(&self) -> Time {
        Time::ZERO + self.clock.now().since(self.origin)
    }

    /// Whether a message may begin now.
    pub(super) fn is_alive_at(&self, now: Time) -> bool {
        now < Time(self.until.load(Ordering::Acquire))
    }

    /// How long it still lasts.
    fn left(&self) -> Duration {
        Time(self.until.load(Ordering::Acquire)).since(self.now())
    }
}

/// Takes progress to the event loop.
#[derive(Clone, Debug)]
pub(crate) struct Committer {
    requests: mpsc::UnboundedSender<CommitRequest>,
    lease: Arc<Lease>,
}

/// A way for commits.
pub(crate) fn commits(lease: Arc<Lease>) -> (Committer, CommitInbox) {
    let (requests, inbox) = mpsc::unbounded_channel();
    (Committer { requests, lease }, inbox)
}

impl Committer {
    pub(crate) async fn commit(
        &self,
        partition: PartitionId,
        epoch: Epoch,
        offset: Offset,
        answer: Answer,
    ) -> Result<(), CommitRefused> {
        let (asker, answered) = oneshot::channel();
        let request = CommitRequest {
            partition,
            epoch,
            offset,
            answer,
            asker,
        };
        // A loop that has ended owns nothing.
        let _ = self.requests.send(request);
        answered.await.unwrap_or(Err(CommitRefused::NotOwned))
    }

    pub(crate) fn lease_is_alive(&self) -> bool {
        !self.lease_left().is_zero()
    }

    pub(crate) fn lease_left(&self) -> Duration {
        self.lease.left()
    }
}
