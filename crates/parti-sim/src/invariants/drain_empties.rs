//! A drained worker has nothing: when its drain is done, no partition's record names that life of
//! it, and it takes none before somebody asks to undrain it.
//!
//! With a leader, a drain is done when its request says so. Without one, when everybody heeds the
//! overrides, and the worker itself says that its load is nothing.

use std::collections::BTreeMap;

use parti_core::config::Coordination;
use parti_core::ids::{Incarnation, WorkerId};
use parti_core::key::Key;
use parti_core::record::{Outcome, Record, Request};

use super::pause_rests::heeded_by_all;
use super::{Invariant, Verdict, partition_write};
use crate::facts::{Facts, Seen};

/// See the module.
#[derive(Default)]
pub struct DrainEmpties {
    drained: BTreeMap<WorkerId, Incarnation>,
}

impl Invariant for DrainEmpties {
    fn name(&self) -> &'static str {
        "a drained worker has nothing"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Verdict {
        match seen {
            Seen::Decided { record, .. } => {
                self.drained
                    .retain(|worker, life| record.drains(worker, *life));
            }
            Seen::Wrote {
                key: Key::Worker(_),
                ..
            } if facts.setup.config.coordination == Coordination::Leaderless => {
                return self.heeded(facts);
            }
            Seen::Asked { record, .. } => {
                if let Request::Undrain { worker } = &record.request {
                    self.drained.remove(worker);
                }
            }
            Seen::Wrote {
                new: Some(Record::Request(record)),
                ..
            } => {
                if let (Request::Drain { worker }, Outcome::Done) =
                    (&record.request, &record.outcome)
                {
                    return self.done(facts, worker);
                }
            }
            Seen::Wrote { .. } => {
                if let Some((proc, id, before, after)) = partition_write(seen)
                    && before.is_none_or(|before| before.epoch < after.epoch)
                    && let Some((owner, life)) = &after.owner
                    && self.drained.get(owner) == Some(life)
                {
                    return Err(format!(
                        "process {proc} took partition {id} as {owner}, though that is drained"
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl DrainEmpties {
    fn done(&mut self, facts: &Facts, worker: &WorkerId) -> Verdict {
        let undrained = facts.records.values().any(|stored| {
            matches!(&stored.record, Record::Request(record)
                if matches!(record.outcome, Outcome::Open | Outcome::Accepted)
                    && matches!(&record.request, Request::Undrain { worker: w } if w == worker))
        });
        let life = facts
            .overrides()
            .and_then(|overrides| overrides.drained_life(worker));
        let (Some(life), false) = (life, undrained) else {
            return Ok(());
        };
        self.empty(facts, worker, life)
    }

    fn heeded(&mut self, facts: &Facts) -> Verdict {
        let Some((_, overrides)) = heeded_by_all(facts) else {
            return Ok(());
        };
        for drained in &overrides.drained {
            // A life that is over is drained by nobody.
            let says_so = facts
                .session_record(&drained.worker)
                .is_some_and(|(record, life)| {
                    let lives = life == drained.incarnation && !record.status.is_over();
                    lives && record.load == 0
                });
            if says_so && !self.drained.contains_key(&drained.worker) {
                self.empty(facts, &drained.worker, drained.incarnation)?;
            }
        }
        Ok(())
    }

    fn empty(&mut self, facts: &Facts, worker: &WorkerId, life: Incarnation) -> Verdict {
        self.drained.insert(worker.clone(), life);
        for partition in facts.setup.partitions.iter() {
            let record = facts.partition_record(&partition.id);
            let owner = record.and_then(|record| record.owner.as_ref());
            if owner == Some(&(worker.clone(), life)) {
                return Err(format!(
                    "the drain of {worker} is called done, but it owns {}",
                    partition.id
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::bench::{Bench, plain_setup};

    #[test]
    fn without_a_leader_a_drain_is_done_when_all_heed_it() {
        let mut setup = plain_setup();
        setup.config.coordination = Coordination::Leaderless;
        let mut bench = Bench::with(DrainEmpties::default(), setup);
        bench.start(1);
        let session = bench.claim(0, "worker-0");
        let drained = bench.decide(|overrides| overrides.drain(&session.id, session.incarnation));
        bench.take(0, "p00", &session, 1).expect("not done yet");
        bench
            .session(0, &session, |record| {
                (record.heeds, record.load) = (drained, 1)
            })
            .expect("it says that it has something");
        let says = bench.session(0, &session, |record| {
            (record.heeds, record.load) = (drained, 0);
        });
        assert!(says.is_err(), "it has p00");
        assert!(bench.take(0, "p01", &session, 1).is_err());
        bench.decide(|overrides| overrides.undrain(&session.id));
        bench.take(0, "p02", &session, 1).expect("it may again");
    }

    #[test]
    fn what_a_drained_worker_has_is_caught() {
        let mut bench = Bench::new(DrainEmpties::default());
        bench.start(1);
        let session = bench.claim(0, "worker-0");
        bench.take(0, "p00", &session, 1).expect("it may");
        let worker = session.id.clone();
        bench.overrides(0, |overrides| {
            overrides.drain(&worker, session.incarnation);
        });
        bench.ask(
            "r1",
            Request::Drain {
                worker: worker.clone(),
            },
        );
        assert!(bench.answer(0, "r1", Outcome::Done).is_err());
        assert!(bench.take(0, "p01", &session, 1).is_err());
        bench.ask("r2", Request::Undrain { worker });
        bench.take(0, "p02", &session, 1).expect("it may again");
    }
}
