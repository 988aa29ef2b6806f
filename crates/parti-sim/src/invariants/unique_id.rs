//! An id has one live holder: whoever says that it has an id really claimed it, and no other
//! process has a session under the same id that is not over.

use parti_core::worker::{Action, Report};

use super::{Invariant, Verdict};
use crate::facts::{Facts, Seen};

/// See the module.
pub struct UniqueId;

impl Invariant for UniqueId {
    fn name(&self) -> &'static str {
        "one live holder per id"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Verdict {
        let Seen::Acted {
            proc,
            action: Action::Report(Report::Claimed(id, life)),
            ..
        } = seen
        else {
            return Ok(());
        };
        let claimed = facts.procs[*proc].sessions.iter();
        if !claimed
            .clone()
            .any(|session| session.id == *id && session.incarnation == *life)
        {
            return Err(format!(
                "process {proc} says it is {id} ({life:?}), but never claimed that"
            ));
        }
        let other = facts
            .procs
            .iter()
            .enumerate()
            .filter(|(other, _)| other != proc)
            .flat_map(|(other, facts)| facts.sessions.iter().map(move |session| (other, session)))
            .find(|(_, session)| session.id == *id && session.over.is_none());
        match other {
            Some((other, session))
                if facts.session_record(id).is_some_and(|(record, recorded)| {
                    !record.status.is_over() && recorded == *life && session.incarnation < recorded
                }) =>
            {
                Err(format!(
                    "process {proc} is {id} ({life:?}), but process {other} was never ended as {:?}",
                    session.incarnation
                ))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::bench::Bench;
    use parti_core::ids::{Incarnation, WorkerId};
    use parti_core::record::SessionStatus;

    #[test]
    fn an_id_that_was_never_claimed_is_caught() {
        let mut bench = Bench::new(UniqueId);
        bench.start(1);
        let a = bench.claim(0, "worker-0");
        bench
            .report(0, Report::Claimed(a.id.clone(), a.incarnation))
            .expect("it did");
        bench
            .report(0, Report::Claimed(a.id, Incarnation(77)))
            .expect_err("another life");
        bench
            .report(0, Report::Claimed(WorkerId::new("worker-9"), a.incarnation))
            .expect_err("another id");
    }

    #[test]
    fn two_live_holders_are_caught() {
        let mut bench = Bench::new(UniqueId);
        bench.start(2);
        bench.claim(0, "worker-0");
        let b = bench.claim(1, "worker-0");
        bench
            .report(1, Report::Claimed(b.id, b.incarnation))
            .expect_err("process 0 was never ended");
    }

    #[test]
    fn a_successor_is_fine() {
        let mut bench = Bench::new(UniqueId);
        bench.start(2);
        let a = bench.claim(0, "worker-0");
        bench
            .session(0, &a, |record| record.status = SessionStatus::Goodbye)
            .expect("it goes");
        let b = bench.claim(1, "worker-0");
        bench
            .report(1, Report::Claimed(b.id, b.incarnation))
            .expect("process 0 said goodbye");
    }
}
