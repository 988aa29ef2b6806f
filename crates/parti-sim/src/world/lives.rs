//! Processes: how they start, tick, stand still, go on and end.

use std::collections::BTreeMap;
use std::sync::Arc;

use parti_core::io::{Ask, RequestId};
use parti_core::planted;
use parti_core::session::Belonging;
use parti_core::time::Time;
use parti_core::worker::{Event, Fatal, Report};

use super::calls::Running;
use super::clock::Clock;
use super::link::latency;
use super::store::Waiting;
use super::watch::Watch;
use super::{Happening, World};
use crate::facts::{Proc, Seen};
use crate::model::ClientId;
use crate::model::stream::Replies;
use crate::process::Machine;
use crate::setup::{MILLI, Micros, SECOND};

/// One process. Its worker is gone once it ended.
pub(super) struct Process {
    pub machine: usize,
    pub worker: Option<Machine>,
    pub clock: Clock,
    /// Standing still: whatever comes waits in the inbox.
    pub paused: bool,
    /// Since when its machine sleeps.
    pub asleep: Option<Micros>,
    pub inbox: Vec<Event>,
    /// When the next tick is due; others are void.
    pub timer: Micros,
    pub waiting: BTreeMap<RequestId, Waiting>,
    pub watches: Vec<Watch>,
    pub calls: Vec<Running>,
    /// Calls that came to their end while everything stood still.
    pub held_calls: Vec<u64>,
    /// The present connection to the source.
    pub client: ClientId,
    /// Pulls that are open, as far as the process knows.
    pub pulls: Vec<Ask>,
    /// Questions to the source that are not answered yet.
    pub asks: Vec<Ask>,
    pub replies: Replies,
    /// The durable's name: the worker's id.
    pub durable: Arc<str>,
    /// Nothing overtakes on a connection.
    pub to_source: Micros,
    pub from_source: Micros,
    pub died_at: Option<Micros>,
    /// When another process takes its place after it ended.
    pub restart_after: Option<Micros>,
    /// Whose session it has.
    pub belongs: Belonging,
    /// Nobody works there: no call begins.
    pub deserted: bool,
}

impl World {
    /// Starts a process some time later.
    pub(super) fn start_later(&mut self, at: Micros, machine: usize, preferred: Option<u64>) {
        self.links[machine].starting = true;
        self.queue.push(at, Happening::Start { machine, preferred });
    }

    pub(super) fn start(&mut self, machine: usize, preferred: Option<u64>, belongs: Belonging) {
        self.links[machine].starting = false;
        if self.links[machine].running.is_some() {
            return;
        }
        let proc = self.procs.len();
        let place = self.setup.machines[machine];
        let preferred = preferred.or(place.preferred);
        let seed = self.lots.next_u64();
        let worker = Machine::new(
            &self.setup,
            self.strategy.clone(),
            self.source.identity(),
            preferred,
            belongs,
            seed,
        );
        self.serial += 1;
        self.procs.push(Process {
            machine,
            worker: Some(worker),
            clock: Clock::of(&place),
            paused: false,
            asleep: None,
            inbox: Vec::new(),
            timer: Micros::MAX,
            waiting: BTreeMap::new(),
            watches: Vec::new(),
            calls: Vec::new(),
            held_calls: Vec::new(),
            client: ClientId(self.serial),
            pulls: Vec::new(),
            asks: Vec::new(),
            replies: Replies::default(),
            durable: Arc::from(""),
            to_source: 0,
            from_source: 0,
            died_at: None,
            restart_after: None,
            belongs,
            deserted: false,
        });
        self.links[machine].running = Some(proc);
        self.trace.say(self.now, || {
            format!("process {proc} starts on machine {machine}")
        });
        self.jury.see(self.now, Seen::Started { machine });
        self.handle(proc, Event::Start);
    }

    pub(super) fn set_timer(&mut self, proc: Proc) {
        let process = &mut self.procs[proc];
        let Some(worker) = &process.worker else {
            return;
        };
        let deadline = worker.next_deadline();
        if deadline == Time::NEVER {
            return;
        }
        let at = process.clock.global(deadline).max(self.now + 1);
        // A later deadline waits for the earlier tick, which then looks again.
        if at < process.timer {
            process.timer = at;
            self.queue.push(at, Happening::Tick { proc });
        }
    }

    pub(super) fn tick(&mut self, proc: Proc) {
        let process = &mut self.procs[proc];
        if process.timer != self.now {
            return;
        }
        process.timer = Micros::MAX;
        if process.paused {
            return;
        }
        let Some(worker) = &process.worker else {
            return;
        };
        if process.clock.local(self.now) >= worker.next_deadline() {
            self.handle(proc, Event::Tick);
        } else {
            self.set_timer(proc);
        }
    }

    pub(super) fn list_partitions(&mut self, proc: Proc) {
        let at = self.now + latency(&mut self.net);
        let healthy = self.jury.facts.healed.is_some() || !self.lots.chance(0.02);
        let list = if healthy {
            Ok(self.list.clone())
        } else {
            Err(Arc::from("the list is not available"))
        };
        self.queue.push(
            at,
            Happening::Deliver {
                proc,
                event: Event::Partitions(list),
            },
        );
    }

    pub(super) fn reported(&mut self, proc: Proc, report: &Report) {
        if let Report::Claimed(id, _) = report {
            self.procs[proc].durable = Arc::from(id.as_str());
        }
    }

    pub(super) fn is_running(&self, proc: Proc) -> bool {
        self.procs[proc].worker.is_some()
    }

    /// The process that runs on a machine.
    pub(super) fn running_on(&self, machine: usize) -> Option<Proc> {
        self.links[machine].running
    }

    pub(super) fn pause(&mut self, proc: Proc, length: Micros) {
        if !self.is_running(proc) || self.procs[proc].paused {
            return;
        }
        self.procs[proc].paused = true;
        self.trace.say(self.now, || {
            format!("process {proc} stands still for {length} µs")
        });
        self.jury.see(self.now, Seen::Paused { proc });
        self.queue
            .push(self.now + length, Happening::Resume { proc });
    }

    pub(super) fn resume(&mut self, proc: Proc) {
        let process = &mut self.procs[proc];
        if process.worker.is_none() || !process.paused {
            return;
        }
        process.paused = false;
        if let Some(since) = process.asleep.take()
            && planted!(ClockStopsInSuspend)
        {
            process.clock.jump(since as i64 - self.now as i64);
        }
        let inbox = std::mem::take(&mut process.inbox);
        let held = std::mem::take(&mut process.held_calls);
        self.trace
            .say(self.now, || format!("process {proc} goes on"));
        self.jury.see(self.now, Seen::Resumed { proc });
        // Whether timers or messages come first is the scheduler's whim.
        let timers_first = self.lots.chance(0.5);
        if timers_first {
            self.late_tick(proc);
        }
        for call in held {
            let at = self.now + self.lots.below(5 * MILLI);
            self.queue.push(at, Happening::CallEnds { proc, call });
        }
        for event in inbox {
            self.deliver(proc, event);
        }
        if !timers_first {
            self.late_tick(proc);
        }
    }

    fn late_tick(&mut self, proc: Proc) {
        if self.is_running(proc) && !self.procs[proc].paused {
            self.handle(proc, Event::Tick);
        }
    }

    pub(super) fn ask_to_stop(&mut self, proc: Proc, restart_after: Option<Micros>) {
        if !self.is_running(proc) {
            return;
        }
        self.procs[proc].restart_after = restart_after;
        self.trace
            .say(self.now, || format!("process {proc} is asked to stop"));
        self.jury.see(self.now, Seen::StopAsked { proc });
        self.deliver(proc, Event::Stop { within: None });
    }

    /// Everybody is asked to stop, each a little later than the one before or earlier.
    pub(super) fn ask_all_to_stop(&mut self, restart_after: Option<Micros>) -> bool {
        let running: Vec<Proc> = self.links.iter().filter_map(|link| link.running).collect();
        for &proc in &running {
            let at = self.now + self.lots.below(200 * MILLI);
            self.queue.push(
                at,
                Happening::AskToStop {
                    proc,
                    restart_after,
                },
            );
        }
        !running.is_empty()
    }

    /// `kill -9`.
    pub(super) fn crash(&mut self, proc: Proc, restart_after: Option<Micros>) {
        if !self.is_running(proc) {
            return;
        }
        self.trace
            .say(self.now, || format!("process {proc} is killed"));
        self.cut_calls(proc);
        self.jury.see(self.now, Seen::Crashed { proc });
        self.gone(proc, restart_after);
    }

    /// The worker is at its end, and so is its process.
    pub(super) fn stopped(&mut self, proc: Proc, result: &Result<(), Fatal>) {
        if !self.is_running(proc) {
            return;
        }
        self.trace
            .say(self.now, || format!("process {proc} ends: {result:?}"));
        self.cut_calls(proc);
        self.jury.see(self.now, Seen::Ended { proc, result });
        let restart_after = match result {
            Ok(()) | Err(Fatal::StopTimedOut { .. }) => self.procs[proc].restart_after,
            Err(
                Fatal::GaveUp { .. }
                | Fatal::StableIdExhausted(_)
                | Fatal::Disagreement(_)
                | Fatal::Dismissed,
            ) => Some(self.lots.between(SECOND, 3 * SECOND)),
            // Its consumer asks for another one, if it is still there.
            Err(Fatal::SessionOver) if !self.procs[proc].deserted => Some(SECOND),
            Err(_) => None,
        };
        self.gone(proc, restart_after);
    }

    fn gone(&mut self, proc: Proc, restart_after: Option<Micros>) {
        let process = &mut self.procs[proc];
        process.worker = None;
        process.died_at = Some(self.now);
        process.inbox = Vec::new();
        process.watches = Vec::new();
        let (machine, client) = (process.machine, process.client);
        self.links[machine].running = None;
        // The source hears of the closed connection soon; or late, and the open pulls go on stealing.
        let notice = if self.lots.chance(0.8) {
            2 * MILLI
        } else {
            3 * SECOND
        };
        let at = self.now + self.lots.below(notice);
        self.queue.push(at, Happening::Disconnected { client });
        if let Some(after) = restart_after {
            self.start_later(self.now + after, machine, None);
        }
        if self.jury.facts.healed.is_some() {
            self.repeople();
        }
    }

    /// Nobody can be asked to bring a deserted group to rest: once all is healed, one machine comes
    /// back, also when the last worker went only then (it was asked to before).
    fn repeople(&mut self) {
        let deserted = self
            .links
            .iter()
            .all(|link| link.running.is_none() && !link.starting);
        if deserted && self.jury.facts.store_lost.is_none() {
            self.start_later(self.now + SECOND, 0, None);
        }
    }

    pub(super) fn heal(&mut self) {
        self.outage = Default::default();
        self.storm = Default::default();
        self.traps.clear();
        self.ambushes.clear();
        self.held_go_on();
        if let Some(stream) = self.source.as_stream() {
            stream.set_replica_lag(0);
        }
        for link in &mut self.links {
            link.heal();
        }
        self.change_list(None);
        self.take_back_requests();
        self.trace.say(self.now, || "everything heals".into());
        self.jury.see(self.now, Seen::Healed);
        for proc in 0..self.procs.len() {
            self.resume(proc);
        }
        self.repeople();
    }
}
