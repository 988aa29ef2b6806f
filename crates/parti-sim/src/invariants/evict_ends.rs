//! An eviction ends the life that an operator named, and no other: nobody revokes a session without
//! being asked, an eviction is called done only once that life is over, who gave up because it is to
//! stay away claims no id again, and in the end no session is left revoked.

use std::collections::BTreeSet;

use parti_core::ids::{Incarnation, Revision, WorkerId};
use parti_core::key::Key;
use parti_core::record::{Outcome, Record, Request, SessionStatus, WorkerRecord};

use super::{Invariant, Verdict};
use crate::facts::{Facts, Proc, Seen};

/// See the module.
#[derive(Default)]
pub struct EvictEnds {
    /// Processes that know that they are to stay away.
    sent_away: BTreeSet<Proc>,
}

impl Invariant for EvictEnds {
    fn name(&self) -> &'static str {
        "an eviction ends what it names, and nothing else"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Verdict {
        let Seen::Wrote {
            proc,
            revision,
            key,
            old,
            new: Some(new),
            ..
        } = seen
        else {
            return Ok(());
        };
        match (key, new) {
            (Key::Worker(id), Record::Worker(record)) => {
                let before = old.and_then(|stored| match &stored.record {
                    Record::Worker(record) => Some(&**record),
                    _ => None,
                });
                self.session(facts, *proc, *revision, id, before, record)
            }
            (Key::Request(_), Record::Request(record)) => match &record.request {
                Request::Evict {
                    worker,
                    incarnation,
                    ..
                } if record.outcome == Outcome::Done && !is_over(facts, worker, *incarnation) => {
                    Err(format!(
                        "the eviction of {worker} ({incarnation:?}) is called done, but its session \
                         is not over"
                    ))
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn settled(&self, facts: &Facts) -> Verdict {
        for (key, stored) in &facts.records {
            if let Record::Worker(record) = &stored.record
                && record.status.is_revoked()
            {
                return Err(format!("{key} is still {:?}", record.status));
            }
        }
        Ok(())
    }
}

impl EvictEnds {
    fn session(
        &mut self,
        facts: &Facts,
        proc: Proc,
        revision: Revision,
        id: &WorkerId,
        before: Option<&WorkerRecord>,
        after: &WorkerRecord,
    ) -> Verdict {
        let life = after.incarnation_at(revision);
        if after.status.is_revoked() {
            let stays_away = after.status == SessionStatus::Dismissed;
            if !facts.evictions.contains(&(id.clone(), life, stays_away)) {
                return Err(format!(
                    "process {proc} made the session of {id} ({life:?}) {:?}, which nobody asked for",
                    after.status
                ));
            }
        }
        if after.incarnation.is_none() && self.sent_away.contains(&proc) {
            return Err(format!(
                "process {proc} claimed {id}, though it is to stay away"
            ));
        }
        let dismissed = before.is_some_and(|before| before.status == SessionStatus::Dismissed);
        if dismissed && facts.holder(id, life) == Some(proc) {
            self.sent_away.insert(proc);
        }
        Ok(())
    }
}

/// Whether the store says that this life is over.
fn is_over(facts: &Facts, worker: &WorkerId, life: Incarnation) -> bool {
    facts
        .session_record(worker)
        .is_some_and(|(record, present)| {
            present > life || (present == life && record.status.is_over())
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::bench::{Bench, Session};

    fn evict(bench: &mut Bench<EvictEnds>, who: &Session, stay_away: bool) {
        bench.ask(
            "r1",
            Request::Evict {
                worker: who.id.clone(),
                incarnation: who.incarnation,
                stay_away,
            },
        );
    }

    #[test]
    fn a_session_that_is_revoked_unasked_is_caught() {
        let mut bench = Bench::new(EvictEnds::default());
        bench.start(2);
        let (a, b) = (bench.claim(0, "worker-0"), bench.claim(1, "worker-1"));
        evict(&mut bench, &a, false);
        let revoke = |record: &mut WorkerRecord| record.status = SessionStatus::Revoked;
        bench.session(1, &a, revoke).expect("asked for");
        assert!(bench.settled().is_err(), "nobody ended it");
        bench.session(1, &b, revoke).expect_err("not asked for");
    }

    #[test]
    fn an_eviction_that_is_done_too_soon_is_caught() {
        let mut bench = Bench::new(EvictEnds::default());
        bench.start(2);
        let a = bench.claim(0, "worker-0");
        evict(&mut bench, &a, false);
        bench
            .session(1, &a, |record| record.status = SessionStatus::Revoked)
            .expect("asked for");
        assert!(bench.answer(1, "r1", Outcome::Done).is_err());
        bench
            .session(0, &a, |record| record.status = SessionStatus::Evicted)
            .expect("it gives up");
        bench.answer(1, "r1", Outcome::Done).expect("now it is");
        assert_eq!(bench.settled(), Ok(()));
    }

    #[test]
    fn who_comes_back_though_it_is_to_stay_away_is_caught() {
        let mut bench = Bench::new(EvictEnds::default());
        bench.start(3);
        let a = bench.claim(0, "worker-0");
        evict(&mut bench, &a, true);
        bench
            .session(1, &a, |record| record.status = SessionStatus::Dismissed)
            .expect("asked for");
        bench
            .session(0, &a, |record| record.status = SessionStatus::Evicted)
            .expect("it gives up");
        bench.try_claim(2, "worker-0").expect("another process");
        bench.try_claim(0, "worker-1").expect_err("the same");
    }
}
