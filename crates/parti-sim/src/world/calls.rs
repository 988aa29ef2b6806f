//! Handler calls: how long they take and how they end.

use std::sync::Arc;

use parti_core::ids::PartitionId;
use parti_core::io::{HandlerResult, Job, Ran, Run, Then};
use parti_core::time::Time;
use parti_core::worker::Event;

use super::{Happening, World};
use crate::facts::{Proc, Seen};
use crate::setup::{MILLI, Micros, SECOND};

/// So many runs begin only some time after they were decided.
const LATE: f64 = 0.1;

/// How a message behaves, whoever handles it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Nature {
    /// It is handled.
    Good,
    /// It is handled, but it takes so long.
    Slow(Micros),
    /// It fails so many times before it is handled; panics instead of errors if so.
    Fails { times: u32, panics: bool },
    /// It kills its process.
    Kills,
}

/// A run under way: one message at a time, in turn.
pub(super) struct Running {
    pub number: u64,
    run: Run,
    /// The message that runs, or is to begin.
    at: usize,
    /// How it behaves, once it began.
    nature: Option<Nature>,
    /// When the first message began, by the process's own clock.
    began: Time,
    /// What the worker knows to run.
    told: usize,
    halted: bool,
}

impl Running {
    /// The call that is under way.
    fn call(&self) -> Option<(Job, Nature)> {
        Some((self.run.job(self.at)?, self.nature?))
    }

    /// What the worker was not told yet.
    fn news(&mut self, then: Then) -> Event {
        let done = self.at - self.told;
        let first = self.run.messages[self.told].offset;
        self.told = self.at;
        Event::Handled {
            partition: self.run.partition.clone(),
            epoch: self.run.epoch,
            ran: Ran {
                first,
                done: u32::try_from(done).unwrap_or(u32::MAX),
                then,
            },
        }
    }
}

impl World {
    pub(super) fn call(&mut self, proc: Proc, run: Run) {
        if self.procs[proc].deserted {
            return;
        }
        self.serial += 1;
        let number = self.serial;
        let local = self.procs[proc].clock.local(self.now);
        self.procs[proc].calls.push(Running {
            number,
            run,
            at: 0,
            nature: None,
            began: local,
            told: 0,
            halted: false,
        });
        if self.lots.chance(LATE) {
            let at = self.now + self.lots.below(5 * MILLI);
            let call = number;
            self.queue.push(at, Happening::CallBegins { proc, call });
        } else {
            // Within the very step that decided it: nobody looks twice.
            self.begin_call(proc, number);
        }
    }

    /// The run of this partition begins no further message.
    pub(super) fn halt(&mut self, proc: Proc, partition: &PartitionId) {
        for running in &mut self.procs[proc].calls {
            running.halted |= running.run.partition == *partition;
        }
    }

    fn running(&mut self, proc: Proc, call: u64) -> Option<&mut Running> {
        let mut calls = self.procs[proc].calls.iter_mut();
        calls.find(|running| running.number == call)
    }

    /// Begins the next message, if it may begin.
    pub(super) fn call_begins(&mut self, proc: Proc, call: u64) {
        let process = &mut self.procs[proc];
        let Some(worker) = &process.worker else {
            return;
        };
        if process.paused {
            process.held_calls.push(call);
            return;
        }
        let local = process.clock.local(self.now);
        let lease = local < worker.lease_until();
        let Some(running) = self.running(proc, call) else {
            return;
        };
        let late = running.at > 0 && local.since(running.began) >= running.run.within;
        let over = running.at == running.run.messages.len();
        if running.at == 0 {
            running.began = local;
        }
        if lease && !running.halted && !late && !over {
            self.begin_call(proc, call);
        } else {
            self.run_ends(proc, call, Then::Ended);
        }
    }

    fn begin_call(&mut self, proc: Proc, call: u64) {
        let local = self.procs[proc].clock.local(self.now);
        let Some(job) = self.running(proc, call).and_then(|r| r.run.job(r.at)) else {
            return;
        };
        self.jury.see(
            self.now,
            Seen::CallBegan {
                proc,
                local,
                job: &job,
            },
        );
        let nature = self.nature_of(&job);
        let length = self.length_of(proc, nature);
        // A handler may also keep its thread busy: then nobody can tell of what is done before.
        let waits = matches!(nature, Nature::Slow(_)) || self.lots.chance(0.5);
        self.queue
            .push(self.now + length, Happening::CallEnds { proc, call });
        if let Some(running) = self.running(proc, call) {
            running.nature = Some(nature);
        }
        if waits {
            self.queue
                .push(self.now, Happening::CallWaits { proc, call });
        }
    }

    /// A call has to wait: what is done before it is told, and what was to follow is given back.
    pub(super) fn call_waits(&mut self, proc: Proc, call: u64) {
        let Some(running) = self.running(proc, call) else {
            return;
        };
        let Some(message) = running.run.messages.get(running.at) else {
            return;
        };
        let alone = running.at == running.told && running.at + 1 == running.run.messages.len();
        if running.nature.is_some() && !alone && !running.halted {
            let then = Then::GoesOn(message.offset);
            running.halted = true;
            let news = running.news(then);
            self.deliver(proc, news);
        }
    }

    fn length_of(&mut self, proc: Proc, nature: Nature) -> Micros {
        let handlers = self.setup.handlers;
        let mut length =
            handlers.fastest + self.lots.below(handlers.slowest - handlers.fastest + 1);
        if let Nature::Slow(slow) = nature {
            length += slow;
        }
        let machine = self.procs[proc].machine;
        if let Some(delay) = self.links[machine].slow_handlers.now(self.now) {
            length += self.lots.below(delay);
        }
        length
    }

    fn run_ends(&mut self, proc: Proc, call: u64, then: Then) {
        let calls = &mut self.procs[proc].calls;
        if let Some(found) = calls.iter().position(|running| running.number == call) {
            let news = calls.swap_remove(found).news(then);
            self.deliver(proc, news);
        }
    }

    fn nature_of(&self, job: &Job) -> Nature {
        let found = self.setup.index_of(&job.partition).and_then(|index| {
            let place = self.jury.facts.partitions[index].index_from(job.message.offset);
            self.natures[index].get(place)
        });
        found.copied().unwrap_or(Nature::Good)
    }

    pub(super) fn call_ends(&mut self, proc: Proc, call: u64) {
        let process = &mut self.procs[proc];
        if process.worker.is_none() {
            return;
        }
        if process.paused {
            process.held_calls.push(call);
            return;
        }
        let Some((job, nature)) = self.running(proc, call).and_then(|r| r.call()) else {
            // Held back before it could begin.
            self.call_begins(proc, call);
            return;
        };
        if matches!(nature, Nature::Kills) {
            let restart_after = self.lots.between(200 * MILLI, 3 * SECOND);
            self.crash(proc, Some(restart_after));
            return;
        }
        let result = match nature {
            Nature::Fails { times, panics } if job.attempt <= times => {
                let why = Arc::from("as it was made to");
                if panics {
                    HandlerResult::Panicked(why)
                } else {
                    HandlerResult::Failed(why)
                }
            }
            _ => HandlerResult::Done,
        };
        self.jury.see(
            self.now,
            Seen::CallEnded {
                proc,
                job: &job,
                result: &result,
                reported: true,
            },
        );
        match result {
            HandlerResult::Done => {
                if let Some(running) = self.running(proc, call) {
                    (running.at, running.nature) = (running.at + 1, None);
                }
                self.call_begins(proc, call);
            }
            HandlerResult::Failed(why) => self.run_ends(proc, call, Then::Failed(why)),
            HandlerResult::Panicked(why) => self.run_ends(proc, call, Then::Panicked(why)),
        }
    }

    /// The process dies: each call under way ends nowhere, or had its effect already.
    pub(super) fn cut_calls(&mut self, proc: Proc) {
        for running in std::mem::take(&mut self.procs[proc].calls) {
            let Some((job, nature)) = running.call() else {
                continue;
            };
            let succeeds = match nature {
                Nature::Good | Nature::Slow(_) => true,
                Nature::Fails { times, .. } => job.attempt > times,
                Nature::Kills => false,
            };
            if succeeds && self.lots.chance(0.4) {
                let result = HandlerResult::Done;
                let seen = Seen::CallEnded {
                    proc,
                    job: &job,
                    result: &result,
                    reported: false,
                };
                self.jury.see(self.now, seen);
            } else {
                self.jury.see(self.now, Seen::CallLost { proc, job: &job });
            }
        }
    }
}
