//! No session ends without a write: an id is claimed again only after its last life was marked as
//! over, or over a record that was silent for a whole lease, or under the badge of the consumer that
//! its last life was hosted for; and the mark stays while a partition's record names that life.

use parti_core::ids::{Incarnation, WorkerId};
use parti_core::key::Key;
use parti_core::record::Record;

use super::{Invariant, Verdict};
use crate::facts::{Facts, Seen};

/// See the module.
pub struct SessionEndsByWrite;

impl Invariant for SessionEndsByWrite {
    fn name(&self) -> &'static str {
        "no session ends without a write"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Verdict {
        let Seen::Wrote {
            proc,
            revision,
            key: Key::Worker(id),
            old: Some(old),
            new,
            ..
        } = seen
        else {
            return Ok(());
        };
        let Record::Worker(before) = &old.record else {
            return Ok(());
        };
        let life = before.incarnation_at(old.revision);
        let Some(new) = new else {
            if !before.status.is_over() {
                return Err(format!(
                    "process {proc} deleted the live session of {id} ({life:?})"
                ));
            }
            let named = facts.setup.partitions.iter().find(|partition| {
                let record = facts.partition_record(&partition.id);
                record.and_then(|record| record.owner.as_ref()) == Some(&(id.clone(), life))
            });
            return match named {
                Some(partition) => Err(format!(
                    "process {proc} deleted the mark of {id} ({life:?}), which still owns partition {}",
                    partition.id
                )),
                None => Ok(()),
            };
        };
        let Record::Worker(after) = new else {
            return Ok(());
        };
        let next = after.incarnation_at(*revision);
        let moved = before.badge.is_some() && before.badge == after.badge;
        if next != life && !before.status.is_over() && !moved && !silent(facts, id, life) {
            return Err(format!(
                "process {proc} replaced {id} ({life:?}), whose session was {:?}, by {next:?}",
                before.status
            ));
        }
        if next == life && before.status.is_over() && !after.status.is_over() {
            return Err(format!(
                "process {proc} revived {id} ({life:?}), whose session was over"
            ));
        }
        Ok(())
    }
}

/// Whether this life of an id has not renewed for a whole lease, by the fastest clock.
fn silent(facts: &Facts, id: &WorkerId, life: Incarnation) -> bool {
    let holder = facts.holder(id, life).map(|proc| &facts.procs[proc]);
    let mut sessions = holder.into_iter().flat_map(|proc| &proc.sessions);
    let lease = facts.setup.shortest(facts.setup.ttl());
    sessions.any(|session| session.incarnation == life && facts.now - session.renewed >= lease)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::bench::Bench;
    use parti_core::ids::Badge;
    use parti_core::record::SessionStatus;

    #[test]
    fn a_consumer_that_goes_on_elsewhere_shows_its_badge() {
        for (shown, fine) in [
            (Some(Badge(1)), true),
            (Some(Badge(2)), false),
            (None, false),
        ] {
            let mut bench = Bench::new(SessionEndsByWrite);
            bench.start(2);
            bench
                .claim_under(0, "worker-0", Some(Badge(1)))
                .expect("nobody has it");
            let again = bench.claim_under(1, "worker-0", shown);
            assert_eq!(again.is_ok(), fine, "{shown:?}");
        }
        let mut bench = Bench::new(SessionEndsByWrite);
        bench.start(2);
        bench.claim(0, "worker-0");
        let again = bench.claim_under(1, "worker-0", None);
        again.expect_err("no badge is nobody's badge");
    }

    #[test]
    fn a_claim_over_a_live_session_is_caught() {
        let mut bench = Bench::new(SessionEndsByWrite);
        bench.start(2);
        let a = bench.claim(0, "worker-0");
        bench.try_claim(1, "worker-0").expect_err("it lives");
        let mut bench = Bench::new(SessionEndsByWrite);
        bench.start(2);
        let b = bench.claim(0, "worker-0");
        bench
            .session(0, &b, |record| record.status = SessionStatus::Goodbye)
            .expect("it goes");
        bench.try_claim(1, "worker-0").expect("it is over");
        assert_eq!(a.id, b.id);
    }

    #[test]
    fn a_deleted_live_session_is_caught() {
        let mut bench = Bench::new(SessionEndsByWrite);
        bench.start(1);
        let a = bench.claim(0, "worker-0");
        bench.delete(0, Key::Worker(a.id)).expect_err("it lives");
    }

    #[test]
    fn a_mark_that_goes_too_early_is_caught() {
        let mut bench = Bench::new(SessionEndsByWrite);
        bench.start(2);
        let a = bench.claim(0, "worker-0");
        bench.take(0, "p01", &a, 1).expect("fine");
        bench
            .session(1, &a, |record| record.status = SessionStatus::Evicted)
            .expect("silent");
        bench
            .delete(1, Key::Worker(a.id))
            .expect_err("p01 still names it");
    }

    #[test]
    fn a_revived_session_is_caught() {
        let mut bench = Bench::new(SessionEndsByWrite);
        bench.start(2);
        let a = bench.claim(0, "worker-0");
        bench
            .session(1, &a, |record| record.status = SessionStatus::Evicted)
            .expect("silent");
        bench
            .session(0, &a, |record| record.status = SessionStatus::Live)
            .expect_err("too late");
    }
}
