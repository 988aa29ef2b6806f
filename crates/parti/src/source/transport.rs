//! From the core's requests to a source, and back.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use parti_core::io::{
    self, Body, Job, ReadBatch, SourceError, SourceEvent, SourceKind, SourceRequest,
};
use tokio::sync::mpsc::UnboundedSender;
use xxhash_rust::xxh3::xxh3_64;

use crate::driver::tasks::{Tasks, caught};

use super::{Batch, DeadLetter, Growth, Offset, PartitionId, Record, Source, StartPosition};
use parti_core::worker::Event;

/// Carries out source requests; every one with an `Ask` gets exactly one answer.
pub(crate) trait Transport: fmt::Debug + Send + Sync {
    /// What the core should expect of it.
    fn kind(&self) -> SourceKind;

    /// Begins to tell of news that nobody asked for.
    fn start(&self, events: &UnboundedSender<Event>, tasks: &Tasks);

    /// Carries out one request, without waiting for it.
    fn request(&self, request: SourceRequest, events: &UnboundedSender<Event>, tasks: &Tasks);

    /// What only the wire shows, for metrics.
    fn wire(&self) -> Wire {
        Wire::default()
    }

    /// One past the newest message of each of these partitions, as far as it can be told: for
    /// metrics.
    fn ends(&self, _partitions: Vec<PartitionId>) -> BoxFuture<'static, Ends> {
        std::future::ready(Ends::new()).boxed()
    }
}

/// Where partitions end.
pub(crate) type Ends = Vec<(PartitionId, Offset)>;

/// What only the wire shows of a durable consumer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wire {
    /// Deliveries of messages that had been delivered before.
    pub(crate) redelivered: u64,
    /// Messages that the consumer has still to deliver, by its last delivery.
    pub(crate) pending: u64,
    /// Whether pulls are answered.
    pub(crate) healthy: bool,
}

/// The transport of everything that is read by partition and offset.
#[derive(Debug)]
pub(crate) struct LogTransport {
    source: Arc<dyn Source>,
    limit: Duration,
}

impl LogTransport {
    /// Every request is given up after this time.
    pub(crate) fn new(source: Arc<dyn Source>, limit: Duration) -> Self {
        Self { source, limit }
    }
}

impl Transport for LogTransport {
    fn kind(&self) -> SourceKind {
        SourceKind::Log
    }

    fn start(&self, events: &UnboundedSender<Event>, tasks: &Tasks) {
        let (mut growth, events) = (self.source.growth(), events.clone());
        tasks.spawn(async move {
            loop {
                let news = tokio::select! {
                    news = growth.next() => news,
                    () = events.closed() => return,
                };
                let event = match news {
                    Some(Growth::Partition(partition)) => SourceEvent::Grew { partition },
                    Some(Growth::Any) => SourceEvent::Reconnected,
                    None => return,
                };
                if events.send(Event::Source(event)).is_err() {
                    return;
                }
            }
        });
    }

    fn request(&self, request: SourceRequest, events: &UnboundedSender<Event>, tasks: &Tasks) {
        let (source, limit, events) = (self.source.clone(), self.limit, events.clone());
        tasks.spawn(async move {
            if let Some(answer) = carry_out(source.as_ref(), request, limit).await {
                // Whoever asked may have gone meanwhile.
                let _ = events.send(Event::Source(answer));
            }
        });
    }

    fn ends(&self, partitions: Vec<PartitionId>) -> BoxFuture<'static, Ends> {
        let (source, limit) = (self.source.clone(), self.limit);
        async move {
            let mut ends = Ends::new();
            for partition in partitions {
                let end = source.resolve(&partition, StartPosition::Latest);
                // One that cannot be told now may be told the next time.
                if let Ok(end) = within(limit, end).await {
                    ends.push((partition, end));
                }
            }
            ends
        }
        .boxed()
    }
}

async fn carry_out(
    source: &dyn Source,
    request: SourceRequest,
    limit: Duration,
) -> Option<SourceEvent> {
    Some(match request {
        SourceRequest::Read {
            ask,
            partition,
            from,
            limit: most,
            ..
        } => {
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            let read = within(limit, source.read(&partition, from, most)).await;
            SourceEvent::Read {
                ask,
                result: read.map(for_core),
            }
        }
        SourceRequest::Resolve {
            ask,
            partition,
            start,
        } => SourceEvent::Resolved {
            ask,
            result: within(limit, source.resolve(&partition, start)).await,
        },
        SourceRequest::DeadLetter { ask, job, error } => {
            let result = match letter(job, &error) {
                Some(letter) => within(limit, source.dead_letter(letter)).await,
                None => Err(SourceError::Rejected("the message lost its body".into())),
            };
            SourceEvent::DeadLettered { ask, result }
        }
        // The core does not ask for anything else; if it did, it would be told.
        other => return refused(other, "a log is read by partition; it has no consumer"),
    })
}

/// The answer to a request that this transport has nothing for, if it needs one.
pub(crate) fn refused(request: SourceRequest, why: &str) -> Option<SourceEvent> {
    let error = || SourceError::Rejected(why.into());
    Some(match request {
        SourceRequest::UpdateConsumer { ask, .. }
        | SourceRequest::DeleteConsumer { ask }
        | SourceRequest::ResetConsumer { ask }
        | SourceRequest::InspectConsumer { ask, .. }
        | SourceRequest::EvictConsumer { ask, .. } => SourceEvent::Consumer {
            ask,
            result: Err(error()),
        },
        SourceRequest::Bounds { ask } => SourceEvent::Bounds {
            ask,
            result: Err(error()),
        },
        SourceRequest::Read { ask, .. } => SourceEvent::Read {
            ask,
            result: Err(error()),
        },
        SourceRequest::Sweep { ask, .. } => SourceEvent::Swept {
            ask,
            result: Err(error()),
        },
        SourceRequest::Resolve { ask, .. } => SourceEvent::Resolved {
            ask,
            result: Err(error()),
        },
        SourceRequest::DeadLetter { ask, .. } => SourceEvent::DeadLettered {
            ask,
            result: Err(error()),
        },
        SourceRequest::External { ask, .. } => SourceEvent::External {
            ask,
            result: Err(error()),
        },
        SourceRequest::Pull { ask, .. } => SourceEvent::PullEnded { ask },
        SourceRequest::StopPull { .. }
        | SourceRequest::Ack { .. }
        | SourceRequest::Extend { .. } => return None,
    })
}

/// Whatever takes longer than this, or panics, is an answer, too.
pub(crate) async fn within<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, SourceError>>,
) -> Result<T, SourceError> {
    let late = || SourceError::Unavailable(format!("no answer within {limit:?}").into());
    match tokio::time::timeout(limit, caught(work)).await {
        Ok(Ok(result)) => result,
        Ok(Err(panic)) => Err(SourceError::Unavailable(
            format!("the source panicked: {panic}").into(),
        )),
        Err(_) => Err(late()),
    }
}

fn for_core(batch: Batch) -> ReadBatch {
    let now = SystemTime::now();
    let records = batch.records.into_iter();
    ReadBatch {
        messages: records.map(|record| message(record, now)).collect(),
        next: batch.next,
        first: batch.first,
        end: batch.end,
    }
}

/// A record, and when this process got it. What came together has one time: to ask for it is not for
/// nothing.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) record: Record,
    pub(crate) at: SystemTime,
}

/// A record as the core sees it: everything but offset, key and size is only carried.
pub(crate) fn message(record: Record, at: SystemTime) -> io::Message {
    io::Message {
        offset: record.offset,
        key: record.key.as_deref().map_or(0, xxh3_64),
        size: u32::try_from(record.payload.len()).unwrap_or(u32::MAX),
        body: Body::new(Received { record, at }),
    }
}

/// A dead letter of what the core knows of a message.
pub(crate) fn letter(job: Job, error: &str) -> Option<DeadLetter> {
    let received = job.message.body.get::<Received>()?;
    Some(DeadLetter {
        partition: job.partition,
        record: received.record.clone(),
        attempts: job.attempt,
        error: error.to_owned(),
    })
}
