//! A paused partition rests: once its pause is done, nobody begins a message of it before somebody
//! asks to resume it.

use std::collections::BTreeSet;

use parti_core::ids::PartitionId;
use parti_core::record::{Outcome, Record, Request};
use parti_core::worker::Action;

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
            Seen::Acted {
                proc,
                action: Action::Handle(job),
                ..
            } if self.paused.contains(&job.partition) => {
                return Err(format!(
                    "process {proc} begins messages of {} under epoch {}, though it is paused",
                    job.partition, job.epoch
                ));
            }
            _ => {}
        }
        Ok(())
    }
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
    use crate::invariants::bench::Bench;

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
