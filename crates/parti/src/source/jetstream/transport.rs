//! From the core's requests to the stream, and back.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parti_core::config::Config;
use parti_core::ids::{PartitionId, WorkerId};
use parti_core::io::{ConsumerState, SourceEvent, SourceKind, SourceRequest};
use parti_core::worker::{Event, Report};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::JetStream;
use super::consumer::Consumer;
use super::letters::Letters;
use super::pull::{Command, PullLoop, WireNumbers};
use super::read::Reads;
use super::settings::Settings;
use super::subjects::Partitions;
use crate::driver::Observer;
use crate::driver::tasks::Tasks;
use crate::source::SourceError;
use crate::source::transport::{Ends, Transport, Wire, letter, refused, within};

/// So many partitions are named in a log line.
const NAMED: usize = 20;

/// The transport of one worker on a stream.
pub(crate) struct StreamTransport {
    shared: Arc<Shared>,
    commands: UnboundedSender<Command>,
    wire: Arc<WireNumbers>,
    /// Until the loop takes it.
    inbox: Mutex<Option<UnboundedReceiver<Command>>>,
}

struct Shared {
    stream: JetStream,
    settings: Arc<Settings>,
    consumer: Consumer,
    reads: Reads,
    letters: Letters,
    worker: Mutex<Option<WorkerId>>,
    /// What the last good update of this session asked for.
    served: Mutex<BTreeSet<PartitionId>>,
    limit: Duration,
}

impl fmt::Debug for StreamTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamTransport({:?})", self.shared.stream)
    }
}

impl StreamTransport {
    /// The transport of a worker of this group. Refuses settings that this stream cannot be
    /// consumed with.
    pub(crate) fn new(
        stream: &JetStream,
        group: &str,
        config: &Config,
    ) -> Result<Self, SourceError> {
        let settings = Settings {
            group: group.to_owned(),
            retention: stream.retention,
            template: stream.template.clone(),
            partitions: stream.partitions,
            jetstream: config.jetstream.clone(),
        };
        stream.check(&settings, config)?;
        let settings = Arc::new(settings);
        let (commands, inbox) = unbounded_channel();
        let api = stream.api.clone();
        let tell = Box::new(commands.clone());
        let shared = Shared {
            consumer: Consumer::new(api.clone(), settings.clone(), tell),
            reads: Reads::new(api, stream.template.clone()),
            letters: stream.letters.clone(),
            stream: stream.clone(),
            settings,
            worker: Mutex::default(),
            served: Mutex::default(),
            limit: config.operation_timeout,
        };
        Ok(Self {
            shared: Arc::new(shared),
            commands,
            wire: Arc::default(),
            inbox: Mutex::new(Some(inbox)),
        })
    }

    fn command(&self, command: Command) {
        // The loop ends with the worker.
        let _ = self.commands.send(command);
    }
}

impl Transport for StreamTransport {
    fn kind(&self) -> SourceKind {
        SourceKind::Stream(self.shared.settings.retention)
    }

    fn start(&self, events: &UnboundedSender<Event>, tasks: &Tasks) {
        let inbox = self
            .inbox
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(inbox) = inbox {
            let shared = &self.shared;
            let pulls = PullLoop::new(
                shared.stream.api.clone(),
                Partitions::new(shared.settings.template.clone()),
                &shared.settings,
                events.clone(),
                tasks.clone(),
                self.wire.clone(),
            );
            tasks.spawn(pulls.run(inbox));
        }
    }

    fn request(&self, request: SourceRequest, events: &UnboundedSender<Event>, tasks: &Tasks) {
        match request {
            SourceRequest::Pull { ask, batch } => self.command(Command::Pull { ask, batch }),
            SourceRequest::StopPull { ask } => self.command(Command::Stop { ask }),
            SourceRequest::Ack { deliveries } => self.command(Command::Ack(deliveries)),
            SourceRequest::Extend { deliveries } => self.command(Command::Extend(deliveries)),
            request => {
                let (shared, events) = (self.shared.clone(), events.clone());
                tasks.spawn(async move {
                    if let Some(answer) = shared.carry_out(request).await {
                        // Whoever asked may have gone meanwhile.
                        let _ = events.send(Event::Source(answer));
                    }
                });
            }
        }
    }

    fn wire(&self) -> Wire {
        self.wire.read()
    }

    fn ends(&self, partitions: Vec<PartitionId>) -> BoxFuture<'static, Ends> {
        let shared = self.shared.clone();
        async move {
            let ends = within(shared.limit, shared.stream.ends(&partitions));
            // What cannot be told now may be told the next time.
            ends.await.unwrap_or_default()
        }
        .boxed()
    }
}

/// Whose durable it is shows only once an id is claimed.
impl Observer for StreamTransport {
    fn observe(&self, report: &Report) {
        let worker = match report {
            Report::Claimed(worker, _) => Some(worker),
            Report::SessionLost => None,
            _ => return,
        };
        let mut known = self
            .shared
            .worker
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *known = worker.cloned();
        self.shared.served().clear();
        self.shared.consumer.claimed(worker);
    }
}

impl Shared {
    async fn carry_out(&self, request: SourceRequest) -> Option<SourceEvent> {
        let (consumer, reads, limit) = (&self.consumer, &self.reads, self.limit);
        Some(match request {
            SourceRequest::UpdateConsumer { ask, partitions } => {
                let result = within(limit, consumer.update(&partitions)).await;
                self.note_update(&partitions, &result);
                SourceEvent::Consumer { ask, result }
            }
            SourceRequest::DeleteConsumer { ask } => {
                let result = within(limit, consumer.delete()).await;
                self.note_update(&[], &result);
                SourceEvent::Consumer { ask, result }
            }
            SourceRequest::ResetConsumer { ask } => {
                let result = within(limit, consumer.reset()).await;
                if let Err(error) = &result {
                    tracing::warn!(%error, "the consumer could not be rewound");
                }
                SourceEvent::Consumer { ask, result }
            }
            SourceRequest::InspectConsumer { ask, partitions } => SourceEvent::Consumer {
                ask,
                result: within(limit, consumer.inspect(&partitions)).await,
            },
            SourceRequest::EvictConsumer {
                ask,
                worker,
                partition,
            } => SourceEvent::Consumer {
                ask,
                result: within(limit, consumer.evict(&worker, &partition)).await,
            },
            SourceRequest::Bounds { ask } => SourceEvent::Bounds {
                ask,
                result: within(limit, reads.bounds()).await,
            },
            SourceRequest::Read {
                ask,
                partition,
                from,
                upto,
                limit: most,
            } => SourceEvent::Read {
                ask,
                result: within(limit, reads.read(&partition, from, upto, most)).await,
            },
            SourceRequest::Sweep {
                ask,
                partitions,
                from,
                upto,
                limit: most,
            } => SourceEvent::Swept {
                ask,
                result: within(limit, reads.sweep(&partitions, from, upto, most)).await,
            },
            SourceRequest::Resolve {
                ask,
                partition,
                start,
            } => SourceEvent::Resolved {
                ask,
                result: within(limit, reads.resolve(&partition, start)).await,
            },
            SourceRequest::DeadLetter { ask, job, error } => {
                let result = match letter(job, &error) {
                    Some(letter) => within(limit, self.bury(letter)).await,
                    None => Err(SourceError::Rejected("the message lost its body".into())),
                };
                if let Err(error) = &result {
                    tracing::warn!(%error, "a dead letter was not stored; its partition waits");
                }
                SourceEvent::DeadLettered { ask, result }
            }
            other => return refused(other, "a stream is not the user's own consumption"),
        })
    }

    fn served(&self) -> MutexGuard<'_, BTreeSet<PartitionId>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An update that failed is logged with what it would have changed.
    fn note_update(&self, wanted: &[PartitionId], result: &Result<ConsumerState, SourceError>) {
        let mut served = self.served();
        match result {
            Ok(_) => *served = wanted.iter().cloned().collect(),
            Err(error) => {
                let wanted: BTreeSet<PartitionId> = wanted.iter().cloned().collect();
                let added: Vec<_> = wanted.difference(&served).take(NAMED).collect();
                let removed: Vec<_> = served.difference(&wanted).take(NAMED).collect();
                tracing::warn!(%error, ?added, ?removed, "a consumer update failed");
            }
        }
    }

    async fn bury(&self, letter: crate::source::DeadLetter) -> Result<(), SourceError> {
        let worker = self
            .worker
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let worker = worker.as_ref().map_or("", |worker| worker.as_str());
        let (api, group) = (&self.stream.api, &self.settings.group);
        self.letters.publish(api, group, worker, &letter).await
    }
}
