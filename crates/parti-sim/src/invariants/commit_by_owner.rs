//! No commit or release under an old epoch: whoever writes a partition's record without taking it
//! is its owner as of the record just replaced, in the same life and under the same epoch.

use super::{Invariant, Verdict, only_settles, partition_write};
use crate::facts::{Facts, Seen};

/// See the module.
pub struct CommitByOwner;

impl Invariant for CommitByOwner {
    fn name(&self) -> &'static str {
        "no commit under an old epoch"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Verdict {
        let Some((proc, partition, before, after)) = partition_write(seen) else {
            return Ok(());
        };
        if only_settles(before, after) {
            return Ok(());
        }
        let mine = |owner: &Option<(parti_core::ids::WorkerId, parti_core::ids::Incarnation)>| {
            owner.as_ref().is_some_and(|(id, incarnation)| {
                let sessions = &facts.procs[proc].sessions;
                sessions
                    .iter()
                    .any(|known| known.id == *id && known.incarnation == *incarnation)
            })
        };
        let taken = before.is_none_or(|before| after.epoch > before.epoch);
        if taken {
            if mine(&after.owner) {
                return Ok(());
            }
            return Err(format!(
                "partition {partition}: process {proc} took it for {:?}, which it is not",
                after.owner
            ));
        }
        let Some(before) = before else { return Ok(()) };
        let kept_or_released = after.owner.is_none() || after.owner == before.owner;
        if mine(&before.owner) && after.epoch == before.epoch && kept_or_released {
            return Ok(());
        }
        Err(format!(
            "partition {partition}: process {proc} wrote epoch {} over epoch {} of {:?}",
            after.epoch, before.epoch, before.owner
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::bench::Bench;
    use parti_core::ids::Offset;

    #[test]
    fn a_commit_by_somebody_else_is_caught() {
        let mut bench = Bench::new(CommitByOwner);
        bench.start(2);
        let a = bench.claim(0, "worker-0");
        let b = bench.claim(1, "worker-1");
        bench.take(0, "p00", &a, 1).expect("a takes");
        bench
            .partition(0, "p00", |record| record.offset = Some(Offset(0)))
            .expect("a commits");
        bench.take(1, "p00", &b, 2).expect("b takes");
        bench
            .partition(0, "p00", |record| record.offset = Some(Offset(1)))
            .expect_err("a commits over b");
    }

    #[test]
    fn a_take_for_somebody_else_is_caught() {
        let mut bench = Bench::new(CommitByOwner);
        bench.start(2);
        let a = bench.claim(0, "worker-0");
        bench.take(1, "p00", &a, 1).expect_err("process 1 is not a");
    }
}
