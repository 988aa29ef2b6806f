//! Runs of handler calls: what the core decided to handle, one message after the other.
//!
//! ```text
//!  Run ──▶ lease alive, not halted, time left? ──▶ handler call ──┬─ done ─▶ the next message
//!                │ no                                 │ waits     └─ failed ─▶ Handled: the end
//!                └▶ Handled: the end                  └▶ Handled: what is done, and the rest goes back
//! ```

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::SystemTime;

use parti_core::ids::{PartitionId, WorkerId};
use parti_core::io::{self, HandlerResult, Ran, Run, Then};
use parti_core::worker::Event;
use tokio::sync::mpsc;
use tracing::Instrument;

use super::commits::Lease;
use super::tasks::{Tasks, caught};
use crate::handler::Handler;
use crate::message::Message;
use crate::metrics::CallTimes;
use crate::source::Record;

/// Starts runs, and knows how to halt them.
pub(super) struct Runs {
    handler: Arc<dyn Handler>,
    lease: Arc<Lease>,
    events: mpsc::WeakUnboundedSender<Event>,
    /// The marks of runs that have more than one message, by their partition.
    halts: BTreeMap<PartitionId, Arc<AtomicBool>>,
}

impl Runs {
    pub(super) fn new(
        handler: Arc<dyn Handler>,
        lease: Arc<Lease>,
        events: mpsc::WeakUnboundedSender<Event>,
    ) -> Self {
        Self {
            handler,
            lease,
            events,
            halts: BTreeMap::new(),
        }
    }

    /// Begins a run, as a task of its own.
    pub(super) fn start(
        &mut self,
        run: Run,
        worker: Option<WorkerId>,
        times: Option<CallTimes>,
        tasks: &Tasks,
    ) {
        let halted = Arc::<AtomicBool>::default();
        if run.messages.len() > 1 {
            self.halts.insert(run.partition.clone(), halted.clone());
        }
        let calls = Calls {
            handler: self.handler.clone(),
            lease: self.lease.clone(),
            events: self.events.clone(),
            halted,
            worker,
            times,
        };
        tasks.spawn(calls.make(run));
    }

    /// The run of this partition begins no further message.
    pub(super) fn halt(&mut self, partition: &PartitionId) {
        if let Some(halted) = self.halts.remove(partition) {
            halted.store(true, Ordering::Release);
        }
    }

    /// What is heard of a run: it begins nothing more that could be halted.
    pub(super) fn heard(&mut self, event: &Event) {
        if let Event::Handled { partition, .. } = event {
            self.halts.remove(partition);
        }
    }
}

/// The calls of one run.
struct Calls {
    handler: Arc<dyn Handler>,
    lease: Arc<Lease>,
    events: mpsc::WeakUnboundedSender<Event>,
    halted: Arc<AtomicBool>,
    worker: Option<WorkerId>,
    times: Option<CallTimes>,
}

impl Calls {
    async fn make(self, run: Run) {
        let (began, received_at) = (self.lease.now(), SystemTime::now());
        let Some(first) = run.messages.first() else {
            return;
        };
        let mut ran = Ran {
            first: first.offset,
            done: 0,
            then: Then::Ended,
        };
        for (index, message) in run.messages.iter().enumerate() {
            let now = self.lease.now();
            let late = index > 0 && now.since(began) >= run.within;
            if late || !self.lease.is_alive_at(now) || self.halted.load(Ordering::Acquire) {
                break;
            }
            let message = self.message(&run, index, message, received_at);
            let last = index + 1 == run.messages.len();
            let (result, waited) = self.call(&run, message, last, &mut ran).await;
            match result {
                HandlerResult::Done => ran.done += 1,
                HandlerResult::Failed(error) => {
                    ran.then = Then::Failed(error);
                    break;
                }
                HandlerResult::Panicked(error) => {
                    ran.then = Then::Panicked(error);
                    break;
                }
            }
            if waited {
                break;
            }
        }
        self.tell(&run, ran);
    }

    /// One call, and whether it had to wait. If so, what is done is told first, and what was to
    /// follow is given back.
    async fn call(
        &self,
        run: &Run,
        message: Option<Message>,
        last: bool,
        ran: &mut Ran,
    ) -> (HandlerResult, bool) {
        let Some(message) = message else {
            let why = "the message lost its body".into();
            return (HandlerResult::Failed(why), false);
        };
        let offset = message.offset;
        let timed = self.times.as_ref().map(CallTimes::begin);
        let span = message.span();
        let mut call = pin!(caught(self.handler.handle(message)).instrument(span));
        let at_once = poll_fn(|cx| match call.as_mut().poll(cx) {
            Poll::Ready(ended) => Poll::Ready(Some(ended)),
            Poll::Pending => Poll::Ready(None),
        });
        let at_once = at_once.await;
        let waited = at_once.is_none();
        let ended = match at_once {
            Some(ended) => ended,
            None => {
                if ran.done > 0 || !last {
                    let then = Then::GoesOn(offset);
                    self.tell(
                        run,
                        Ran {
                            then,
                            ..ran.clone()
                        },
                    );
                    (ran.first, ran.done) = (offset, 0);
                }
                call.await
            }
        };
        if let Some(timed) = timed {
            timed.ended();
        }
        let result = match ended {
            Ok(Ok(())) => HandlerResult::Done,
            Ok(Err(error)) => HandlerResult::Failed(error.to_string().into()),
            Err(panic) => HandlerResult::Panicked(panic.into()),
        };
        (result, waited)
    }

    fn tell(&self, run: &Run, ran: Ran) {
        if let Some(events) = self.events.upgrade() {
            // The worker may have ended meanwhile.
            let _ = events.send(Event::Handled {
                partition: run.partition.clone(),
                epoch: run.epoch,
                ran,
            });
        }
    }

    fn message(
        &self,
        run: &Run,
        index: usize,
        message: &io::Message,
        received_at: SystemTime,
    ) -> Option<Message> {
        Some(Message {
            record: message.body.get::<Record>()?,
            offset: message.offset,
            partition: run.partition.clone(),
            epoch: run.epoch,
            attempt: if index == 0 { run.attempt } else { 1 },
            worker: self.worker.clone()?,
            received_at,
        })
    }
}
