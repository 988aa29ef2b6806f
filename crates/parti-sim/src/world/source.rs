//! The way to the source and back. One connection keeps its order; when it dies, what was sent into
//! it is lost, and open pulls end with the next one.

use std::sync::Arc;

use parti_core::io::{Ask, SourceError, SourceEvent, SourceRequest};
use parti_core::worker::Event;

use super::link::{hit, short_latency};
use super::{Happening, World};
use crate::facts::{Proc, Seen};
use crate::model::ClientId;
use crate::setup::{MILLI, Micros, SECOND};

impl World {
    pub(super) fn send_to_source(&mut self, proc: Proc, request: SourceRequest) {
        let machine = self.procs[proc].machine;
        let cut = self.links[machine].source_cut.now(self.now).is_some();
        let delay = if matches!(request, SourceRequest::Pull { .. }) {
            short_latency(&mut self.net)
        } else {
            self.on_its_way(proc)
        };
        let process = &mut self.procs[proc];
        process.to_source = (self.now + delay).max(process.to_source);
        let at = process.to_source;
        let (client, durable) = (process.client, process.durable.clone());
        match request {
            SourceRequest::Ack { deliveries } => {
                let messages = process.replies.messages(&deliveries);
                if !cut {
                    self.queue.push(
                        at,
                        Happening::AcksArrive {
                            durable,
                            messages,
                            done: true,
                        },
                    );
                }
                return;
            }
            SourceRequest::Extend { deliveries } => {
                let messages = process.replies.messages(&deliveries);
                if !cut {
                    self.queue.push(
                        at,
                        Happening::AcksArrive {
                            durable,
                            messages,
                            done: false,
                        },
                    );
                }
                return;
            }
            SourceRequest::Pull { ask, .. } => process.pulls.push(ask),
            _ => {}
        }
        if let Some((ask, failure)) = failure_of(&request) {
            // Whoever asks is answered in any case, at the latest when its patience is over.
            process.asks.push(ask);
            let timeout = process.clock.span(self.setup.config.operation_timeout);
            let event = failure;
            self.queue.push(
                self.now + timeout,
                Happening::SourceNews {
                    proc,
                    client,
                    event,
                },
            );
        }
        if cut && self.net.chance(0.7) {
            return;
        }
        self.queue.push(
            at,
            Happening::SourceArrives {
                proc,
                client,
                durable,
                request,
            },
        );
    }

    pub(super) fn source_arrives(
        &mut self,
        proc: Proc,
        client: ClientId,
        durable: &Arc<str>,
        request: SourceRequest,
    ) {
        if !self.is_running(proc) && self.net.chance(0.5) {
            return;
        }
        let letter = match &request {
            SourceRequest::DeadLetter { job, .. } => {
                Some((job.partition.clone(), job.message.offset))
            }
            _ => None,
        };
        // A pull belongs to the connection that sent it; when that is gone, so is the pull.
        if self.procs[proc].client != client
            && matches!(
                request,
                SourceRequest::Pull { .. } | SourceRequest::StopPull { .. }
            )
        {
            return;
        }
        let answer = self.source.request(self.now, durable, client, request);
        if let Some((partition, offset)) = letter
            && let Some(partition) = self.setup.index_of(&partition)
        {
            self.jury
                .see(self.now, Seen::DeadLettered { partition, offset });
        }
        if let Some(event) = answer {
            self.send_to_process(proc, client, event);
        }
        self.pump_source();
    }

    pub(super) fn acks_arrive(
        &mut self,
        durable: &str,
        messages: &[parti_core::ids::Offset],
        done: bool,
    ) {
        if let Some(stream) = self.source.as_stream() {
            if done {
                stream.ack(durable, messages);
            } else {
                stream.extend(self.now, durable, messages);
            }
            self.pump_source();
        }
    }

    /// Passes on what open pulls get, and looks when there may be more.
    pub(super) fn pump_source(&mut self) {
        for (client, event) in self.source.deliveries(self.now) {
            if let Some(proc) = self
                .procs
                .iter()
                .rposition(|process| process.client == client)
            {
                self.send_to_process(proc, client, event);
            }
        }
        if let Some(at) = self.source.next_deadline(self.now) {
            let at = at.max(self.now + 1);
            if at < self.source_timer {
                self.source_timer = at;
                self.queue.push(at, Happening::SourceTimer);
            }
        }
    }

    fn send_to_process(&mut self, proc: Proc, client: ClientId, event: SourceEvent) {
        let delay = short_latency(&mut self.net);
        let process = &mut self.procs[proc];
        process.from_source = (self.now + delay).max(process.from_source);
        let at = process.from_source;
        if self.links[process.machine]
            .source_cut
            .now(self.now)
            .is_some()
        {
            // Sent into a dying link.
            return;
        }
        if let Some(percent) = self.links[process.machine].losing.now(self.now)
            && matches!(event, SourceEvent::Delivered { .. })
            && hit(&mut self.net, percent)
        {
            return;
        }
        self.queue.push(
            at,
            Happening::SourceNews {
                proc,
                client,
                event,
            },
        );
    }

    pub(super) fn source_news(&mut self, proc: Proc, client: ClientId, event: SourceEvent) {
        let process = &mut self.procs[proc];
        if process.worker.is_none() {
            return;
        }
        if let Some(ask) = answered_ask(&event) {
            // An answer over a connection that is gone may still count: only the first one does.
            let Some(found) = process.asks.iter().position(|open| *open == ask) else {
                return;
            };
            process.asks.swap_remove(found);
        } else if process.client != client {
            return;
        }
        if self.links[process.machine]
            .source_cut
            .now(self.now)
            .is_some()
            && matches!(event, SourceEvent::Delivered { .. })
        {
            return;
        }
        let process = &mut self.procs[proc];
        match &event {
            SourceEvent::PullEnded { ask } => {
                let Some(found) = process.pulls.iter().position(|open| open == ask) else {
                    return;
                };
                process.pulls.swap_remove(found);
            }
            SourceEvent::Delivered {
                sequence,
                partition,
                message,
                ..
            } => {
                if let Some(partition) = self.setup.index_of(partition) {
                    let (sequence, offset) = (*sequence, message.offset);
                    let seen = Seen::Delivered {
                        proc,
                        sequence,
                        partition,
                        offset,
                    };
                    self.jury.see(self.now, seen);
                }
            }
            _ => {}
        }
        self.procs[proc].replies.note(&event);
        self.deliver(proc, Event::Source(event));
    }

    /// The link dies; it is back after a while.
    pub(super) fn cut_source(&mut self, machine: usize, length: Micros) {
        self.links[machine].source_cut = super::link::Until::new(self.now + length, ());
        if let Some(proc) = self.links[machine].running {
            self.slows(proc, length + SECOND);
            self.queue
                .push(self.now + length, Happening::SourceBack { proc });
        }
    }

    /// A new connection: the old one's pulls are gone.
    pub(super) fn source_back(&mut self, proc: Proc) {
        if !self.is_running(proc) {
            return;
        }
        self.serial += 1;
        let fresh = ClientId(self.serial);
        let old = std::mem::replace(&mut self.procs[proc].client, fresh);
        // The server notices soon, or only after a while.
        let notice = if self.lots.chance(0.7) {
            2 * MILLI
        } else {
            3_000 * MILLI
        };
        let at = self.now + self.lots.below(notice);
        self.queue.push(at, Happening::Disconnected { client: old });
        let pulls = std::mem::take(&mut self.procs[proc].pulls);
        self.deliver(proc, Event::Source(SourceEvent::Reconnected));
        for ask in pulls {
            self.deliver(proc, Event::Source(SourceEvent::PullEnded { ask }));
        }
    }
}

/// What a request is answered with when nothing came back.
fn failure_of(request: &SourceRequest) -> Option<(Ask, SourceEvent)> {
    let error = || SourceError::Unavailable(Arc::from("no answer"));
    let event = match request {
        SourceRequest::UpdateConsumer { ask, .. }
        | SourceRequest::DeleteConsumer { ask }
        | SourceRequest::ResetConsumer { ask }
        | SourceRequest::InspectConsumer { ask, .. }
        | SourceRequest::EvictConsumer { ask, .. } => (
            *ask,
            SourceEvent::Consumer {
                ask: *ask,
                result: Err(error()),
            },
        ),
        SourceRequest::Bounds { ask } => (
            *ask,
            SourceEvent::Bounds {
                ask: *ask,
                result: Err(error()),
            },
        ),
        SourceRequest::Read { ask, .. } => (
            *ask,
            SourceEvent::Read {
                ask: *ask,
                result: Err(error()),
            },
        ),
        SourceRequest::Sweep { ask, .. } => (
            *ask,
            SourceEvent::Swept {
                ask: *ask,
                result: Err(error()),
            },
        ),
        SourceRequest::Resolve { ask, .. } => (
            *ask,
            SourceEvent::Resolved {
                ask: *ask,
                result: Err(error()),
            },
        ),
        SourceRequest::DeadLetter { ask, .. } => (
            *ask,
            SourceEvent::DeadLettered {
                ask: *ask,
                result: Err(error()),
            },
        ),
        SourceRequest::External { ask, .. } => (
            *ask,
            SourceEvent::External {
                ask: *ask,
                result: Err(error()),
            },
        ),
        SourceRequest::Pull { .. }
        | SourceRequest::StopPull { .. }
        | SourceRequest::Ack { .. }
        | SourceRequest::Extend { .. } => return None,
    };
    Some(event)
}

/// Which question this answers, if it answers one.
fn answered_ask(event: &SourceEvent) -> Option<Ask> {
    match event {
        SourceEvent::Consumer { ask, .. }
        | SourceEvent::Bounds { ask, .. }
        | SourceEvent::Read { ask, .. }
        | SourceEvent::Swept { ask, .. }
        | SourceEvent::Resolved { ask, .. }
        | SourceEvent::DeadLettered { ask, .. }
        | SourceEvent::External { ask, .. } => Some(*ask),
        SourceEvent::Delivered { .. }
        | SourceEvent::PullEnded { .. }
        | SourceEvent::Grew { .. }
        | SourceEvent::Reconnected
        | SourceEvent::Replaced => None,
    }
}
