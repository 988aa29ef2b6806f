//! A message is dispatched only by the owner of its partition, under the present epoch; and never
//! do two processes work on one partition, except that a process whose session was ended, or whose
//! time to stop is nearly over, may still finish the calls it had begun before.

use super::{Invariant, Verdict};
use crate::facts::{Facts, Seen};
use crate::setup::micros;

/// See the module.
pub struct OneDispatcher;

impl Invariant for OneDispatcher {
    fn name(&self) -> &'static str {
        "one process in dispatch per partition"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Verdict {
        let Seen::CallBegan { proc, job, .. } = seen else {
            return Ok(());
        };
        let (partition, offset) = (&job.partition, job.message.offset);
        let record = facts.partition_record(partition);
        let owned = record.is_some_and(|record| {
            record.epoch == job.epoch
                && record
                    .owner
                    .as_ref()
                    .is_some_and(|(id, life)| facts.holder(id, *life) == Some(*proc))
        });
        if !owned {
            return Err(format!(
                "process {proc} dispatched {partition}/{offset} under epoch {}; the record says {:?}",
                job.epoch,
                record.map(|record| (record.epoch, &record.owner))
            ));
        }
        let Some(index) = facts.setup.index_of(partition) else {
            return Ok(());
        };
        for (other, known) in facts
            .procs
            .iter()
            .enumerate()
            .filter(|(other, _)| other != proc)
        {
            for call in known.calls.iter().filter(|call| call.partition == index) {
                let ended = known.ends.iter().any(|end| *end >= call.started);
                // Its call is given up at 90 % of the shutdown timeout, on a clock that may run fast.
                let timeout = micros(facts.setup.config.shutdown_timeout);
                let patience = facts.setup.shortest(timeout * 9 / 10);
                let given_up = known
                    .stop_asked
                    .is_some_and(|asked| facts.now >= asked + patience);
                if !known.is_alive() || ended || given_up {
                    continue;
                }
                return Err(format!(
                    "process {proc} dispatched {partition}/{offset} under epoch {}, while process \
                     {other}, whose session was not ended, handles {} under epoch {} since {} µs",
                    job.epoch, call.offset, call.epoch, call.started
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

    #[test]
    fn a_dispatch_under_an_old_epoch_is_caught() {
        let mut bench = Bench::new(OneDispatcher);
        bench.start(2);
        bench.publish("p00", &[0, 1]);
        let a = bench.claim(0, "worker-0");
        let b = bench.claim(1, "worker-1");
        bench.take(0, "p00", &a, 1).expect("fine");
        bench.handle(0, "p00", 0).expect("the owner may");
        bench.done(0, "p00", 0);
        bench.take(1, "p00", &b, 2).expect("fine");
        bench
            .handle(0, "p00", 1)
            .expect_err("the record names worker-1");
    }

    #[test]
    fn two_at_once_are_caught() {
        let mut bench = Bench::new(OneDispatcher);
        bench.start(2);
        bench.publish("p00", &[0, 1]);
        let a = bench.claim(0, "worker-0");
        let b = bench.claim(1, "worker-1");
        bench.take(0, "p00", &a, 1).expect("fine");
        bench.handle(0, "p00", 0).expect("the owner may");
        bench.take(1, "p00", &b, 2).expect("fine");
        bench
            .handle(1, "p00", 0)
            .expect_err("process 0 is still at it");
    }

    #[test]
    fn the_last_call_of_an_ended_session_is_allowed() {
        let mut bench = Bench::new(OneDispatcher);
        bench.start(2);
        bench.publish("p00", &[0, 1]);
        let a = bench.claim(0, "worker-0");
        let b = bench.claim(1, "worker-1");
        bench.take(0, "p00", &a, 1).expect("fine");
        bench.handle(0, "p00", 0).expect("the owner may");
        bench
            .session(1, &a, |record| record.status = SessionStatus::Evicted)
            .expect("silent");
        bench.take(1, "p00", &b, 2).expect("fine");
        bench
            .handle(1, "p00", 0)
            .expect("process 0 only finishes what it began");
    }
}
