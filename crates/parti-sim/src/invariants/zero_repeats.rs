//! A graceful move repeats nothing: a message whose handler call completed, and whose worker heard
//! of it, is dispatched again only if that worker's process was killed or lost its session since
//! the call began, or had to go before it could write down its progress.

use super::{Invariant, Verdict};
use crate::facts::{Completion, Facts, Life, Seen};
use crate::setup::micros;

/// See the module.
pub struct ZeroRepeats;

impl Invariant for ZeroRepeats {
    fn name(&self) -> &'static str {
        "zero repeats on a graceful move"
    }

    fn needs_checkpoints(&self) -> bool {
        true
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Verdict {
        let Seen::CallBegan { proc, job, .. } = seen else {
            return Ok(());
        };
        let Some(index) = facts.setup.index_of(&job.partition) else {
            return Ok(());
        };
        let Some(message) = facts.partitions[index].message(job.message.offset) else {
            return Ok(());
        };
        match message
            .completions
            .iter()
            .find(|completion| !may_repeat(facts, completion))
        {
            Some(completion) => Err(format!(
                "process {proc} dispatched {}/{} under epoch {}, which process {} had done at {} µs, \
                 without a crash or a lost session in between",
                job.partition, job.message.offset, job.epoch, completion.proc, completion.at
            )),
            None => Ok(()),
        }
    }
}

fn may_repeat(facts: &Facts, completion: &Completion) -> bool {
    let proc = &facts.procs[completion.proc];
    if !completion.reported || proc.ends.iter().any(|end| *end >= completion.started) {
        return true;
    }
    let (Life::Ended(ended), Some(asked)) = (proc.life, proc.stop_asked) else {
        return false;
    };
    // Parts of its shutdown timeout, on a clock that may run fast.
    let timeout = micros(facts.setup.config.shutdown_timeout);
    let part = |percent: u64| facts.setup.shortest(timeout * percent / 100);
    let out_of_time = ended >= asked + part(99);
    // The last tenth is for the releases: a call that ended then was given up before.
    let given_up = completion.at >= asked + part(90);
    out_of_time || given_up
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::bench::Bench;
    use parti_core::worker::Report;

    fn handled_once() -> Bench<ZeroRepeats> {
        let mut bench = Bench::new(ZeroRepeats);
        bench.start(2);
        bench.publish("p00", &[0]);
        bench.handle(0, "p00", 0).expect("the first time");
        bench.done(0, "p00", 0);
        bench.pass(1_000);
        bench
    }

    #[test]
    fn a_repeat_without_a_reason_is_caught() {
        handled_once().handle(1, "p00", 0).expect_err("no reason");
        handled_once()
            .handle(0, "p00", 0)
            .expect_err("no reason for the same one either");
    }

    #[test]
    fn a_repeat_after_a_crash_or_a_lost_session_is_fine() {
        let mut bench = handled_once();
        bench.crash(0);
        bench.handle(1, "p00", 0).expect("process 0 crashed");
        let mut bench = handled_once();
        bench.report(0, Report::SessionLost).expect("fine");
        bench
            .handle(1, "p00", 0)
            .expect("process 0 lost its session");
    }

    #[test]
    fn a_stop_in_time_is_no_reason_but_a_timeout_is() {
        for (seconds, fine) in [(3, false), (10, true)] {
            let mut bench = handled_once();
            bench.see(Seen::StopAsked { proc: 0 }).expect("fine");
            bench.pass(seconds * 1_000_000);
            bench
                .see(Seen::Ended {
                    proc: 0,
                    result: &Ok(()),
                })
                .expect("fine");
            assert_eq!(bench.handle(1, "p00", 0).is_ok(), fine, "{seconds} s");
        }
    }

    #[test]
    fn a_call_that_ended_after_it_was_given_up_may_repeat_and_one_before_may_not() {
        for (percent, fine) in [(80, false), (91, true)] {
            let mut bench = Bench::new(ZeroRepeats);
            bench.start(2);
            bench.publish("p00", &[0]);
            bench.handle(0, "p00", 0).expect("the first time");
            bench.see(Seen::StopAsked { proc: 0 }).expect("fine");
            let timeout = micros(bench.facts.setup.config.shutdown_timeout);
            bench.pass(timeout * percent / 100);
            bench.done(0, "p00", 0);
            bench.pass(timeout * (92 - percent) / 100);
            bench
                .see(Seen::Ended {
                    proc: 0,
                    result: &Ok(()),
                })
                .expect("fine");
            assert_eq!(bench.handle(1, "p00", 0).is_ok(), fine, "{percent} %");
        }
    }
}
