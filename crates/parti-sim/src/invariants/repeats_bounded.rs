//! A crash repeats no more than what was in flight plus what was not yet flushed: a message that
//! was done more than a flush interval before its worker was cut off is not dispatched again,
//! unless that worker's way to the store was in trouble meanwhile.
//!
//! Checked with `ordering: partition`, where the checkpoint follows each message; in the other
//! orderings one slow message rightly holds it back for all later ones.

use parti_core::config::Ordering;

use super::{Invariant, Verdict};
use crate::facts::{Facts, Life, Seen};
use crate::setup::{Micros, SECOND, micros};

/// What a flush may take on top: the slowest request without a fault, twice (the one before it
/// must be answered first), and the waits around them.
const SLACK: Micros = 5 * SECOND;

/// See the module.
pub struct RepeatsBounded;

impl Invariant for RepeatsBounded {
    fn name(&self) -> &'static str {
        "repeats after a crash are bounded by the flush interval"
    }

    fn needs_checkpoints(&self) -> bool {
        true
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Verdict {
        let Seen::CallBegan { proc, job, .. } = seen else {
            return Ok(());
        };
        if facts.setup.config.processing.ordering != Ordering::Partition {
            return Ok(());
        }
        let Some(index) = facts.setup.index_of(&job.partition) else {
            return Ok(());
        };
        let Some(message) = facts.partitions[index].message(job.message.offset) else {
            return Ok(());
        };
        let interval = micros(facts.setup.config.checkpoint_flush_interval);
        for done in message.completions.iter().filter(|done| done.reported) {
            let before = &facts.procs[done.proc];
            // A process that ended by the limit of its stop flushes no more from then on, though its
            // session is ended by others only later.
            let stopped = match before.life {
                Life::Ended(at) => Some(at),
                Life::Running | Life::Paused(_) | Life::Crashed(_) => None,
            };
            let ends = before.ends.iter().copied().chain(stopped);
            let Some(cut_off) = ends.filter(|end| *end >= done.started).min() else {
                continue;
            };
            let unflushed = cut_off.saturating_sub(done.at);
            let allowed = interval * 102 / 100 + SLACK;
            if unflushed > allowed && !before.was_hindered(done.at, cut_off) {
                return Err(format!(
                    "process {proc} dispatched {}/{} again: process {} had done it {unflushed} µs \
                     before it was cut off at {cut_off} µs, and flushes every {interval} µs",
                    job.partition, job.message.offset, done.proc
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::bench::Bench;
    use parti_core::record::SessionStatus;

    fn crashed_after(seconds: u64, hindered: bool) -> Bench<RepeatsBounded> {
        let mut bench = Bench::new(RepeatsBounded);
        bench.start(2);
        bench.publish("p00", &[0]);
        bench.handle(0, "p00", 0).expect("the first time");
        bench.done(0, "p00", 0);
        bench.pass(seconds * SECOND);
        if hindered {
            let until = bench.now + SECOND;
            bench
                .see(Seen::StoreTrouble {
                    machine: None,
                    until,
                    harmless: true,
                })
                .expect("trouble breaks nothing");
        }
        bench.crash(0);
        bench
    }

    #[test]
    fn a_repeat_of_what_should_be_flushed_is_caught() {
        crashed_after(9, false)
            .handle(1, "p00", 0)
            .expect("not flushed yet");
        crashed_after(11, false)
            .handle(1, "p00", 0)
            .expect_err("flushed long ago");
        crashed_after(11, true)
            .handle(1, "p00", 0)
            .expect("the store was away");
    }

    #[test]
    fn a_process_that_is_killed_while_it_stands_still_could_flush_nothing() {
        let mut bench = Bench::new(RepeatsBounded);
        bench.start(2);
        bench.publish("p00", &[0]);
        bench.handle(0, "p00", 0).expect("the first time");
        bench.done(0, "p00", 0);
        bench.see(Seen::Paused { proc: 0 }).expect("fine");
        bench.pass(11 * SECOND);
        bench.crash(0);
        bench.handle(1, "p00", 0).expect("it stood still");
    }

    #[test]
    fn a_process_that_ended_flushes_no_more_though_its_session_ends_later() {
        let ended_after = |seconds: u64| {
            let mut bench = Bench::new(RepeatsBounded);
            bench.start(2);
            let session = bench.claim(0, "worker-0");
            bench.publish("p00", &[0]);
            bench.handle(0, "p00", 0).expect("the first time");
            bench.done(0, "p00", 0);
            bench.pass(seconds * SECOND);
            let result = &Ok(());
            bench.see(Seen::Ended { proc: 0, result }).expect("fine");
            bench.pass(60 * SECOND);
            bench
                .session(1, &session, |record| record.status = SessionStatus::Evicted)
                .expect("ended by the leader");
            bench.handle(1, "p00", 0)
        };
        ended_after(9).expect("out of time before the flush");
        ended_after(11).expect_err("it had time enough");
    }

    #[test]
    fn trouble_that_began_before_a_process_hinders_it_too() {
        let mut bench = Bench::new(RepeatsBounded);
        let until = bench.now + 60 * SECOND;
        bench
            .see(Seen::StoreTrouble {
                machine: Some(0),
                until,
                harmless: false,
            })
            .expect("trouble breaks nothing");
        bench.start(2);
        bench.publish("p00", &[0]);
        bench.handle(0, "p00", 0).expect("the first time");
        bench.done(0, "p00", 0);
        bench.pass(11 * SECOND);
        bench.crash(0);
        bench.handle(1, "p00", 0).expect("its commits came late");
    }
}
