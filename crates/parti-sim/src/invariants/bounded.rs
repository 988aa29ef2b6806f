//! Keys and memory are bounded: the store holds a record per partition, two per id ever used and a
//! few more; a worker has a bounded number of requests, watches and handler calls under way.

use std::collections::{BTreeMap, BTreeSet};

use parti_core::ids::WorkerId;
use parti_core::io::Job;
use parti_core::io::Scope;
use parti_core::worker::{Action, chronicle};

use super::{Invariant, Verdict};
use crate::facts::{Facts, Proc, Seen};

/// `group`, `leader`, `plan` and `overrides`.
const SINGLE_KEYS: usize = 4;
/// Watches of a worker: leader, plan, own assignment, workers,
/// requests, partitions, and room for growth.
const WATCHES: usize = 9;
/// Requests under way besides one per partition and worker.
const REQUESTS: usize = 16;

#[derive(Default)]
struct Under {
    requests: usize,
    watches: BTreeSet<Scope>,
}

/// See the module.
#[derive(Default)]
pub struct Bounded {
    ids: BTreeSet<WorkerId>,
    way: BTreeMap<Proc, Under>,
}

impl Invariant for Bounded {
    fn name(&self) -> &'static str {
        "bounded keys and memory"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Verdict {
        match seen {
            Seen::Wrote {
                proc,
                old: None,
                key,
                ..
            } => {
                if let Some(session) = facts.procs[*proc].session()
                    && !self.ids.contains(&session.id)
                {
                    self.ids.insert(session.id.clone());
                }
                let requests = facts.asked as usize;
                let allowed = SINGLE_KEYS + facts.partitions.len() + 2 * self.ids.len() + requests;
                // Whoever writes does not know at once what others wrote.
                let history = chronicle::KEPT as u64 + 100 * facts.procs.len() as u64;
                if facts.events > history {
                    return Err(format!("the history has {} lines", facts.events));
                }
                if facts.records.len() > allowed {
                    return Err(format!(
                        "process {proc} created {key:?}: {} keys where {allowed} are enough",
                        facts.records.len()
                    ));
                }
                Ok(())
            }
            Seen::Answered { proc } => {
                let under = self.way.entry(*proc).or_default();
                under.requests = under.requests.saturating_sub(1);
                Ok(())
            }
            Seen::Acted { proc, action, .. } => self.act(facts, *proc, action),
            Seen::CallBegan { proc, job, .. } => called(facts, *proc, job),
            _ => Ok(()),
        }
    }
}

impl Bounded {
    fn act(&mut self, facts: &Facts, proc: Proc, action: &Action) -> Verdict {
        match action {
            Action::Store(_) => {
                let under = self.way.entry(proc).or_default();
                under.requests += 1;
                let allowed = REQUESTS + 2 * (facts.partitions.len() + facts.setup.machines.len());
                if under.requests > allowed {
                    return Err(format!(
                        "process {proc} has {} requests under way",
                        under.requests
                    ));
                }
            }
            Action::Watch(scope) => {
                let under = self.way.entry(proc).or_default();
                under.watches.insert(scope.clone());
                if under.watches.len() > WATCHES {
                    return Err(format!(
                        "process {proc} has {} watches",
                        under.watches.len()
                    ));
                }
            }
            Action::Unwatch(scope) => {
                self.way.entry(proc).or_default().watches.remove(scope);
            }
            _ => {}
        }
        Ok(())
    }
}

fn called(facts: &Facts, proc: Proc, job: &Job) -> Verdict {
    let running = facts.procs[proc].calls.len();
    // Calls of a lost session may still run beside those of the next one.
    let sessions = facts.procs[proc].sessions.len().max(1);
    let allowed = facts.setup.config.processing.concurrency as usize * sessions;
    if running > allowed {
        return Err(format!(
            "process {proc} dispatched {}/{} as call number {running} at once",
            job.partition, job.message.offset
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::bench::{Bench, plain_setup};
    use parti_core::key::Key;

    #[test]
    fn keys_without_end_are_caught() {
        let mut bench = Bench::new(Bounded::default());
        bench.start(1);
        bench.claim(0, "worker-0");
        let mut broken = false;
        for number in 0..20 {
            broken = broken || bench.try_claim(0, "worker-0").is_err();
            let key = Key::Assignment(WorkerId::new(format!("ghost-{number}")));
            let record = bench
                .facts
                .records
                .values()
                .next()
                .map(|stored| stored.record.clone());
            broken = broken || bench.write(0, key, record).is_err();
        }
        assert!(broken);
    }

    #[test]
    fn too_many_calls_requests_or_watches_are_caught() {
        let mut setup = plain_setup();
        setup.config.processing.concurrency = 2;
        let mut bench = Bench::with(Bounded::default(), setup);
        bench.start(1);
        bench.publish("p00", &[0]);
        bench.publish("p01", &[0]);
        bench.publish("p02", &[0]);
        bench.handle(0, "p00", 0).expect("one");
        bench.handle(0, "p01", 0).expect("two");
        bench.handle(0, "p02", 0).expect_err("three");
        for number in 0..20 {
            let scope = Scope::Key(Key::Assignment(WorkerId::new(format!("worker-{number}"))));
            assert_eq!(bench.act(0, Action::Watch(scope)).is_ok(), number < WATCHES);
        }
    }
}
