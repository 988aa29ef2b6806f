//! Nothing stays wedged: once the faults are over, every process has a session, every partition
//! belongs to one that lives, no take is blocked, and the plan is done.

use parti_core::config::Coordination;
use parti_core::key::Key;
use parti_core::record::{PlanState, Record};

use super::{Invariant, Verdict};
use crate::facts::{Facts, Life};

/// See the module.
pub struct FullCover;

impl Invariant for FullCover {
    fn name(&self) -> &'static str {
        "every partition has a live owner in the end"
    }

    fn settled(&self, facts: &Facts) -> Verdict {
        for (proc, known) in facts.procs.iter().enumerate() {
            if known.life != Life::Running {
                continue;
            }
            if known.stop_asked.is_some() {
                return Err(format!(
                    "process {proc} was asked to stop and is still there"
                ));
            }
            let left_out = facts.members().count() >= facts.setup.ids();
            if !left_out && known.session().is_none_or(|session| session.over.is_some()) {
                return Err(format!("process {proc} has no session"));
            }
        }
        for partition in facts.setup.partitions.iter() {
            let Some(record) = facts.partition_record(&partition.id) else {
                return Err(format!("partition {} was never taken", partition.id));
            };
            let Some((id, life)) = &record.owner else {
                return Err(format!("partition {} has no owner", partition.id));
            };
            if !facts
                .members()
                .any(|(_, session)| session.id == *id && session.incarnation == *life)
            {
                return Err(format!(
                    "partition {} belongs to {id} ({life:?}), gone",
                    partition.id
                ));
            }
        }
        for (_, session) in facts.members() {
            if let Some((record, _)) = facts.session_record(&session.id)
                && let Some(blocked) = record.blocked_by.first()
            {
                return Err(format!("{} is blocked: {blocked:?}", session.id));
            }
        }
        if facts.setup.config.coordination == Coordination::Leader {
            match facts.records.get(&Key::Plan).map(|stored| &stored.record) {
                Some(Record::Plan(plan)) if plan.state == PlanState::Stable => {}
                Some(Record::Plan(plan)) => {
                    return Err(format!("the plan is {:?}: {}", plan.state, plan.reason));
                }
                _ => return Err("there is no plan".into()),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Seen;
    use crate::invariants::bench::{Bench, plain_setup};

    #[test]
    fn a_partition_without_a_live_owner_is_not_settled() {
        let mut setup = plain_setup();
        setup.config.coordination = Coordination::Leaderless;
        let mut bench = Bench::with(FullCover, setup);
        bench.start(2);
        bench.settled().expect_err("no sessions");
        let (a, b) = (bench.claim(0, "worker-0"), bench.claim(1, "worker-1"));
        for id in ["p00", "p01", "p02"] {
            bench.take(0, id, &a, 1).expect("fine");
        }
        bench.settled().expect_err("p03 was never taken");
        bench.take(1, "p03", &b, 1).expect("fine");
        bench.settled().expect("all taken");
        bench
            .partition(1, "p03", |record| record.owner = None)
            .expect("fine");
        bench.settled().expect_err("p03 was released");
        bench.take(1, "p03", &b, 2).expect("fine");
        bench.crash(0);
        bench.settled().expect_err("process 0 is gone");
    }

    #[test]
    fn a_process_that_does_not_stop_is_not_settled() {
        let mut bench = Bench::new(FullCover);
        bench.start(1);
        bench.claim(0, "worker-0");
        bench.see(Seen::StopAsked { proc: 0 }).expect("fine");
        assert!(
            bench
                .settled()
                .is_err_and(|why| why.contains("asked to stop"))
        );
    }
}
