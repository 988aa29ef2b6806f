//! Lag drains: once the faults are over, every partition's checkpoint reaches the end of its log,
//! and no handler call runs any more.
//!
//! A work queue forgets what was acked, even where a crash came before the checkpoint: there only
//! what is open counts as lag.

use parti_core::io::{Retention, SourceKind};

use super::{Invariant, Verdict};
use crate::facts::Facts;

/// See the module.
pub struct Drained;

impl Invariant for Drained {
    fn name(&self) -> &'static str {
        "lag is drained in the end"
    }

    fn needs_checkpoints(&self) -> bool {
        true
    }

    fn settled(&self, facts: &Facts) -> Verdict {
        for (proc, known) in facts
            .procs
            .iter()
            .enumerate()
            .filter(|(_, proc)| proc.is_alive())
        {
            if let Some(call) = known.calls.first() {
                let id = &facts.setup.partitions[call.partition].id;
                return Err(format!("process {proc} still handles {id}/{}", call.offset));
            }
        }
        let forgets = facts.setup.source == SourceKind::Stream(Retention::WorkQueue);
        for (partition, known) in facts.setup.partitions.iter().zip(&facts.partitions) {
            let mut rest = known.messages.iter().rev();
            let last = if forgets {
                rest.find(|message| !message.is_done())
            } else {
                // What retention took leaves no checkpoint behind, be it handled or not: a crash may
                // have come before the checkpoint, and the next owner finds nothing there.
                rest.find(|message| !message.removed)
            };
            let Some(last) = last else {
                continue;
            };
            let record = facts.partition_record(&partition.id);
            let Some(next) = record.map(|record| record.next_offset()) else {
                return Err(format!("partition {} has no checkpoint", partition.id));
            };
            if next <= last.offset {
                return Err(format!(
                    "partition {}: the checkpoint is at {next}, the log ends with {}",
                    partition.id, last.offset
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
    fn lag_and_running_calls_are_not_settled() {
        let mut bench = Bench::new(Drained);
        bench.start(1);
        bench.publish("p00", &[0, 1]);
        bench.settled().expect_err("never taken");
        bench
            .partition(0, "p00", |record| record.offset = Some(Offset(0)))
            .expect("fine");
        bench.settled().expect_err("1 is open");
        bench
            .partition(0, "p00", |record| record.offset = Some(Offset(1)))
            .expect("fine");
        bench.settled().expect("all done");
        bench.handle(0, "p00", 1).expect("fine");
        bench.settled().expect_err("a call runs");
    }
}
