//! A checkpoint never passes a message that nobody finished: everything from the group's start up
//! to it was handled to completion or is in the dead letters.

use super::{Invariant, Verdict, partition_write};
use crate::facts::{Facts, Seen};

/// See the module.
pub struct CheckpointDone;

impl Invariant for CheckpointDone {
    fn name(&self) -> &'static str {
        "checkpoints never pass the contiguous done offset"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Verdict {
        let Some((proc, id, _, after)) = partition_write(seen) else {
            return Ok(());
        };
        let Some(index) = facts.setup.index_of(&parti_core::ids::PartitionId::new(id)) else {
            return Ok(());
        };
        let partition = &facts.partitions[index];
        if let Some(offset) = after.offset {
            if offset >= after.start && offset >= facts.end_of(index) {
                return Err(format!(
                    "partition {id}: process {proc} committed {offset}, beyond the end of the log"
                ));
            }
            if let Some(open) = partition.first_open().filter(|open| open.offset <= offset) {
                return Err(format!(
                    "partition {id}: process {proc} committed {offset}, but {} is not done",
                    open.offset
                ));
            }
        }
        let undone = after.done_above.iter().find(|offset| {
            !partition
                .message(**offset)
                .is_some_and(|message| message.is_done())
        });
        match undone {
            Some(offset) => Err(format!(
                "partition {id}: process {proc} recorded {offset} as done above the checkpoint, \
                 but it is not"
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
    fn a_checkpoint_past_an_open_message_is_caught() {
        let mut bench = Bench::new(CheckpointDone);
        bench.start(1);
        bench.publish("p00", &[0, 1, 2]);
        bench
            .partition(0, "p00", |record| record.epoch.0 = 1)
            .expect("a take");
        bench.handle(0, "p00", 0).expect("starts");
        bench.done(0, "p00", 0);
        bench
            .partition(0, "p00", |record| record.offset = Some(Offset(0)))
            .expect("0 is done");
        bench
            .handle(0, "p00", 2)
            .expect("not this promise's business");
        bench.done(0, "p00", 2);
        bench
            .partition(0, "p00", |record| record.offset = Some(Offset(2)))
            .expect_err("1 is open");
    }

    #[test]
    fn an_open_message_recorded_as_done_is_caught() {
        let mut bench = Bench::new(CheckpointDone);
        bench.start(1);
        bench.publish("p00", &[0, 1, 2]);
        bench.handle(0, "p00", 2).expect("starts");
        bench.done(0, "p00", 2);
        bench
            .partition(0, "p00", |record| record.done_above = vec![Offset(2)])
            .expect("it is");
        bench
            .partition(0, "p00", |record| record.done_above = vec![Offset(1)])
            .expect_err("open");
    }

    #[test]
    fn a_dead_letter_counts_as_done() {
        let mut bench = Bench::new(CheckpointDone);
        bench.start(1);
        bench.publish("p00", &[0]);
        bench
            .partition(0, "p00", |record| record.epoch.0 = 1)
            .expect("a take");
        bench.dead_letter("p00", 0);
        bench
            .partition(0, "p00", |record| record.offset = Some(Offset(0)))
            .expect("dead-lettered");
    }
}
