//! Workers end against their will only for a named reason. When the store was replaced or went
//! back in time, each of them ends and says so, and nothing that was already committed is used
//! again: nothing is dispatched under an epoch that was given twice, and soon nothing at all. (A
//! take may land in the other store before its writer can know; then it must not count.)
//!
//! Whoever lost no write that it knew to be done cannot notice, and goes on with what is there.

use std::collections::{BTreeMap, BTreeSet};

use parti_core::ids::{Epoch, PartitionId, WorkerId};
use parti_core::key::Key;
use parti_core::record::SessionStatus;
use parti_core::worker::Fatal;

use super::{Invariant, Verdict, partition_write};
use crate::facts::{Facts, Proc, Seen};
use crate::setup::{Micros, SECOND, micros};

/// See the module.
#[derive(Default)]
pub struct NamedErrors {
    epochs: BTreeMap<PartitionId, Epoch>,
    /// Takes in the other store, under an epoch that was given before.
    again: BTreeSet<(Proc, PartitionId, Epoch)>,
    /// How each process that saw the loss ended.
    ended: BTreeMap<Proc, Result<(), Fatal>>,
}

impl Invariant for NamedErrors {
    fn name(&self) -> &'static str {
        "a lost store ends in a named error, and nothing is reused"
    }

    fn outlives_the_store(&self) -> bool {
        true
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Verdict {
        let lost = facts.store_lost;
        match seen {
            Seen::Ended { proc, result } => {
                self.ended.insert(*proc, (*result).clone());
                match result {
                    // A start that the store did not answer: its supervisor tries again.
                    Err(Fatal::GaveUp { .. }) => Ok(()),
                    // It was told to stop, and the store or a handler did not let it.
                    Err(Fatal::StopTimedOut { .. }) => Ok(()),
                    // It had heard of a new list, and of no leader that has: that can last.
                    Err(Fatal::Disagreement(_)) if facts.list_changed => Ok(()),
                    // Its consumer has gone elsewhere, or asks for another session.
                    Err(Fatal::SessionOver) if facts.setup.hosted() => Ok(()),
                    // An operator wanted it to.
                    Err(Fatal::Dismissed) if was_dismissed(facts, *proc) => Ok(()),
                    Err(Fatal::StableIdExhausted(_)) if lost.is_none() => match spare_id(facts) {
                        None => Ok(()),
                        Some(id) => Err(format!(
                            "process {proc} found no id, but {id} was free all the time"
                        )),
                    },
                    Err(fatal) if lost.is_none() => {
                        Err(format!("process {proc} ended against its will: {fatal}"))
                    }
                    _ => Ok(()),
                }
            }
            Seen::CallBegan { proc, job, .. } => {
                let (id, offset) = (&job.partition, job.message.offset);
                let knows = facts.procs[*proc].must_notice;
                if knows && lost.is_some_and(|at| facts.now > at + patience(facts)) {
                    return Err(format!(
                        "process {proc} dispatched {id}/{offset} long after the store was lost"
                    ));
                }
                if knows && self.again.contains(&(*proc, id.clone(), job.epoch)) {
                    return Err(format!(
                        "process {proc} dispatched {id}/{offset} under epoch {}, which was given before \
                         the store was lost",
                        job.epoch
                    ));
                }
                Ok(())
            }
            Seen::Wrote {
                proc,
                key: Key::Partition(id),
                ..
            } => {
                let Some((_, _, before, after)) = partition_write(seen) else {
                    return Ok(());
                };
                let highest = self.epochs.entry(id.clone()).or_default();
                let taken = before.is_none_or(|before| before.epoch < after.epoch);
                if lost.is_some() && taken && after.epoch <= *highest {
                    self.again.insert((*proc, id.clone(), after.epoch));
                }
                *highest = after.epoch.max(*highest);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn settled(&self, facts: &Facts) -> Verdict {
        if facts.store_lost.is_none() {
            return Ok(());
        }
        for (proc, known) in facts.procs.iter().enumerate() {
            if known.is_alive() && known.must_notice {
                return Err(format!(
                    "process {proc} goes on as if the store were the same"
                ));
            }
            match self.ended.get(&proc) {
                None | Some(Ok(())) => {}
                Some(Err(Fatal::StoreReplaced | Fatal::StoreWentBack)) => {}
                Some(Err(other)) => {
                    return Err(format!("process {proc} blames something else: {other}"));
                }
            }
        }
        Ok(())
    }
}

/// Whether an operator wanted a life of this process to end for good.
fn was_dismissed(facts: &Facts, proc: Proc) -> bool {
    facts.procs[proc].sessions.iter().any(|session| {
        let dismissal = (session.id.clone(), session.incarnation, true);
        facts.evictions.contains(&dismissal)
    })
}

/// An id that nobody had for longer than a start takes to give up.
fn spare_id(facts: &Facts) -> Option<WorkerId> {
    let config = &facts.setup.config;
    let patience = micros(config.worker_id_ttl);
    (config.worker_id_min..=config.worker_id_max)
        .map(|number| WorkerId::new(format!("{}-{number}", config.worker_id_prefix)))
        .find(|id| {
            let mut sessions = facts.procs.iter().flat_map(|proc| &proc.sessions);
            sessions.all(|session| {
                let gone = session.over.is_some_and(|(at, how)| {
                    how == SessionStatus::Goodbye && at + patience < facts.now
                });
                session.id != *id || gone
            })
        })
}

/// How long a worker may take to find out.
fn patience(facts: &Facts) -> Micros {
    2 * facts.setup.ttl() + 2 * micros(facts.setup.config.operation_timeout) + 5 * SECOND
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::bench::Bench;

    #[test]
    fn an_unexpected_end_is_caught() {
        let mut bench = Bench::new(NamedErrors::default());
        bench.start(2);
        bench
            .see(Seen::Ended {
                proc: 0,
                result: &Ok(()),
            })
            .expect("it wanted to");
        bench
            .see(Seen::Ended {
                proc: 1,
                result: &Err(Fatal::StoreWentBack),
            })
            .expect_err("the store did not go back");
    }

    #[test]
    fn an_epoch_given_twice_is_caught() {
        let mut bench = Bench::new(NamedErrors::default());
        bench.start(2);
        let a = bench.claim(0, "worker-0");
        bench.take(0, "p00", &a, 1).expect("fine");
        bench.take(0, "p00", &a, 2).expect("fine");
        bench.facts.records.clear();
        bench
            .see(Seen::StoreLost { kept: None })
            .expect("it happens");
        bench.take(1, "p00", &a, 2).expect("nobody could know");
        bench.handle(1, "p00", 0).expect_err("2 was given before");
    }

    #[test]
    fn a_worker_that_goes_on_is_not_settled() {
        let mut bench = Bench::new(NamedErrors::default());
        bench.start(1);
        bench
            .see(Seen::StoreLost { kept: None })
            .expect("it happens");
        bench.settled().expect_err("process 0 goes on");
        let result = Err(Fatal::StoreReplaced);
        bench
            .see(Seen::Ended {
                proc: 0,
                result: &result,
            })
            .expect("now it is a reason");
        bench.settled().expect("it said so");
    }
}
