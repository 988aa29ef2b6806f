//! Handler calls: how long they take and how they end.

use std::sync::Arc;

use parti_core::io::{HandlerResult, Job};
use parti_core::worker::Event;

use super::{Happening, World};
use crate::facts::{Proc, Seen};
use crate::setup::{MILLI, Micros, SECOND};

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

/// A call under way.
pub(super) struct Running {
    pub number: u64,
    job: Job,
    nature: Nature,
}

impl World {
    pub(super) fn call(&mut self, proc: Proc, job: Job) {
        let nature = self.nature_of(&job);
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
        self.serial += 1;
        let number = self.serial;
        self.procs[proc].calls.push(Running {
            number,
            job,
            nature,
        });
        self.queue.push(
            self.now + length,
            Happening::CallEnds { proc, call: number },
        );
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
        let Some(found) = process
            .calls
            .iter()
            .position(|running| running.number == call)
        else {
            return;
        };
        if matches!(process.calls[found].nature, Nature::Kills) {
            let restart_after = self.lots.between(200 * MILLI, 3 * SECOND);
            self.crash(proc, Some(restart_after));
            return;
        }
        let Running { job, nature, .. } = process.calls.swap_remove(found);
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
        let Job {
            partition,
            epoch,
            message,
            ..
        } = job;
        let event = Event::Handled {
            partition,
            epoch,
            offset: message.offset,
            result,
        };
        self.deliver(proc, event);
    }

    /// The process dies: each call under way ends nowhere, or had its effect already.
    pub(super) fn cut_calls(&mut self, proc: Proc) {
        for Running { job, nature, .. } in std::mem::take(&mut self.procs[proc].calls) {
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
