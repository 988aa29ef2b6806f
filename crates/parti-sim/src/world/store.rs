//! The way to the store and back: delay, loss, outages, late writes, stale reads.
//!
//! Every request gets exactly one reply: the store's, or at its timeout the answer that its fate is
//! open. What the store's reply says after that is lost; what the request did is not.

use parti_core::ids::Revision;
use parti_core::io::{
    RequestId, StoreError, StoreOp, StoreReply, StoreRequest as Request, Write, WriteOutcome,
};
use parti_core::time::Time;
use parti_core::worker::Event;

use super::link::{hit, latency};
use super::trace::number_of;
use super::{Happening, StoreRequest, World};
use crate::facts::{Proc, Seen};
use crate::model::store::Accepted;
use crate::setup::{Class, MILLI, Micros, SECOND};

/// A request whose reply a process waits for.
#[derive(Clone, Copy)]
pub(super) enum Waiting {
    Read,
    List,
    Write(usize),
}

impl Waiting {
    fn of(op: &StoreOp) -> Self {
        match op {
            StoreOp::Read(_) => Waiting::Read,
            StoreOp::List(_) => Waiting::List,
            StoreOp::Write(writes) => Waiting::Write(writes.len()),
        }
    }

    /// The answer that nothing was done, or that nobody knows.
    fn failed(self, error: StoreError) -> StoreReply {
        match self {
            Waiting::Read => StoreReply::Read(Err(StoreError::Unavailable)),
            Waiting::List => StoreReply::List(Err(StoreError::Unavailable)),
            Waiting::Write(count) => StoreReply::Write(vec![WriteOutcome::Failed(error); count]),
        }
    }
}

impl World {
    /// Until when this machine does not reach the store, if it does not.
    pub(super) fn store_away(&self, machine: usize) -> Option<Micros> {
        let outage = self.outage.ends(self.now);
        outage.max(self.links[machine].cut.ends(self.now))
    }

    pub(super) fn send_to_store(&mut self, proc: Proc, sent_local: Time, request: Request) {
        let Request { id, op, timeout } = request;
        let process = &mut self.procs[proc];
        let waiting = Waiting::of(&op);
        process.waiting.insert(id, waiting);
        let timeout = process.clock.span(timeout);
        let machine = process.machine;
        let mut delay = self.on_its_way(proc);
        let link = self.links[machine];
        self.queue
            .push(self.now + timeout, Happening::StoreTimeout { proc, id });
        if let Some(until) = self.store_away(machine) {
            match self.net.below(10) {
                // Refused at once.
                0..=2 => {
                    let reply = waiting.failed(StoreError::Unavailable);
                    self.queue.push(
                        self.now + delay,
                        Happening::StoreReplies { proc, id, reply },
                    );
                    return;
                }
                // Lost.
                3..=6 => return,
                // Kept somewhere on the way until the way is open again.
                _ => delay += until - self.now + self.net.below(500 * MILLI),
            }
        }
        if let Some(percent) = link.lossy.now(self.now)
            && hit(&mut self.net, percent)
        {
            return;
        }
        if let Some(most) = link.slow.now(self.now) {
            delay += self.net.below(most);
        }
        if let Some((percent, by)) = link.late.now(self.now)
            && matches!(waiting, Waiting::Write(_))
            && hit(&mut self.net, percent)
        {
            delay += timeout + self.net.below(by);
        }
        let request = Box::new(StoreRequest {
            id,
            op,
            sent_at: self.now,
            sent_local,
        });
        self.queue
            .push(self.now + delay, Happening::StoreArrives { proc, request });
    }

    pub(super) fn store_arrives(&mut self, proc: Proc, request: StoreRequest) {
        let machine = self.procs[proc].machine;
        if let Some(until) = self.store_away(machine) {
            // An outage began while it was on its way.
            if self.net.chance(0.5) {
                let at = until + latency(&mut self.net);
                self.queue.push(
                    at,
                    Happening::StoreArrives {
                        proc,
                        request: Box::new(request),
                    },
                );
            }
            return;
        }
        if let Some(request) = self.ambushed(proc, Box::new(request)) {
            self.store_takes(proc, *request);
        }
    }

    /// A request is at the store.
    pub(super) fn store_takes(&mut self, proc: Proc, request: StoreRequest) {
        let machine = self.procs[proc].machine;
        // Of a dead process, some of what it sent still arrives.
        if !self.is_running(proc) && self.net.chance(0.3) {
            return;
        }
        let StoreRequest {
            id,
            op,
            sent_at,
            sent_local,
        } = request;
        let stale = self.links[machine].stale.now(self.now);
        let reply = match op {
            StoreOp::Read(key) => StoreReply::Read(Ok(match stale {
                Some(revision) => self.store.read_as_of(&key, revision),
                None => self.store.read(&key),
            })),
            StoreOp::List(prefix) => StoreReply::List(Ok(match stale {
                Some(revision) => self.store.list_as_of(prefix, revision),
                None => self.store.list(prefix),
            })),
            StoreOp::Write(writes) => {
                let mut outcomes = Vec::with_capacity(writes.len());
                for write in &writes {
                    outcomes.push(self.write(proc, sent_at, sent_local, write));
                }
                StoreReply::Write(outcomes)
            }
        };
        let link = self.links[machine];
        let mut delay = self.on_its_way(proc);
        if let Some(percent) = link.lossy.now(self.now)
            && hit(&mut self.net, percent)
        {
            return;
        }
        if let Some(most) = link.slow.now(self.now) {
            delay += self.net.below(most);
        }
        self.queue.push(
            self.now + delay,
            Happening::StoreReplies { proc, id, reply },
        );
    }

    fn write(
        &mut self,
        proc: Proc,
        sent_at: Micros,
        sent_local: Time,
        write: &Write,
    ) -> WriteOutcome {
        self.spring_traps(proc, write, true);
        if !self.is_running(proc) && self.procs[proc].died_at == Some(self.now) {
            // The writer died in the trap, and its write with it.
            return WriteOutcome::Failed(StoreError::Unknown);
        }
        let outcome = self.store.apply_one(write);
        for accepted in self.store.drain_log() {
            let Accepted {
                revision,
                key,
                old,
                new,
                ..
            } = accepted;
            self.trace.step(
                self.now,
                [proc as u64, revision.0, number_of(word_of(&key))],
            );
            self.trace.say(self.now, || {
                format!("store: {proc} wrote {key:?} @{revision} {new:?}")
            });
            self.jury.see(
                self.now,
                Seen::Wrote {
                    proc,
                    sent_at,
                    sent_local,
                    revision,
                    key: &key,
                    old: old.as_ref(),
                    new: new.as_ref(),
                },
            );
            self.tell_watchers(&key);
            self.perhaps_overthrown(old.as_ref(), new.as_ref());
        }
        if !matches!(outcome, WriteOutcome::Done(_)) {
            return outcome;
        }
        self.spring_traps(proc, write, false);
        if let Some(percent) = self.storm.now(self.now)
            && hit(&mut self.net, percent)
        {
            return WriteOutcome::Conflict(self.store.read(&write.key));
        }
        outcome
    }

    pub(super) fn store_replies(&mut self, proc: Proc, id: RequestId, reply: StoreReply) {
        let machine = self.procs[proc].machine;
        if let Some(until) = self.store_away(machine) {
            if self.net.chance(0.5) {
                let at = until + latency(&mut self.net);
                self.queue
                    .push(at, Happening::StoreReplies { proc, id, reply });
            }
            return;
        }
        if self.procs[proc].waiting.remove(&id).is_some() {
            self.answer(proc, id, reply);
        }
    }

    pub(super) fn store_timeout(&mut self, proc: Proc, id: RequestId) {
        if let Some(waiting) = self.procs[proc].waiting.remove(&id) {
            self.answer(proc, id, waiting.failed(StoreError::Unknown));
        }
    }

    fn answer(&mut self, proc: Proc, id: RequestId, reply: StoreReply) {
        self.jury.see(self.now, Seen::Answered { proc });
        if self.setup.class == Class::StoreLoss
            && let StoreReply::Write(outcomes) = &reply
            && let Some(revision) = outcomes.iter().filter_map(acknowledged).max()
            && self.is_running(proc)
        {
            self.jury
                .see(self.now, Seen::Acknowledged { proc, revision });
        }
        self.deliver(proc, Event::Store(id, reply));
    }

    /// The store is another one now, or went back: every connection to it breaks.
    pub(super) fn lose_store(&mut self, writes: Option<u64>) {
        let kept = match writes {
            None => {
                self.store.replace();
                None
            }
            Some(writes) => {
                let to = self.store.revision().0.saturating_sub(writes);
                Some(self.store.roll_back(Revision(to)))
            }
        };
        self.jury.see(self.now, Seen::StoreLost { kept });
        for machine in 0..self.links.len() {
            let gap = self.net.between(50 * MILLI, SECOND);
            self.break_watches(machine, gap);
        }
    }
}

fn acknowledged(outcome: &WriteOutcome) -> Option<Revision> {
    match outcome {
        WriteOutcome::Done(revision) => Some(*revision),
        WriteOutcome::Conflict(_) | WriteOutcome::Failed(_) => None,
    }
}

fn word_of(key: &parti_core::key::Key) -> &str {
    use parti_core::key::Key;
    match key {
        Key::Group => "group",
        Key::Leader => "leader",
        Key::Plan => "plan",
        Key::Overrides => "overrides",
        Key::Worker(id) | Key::Assignment(id) => id.as_str(),
        Key::Partition(id) => id.as_str(),
        Key::Request(id) | Key::Topic(id) => id,
        Key::Event(_) => "event",
    }
}
