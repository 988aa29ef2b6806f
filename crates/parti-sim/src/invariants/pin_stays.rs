//! A pinned partition stays: once the worker has taken it under the pin, nobody else takes it while
//! that life of the worker lives, means to stay, and is neither drained nor in trouble.

use std::collections::BTreeMap;

use parti_core::ids::{Incarnation, PartitionId, WorkerId};
use parti_core::key::Key;
use parti_core::record::{Record, SessionStatus};

use super::{Invariant, Verdict, partition_write};
use crate::facts::{Facts, Seen};

/// See the module.
#[derive(Default)]
pub struct PinStays {
    /// Taken under a pin that stands, by which life.
    settled: BTreeMap<PartitionId, (WorkerId, Incarnation)>,
}

impl Invariant for PinStays {
    fn name(&self) -> &'static str {
        "a pinned partition stays"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Verdict {
        let Seen::Wrote { key, new, .. } = seen else {
            if matches!(seen, Seen::ListChanged | Seen::Decided { .. }) {
                self.settled.clear();
            }
            return Ok(());
        };
        match (key, new) {
            // Whatever is asked for anew has to be reached anew.
            (Key::Overrides, Some(Record::Overrides(overrides))) => {
                self.settled.retain(|partition, (worker, life)| {
                    let pin = overrides.pin_of(partition);
                    pin.is_some_and(|pin| pin.worker == *worker)
                        && !overrides.pauses(partition)
                        && !overrides.drains(worker, *life)
                });
            }
            (Key::Worker(id), Some(Record::Worker(record)))
                if record.status != SessionStatus::Live || record.degraded.is_some() =>
            {
                self.settled.retain(|_, (worker, _)| worker != id);
            }
            (Key::Partition(id), _) => return self.taken(facts, seen, id),
            _ => {}
        }
        Ok(())
    }
}

impl PinStays {
    fn taken(&mut self, facts: &Facts, seen: &Seen<'_>, id: &PartitionId) -> Verdict {
        let Some((proc, _, before, after)) = partition_write(seen) else {
            return Ok(());
        };
        let taken = before.is_none_or(|before| before.epoch < after.epoch);
        let (Some((owner, life)), true) = (&after.owner, taken) else {
            return Ok(());
        };
        if let Some((worker, settled)) = self.settled.get(id)
            && (worker, settled) != (owner, life)
        {
            let drained = facts
                .overrides()
                .is_some_and(|overrides| overrides.drains(worker, *settled));
            let lives = facts
                .session_record(worker)
                .is_some_and(|(record, present)| {
                    present == *settled && record.status == SessionStatus::Live
                });
            if lives && !drained {
                return Err(format!(
                    "process {proc} took partition {id} as {owner}, though it is pinned to {worker}, \
                     which lives and had it"
                ));
            }
        }
        let pin = facts
            .overrides()
            .and_then(|overrides| overrides.pin_of(id))
            .filter(|pin| pin.incarnation.is_none_or(|pinned| pinned == *life));
        if pin.is_some_and(|pin| pin.worker == *owner) {
            self.settled.insert(id.clone(), (owner.clone(), *life));
        } else {
            self.settled.remove(id);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::bench::Bench;
    use parti_core::record::Pinned;

    #[test]
    fn who_takes_what_is_pinned_elsewhere_is_caught() {
        let mut bench = Bench::new(PinStays::default());
        bench.start(2);
        let (a, b) = (bench.claim(0, "worker-0"), bench.claim(1, "worker-1"));
        let partition = PartitionId::new("p00");
        bench.overrides(0, |overrides| {
            overrides.pin(Pinned {
                partition: partition.clone(),
                worker: a.id.clone(),
                incarnation: None,
            });
        });
        bench.take(1, "p00", &b, 1).expect("it is on its way");
        bench.take(0, "p00", &a, 2).expect("there it belongs");
        assert!(bench.take(1, "p00", &b, 3).is_err());
        bench.take(0, "p00", &a, 4).expect("there it belongs");
        bench.overrides(0, |overrides| overrides.unpin(&partition));
        bench.take(1, "p00", &b, 5).expect("the pin is gone");
    }
}
