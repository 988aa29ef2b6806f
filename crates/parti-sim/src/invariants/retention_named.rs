//! What retention removed before anybody had handled it is named and counted, by whoever came too
//! late for it; and nothing is called removed that is still there. A server passes over what it was
//! about to deliver without a word: who it was for finds out, if it lives long enough, and if the
//! message was kept long enough to be missed.

use parti_core::ids::{Offset, PartitionId};
use parti_core::worker::{Action, Report, Trouble};

use super::{Invariant, Verdict};
use crate::facts::{Facts, Life, MessageFacts, Proc, Seen};
use crate::setup::{Micros, SECOND};

/// What is kept for a shorter time is not missed: so long a worker may lag without a look, with the
/// ways there and back.
const KEPT: Micros = 2 * SECOND;
/// By then, whoever was passed over has said so.
const NOTICED: Micros = 12 * SECOND;

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
                action: Action::Report(Report::Trouble(trouble)),
                ..
            } => match trouble {
                Trouble::RetentionOvertook {
                    partition,
                    first,
                    lost,
                } => {
                    let from = Offset(first.0.saturating_sub(*lost));
                    self.name(facts, *proc, partition, (from, *first))
                }
                Trouble::RetentionPassed {
                    partitions,
                    from,
                    first,
                    ..
                } => partitions
                    .iter()
                    .try_for_each(|p| self.name(facts, *proc, p, (*from, *first))),
                _ => Ok(()),
            },
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
            if let Some(silent) = wanted.iter().find(|message| {
                message.is_overtaken() && !named(message.offset) && !is_excused(facts, message)
            }) {
                return Err(format!(
                    "{}/{} was removed before it was handled, and nobody said so",
                    partition.id, silent.offset
                ));
            }
        }
        Ok(())
    }
}

impl RetentionNamed {
    fn name(
        &mut self,
        facts: &Facts,
        proc: Proc,
        partition: &PartitionId,
        (from, first): (Offset, Offset),
    ) -> Verdict {
        let Some(index) = facts.setup.index_of(partition) else {
            return Err(format!("process {proc} speaks of {partition}"));
        };
        let messages = &facts.partitions[index];
        let span = messages.index_from(from)..messages.index_from(first);
        let kept = messages.messages[span]
            .iter()
            .find(|message| !message.removed);
        if let Some(kept) = kept {
            return Err(format!(
                "process {proc} calls {partition}/{} removed, which is there",
                kept.offset
            ));
        }
        self.partitions[index].named.push((from, first));
        Ok(())
    }
}

/// Whether nobody can know of it: it was on its way to somebody, and it was there for too short a
/// time to be missed, or they did not live to say so.
fn is_excused(facts: &Facts, message: &MessageFacts) -> bool {
    let Some((at, proc)) = message.passed else {
        return false;
    };
    let proc = &facts.procs[proc];
    let over = match proc.life {
        Life::Crashed(when) | Life::Ended(when) => Some(when),
        Life::Running | Life::Paused(_) => None,
    };
    let cut_short = |when: &Micros| (at..at + NOTICED).contains(when);
    at < message.published + KEPT || proc.ends.iter().chain(&over).any(cut_short)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::bench::Bench;

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
            passed: &[],
        };
        bench.see(trimmed).expect("it happens");
        bench.settled().expect_err("1 is gone");
        bench.report(0, overtook(2, 1)).expect("it is gone");
        bench.settled().expect("named");
        bench.report(0, overtook(3, 1)).expect_err("2 is there");
    }
}
