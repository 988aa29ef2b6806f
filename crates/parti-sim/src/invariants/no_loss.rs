//! No loss: in the end every message from the group's start on was handled to completion or is in
//! the dead letters, and only what kept failing is there.

use super::{Invariant, Verdict};
use crate::facts::Facts;

/// See the module.
pub struct NoLoss;

impl Invariant for NoLoss {
    fn name(&self) -> &'static str {
        "no loss"
    }

    fn needs_checkpoints(&self) -> bool {
        true
    }

    fn settled(&self, facts: &Facts) -> Verdict {
        for (partition, known) in facts.setup.partitions.iter().zip(&facts.partitions) {
            let Some(start) = known.start else {
                if known.messages.is_empty() {
                    continue;
                }
                return Err(format!("partition {} was never started", partition.id));
            };
            let wanted = &known.messages[known.index_from(start)..];
            if let Some(open) = wanted.iter().find(|message| !message.is_done()) {
                return Err(format!(
                    "{}/{} (published at {} µs) was never handled to completion",
                    partition.id, open.offset, open.published
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::bench::Bench;
    use parti_core::ids::Offset;

    #[test]
    fn a_lost_message_is_caught() {
        let mut bench = Bench::new(NoLoss);
        bench.start(1);
        bench.publish("p00", &[0, 1, 2]);
        bench.settled().expect_err("never started");
        bench
            .partition(0, "p00", |record| record.start = Offset(1))
            .expect("fine");
        bench.handle(0, "p00", 2).expect("fine");
        bench.done(0, "p00", 2);
        assert!(bench.settled().is_err_and(|why| why.contains("p00/1")));
        bench.dead_letter("p00", 1);
        bench.settled().expect("0 was before the start");
    }
}
