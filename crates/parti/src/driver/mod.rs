//! The event loop: feeds the core's machine, and carries out what it decides.
//!
//! ```text
//!            ┌───────────────────────── inbox: Event ─────────────────────────┐
//!            ▼                                                                │
//!   worker.handle_all(events) ──▶ actions ──┬─ Store ────▶ task: GroupStore ──┤
//!            ▲                              ├─ Watch ────▶ task: its stream ──┤
//!            │ Tick at next_deadline        ├─ Source ───▶ Transport ─────────┤
//!            │                              ├─ Handle ───▶ tasks: their calls ┤
//!            └── timer                      ├─ ListPartitions ──▶ task ───────┘
//!                                           ├─ Committed ▶ whoever committed
//!                                           ├─ Report ───▶ observer, in line; status
//!                                           └─ Stopped ──▶ the end
//! ```
//!
//! There is no decision here. Whatever is asked gets exactly one answer, also when the code that
//! was asked panics or takes too long.

pub(crate) mod commits;
mod queue;
mod requests;
mod runs;
pub(crate) mod tasks;
mod trouble;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use parti_core::ids::WorkerId;
use parti_core::io::{Scope, StoreRequest};
use parti_core::time::Time;
use parti_core::worker::{Action, Event, Fatal, Options, Report, State, Worker};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::DropGuard;

use crate::clock::Clock;
use crate::handler::Handler;
use crate::member::Assignment;
use crate::metrics::Probe;
use crate::partitions::PartitionSource;
use crate::source::Transport;
use crate::store::{GroupChange, GroupStore};
use commits::{Askers, CommitInbox, Lease};
use runs::Runs;
use tasks::{Tasks, caught};

/// So many events are taken in together, before the loop looks at the clock again.
const BURST: usize = 512;

/// A wall clock that moves by more than this against our own was set, not slewed.
const JUMP: Duration = Duration::from_secs(1);

/// Gets told what happens, in order, in the event loop itself: it must return at once.
pub trait Observer: Send + Sync + 'static {
    /// Something happened.
    fn observe(&self, report: &Report);
}

impl<F: Fn(&Report) + Send + Sync + 'static> Observer for F {
    fn observe(&self, report: &Report) {
        self(report);
    }
}

/// What a worker is like now.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Status {
    pub(crate) state: State,
    pub(crate) id: Option<WorkerId>,
    pub(crate) leader: bool,
    pub(crate) assignment: Option<Arc<Assignment>>,
    /// What its source refuses until a person mends something.
    pub(crate) refused: Option<String>,
    pub(crate) end: Option<Result<(), Fatal>>,
}

impl Status {
    pub(crate) const INIT: Status = Status {
        state: State::Init,
        id: None,
        leader: false,
        assignment: None,
        refused: None,
        end: None,
    };
}

/// Whether they are one and the same, without comparing lists after every message.
fn same_assignment(a: Option<&Arc<Assignment>>, b: Option<&Arc<Assignment>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (None, None) => true,
        _ => false,
    }
}

/// What the loop is made of.
pub(crate) struct Parts {
    pub(crate) options: Options,
    pub(crate) store: GroupStore,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) partitions: Arc<dyn PartitionSource>,
    pub(crate) handler: Arc<dyn Handler>,
    pub(crate) observers: Vec<Arc<dyn Observer>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) commits: CommitInbox,
    pub(crate) lease: Arc<Lease>,
    /// None: nothing is measured.
    pub(crate) probe: Option<Probe>,
}

/// Handles of a loop that runs.
pub(crate) struct Handles {
    pub(crate) events: mpsc::UnboundedSender<Event>,
    pub(crate) status: watch::Receiver<Status>,
}

/// Starts the loop, as one of these tasks.
pub(crate) fn start(parts: Parts, tasks: &Tasks) -> Handles {
    let (events, inbox) = mpsc::unbounded_channel();
    let (status, seen) = watch::channel(Status::INIT);
    let limit = parts.options.config.operation_timeout;
    let origin = parts.lease.origin();
    let trouble = trouble::StoreTrouble::new(parts.observers.clone());
    let store = parts.store.telling(move |error| trouble.note(error));
    let driver = Driver {
        worker: Worker::new(parts.options),
        store,
        transport: parts.transport,
        partitions: parts.partitions,
        runs: Runs::new(
            parts.handler,
            parts.lease.clone(),
            events.downgrade(),
            tasks.clone(),
        ),
        observers: parts.observers,
        wall: Wall::new(parts.clock.as_ref(), origin),
        clock: parts.clock,
        origin,
        limit,
        events: events.downgrade(),
        watches: BTreeMap::new(),
        tasks: tasks.clone(),
        status,
        actions: Vec::new(),
        assignment: None,
        lease: parts.lease,
        askers: Askers::default(),
        probe: parts.probe,
    };
    // In a place of its own: a task that is moved about while it is made has room for it several
    // times, for as long as it lives.
    tasks.spawn(Box::pin(driver.run(inbox, parts.commits)));
    Handles {
        events,
        status: seen,
    }
}

/// The wall clock against ours: a jump between them makes a lease doubtful.
struct Wall {
    offset_ms: i128,
}

impl Wall {
    fn new(clock: &dyn Clock, origin: Time) -> Self {
        Self {
            offset_ms: Self::offset(clock, origin),
        }
    }

    fn offset(clock: &dyn Clock, origin: Time) -> i128 {
        i128::from(clock.wall_ms()) - clock.now().since(origin).as_millis() as i128
    }

    /// Whether it was set since the last look.
    fn jumped(&mut self, clock: &dyn Clock, origin: Time) -> bool {
        let before = std::mem::replace(&mut self.offset_ms, Self::offset(clock, origin));
        (self.offset_ms - before).unsigned_abs() > JUMP.as_millis()
    }
}

struct Driver {
    worker: Worker,
    store: GroupStore,
    transport: Arc<dyn Transport>,
    partitions: Arc<dyn PartitionSource>,
    runs: Runs,
    observers: Vec<Arc<dyn Observer>>,
    clock: Arc<dyn Clock>,
    /// The process's time zero: the core wants to start near it.
    origin: Time,
    wall: Wall,
    limit: Duration,
    /// Weak: the inbox closes when everyone outside has gone.
    events: mpsc::WeakUnboundedSender<Event>,
    watches: BTreeMap<Scope, DropGuard>,
    tasks: Tasks,
    status: watch::Sender<Status>,
    actions: Vec<Action>,
    /// What it was last told to serve and prepare.
    assignment: Option<Arc<Assignment>>,
    lease: Arc<Lease>,
    /// Who waits for the answer to a commit.
    askers: Askers,
    probe: Option<Probe>,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "driver of {:?}", self.store)
    }
}

impl Driver {
    async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Event>, mut commits: CommitInbox) {
        let Some(events) = self.events.upgrade() else {
            return;
        };
        self.worker
            .set_wall_offset(u64::try_from(self.wall.offset_ms).unwrap_or(0));
        self.transport.start(&events, &self.tasks);
        self.watch_partitions(events.clone());
        drop(events);
        self.handle(Event::Start);
        let timer = tokio::time::sleep_until(self.wake());
        tokio::pin!(timer);
        let mut burst = Vec::new();
        let mut requests = Vec::new();
        loop {
            tokio::select! {
                taken = inbox.recv_many(&mut burst, BURST) => {
                    if taken == 0 {
                        return;
                    }
                    self.handle_all(&mut burst);
                }
                // Disabled once nobody is left who could commit.
                1.. = commits.recv_many(&mut requests, BURST) => {
                    burst.extend(requests.drain(..).map(|request| self.askers.take_in(request)));
                    self.handle_all(&mut burst);
                }
                () = &mut timer => {
                    // What a burst needed is given back in a quiet moment: one process may have a
                    // thousand of these loops.
                    burst.shrink_to_fit();
                    self.actions.shrink_to_fit();
                    if self.wall.jumped(self.clock.as_ref(), self.origin) {
                        self.handle(Event::ClockJumped);
                    }
                    self.handle(Event::Tick);
                }
            }
            if self.runs.next_deadline() <= self.now() {
                let times = self.probe.as_ref().map(Probe::call_times);
                self.runs.relieve(self.now(), self.worker.id(), times);
            }
            if let Some(probe) = &mut self.probe {
                let now = Time::ZERO + self.clock.now().since(self.origin);
                probe.settled(now, &self.worker, &self.transport, &self.tasks);
            }
            if self.status.borrow().end.is_some() {
                return;
            }
            timer.as_mut().reset(self.wake());
        }
    }

    fn now(&self) -> Time {
        Time::ZERO + self.clock.now().since(self.origin)
    }

    /// The next deadline on the runtime's own clock.
    fn wake(&self) -> Instant {
        let deadline = self.worker.next_deadline().min(self.runs.next_deadline());
        let wait = deadline.since(self.now());
        // A day is as good as never, and never overflows.
        Instant::now() + wait.min(Duration::from_secs(86_400))
    }

    fn handle(&mut self, event: Event) {
        self.handle_all(&mut vec![event]);
    }

    fn handle_all(&mut self, events: &mut Vec<Event>) {
        let now = self.now();
        for event in &*events {
            self.runs.heard(event);
            if let Some(probe) = &mut self.probe {
                probe.event(now, event);
            }
        }
        self.worker
            .handle_all(now, events.drain(..), &mut self.actions);
        // Whatever is begun from now on looks at it.
        self.lease.set(self.worker.lease_until());
        let mut end = None;
        let mut actions = std::mem::take(&mut self.actions);
        for action in actions.drain(..) {
            if let Some(probe) = &mut self.probe {
                probe.action(now, &action);
            }
            if let Some(result) = self.carry_out(action) {
                end = Some(result);
            }
        }
        self.actions = actions;
        let times = self.probe.as_ref().map(Probe::call_times);
        self.runs.start(self.worker.id(), times);
        self.tell_status(end);
    }

    fn tell_status(&self, end: Option<Result<(), Fatal>>) {
        let worker = &self.worker;
        let refused = worker.source_refuses();
        self.status.send_if_modified(|status| {
            let same = status.state == worker.state()
                && status.id.as_ref() == worker.id()
                && status.leader == worker.is_leader()
                && same_assignment(status.assignment.as_ref(), self.assignment.as_ref())
                && status.refused == refused
                && end.is_none();
            if !same {
                *status = Status {
                    state: worker.state(),
                    id: worker.id().cloned(),
                    leader: worker.is_leader(),
                    assignment: self.assignment.clone(),
                    refused,
                    end,
                };
            }
            !same
        });
    }

    fn carry_out(&mut self, action: Action) -> Option<Result<(), Fatal>> {
        match action {
            Action::Store(request) => self.ask_store(request),
            Action::Watch(scope) => self.watch(scope),
            Action::Unwatch(scope) => drop(self.watches.remove(&scope)),
            Action::ListPartitions => self.list_partitions(),
            Action::Source(request) => {
                if let Some(events) = self.events.upgrade() {
                    self.transport.request(request, &events, &self.tasks);
                }
            }
            Action::Handle(run) => self.runs.gather(run),
            Action::Halt(partition) => self.runs.halt(&partition),
            Action::Committed(ask, result) => self.askers.answer(ask, result),
            Action::Report(report) => {
                self.note_assignment(&report);
                for observer in &self.observers {
                    observer.observe(&report);
                }
            }
            Action::Stopped(result) => return Some(result),
        }
        None
    }

    fn note_assignment(&mut self, report: &Report) {
        match report {
            Report::Assigned {
                version,
                serve,
                prepare,
                ..
            } => {
                self.assignment = Some(Arc::new(Assignment {
                    version: *version,
                    serve: serve.clone(),
                    prepare: prepare.clone(),
                }));
            }
            Report::SessionLost => self.assignment = None,
            _ => {}
        }
    }

    /// Runs something in the background that ends in an event.
    fn spawn(&self, work: impl Future<Output = Event> + Send + 'static) {
        let events = self.events.clone();
        self.tasks.spawn(async move {
            let event = work.await;
            if let Some(events) = events.upgrade() {
                let _ = events.send(event);
            }
        });
    }

    fn ask_store(&self, request: StoreRequest) {
        let (store, id) = (self.store.clone(), request.id);
        self.spawn(async move { Event::Store(id, requests::carry_out(&store, request).await) });
    }

    fn watch(&mut self, scope: Scope) {
        let (tasks, guard) = self.tasks.child();
        let mut changes = self.store.watch(&scope);
        let (events, watched) = (self.events.clone(), scope.clone());
        tasks.spawn(async move {
            while let Some(change) = changes.next().await {
                let event = match change {
                    GroupChange::Event(event) => event,
                    GroupChange::Interrupted(error) => {
                        tracing::warn!(%error, scope = ?watched, "a watch is interrupted");
                        continue;
                    }
                };
                let Some(events) = events.upgrade() else {
                    return;
                };
                if events.send(Event::Watch(watched.clone(), event)).is_err() {
                    return;
                }
            }
        });
        self.watches.insert(scope, guard);
    }

    fn list_partitions(&self) {
        let (partitions, limit) = (self.partitions.clone(), self.limit);
        self.spawn(async move {
            let listed = tokio::time::timeout(limit, caught(partitions.shared())).await;
            Event::Partitions(match listed {
                Ok(Ok(Ok(list))) => Ok(list),
                Ok(Ok(Err(error))) => Err(error.to_string().into()),
                Ok(Err(panic)) => Err(format!("the listing panicked: {panic}").into()),
                Err(_) => Err(format!("no answer within {limit:?}").into()),
            })
        });
    }

    fn watch_partitions(&self, events: mpsc::UnboundedSender<Event>) {
        let mut changes = self.partitions.changes();
        let events = events.downgrade();
        self.tasks.spawn(async move {
            while changes.next().await.is_some() {
                let Some(events) = events.upgrade() else {
                    return;
                };
                if events.send(Event::RefreshPartitions).is_err() {
                    return;
                }
            }
        });
    }
}
