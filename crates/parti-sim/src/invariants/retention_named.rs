//! What retention removed before anybody had handled it is named and counted, by whoever came too
//! late for it; and nothing is called removed that is still there. One thing is left out: what a
//! server was about to deliver to who keeps asking, and passes over without a word.

use parti_core::ids::Offset;
use parti_core::worker::{Action, Report, Trouble};

use super::{Invariant, Verdict};
use crate::facts::{Facts, Seen};

/// See the module.
#[derive(Default)]
pub struct RetentionNamed {
    /// Where retention stands, and what was named as lost, by partition.
    partitions: Vec<Known>,
}

#[derive(Clone, Default)]
struct Known {
    first: Offset,
    /// Spans of offsets: from, and up to but not with.
    named: Vec<(Offset, Offset)>,
}

impl Invariant for RetentionNamed {
    fn name(&self) -> &'static str {
        "what retention overtook is named"
    }

    fn needs_checkpoints(&self) -> bool {
        true
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Verdict {
        self.partitions
            .resize(facts.setup.partitions.len(), Known::default());
        match seen {
            Seen::Trimmed {
                partition, first, ..
            } => {
                let known = &mut self.partitions[*partition];
                known.first = known.first.max(*first);
                Ok(())
            }
            Seen::Acted {
                proc,
                action:
                    Action::Report(Report::Trouble(Trouble::RetentionOvertook {
                        partition,
                        first,
                        lost,
                    })),
                ..
            } => {
                let Some(index) = facts.setup.index_of(partition) else {
                    return Err(format!("process {proc} speaks of {partition}"));
                };
                let known = &mut self.partitions[index];
                let messages = &facts.partitions[index];
                let from = Offset(first.0.saturating_sub(*lost));
                let span = messages.index_from(from)..messages.index_from(*first);
                let kept = messages.messages[span]
                    .iter()
                    .find(|message| !message.removed);
                if let Some(kept) = kept {
                    return Err(format!(
                        "process {proc} calls {partition}/{} removed, which is there",
                        kept.offset
                    ));
                }
                known.named.push((from, *first));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn settled(&self, facts: &Facts) -> Verdict {
        for ((partition, messages), known) in facts
            .setup
            .partitions
            .iter()
            .zip(&facts.partitions)
            .zip(&self.partitions)
        {
            let Some(start) = messages.start else {
                continue;
            };
            let named = |offset: Offset| {
                let within = |(from, upto): &(Offset, Offset)| *from <= offset && offset < *upto;
                known.named.iter().any(within)
            };
            let wanted = &messages.messages[messages.index_from(start)..];
            if let Some(silent) = wanted
                .iter()
                .find(|message| message.is_overtaken() && !named(message.offset))
            {
                return Err(format!(
                    "{}/{} was removed before it was handled, and nobody said so",
                    partition.id, silent.offset
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
    use parti_core::ids::PartitionId;

    fn overtook(first: u64, lost: u64) -> Report {
        Report::Trouble(Trouble::RetentionOvertook {
            partition: PartitionId::new("p00"),
            first: Offset(first),
            lost,
        })
    }

    #[test]
    fn a_loss_that_nobody_names_is_caught() {
        let mut bench = Bench::new(RetentionNamed::default());
        bench.start(1);
        bench.publish("p00", &[0, 1, 2, 3]);
        bench
            .partition(0, "p00", |record| record.start = Offset(0))
            .expect("fine");
        bench.handle(0, "p00", 0).expect("fine");
        bench.done(0, "p00", 0);
        let trimmed = Seen::Trimmed {
            partition: 0,
            first: Offset(2),
            unnoticed: &[],
        };
        bench.see(trimmed).expect("it happens");
        bench.settled().expect_err("1 is gone");
        bench.report(0, overtook(2, 1)).expect("it is gone");
        bench.settled().expect("named");
        bench.report(0, overtook(3, 1)).expect_err("2 is there");
    }
}
