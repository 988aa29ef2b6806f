//! At most one process ever writes a partition's record under one epoch.

use std::collections::BTreeMap;

use parti_core::ids::Epoch;

use super::{Invariant, Verdict, only_settles, partition_write};
use crate::facts::{Facts, Proc, Seen};

/// See the module.
#[derive(Default)]
pub struct OneCommitter {
    writers: BTreeMap<(String, Epoch), Proc>,
}

impl Invariant for OneCommitter {
    fn name(&self) -> &'static str {
        "one committer per partition and epoch"
    }

    fn see(&mut self, _facts: &Facts, seen: &Seen<'_>) -> Verdict {
        let Some((proc, partition, before, after)) = partition_write(seen) else {
            return Ok(());
        };
        if only_settles(before, after) {
            return Ok(());
        }
        let writer = *self
            .writers
            .entry((partition.to_owned(), after.epoch))
            .or_insert(proc);
        if writer == proc {
            return Ok(());
        }
        Err(format!(
            "partition {partition}, epoch {}: process {writer} wrote before, now process {proc} did",
            after.epoch
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::bench::Bench;
    use parti_core::ids::{Nonce, Offset};

    #[test]
    fn a_second_writer_under_one_epoch_is_caught() {
        let mut bench = Bench::new(OneCommitter::default());
        bench.start(2);
        bench
            .partition(0, "p00", |record| record.epoch.0 = 1)
            .expect("the first writer is fine");
        bench
            .partition(0, "p00", |record| record.offset = Some(Offset(1)))
            .expect("it may write again");
        bench
            .partition(1, "p00", |record| record.epoch.0 = 2)
            .expect("a new epoch is fine");
        bench
            .partition(0, "p00", |record| record.nonce = Nonce(7))
            .expect("that only settles something");
        bench
            .partition(0, "p00", |record| record.offset = Some(Offset(2)))
            .expect_err("epoch 2 belongs to process 1");
    }
}
