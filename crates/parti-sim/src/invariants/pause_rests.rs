//! A paused partition rests: once its pause is done, nobody begins a message of it before somebody
//! asks to resume it.
//!
//! With a leader, a pause is done when its request says so. Without one, when every session that is
//! not over says that it heeds the overrides that paused it.

use std::collections::BTreeSet;

use parti_core::config::Coordination;
use parti_core::ids::{PartitionId, Revision};
use parti_core::key::Key;
use parti_core::record::{Outcome, OverridesRecord, Record, Request};

use super::{Invariant, Verdict};
use crate::facts::{Facts, Seen};

/// See the module.
#[derive(Default)]
pub struct PauseRests {
    paused: BTreeSet<PartitionId>,
}

impl Invariant for PauseRests {
    fn name(&self) -> &'static str {
        "nobody handles a paused partition"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Verdict {
        match seen {
            Seen::Decided { record, .. } => {
                self.paused.retain(|partition| record.pauses(partition));
            }
            Seen::Wrote {
                key: Key::Worker(_),
                ..
            } if facts.setup.config.coordination == Coordination::Leaderless => {
                if let Some((_, overrides)) = heeded_by_all(facts) {
                    self.paused.extend(overrides.paused.iter().cloned());
                }
            }
            Seen::Asked { record, .. } => {
                if let Request::Resume { partition } = &record.request {
                    self.paused.remove(partition);
                }
            }
            Seen::Wrote {
                new: Some(Record::Request(record)),
                ..
            } => {
                if let (Request::Pause { partition }, Outcome::Done) =
                    (&record.request, &record.outcome)
                    && !resumed(facts, partition)
                {
                    self.paused.insert(partition.clone());
                }
            }
            Seen::CallBegan { proc, job, .. } if self.paused.contains(&job.partition) => {
                return Err(format!(
                    "process {proc} begins {}/{} under epoch {}, though it is paused",
                    job.partition, job.message.offset, job.epoch
                ));
            }
            _ => {}
        }
        Ok(())
    }
}

/// The overrides of a group without a leader, once everybody goes by them.
pub(super) fn heeded_by_all(facts: &Facts) -> Option<(Revision, &OverridesRecord)> {
    let revision = facts.records.get(&Key::Overrides)?.revision;
    let heeds = facts.records.values().all(|stored| match &stored.record {
        Record::Worker(record) => record.status.is_over() || record.heeds >= revision,
        _ => true,
    });
    Some((revision, facts.overrides()?)).filter(|_| heeds)
}

/// Whether somebody asked to go on with it, and may get that at any time.
fn resumed(facts: &Facts, partition: &PartitionId) -> bool {
    facts.records.values().any(|stored| {
        matches!(&stored.record, Record::Request(record)
            if matches!(record.outcome, Outcome::Open | Outcome::Accepted)
                && matches!(&record.request, Request::Resume { partition: p } if p == partition))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::bench::{Bench, plain_setup};

    #[test]
    fn without_a_leader_a_pause_is_done_when_all_heed_it() {
        let mut setup = plain_setup();
        setup.config.coordination = Coordination::Leaderless;
        let mut bench = Bench::with(PauseRests::default(), setup);
        bench.start(2);
        bench.publish("p00", &[0, 1, 2]);
        let (a, b) = (bench.claim(0, "worker-0"), bench.claim(1, "worker-1"));
        let paused = bench.decide(|overrides| overrides.pause(&PartitionId::new("p00")));
        bench
            .session(0, &a, |record| record.heeds = paused)
            .expect("one of two");
        bench.handle(0, "p00", 0).expect("not done yet");
        bench
            .session(1, &b, |record| record.heeds = paused)
            .expect("all");
        assert!(bench.handle(0, "p00", 1).is_err());
        bench.decide(|overrides| overrides.resume(&PartitionId::new("p00")));
        bench.handle(0, "p00", 2).expect("it was resumed");
    }

    #[test]
    fn who_handles_a_paused_partition_is_caught() {
        let mut bench = Bench::new(PauseRests::default());
        bench.start(1);
        bench.publish("p00", &[0, 1, 2]);
        let pause = Request::Pause {
            partition: PartitionId::new("p00"),
        };
        bench.ask("r1", pause.clone());
        bench.handle(0, "p00", 0).expect("not done yet");
        bench.answer(0, "r1", Outcome::Done).expect("an outcome");
        assert!(bench.handle(0, "p00", 1).is_err());
        bench.ask(
            "r2",
            Request::Resume {
                partition: PartitionId::new("p00"),
            },
        );
        bench.handle(0, "p00", 2).expect("it was resumed");
    }
}
