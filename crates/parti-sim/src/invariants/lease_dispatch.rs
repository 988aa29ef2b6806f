//! No message is dispatched after the worker's own lease deadline: the time its last accepted
//! renewal was *sent*, plus the lease, by its own clock. And none after its session was ended.

use super::{Invariant, Verdict};
use crate::facts::{Facts, Seen};

/// See the module.
pub struct LeaseDispatch;

impl Invariant for LeaseDispatch {
    fn name(&self) -> &'static str {
        "no dispatch after the own lease deadline"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Verdict {
        let Seen::CallBegan { proc, local, job } = seen else {
            return Ok(());
        };
        let (partition, offset) = (&job.partition, job.message.offset);
        let Some(session) = facts.procs[*proc].session() else {
            return Err(format!(
                "process {proc} handles {partition}/{offset} without a session"
            ));
        };
        let deadline = session.renewal_sent + facts.setup.config.session_ttl();
        if *local >= deadline {
            return Err(format!(
                "process {proc} ({}) dispatched {partition}/{offset} at {local:?} of its clock; its \
                 lease ended at {deadline:?}",
                session.id
            ));
        }
        match session.over {
            Some((at, status)) => Err(format!(
                "process {proc} ({}) dispatched {partition}/{offset}, but its session was over \
                 ({status:?}) since {at} µs",
                session.id
            )),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::bench::Bench;
    use parti_core::record::SessionStatus;

    #[test]
    fn a_dispatch_after_the_lease_is_caught() {
        let mut bench = Bench::new(LeaseDispatch);
        bench.start(1);
        bench.publish("p00", &[0, 1]);
        let a = bench.claim(0, "worker-0");
        bench.pass(5_000_000);
        bench.handle(0, "p00", 0).expect("the lease runs");
        bench.session(0, &a, |_| ()).expect("a renewal");
        bench.pass(5_999_999);
        bench.handle(0, "p00", 0).expect("the lease was renewed");
        bench.pass(1);
        bench.handle(0, "p00", 1).expect_err("the lease is over");
    }

    #[test]
    fn a_dispatch_after_an_eviction_is_caught() {
        let mut bench = Bench::new(LeaseDispatch);
        bench.start(2);
        bench.publish("p00", &[0]);
        let a = bench.claim(0, "worker-0");
        bench
            .session(1, &a, |record| record.status = SessionStatus::Evicted)
            .expect("not this promise");
        bench.handle(0, "p00", 0).expect_err("its session is over");
    }

    #[test]
    fn a_dispatch_without_a_session_is_caught() {
        let mut bench = Bench::new(LeaseDispatch);
        bench.start(1);
        bench.handle(0, "p00", 0).expect_err("no session");
    }
}
