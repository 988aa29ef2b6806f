//! A partition is taken only with evidence: it has no owner, its owner's session is recorded as
//! over, or its owner is an older life of the taker's own id. A live owner is never seized.

use super::{Invariant, Verdict, partition_write};
use crate::facts::{Facts, Seen};

/// See the module.
pub struct TakeNeedsEvidence;

impl Invariant for TakeNeedsEvidence {
    fn name(&self) -> &'static str {
        "a live owner is never seized"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Verdict {
        let Some((proc, partition, Some(before), after)) = partition_write(seen) else {
            return Ok(());
        };
        let Some((id, incarnation)) = &before.owner else {
            return Ok(());
        };
        if after.epoch == before.epoch {
            return Ok(());
        }
        let own_older = after
            .owner
            .as_ref()
            .is_some_and(|(new_id, new)| new_id == id && new > incarnation);
        if own_older {
            return Ok(());
        }
        let evidence = match facts.session_record(id) {
            Some((_, recorded)) if recorded > *incarnation => true,
            Some((record, recorded)) => recorded == *incarnation && record.status.is_over(),
            None => false,
        };
        if evidence {
            return Ok(());
        }
        Err(format!(
            "partition {partition}: process {proc} took epoch {} from {id} ({incarnation:?}), whose \
             session is not recorded as over",
            after.epoch
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::bench::Bench;
    use parti_core::record::SessionStatus;

    #[test]
    fn a_take_from_a_live_owner_is_caught() {
        let mut bench = Bench::new(TakeNeedsEvidence);
        bench.start(2);
        let a = bench.claim(0, "worker-0");
        let b = bench.claim(1, "worker-1");
        bench.take(0, "p00", &a, 1).expect("nobody had it");
        bench.take(1, "p00", &b, 2).expect_err("a lives");
    }

    #[test]
    fn a_take_from_a_session_that_is_over_is_fine() {
        let mut bench = Bench::new(TakeNeedsEvidence);
        bench.start(2);
        let a = bench.claim(0, "worker-0");
        let b = bench.claim(1, "worker-1");
        bench.take(0, "p00", &a, 1).expect("nobody had it");
        bench
            .session(1, &a, |record| record.status = SessionStatus::Evicted)
            .expect("silent");
        bench.take(1, "p00", &b, 2).expect("a is over");
    }

    #[test]
    fn a_take_after_the_mark_was_deleted_is_caught() {
        let mut bench = Bench::new(TakeNeedsEvidence);
        bench.start(2);
        let a = bench.claim(0, "worker-0");
        let b = bench.claim(1, "worker-1");
        bench.take(0, "p00", &a, 1).expect("nobody had it");
        bench
            .delete(1, parti_core::key::Key::Worker(a.id.clone()))
            .expect("not this promise");
        bench.take(1, "p00", &b, 2).expect_err("no evidence");
    }
}
