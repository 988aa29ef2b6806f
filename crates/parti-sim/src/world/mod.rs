//! The simulated world: processes with their own clocks, a store and a source that misbehave, and a
//! network in between.
//!
//! ```text
//!            ┌────────────────────────── queue: (time, number) ─────────────────────────┐
//!            ▼                                                                          │
//!   Happening ──▶ lives    start, crash, pause, resume, stop         ──▶ Event ─▶ worker │
//!                 store    request arrives, reply arrives, timeout                  │   │
//!                 watch    opens, has news, breaks                             Action   │
//!                 source   request arrives, answer or delivery arrives              │   │
//!                 calls    handler calls end                                        ▼   │
//!                 faults   the scenario                             carried out: more to come
//!                                        │
//!                                        ▼ Seen
//!                                      jury: facts and invariants
//! ```
//!
//! Nothing here uses a clock, a hash-ordered map or randomness of its own: the same seed gives the
//! same run, step by step.

mod calls;
mod clock;
mod faults;
mod hosts;
mod link;
mod lives;
mod operator;
mod overthrow;
mod publish;
mod queue;
mod source;
mod store;
mod trace;
mod watch;

use std::sync::Arc;

use parti_core::ids::{Nonce, Offset, WorkerId};
use parti_core::io::{
    Expect, RequestId, SourceEvent, SourceRequest, StoreReply, WatchEvent, Write,
};
use parti_core::key::Key;
use parti_core::partition::Partition;
use parti_core::record::{EventKind, EventRecord, Record};
use parti_core::rng::Rng;
use parti_core::strategy::Strategy;
use parti_core::time::Time;
use parti_core::worker::chronicle::KEPT;
use parti_core::worker::{Action, Event};

use crate::facts::{Facts, Proc, Seen};
use crate::fault::KINDS;
use crate::invariants::{Jury, Violation};
use crate::model::store::Store;
use crate::model::stream::{Stream, StreamConfig};
use crate::model::{ClientId, Source, log::Log};
use crate::scenario::Timed;
use crate::setup::{HEAL_AT, Micros, SECOND, SHORTEST_RUN, Setup};

use calls::Nature;
use faults::Trap;
use link::{Link, Until};
use lives::Process;
use overthrow::Ambush;
use queue::Queue;
use trace::Trace;

use parti_core::io::{SourceKind, StoreOp};

/// How often the world looks whether everything is well again.
const LOOK: Micros = SECOND / 2;
/// The group of every so many worlds is an old one, with all the history that is kept.
const LONG_HISTORY: u64 = 8;
/// So often an event by which messages flow waits for the next event of its process.
const LINGERS: f64 = 0.1;

/// What is going to happen.
enum Happening {
    /// A process starts.
    Start {
        machine: usize,
        preferred: Option<u64>,
    },
    /// The host of a consumer that left has heard nothing of it for a TTL.
    GivesUp { proc: Proc },
    /// A worker is asked to stop.
    AskToStop {
        proc: Proc,
        restart_after: Option<Micros>,
    },
    /// A process goes on.
    Resume { proc: Proc },
    /// A worker's deadline came.
    Tick { proc: Proc },
    /// Something reaches a worker.
    Deliver { proc: Proc, event: Event },
    /// A request reaches the store.
    StoreArrives {
        proc: Proc,
        request: Box<StoreRequest>,
    },
    /// The store's reply reaches a process.
    StoreReplies {
        proc: Proc,
        id: RequestId,
        reply: StoreReply,
    },
    /// A process gives up waiting for the store.
    StoreTimeout { proc: Proc, id: RequestId },
    /// A watch connects.
    WatchOpens { proc: Proc, serial: u64 },
    /// A watch may have news.
    WatchPolls { proc: Proc, serial: u64 },
    /// News of a watch come, later than they should.
    WatchNews {
        proc: Proc,
        serial: u64,
        event: WatchEvent,
    },
    /// A request reaches the source.
    SourceArrives {
        proc: Proc,
        client: ClientId,
        durable: Arc<str>,
        request: SourceRequest,
    },
    /// Acks or signs of life reach the source.
    AcksArrive {
        durable: Arc<str>,
        messages: Vec<Offset>,
        done: bool,
    },
    /// An answer or a delivery reaches a process.
    SourceNews {
        proc: Proc,
        client: ClientId,
        event: SourceEvent,
    },
    /// A dead link to the source is alive again.
    SourceBack { proc: Proc },
    /// What was held back on its way to the store goes on.
    HeldGoOn,
    /// An operator has waited long enough for the owner of a partition.
    Force { partition: usize },
    /// The source's lagging replica has caught up, unless it lags anew.
    ReplicaCatchesUp,
    /// A closed connection is noticed by the source.
    Disconnected { client: ClientId },
    /// The source has something although nobody asked.
    SourceTimer,
    /// A run of handler calls gets its turn.
    CallBegins { proc: Proc, call: u64 },
    /// A handler call has to wait.
    CallWaits { proc: Proc, call: u64 },
    /// A handler call ends.
    CallEnds { proc: Proc, call: u64 },
    /// A message is published.
    Publish,
    /// The next fault of the scenario.
    Fault(usize),
    /// Everything heals.
    Heal,
    /// The world looks whether everything is well.
    Look,
}

/// A request on its way to the store.
struct StoreRequest {
    id: RequestId,
    op: StoreOp,
    sent_at: Micros,
    sent_local: Time,
}

/// How a run ended.
#[derive(Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// The promise that was broken, if one was.
    pub violation: Option<Violation>,
    /// The hash of the whole trace.
    pub hash: u64,
    /// Events delivered and writes accepted.
    pub steps: u64,
    /// Simulated time.
    pub simulated: Micros,
    /// Faults that really happened, by kind.
    pub faults: [u32; KINDS.len()],
    /// The readable trace, if asked for.
    pub lines: Vec<String>,
}

/// Everything there is.
struct World {
    setup: Arc<Setup>,
    scenario: Vec<Timed>,
    strategy: Arc<dyn Strategy>,
    now: Micros,
    queue: Queue<Happening>,
    net: Rng,
    lots: Rng,
    store: Store,
    source: Source,
    links: Vec<Link>,
    procs: Vec<Process>,
    /// The partition list as it is now.
    list: Arc<[Partition]>,
    /// Until when the source's replica lags.
    replica_lags: Until<()>,
    /// Nobody reaches the store.
    outage: Until<()>,
    /// So many of a hundred accepted writes are answered as conflicts.
    storm: Until<u8>,
    traps: Vec<Trap>,
    /// Leaders to be overthrown.
    ambushes: Vec<Ambush>,
    /// Writes of a leader that wait on their way until another one leads.
    held: Vec<(Proc, Box<StoreRequest>)>,
    /// How each message behaves, in step with the facts.
    natures: Vec<Vec<Nature>>,
    published: u64,
    /// Requests of operators so far.
    requests: u64,
    serial: u64,
    source_timer: Micros,
    jury: Jury,
    trace: Trace,
    faults: [u32; KINDS.len()],
    actions: Vec<Action>,
    over: bool,
}

/// Runs a seed's world with these faults.
pub fn run(setup: &Arc<Setup>, scenario: &[Timed], readable: bool) -> Outcome {
    let mut world = World::new(setup.clone(), scenario.to_vec(), readable);
    world.begin();
    while !world.over {
        let Some((at, what)) = world.queue.pop() else {
            break;
        };
        debug_assert!(at >= world.now, "time went back");
        world.now = at;
        world.happen(what);
        if world.jury.violation.is_some() {
            break;
        }
    }
    world.end()
}

impl World {
    fn new(setup: Arc<Setup>, scenario: Vec<Timed>, readable: bool) -> Self {
        let mut rng = Rng::new(setup.seed ^ 0x7061_7274_6921_0003);
        let source = match setup.source {
            // Nobody brings his own consumption: a setup is never made so.
            SourceKind::Log | SourceKind::External => Source::Log(Log::new(1)),
            SourceKind::Stream(retention) => {
                let config = StreamConfig::of(retention, &setup.config.jetstream);
                Source::Stream(Stream::new(1, config))
            }
        };
        let strategy = parti_core::strategy::from_choice(&setup.config.strategy);
        Self {
            scenario,
            strategy,
            now: 0,
            queue: Queue::new(),
            net: rng.fork(),
            lots: rng.fork(),
            store: Store::new(),
            source,
            links: vec![Link::default(); setup.machines.len()],
            procs: Vec::new(),
            list: setup.partitions.clone(),
            replica_lags: Until::default(),
            outage: Until::default(),
            storm: Until::default(),
            traps: Vec::new(),
            ambushes: Vec::new(),
            held: Vec::new(),
            natures: vec![Vec::new(); setup.partitions.len()],
            published: 0,
            requests: 0,
            serial: 0,
            source_timer: Micros::MAX,
            jury: Jury::new(Facts::new(setup.clone())),
            trace: Trace::new(readable),
            faults: [0; KINDS.len()],
            actions: Vec::new(),
            over: false,
            setup,
        }
    }

    fn begin(&mut self) {
        if self.setup.seed.is_multiple_of(LONG_HISTORY) {
            self.fill_history();
        }
        for _ in 0..self.setup.traffic.backlog {
            self.publish_one();
        }
        self.queue.push(SECOND / 2, Happening::Publish);
        for machine in 0..self.setup.initial {
            let at = self.setup.machines[machine].starts_at;
            self.start_later(at, machine, None);
        }
        for number in 0..self.scenario.len() {
            self.queue
                .push(self.scenario[number].at, Happening::Fault(number));
        }
        self.queue.push(HEAL_AT, Happening::Heal);
        self.queue.push(SHORTEST_RUN, Happening::Look);
    }

    /// The group is an old one: whoever tells something has the oldest go.
    fn fill_history(&mut self) {
        for number in 1..=KEPT as u64 {
            let event = EventRecord {
                at: number,
                worker: WorkerId::new("worker-0"),
                kind: EventKind::Plan,
                text: String::new(),
                moves: None,
                nonce: Nonce(number),
            };
            self.store.apply_one(&Write {
                key: Key::Event(number),
                expect: Expect::Absent,
                value: Some(Record::Event(Arc::new(event))),
            });
        }
        self.store.drain_log();
        self.jury.facts.events = KEPT as u64;
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Start { machine, preferred } => {
                let belongs = self.belonging();
                self.start(machine, preferred, belongs);
            }
            Happening::GivesUp { proc } => self.crash(proc, None),
            Happening::AskToStop {
                proc,
                restart_after,
            } => self.ask_to_stop(proc, restart_after),
            Happening::Resume { proc } => self.resume(proc),
            Happening::Tick { proc } => self.tick(proc),
            Happening::Deliver { proc, event } => self.deliver(proc, event),
            Happening::StoreArrives { proc, request } => self.store_arrives(proc, *request),
            Happening::StoreReplies { proc, id, reply } => self.store_replies(proc, id, reply),
            Happening::StoreTimeout { proc, id } => self.store_timeout(proc, id),
            Happening::WatchOpens { proc, serial } => self.watch_opens(proc, serial),
            Happening::WatchPolls { proc, serial } => self.watch_polls(proc, serial),
            Happening::WatchNews {
                proc,
                serial,
                event,
            } => self.watch_news(proc, serial, event),
            Happening::SourceArrives {
                proc,
                client,
                durable,
                request,
            } => {
                self.source_arrives(proc, client, &durable, request);
            }
            Happening::AcksArrive {
                durable,
                messages,
                done,
            } => {
                self.acks_arrive(&durable, &messages, done);
            }
            Happening::SourceNews {
                proc,
                client,
                event,
            } => self.source_news(proc, client, event),
            Happening::HeldGoOn => self.held_go_on(),
            Happening::Force { partition } => self.force(partition),
            Happening::ReplicaCatchesUp => self.replica_catches_up(),
            Happening::SourceBack { proc } => self.source_back(proc),
            Happening::Disconnected { client } => {
                self.source.disconnect(client);
            }
            Happening::SourceTimer => {
                self.source_timer = Micros::MAX;
                self.pump_source();
            }
            Happening::CallBegins { proc, call } => self.call_begins(proc, call),
            Happening::CallWaits { proc, call } => self.call_waits(proc, call),
            Happening::CallEnds { proc, call } => self.call_ends(proc, call),
            Happening::Publish => self.publish(),
            Happening::Fault(number) => self.fault(number),
            Happening::Heal => self.heal(),
            Happening::Look => self.look(),
        }
    }

    /// Hands an event to a worker, or keeps it for later if its process stands still.
    fn deliver(&mut self, proc: Proc, event: Event) {
        let process = &mut self.procs[proc];
        if process.worker.is_none() {
            return;
        }
        // Now and then its event loop comes to it only with the next event.
        if process.paused || (event.flows() && self.lots.chance(LINGERS)) {
            process.inbox.push(event);
            return;
        }
        self.handle(proc, event);
    }

    fn handle(&mut self, proc: Proc, event: Event) {
        let (now, local) = (self.now, self.procs[proc].clock.local(self.now));
        let mut events = std::mem::take(&mut self.procs[proc].inbox);
        events.push(event);
        for event in &events {
            self.trace
                .step(now, [proc as u64, faults::word_of(event), local.0]);
            self.trace.say(now, || format!("→ {proc} {event:?}"));
            self.note_terms(proc, event);
        }
        let mut actions = std::mem::take(&mut self.actions);
        if let Some(worker) = &mut self.procs[proc].worker {
            worker.handle(local, events, &mut actions);
        }
        for action in actions.drain(..) {
            self.trace.say(now, || format!("  {proc} ↦ {action:?}"));
            self.jury.see(
                now,
                Seen::Acted {
                    proc,
                    local,
                    action: &action,
                },
            );
            self.carry_out(proc, local, action);
        }
        self.actions = actions;
        self.set_timer(proc);
    }

    fn carry_out(&mut self, proc: Proc, local: Time, action: Action) {
        match action {
            Action::Store(request) => self.send_to_store(proc, local, request),
            Action::Watch(scope) => self.open_watch(proc, scope),
            Action::Unwatch(scope) => self.procs[proc]
                .watches
                .retain(|watch| watch.scope != scope),
            Action::ListPartitions => self.list_partitions(proc),
            Action::Source(request) => self.send_to_source(proc, request),
            Action::Handle(run) => self.call(proc, run),
            Action::Halt(partition) => self.halt(proc, &partition),
            // Nobody brings his own consumption here.
            Action::Committed(..) => {}
            Action::Report(report) => self.reported(proc, &report),
            Action::Stopped(result) => self.stopped(proc, &result),
        }
    }

    /// Whether all is well; the run ends then, or when patience is over.
    fn look(&mut self) {
        let unsettled = self.jury.unsettled();
        let begun = self
            .jury
            .facts
            .store_lost
            .unwrap_or(HEAL_AT)
            .max(SHORTEST_RUN - 18 * SECOND);
        match unsettled {
            None => self.over = true,
            Some(violation) if self.now > begun + self.setup.patience() => {
                self.jury.violation = Some(Violation {
                    at: self.now,
                    ..violation
                });
            }
            Some(_) => self.queue.push(self.now + LOOK, Happening::Look),
        }
    }

    fn end(mut self) -> Outcome {
        if let Some(violation) = &self.jury.violation {
            let line = violation.to_string();
            self.trace.say(self.now, || line);
        }
        Outcome {
            seed: self.setup.seed,
            violation: self.jury.violation,
            hash: self.trace.hash(),
            steps: self.trace.steps(),
            simulated: self.now,
            faults: self.faults,
            lines: self.trace.into_lines(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario;

    #[test]
    fn the_same_seed_gives_the_same_trace_twice() {
        for seed in 0..20 {
            let setup = Arc::new(Setup::of(seed));
            let faults = scenario::of(&setup);
            let first = run(&setup, &faults, false);
            let second = run(&setup, &faults, true);
            assert_eq!(first.hash, second.hash, "seed {seed}");
            assert_eq!(first.steps, second.steps, "seed {seed}");
            assert!(first.steps > 500, "seed {seed} did next to nothing");
        }
    }

    #[test]
    fn another_seed_gives_another_trace() {
        let hash = |seed: u64| {
            let setup = Arc::new(Setup::of(seed));
            run(&setup, &scenario::of(&setup), false).hash
        };
        assert_ne!(hash(1), hash(2));
    }
}
