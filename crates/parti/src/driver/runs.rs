//! Runs of handler calls: what the core decided to handle, one message after the other.
//!
//! ```text
//!  Run ──▶ lease alive, not halted, time left? ──▶ handler call ──┬─ done ─▶ the next message
//!                │ no                                 │ waits     └─ failed ─▶ Handled: the end
//!                └▶ Handled: the end                  └▶ Handled: what is done, and the rest goes back
//! ```
//!
//! Short runs that begin together share a task, because starting one costs more than a quick call.
//! None of them waits for another one's slow call: see [`super::queue`].

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use parti_core::ids::{Epoch, PartitionId, WorkerId};
use parti_core::io::{self, HandlerResult, Ran, Run, Then};
use parti_core::time::Time;
use parti_core::worker::Event;
use tokio::sync::mpsc;
use tracing::Instrument;

use super::commits::Lease;
use super::queue::{Queue, Queued};
use super::tasks::{Tasks, caught};
use crate::handler::Handler;
use crate::message::Message;
use crate::metrics::CallTimes;
use crate::source::Received;

/// Runs share a task while they have no more messages than this together.
const SHARED: usize = 128;
/// After a call that others would have had to wait for, so many bursts of runs share nothing.
const APART: u32 = 64;
/// What waits in a queue so long, behind a call that blocks its thread, is taken out of it.
const STUCK: Duration = Duration::from_millis(10);

/// Starts runs, and knows how to halt them.
pub(super) struct Runs {
    caller: Arc<Caller>,
    /// The marks of runs that have more than one message, by their partition.
    halts: BTreeMap<PartitionId, Arc<AtomicBool>>,
    /// What begins with the next [`Runs::start`].
    gathered: Vec<Queued>,
    /// Queues that others may be stuck in, and when to look.
    watched: VecDeque<(Time, Queue)>,
}

impl Runs {
    pub(super) fn new(
        handler: Arc<dyn Handler>,
        lease: Arc<Lease>,
        events: mpsc::WeakUnboundedSender<Event>,
        tasks: Tasks,
    ) -> Self {
        let caller = Caller {
            handler,
            lease,
            events,
            tasks,
            apart: AtomicU32::new(0),
        };
        Self {
            caller: Arc::new(caller),
            halts: BTreeMap::new(),
            gathered: Vec::new(),
            watched: VecDeque::new(),
        }
    }

    /// Takes in a run. It can be halted from now on.
    pub(super) fn gather(&mut self, run: Run) {
        let halted = (run.messages.len() > 1).then(Arc::<AtomicBool>::default);
        if let Some(halted) = &halted {
            self.halts.insert(run.partition.clone(), halted.clone());
        }
        self.gathered.push(Queued { run, halted });
    }

    /// Begins what was gathered: short runs together, as long as calls are quick.
    pub(super) fn start(&mut self, worker: Option<&WorkerId>, times: Option<CallTimes>) {
        if self.gathered.is_empty() {
            return;
        }
        let apart = self.caller.apart.load(Ordering::Relaxed) > 0;
        if apart {
            self.caller.apart.fetch_sub(1, Ordering::Relaxed);
        }
        let (mut together, mut messages) = (VecDeque::new(), 0);
        for queued in std::mem::take(&mut self.gathered) {
            let more = queued.run.messages.len();
            if !together.is_empty() && (apart || messages + more > SHARED) {
                self.spawn(std::mem::take(&mut together), worker, times.clone());
                messages = 0;
            }
            messages += more;
            together.push_back(queued);
        }
        self.spawn(together, worker, times);
    }

    fn spawn(
        &mut self,
        runs: VecDeque<Queued>,
        worker: Option<&WorkerId>,
        times: Option<CallTimes>,
    ) {
        let watched = runs.len() > 1;
        // A copy of its own: a count that all threads change is slow to change.
        let worker = worker.map(|worker| WorkerId::new(worker.as_str()));
        let queue = Queue::new(runs);
        if watched {
            let due = self.caller.lease.now() + STUCK;
            self.watched.push_back((due, queue.clone()));
        }
        self.caller.spawn(queue, worker, times);
    }

    /// When to look for runs that may be stuck.
    pub(super) fn next_deadline(&self) -> Time {
        self.watched.front().map_or(Time::NEVER, |(due, _)| *due)
    }

    /// Takes runs out of queues in which they are stuck.
    pub(super) fn relieve(
        &mut self,
        now: Time,
        worker: Option<&WorkerId>,
        times: Option<CallTimes>,
    ) {
        while let Some((_, queue)) = self.watched.pop_front_if(|(due, _)| *due <= now) {
            let calls = Calls {
                caller: &self.caller,
                queue: &queue,
                worker: worker.cloned(),
                times: times.clone(),
            };
            calls.part();
        }
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

/// Who makes the calls.
struct Caller {
    handler: Arc<dyn Handler>,
    lease: Arc<Lease>,
    events: mpsc::WeakUnboundedSender<Event>,
    tasks: Tasks,
    /// So many bursts of runs share nothing.
    apart: AtomicU32,
}

impl Caller {
    /// Calls are slow: others had better not wait for them.
    fn stay_apart(&self) {
        self.apart.store(APART, Ordering::Relaxed);
    }

    /// Makes all calls of a queue, as a task.
    fn spawn(self: &Arc<Self>, queue: Queue, worker: Option<WorkerId>, times: Option<CallTimes>) {
        let caller = self.clone();
        self.tasks.spawn(async move {
            let calls = Calls {
                caller: &caller,
                queue: &queue,
                worker,
                times,
            };
            calls.make_all().await;
        });
    }
}

/// The calls of one queue.
struct Calls<'a> {
    caller: &'a Arc<Caller>,
    queue: &'a Queue,
    worker: Option<WorkerId>,
    times: Option<CallTimes>,
}

impl Calls<'_> {
    async fn make_all(&self) {
        let began = self.caller.lease.now();
        while let Some(Queued { run, halted }) = self.queue.next() {
            let within = run.within;
            self.make(run, halted.as_deref()).await;
            if self.caller.lease.now().since(began) >= within {
                self.caller.stay_apart();
                self.part();
            }
        }
        self.queue.tell(&self.caller.events);
    }

    /// Whatever is left in the queue goes on without it, each run as a task of its own; and what
    /// is known by now is told. How many runs that were.
    fn part(&self) -> usize {
        let rest = self.queue.part();
        let count = rest.len();
        for queued in rest {
            let queue = Queue::new(VecDeque::from([queued]));
            let (worker, times) = (self.worker.clone(), self.times.clone());
            self.caller.spawn(queue, worker, times);
        }
        self.queue.tell(&self.caller.events);
        count
    }

    async fn make(&self, mut run: Run, halted: Option<&AtomicBool>) {
        let lease = &self.caller.lease;
        let began = lease.now();
        let messages = std::mem::take(&mut run.messages);
        let (Some(first), count) = (messages.first(), messages.len()) else {
            return;
        };
        // A copy of its own, as with the worker's name.
        let partition = PartitionId::new(run.partition.as_str());
        let mut ran = Ran {
            first: first.offset,
            done: 0,
            then: Then::Ended,
        };
        for (index, message) in messages.into_iter().enumerate() {
            let now = lease.now();
            let late = index > 0 && now.since(began) >= run.within;
            let halted = halted.is_some_and(|halted| halted.load(Ordering::Acquire));
            if late || !lease.is_alive_at(now) || halted {
                break;
            }
            let attempt = if index == 0 { run.attempt } else { 1 };
            let message = self.message(&partition, run.epoch, attempt, message);
            let last = index + 1 == count;
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
        self.queue.note(handled(&run, ran));
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
        let mut call = pin!(caught(self.caller.handler.handle(message)).instrument(span));
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
                    let done = Ran {
                        then,
                        ..ran.clone()
                    };
                    self.queue.note(handled(run, done));
                    (ran.first, ran.done) = (offset, 0);
                }
                if self.part() > 0 {
                    self.caller.stay_apart();
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

    fn message(
        &self,
        partition: &PartitionId,
        epoch: Epoch,
        attempt: u32,
        message: io::Message,
    ) -> Option<Message> {
        let received = message.body.take::<Received>()?;
        Some(Message {
            offset: message.offset,
            received_at: received.at,
            received,
            partition: partition.clone(),
            epoch,
            attempt,
            worker: self.worker.clone()?,
        })
    }
}

fn handled(run: &Run, ran: Ran) -> Event {
    Event::Handled {
        partition: run.partition.clone(),
        epoch: run.epoch,
        ran,
    }
}
