//! The member of the group that a session is: a manager of this process, for a client elsewhere.

use std::sync::{Arc, Mutex, PoisonError};

use parti::core::ids::Incarnation;
use parti::{
    ConsumerUpdate, ConsumerUpdater, Epoch, Fatal, Grant, HandlerError, Manager, ManagerBuilder,
    Observer, Offset, PartitionId, Report, StartPosition, WorkerError, WorkerId, async_trait,
};
use tokio::sync::oneshot;

use super::ended::{End, Ended};
use super::seat::Seat;

/// What a member is called in its group, or why it has no name.
pub type Claim = Result<(WorkerId, Incarnation), WorkerError>;

/// Turns what the manager says into what the client hears.
struct Updater(Arc<Seat>);

#[async_trait]
impl ConsumerUpdater for Updater {
    async fn update(&self, _: &ConsumerUpdate) -> Result<(), HandlerError> {
        // A client subscribes when it is told to start.
        Ok(())
    }

    async fn start(&self, grant: Grant) -> Result<(), HandlerError> {
        self.0.granted(grant);
        Ok(())
    }

    async fn revoke(&self, partition: &PartitionId, epoch: Epoch) -> Result<(), HandlerError> {
        self.0.revoked(partition, epoch).await;
        Ok(())
    }

    async fn lost(&self, partition: &PartitionId, epoch: Epoch) -> Result<(), HandlerError> {
        self.0.lost(partition, epoch);
        Ok(())
    }

    async fn resolve(
        &self,
        partition: &PartitionId,
        start: StartPosition,
    ) -> Result<Offset, HandlerError> {
        Ok(self.0.messages.resolve(partition, start).await?)
    }
}

/// Watches the member's own life.
struct Witness {
    seat: Arc<Seat>,
    claimed: Arc<Mutex<Option<oneshot::Sender<Claim>>>>,
}

impl Observer for Witness {
    fn observe(&self, report: &Report) {
        match report {
            Report::Claimed(worker, incarnation) => {
                let claimed = self.claimed.lock();
                let claimed = claimed.unwrap_or_else(PoisonError::into_inner).take();
                if let Some(claimed) = claimed {
                    // Whoever registered may have hung up: the seat falls silent then.
                    let _ = claimed.send(Ok((worker.clone(), *incarnation)));
                }
            }
            Report::Taken {
                partition,
                epoch,
                offset,
                ..
            } => self.seat.taken(partition, *epoch, *offset),
            // The member would join anew, as another: for the client that is another session.
            Report::SessionLost => self.seat.end(End::Lost),
            Report::Lease { alive } => self.seat.leased(*alive),
            _ => {}
        }
    }
}

/// Runs the member until the seat ends; the claim is told once there is one.
pub async fn host(seat: Arc<Seat>, builder: ManagerBuilder, claimed: oneshot::Sender<Claim>) {
    let claimed = Arc::new(Mutex::new(Some(claimed)));
    let witness = Witness {
        seat: seat.clone(),
        claimed: claimed.clone(),
    };
    // What is only needed now and then has a place of its own: there may be a thousand of these.
    let mut starting = Box::pin(builder.observer(witness).start(Updater(seat.clone())));
    let started = tokio::select! {
        started = &mut starting => started,
        end = seat.ending() => match end {
            // The start says what the group had against it.
            End::Lost => {
                seat.deafen();
                starting.await
            }
            // Dropping the start gives the id back, in the background.
            End::Goodbye | End::Silent | End::Service => {
                seat.over(Ended::because(end.why()));
                return;
            }
        },
    };
    let manager = match started {
        Ok(manager) => manager,
        Err(error) => {
            seat.over(how(Err(error.clone())));
            let claimed = claimed
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            if let Some(claimed) = claimed {
                let _ = claimed.send(Err(error));
            }
            return;
        }
    };
    let end = loop {
        tokio::select! {
            ended = manager.ended() => return seat.over(how(ended)),
            end = seat.ending() => break end,
            () = seat.is_to_refresh() => manager.refresh_partitions(),
        }
    };
    Box::pin(finish(&seat, manager, end)).await;
}

/// How a member has ended by itself.
fn how(ended: Result<(), WorkerError>) -> Ended {
    match ended {
        Ok(()) => Ended::because("it ended"),
        // What a worker is told is meant for its process.
        Err(WorkerError::Fatal(Fatal::Dismissed)) => Ended::dismissed(),
        Err(WorkerError::Fatal(Fatal::SessionOver)) => Ended::evicted(),
        Err(error) => Ended::because(error),
    }
}

/// Hands over what the client had, as far as it was committed.
///
/// Also of a client that fell silent: it can commit nothing any more, so what is released then is
/// exactly what was accepted from it while it was there, and nobody has to wait for a second TTL.
async fn finish(seat: &Seat, manager: Manager, end: End) {
    match end {
        End::Goodbye | End::Silent | End::Lost => seat.deafen(),
        // The client is told to release first, and can still commit.
        End::Service => {}
    }
    if end == End::Lost {
        // There is nothing to hand over, and nobody to join as: it ends by itself.
        return seat.over(how(manager.ended().await));
    }
    if let Err(error) = manager.stop().await {
        tracing::warn!(
            consumer = seat.client.consumer,
            "a session did not end as it should: {error}"
        );
    }
    seat.over(Ended::because(end.why()));
}

#[cfg(test)]
mod tests {
    use parti::store::Memory;
    use parti::{Config, Partition, PartitionSource};
    use tokio::sync::watch;

    use super::*;
    use crate::consuming::seat::tests::seat;

    /// No partitions, and how often somebody asked for them.
    #[derive(Debug)]
    struct Counting(watch::Sender<u64>);

    #[async_trait]
    impl PartitionSource for Counting {
        async fn list(&self) -> Result<Vec<Partition>, HandlerError> {
            self.0.send_modify(|times| *times += 1);
            Ok(Vec::new())
        }
    }

    #[tokio::test]
    async fn a_member_lists_again_when_it_is_to() {
        let seat = seat();
        let asked = watch::Sender::new(0);
        let mut times = asked.subscribe();
        let config = Config {
            expected_workers: Some(1),
            ..Config::default()
        };
        let builder = Manager::builder("g", Memory::new(), Counting(asked)).config(config);
        let (claimed, claim) = oneshot::channel();
        let hosting = tokio::spawn(host(seat.clone(), builder, claimed));
        claim.await.expect("an answer").expect("a member");
        let before = *times.wait_for(|times| *times > 0).await.expect("listed");
        seat.refresh();
        let again = times.wait_for(|times| *times > before).await;
        again.expect("listed again");
        seat.end(End::Goodbye);
        hosting.await.expect("it ends");
    }
}
