//! A checkpoint never goes back, and the place where a group started never changes.

use super::{Invariant, Verdict, partition_write};
use crate::facts::{Facts, Seen};

/// See the module.
pub struct CheckpointMonotone;

impl Invariant for CheckpointMonotone {
    fn name(&self) -> &'static str {
        "checkpoints never go back"
    }

    fn see(&mut self, _facts: &Facts, seen: &Seen<'_>) -> Verdict {
        let Some((proc, partition, Some(before), after)) = partition_write(seen) else {
            return Ok(());
        };
        if after.offset < before.offset {
            return Err(format!(
                "partition {partition}: process {proc} moved the checkpoint from {:?} back to {:?}",
                before.offset, after.offset
            ));
        }
        if after.start != before.start {
            return Err(format!(
                "partition {partition}: process {proc} moved the start from {} to {}",
                before.start, after.start
            ));
        }
        let forgotten = before.done_above.iter().find(|offset| {
            after.offset < Some(**offset) && after.done_above.binary_search(offset).is_err()
        });
        match forgotten {
            Some(offset) => Err(format!(
                "partition {partition}: process {proc} forgot that offset {offset} is done"
            )),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::bench::Bench;
    use parti_core::ids::Offset;

    #[test]
    fn a_step_back_is_caught() {
        let mut bench = Bench::new(CheckpointMonotone);
        bench.start(1);
        bench
            .partition(0, "p00", |record| record.offset = Some(Offset(3)))
            .expect("forward");
        bench
            .partition(0, "p00", |record| record.offset = Some(Offset(3)))
            .expect("the same");
        bench
            .partition(0, "p00", |record| record.offset = Some(Offset(2)))
            .expect_err("back");
    }

    #[test]
    fn a_checkpoint_that_vanishes_is_caught() {
        let mut bench = Bench::new(CheckpointMonotone);
        bench.start(1);
        bench
            .partition(0, "p00", |record| record.offset = Some(Offset(0)))
            .expect("forward");
        bench
            .partition(0, "p00", |record| record.offset = None)
            .expect_err("gone");
    }

    #[test]
    fn a_done_offset_that_is_forgotten_is_caught() {
        let mut bench = Bench::new(CheckpointMonotone);
        bench.start(1);
        bench
            .partition(0, "p00", |record| {
                record.done_above = vec![Offset(4), Offset(6)]
            })
            .expect("two");
        bench
            .partition(0, "p00", |record| {
                record.offset = Some(Offset(5));
                record.done_above = vec![Offset(6)];
            })
            .expect("4 is below the checkpoint now");
        bench
            .partition(0, "p00", |record| record.done_above.clear())
            .expect_err("6 is forgotten");
    }
}
