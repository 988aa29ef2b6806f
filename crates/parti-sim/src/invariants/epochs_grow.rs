//! A partition's epoch never falls, grows by exactly one with every take, and its record is never
//! deleted (epochs would start anew).

use std::collections::BTreeMap;

use parti_core::ids::Epoch;
use parti_core::key::Key;

use super::{Invariant, Verdict, partition_write};
use crate::facts::{Facts, Seen};

/// See the module.
#[derive(Default)]
pub struct EpochsGrow {
    highest: BTreeMap<String, Epoch>,
}

impl Invariant for EpochsGrow {
    fn name(&self) -> &'static str {
        "epochs strictly grow"
    }

    fn see(&mut self, _facts: &Facts, seen: &Seen<'_>) -> Verdict {
        if let Seen::Wrote {
            key: Key::Partition(id),
            new: None,
            proc,
            ..
        } = seen
        {
            return Err(format!(
                "process {proc} deleted the record of partition {id}"
            ));
        }
        if let Seen::Forced { id, record, .. } = seen {
            self.highest.insert(id.as_str().to_owned(), record.epoch);
        }
        let Some((proc, partition, before, after)) = partition_write(seen) else {
            return Ok(());
        };
        if !self.highest.contains_key(partition) {
            self.highest.insert(partition.to_owned(), Epoch(0));
        }
        let Some(highest) = self.highest.get_mut(partition) else {
            return Ok(());
        };
        let owner_before = before.and_then(|record| record.owner.as_ref());
        let taken = after.owner.is_some() && after.owner.as_ref() != owner_before;
        let wanted = if taken { highest.next() } else { *highest };
        if after.epoch != wanted && before.is_some() || after.epoch < wanted {
            return Err(format!(
                "partition {partition}: process {proc} wrote epoch {} where {wanted} follows \
                 (owner {owner_before:?} → {:?})",
                after.epoch, after.owner
            ));
        }
        *highest = after.epoch;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::bench::{Bench, owner};
    use parti_core::ids::{PartitionId, Revision};
    use parti_core::record::PartitionRecord;

    #[test]
    fn an_epoch_that_does_not_grow_with_its_owner_is_caught() {
        let mut bench = Bench::new(EpochsGrow::default());
        bench.start(2);
        let take = |epoch: u64, name: &'static str| {
            move |record: &mut PartitionRecord| {
                record.epoch.0 = epoch;
                record.owner = owner(name, 1);
            }
        };
        bench
            .partition(0, "p00", take(1, "worker-0"))
            .expect("the first take");
        bench
            .partition(0, "p00", |record| record.owner = None)
            .expect("a release keeps the epoch");
        bench
            .partition(1, "p00", take(2, "worker-1"))
            .expect("the next take");
        bench
            .partition(0, "p00", take(2, "worker-0"))
            .expect_err("the same epoch again");
    }

    #[test]
    fn an_operators_epoch_counts() {
        for (next, fine) in [(2, false), (3, true), (4, false)] {
            let mut bench = Bench::new(EpochsGrow::default());
            bench.start(1);
            let take = |epoch: u64| {
                move |record: &mut PartitionRecord| {
                    record.epoch.0 = epoch;
                    record.owner = owner("worker-0", 1);
                }
            };
            bench.partition(0, "p00", take(1)).expect("the first take");
            let record = PartitionRecord {
                epoch: Epoch(2),
                ..PartitionRecord::default()
            };
            let forced = Seen::Forced {
                proc: 0,
                id: &PartitionId::new("p00"),
                revision: Revision(9),
                record: &record.into(),
            };
            bench.see(forced).expect("the operator's own");
            let taken = bench.partition(0, "p00", take(next));
            assert_eq!(taken.is_ok(), fine, "{next}");
        }
    }

    #[test]
    fn a_deleted_record_is_caught() {
        let mut bench = Bench::new(EpochsGrow::default());
        bench.start(1);
        bench
            .partition(0, "p00", |record| record.epoch.0 = 1)
            .expect("fine");
        bench
            .delete(0, Key::Partition(PartitionId::new("p00")))
            .expect_err("gone");
    }
}
