//! Every plan covers every partition once.
//!
//! - At any moment, of the assignments of one term to sessions that live, at most one serves a
//!   partition: between two arrows of a handoff it is in nobody's `serve` and in one `prepare`.
//! - When the leader calls its plan stable, each partition is in the `serve` of a session that
//!   lives (of an earlier term, while a new leader still rewrites the assignments it found), or in a
//!   `prepare` that names the present owner, or listed as unserved with the reason. Sessions that
//!   ended so shortly before that the leader could not know are the one excuse.

use std::collections::BTreeMap;
use std::sync::Arc;

use parti_core::config::Coordination;
use parti_core::ids::{PartitionId, Term, WorkerId};
use parti_core::key::Key;
use parti_core::leader::orders::UNSERVED_EXAMPLES;
use parti_core::record::{AssignmentRecord, PlanRecord, PlanState, Record};

use super::{Invariant, Verdict};
use crate::facts::{Facts, Proc, Seen};
use crate::setup::{Micros, SECOND};

/// News of a session's end reach a leader without faults within this time.
const NEWS: Micros = 4 * SECOND;
/// A plan lists so many unserved partitions by name; of more, its reason tells the number.
const LISTED: usize = 16;

/// See the module.
#[derive(Default)]
pub struct PlanCovers {
    serves: BTreeMap<PartitionId, WorkerId>,
    /// A plan that was called stable, by which process, and when that sent it.
    stable: Option<(Arc<PlanRecord>, (Proc, Micros))>,
}

impl Invariant for PlanCovers {
    fn name(&self) -> &'static str {
        "every plan covers every partition once"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Verdict {
        if facts.setup.config.coordination != Coordination::Leader {
            return Ok(());
        }
        // A plan and its assignments come in one request: look when all of it is there.
        let request = match seen {
            Seen::Wrote { proc, sent_at, .. } => Some((*proc, *sent_at)),
            _ => None,
        };
        if let Some((plan, by)) = self.stable.take_if(|(_, by)| Some(*by) != request)
            && could_know(facts, by.0, by.1)
        {
            whole(facts, &plan)?;
        }
        match seen {
            Seen::Wrote {
                new: Some(Record::Assignment(after)),
                proc,
                ..
            } => {
                self.serves.clear();
                self.count_serves(facts, after.term).map_err(|(partition, one, other)| {
                    format!(
                        "process {proc} published version {} of term {}: both {one} and {other} are \
                         to serve partition {partition}",
                        after.version, after.term
                    )
                })
            }
            Seen::Wrote {
                new: Some(Record::Plan(plan)),
                proc,
                sent_at,
                ..
            } => {
                let stable = plan.state == PlanState::Stable;
                self.stable = stable.then(|| (plan.clone(), (*proc, *sent_at)));
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl PlanCovers {
    fn count_serves(
        &mut self,
        facts: &Facts,
        term: Term,
    ) -> Result<(), (PartitionId, WorkerId, WorkerId)> {
        let of_term = |(_, known): &(&WorkerId, &AssignmentRecord)| known.term == term;
        for (worker, assignment) in assignments(facts).filter(of_term) {
            for partition in &assignment.serve {
                if let Some(other) = self.serves.insert(partition.clone(), worker.clone()) {
                    return Err((partition.clone(), other, worker.clone()));
                }
            }
        }
        Ok(())
    }
}

fn whole(facts: &Facts, plan: &PlanRecord) -> Verdict {
    // A plan that was long on its way says nothing about assignments that overtook it, and one that
    // names only the first of many unserved partitions says nothing about the rest.
    let overtaken = assignments(facts)
        .any(|(_, newer)| newer.term == plan.term && newer.version > plan.version);
    if overtaken || plan.unserved.len() >= UNSERVED_EXAMPLES {
        return Ok(());
    }
    for (partition, known) in facts.setup.partitions.iter().zip(&facts.partitions) {
        let id = &partition.id;
        if known.unlisted {
            // Whether the leader knows that it is back is the leader's secret.
            continue;
        }
        let unserved = plan
            .unserved
            .iter()
            .any(|(listed, why)| listed == id && !why.is_empty());
        let owner = facts
            .partition_record(id)
            .and_then(|record| record.owner.as_ref());
        let assigned = assignments(facts).any(|(_, assignment)| {
            let prepared = assignment.prepare.iter().any(|(listed, present)| {
                listed == id && owner.is_some_and(|(owner, _)| owner == present)
            });
            prepared || assignment.serve.binary_search(id).is_ok()
        });
        let more_unserved = plan.unserved.len() >= LISTED && plan.reason.contains("unserved");
        if !unserved && !more_unserved && !assigned {
            return Err(format!(
                "plan {} of term {} is stable ({}), but partition {id} is in no assignment",
                plan.version, plan.term, plan.reason
            ));
        }
    }
    Ok(())
}

/// The assignments to sessions that live.
fn assignments(facts: &Facts) -> impl Iterator<Item = (&WorkerId, &AssignmentRecord)> {
    facts.records.iter().filter_map(move |(key, stored)| {
        let (Key::Assignment(worker), Record::Assignment(assignment)) = (key, &stored.record)
        else {
            return None;
        };
        let (session, life) = facts.session_record(worker)?;
        let lives = !session.status.is_over() && life == assignment.incarnation;
        lives.then_some((worker, &**assignment))
    })
}

/// Whether the writer of a plan could know of every session's end.
fn could_know(facts: &Facts, writer: Proc, sent_at: Micros) -> bool {
    let since = sent_at.saturating_sub(NEWS);
    let ended = |at: Option<(Micros, _)>| at.is_some_and(|(at, _)| at >= since);
    let news = facts
        .procs
        .iter()
        .flat_map(|proc| &proc.sessions)
        .any(|session| ended(session.over));
    !news && !facts.procs[writer].was_hindered(since.saturating_sub(10 * SECOND), facts.now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::bench::{Bench, Session};
    use parti_core::ids::{Nonce, Version};
    use parti_core::record::{Fingerprint, Lifecycle};

    fn assign(
        bench: &mut Bench<PlanCovers>,
        to: &Session,
        version: u64,
        serve: &[&str],
        prepare: &[(&str, &str)],
    ) -> Verdict {
        let record = AssignmentRecord {
            version: Version(version),
            term: Term(1),
            incarnation: to.incarnation,
            lifecycle: Lifecycle::Stable,
            serve: serve.iter().map(PartitionId::new).collect(),
            prepare: prepare
                .iter()
                .map(|(id, owner)| (PartitionId::new(id), WorkerId::new(owner)))
                .collect(),
            release: Vec::new(),
            added: Vec::new(),
            nonce: Nonce(0),
        };
        bench.write(
            0,
            Key::Assignment(to.id.clone()),
            Some(Record::Assignment(Arc::new(record))),
        )
    }

    fn stable(bench: &mut Bench<PlanCovers>, unserved: &[(&str, &str)]) -> Verdict {
        let record = PlanRecord {
            version: Version(9),
            term: Term(1),
            lifecycle: Lifecycle::Stable,
            state: PlanState::Stable,
            reason: "nothing to do".into(),
            started_at: 0,
            workers: 2,
            partitions: 4,
            moving: 0,
            unserved: unserved
                .iter()
                .map(|(id, why)| (PartitionId::new(id), (*why).to_owned()))
                .collect(),
            added: Vec::new(),
            fingerprint: Fingerprint {
                partitions: 0,
                strategy: "fair_share".into(),
                coordination: "leader".into(),
            },
            nonce: Nonce(0),
        };
        bench.write(0, Key::Plan, Some(Record::Plan(Arc::new(record))))?;
        bench.pass(1);
        bench.see(Seen::Answered { proc: 0 })
    }

    fn pair() -> (Bench<PlanCovers>, Session, Session) {
        let mut bench = Bench::new(PlanCovers::default());
        bench.start(2);
        let (a, b) = (bench.claim(0, "worker-0"), bench.claim(1, "worker-1"));
        (bench, a, b)
    }

    #[test]
    fn a_partition_served_twice_is_caught() {
        let (mut bench, a, b) = pair();
        assign(&mut bench, &a, 1, &["p00", "p01"], &[]).expect("alone");
        assign(&mut bench, &b, 2, &["p02", "p03"], &[]).expect("the others");
        stable(&mut bench, &[]).expect("all four");
        assign(&mut bench, &b, 3, &["p01", "p02"], &[]).expect_err("p01 is still worker-0's");
    }

    #[test]
    fn a_stable_plan_with_a_hole_is_caught() {
        let (mut bench, a, b) = pair();
        bench.take(0, "p03", &a, 1).expect("fine");
        assign(&mut bench, &a, 1, &["p00", "p01"], &[]).expect("some");
        stable(&mut bench, &[("p02", "over cap")]).expect_err("p03 is missing");
        assign(&mut bench, &b, 2, &[], &[("p03", "worker-0")]).expect("being moved");
        stable(&mut bench, &[("p02", "over cap")]).expect("every one has its place");
        stable(&mut bench, &[("p02", "")]).expect_err("no reason given");
    }
}
