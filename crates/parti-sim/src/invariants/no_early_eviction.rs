//! A session is ended by somebody else only after a whole lease of silence: no renewal of it was
//! accepted for that long, by the fastest clock that the evictor could have. Only its holder may mark
//! it as over earlier, and only because an operator had revoked it: then it has stopped.

use parti_core::key::Key;
use parti_core::record::{Record, SessionStatus};

use super::{Invariant, Verdict};
use crate::facts::{Facts, Seen};

/// See the module.
pub struct NoEarlyEviction;

impl Invariant for NoEarlyEviction {
    fn name(&self) -> &'static str {
        "no eviction before the lease is over"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Verdict {
        let Seen::Wrote {
            proc,
            key: Key::Worker(id),
            old: Some(old),
            new: Some(new),
            ..
        } = seen
        else {
            return Ok(());
        };
        let (Record::Worker(before), Record::Worker(after)) = (&old.record, new) else {
            return Ok(());
        };
        let ended = after.status.is_over() && !before.status.is_over();
        if !ended || after.incarnation != Some(before.incarnation_at(old.revision)) {
            return Ok(());
        }
        let life = before.incarnation_at(old.revision);
        let Some(holder) = facts.holder(id, life) else {
            return Ok(());
        };
        if after.status == SessionStatus::Goodbye {
            if holder == *proc {
                return Ok(());
            }
            return Err(format!(
                "process {proc} said goodbye for {id}, which is process {holder}"
            ));
        }
        if holder == *proc && before.status.is_revoked() {
            return Ok(());
        }
        let session = facts.procs[holder]
            .sessions
            .iter()
            .find(|session| session.incarnation == life);
        let Some(session) = session else {
            return Ok(());
        };
        let silence = facts.now - session.renewed;
        let shortest = facts.setup.shortest(facts.setup.ttl());
        if silence >= shortest {
            return Ok(());
        }
        Err(format!(
            "process {proc} ended {id} ({life:?}) after {silence} µs of silence, the lease is {} µs",
            facts.setup.ttl()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::bench::Bench;

    #[test]
    fn an_eviction_before_the_lease_is_over_is_caught() {
        let mut bench = Bench::new(NoEarlyEviction);
        bench.start(2);
        let a = bench.claim(0, "worker-0");
        bench.pass(4_000_000);
        bench.session(0, &a, |_| ()).expect("a renewal");
        bench.pass(5_000_000);
        bench
            .session(1, &a, |record| record.status = SessionStatus::Evicted)
            .expect_err("1 s too early");
    }

    #[test]
    fn an_eviction_after_the_lease_is_fine() {
        let mut bench = Bench::new(NoEarlyEviction);
        bench.start(2);
        let a = bench.claim(0, "worker-0");
        bench.pass(6_000_000);
        bench
            .session(1, &a, |record| record.status = SessionStatus::Evicted)
            .expect("silent");
    }

    #[test]
    fn a_revoked_session_is_given_up_by_its_holder_alone() {
        let revoked = || {
            let mut bench = Bench::new(NoEarlyEviction);
            bench.start(2);
            let a = bench.claim(0, "worker-0");
            bench
                .session(1, &a, |record| record.status = SessionStatus::Revoked)
                .expect("not over yet");
            (bench, a)
        };
        let (mut bench, a) = revoked();
        bench
            .session(0, &a, |record| record.status = SessionStatus::Evicted)
            .expect("it gives up");
        let (mut bench, a) = revoked();
        bench
            .session(1, &a, |record| record.status = SessionStatus::Evicted)
            .expect_err("it may still be serving");
    }

    #[test]
    fn a_goodbye_in_anothers_name_is_caught() {
        let mut bench = Bench::new(NoEarlyEviction);
        bench.start(2);
        let a = bench.claim(0, "worker-0");
        bench
            .session(1, &a, |record| record.status = SessionStatus::Goodbye)
            .expect_err("not its own");
    }
}
