//! A new owner starts exactly one past the last accepted checkpoint, wherever its consumer stands:
//! a take changes no progress, and handling skips nothing and goes below nothing.

use std::collections::BTreeMap;

use parti_core::config::{Ordering, StartPosition};
use parti_core::ids::{Epoch, Offset, PartitionId};
use parti_core::io::{Retention, SourceKind};
use parti_core::record::PartitionRecord;
use parti_core::worker::{Action, Report};

use super::{Invariant, Verdict, partition_write};
use crate::facts::{Facts, Seen};

struct Taken {
    epoch: Epoch,
    next: Offset,
    dispatched: bool,
}

/// See the module.
#[derive(Default)]
pub struct ExactStart {
    taken: BTreeMap<PartitionId, Taken>,
}

impl Invariant for ExactStart {
    fn name(&self) -> &'static str {
        "a new owner starts one past the checkpoint"
    }

    fn needs_checkpoints(&self) -> bool {
        true
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Verdict {
        if let Some((proc, id, before, after)) = partition_write(seen) {
            let taken = before.is_none_or(|before| before.epoch < after.epoch);
            if !taken {
                return Ok(());
            }
            let id = PartitionId::new(id);
            match before {
                Some(before) => same_progress(proc, &id, before, after)?,
                None => first_start(facts, &id, after)?,
            }
            let next = after.next_offset();
            self.taken.insert(
                id,
                Taken {
                    epoch: after.epoch,
                    next,
                    dispatched: false,
                },
            );
            return Ok(());
        }
        match seen {
            Seen::Acted {
                proc,
                action: Action::Report(report),
                ..
            } => {
                let Report::Taken {
                    partition,
                    epoch,
                    next_offset,
                    ..
                } = report
                else {
                    return Ok(());
                };
                let Some(taken) = self.taken.get(partition) else {
                    return Err(format!(
                        "process {proc} says it took {partition}, but nobody did"
                    ));
                };
                if taken.epoch == *epoch && taken.next != *next_offset {
                    return Err(format!(
                        "process {proc} starts partition {partition} at {next_offset}, but its \
                         record said {} when epoch {epoch} began",
                        taken.next
                    ));
                }
                Ok(())
            }
            Seen::CallBegan { proc, job, .. } => self.dispatched(facts, *proc, job),
            _ => Ok(()),
        }
    }
}

impl ExactStart {
    fn dispatched(&mut self, facts: &Facts, proc: usize, job: &parti_core::io::Job) -> Verdict {
        let Some(taken) = self.taken.get_mut(&job.partition) else {
            return Ok(());
        };
        if taken.epoch != job.epoch {
            return Ok(());
        }
        let (id, offset) = (&job.partition, job.message.offset);
        if offset < taken.next {
            return Err(format!(
                "process {proc} handles {id}/{offset}, below {} where epoch {} began",
                taken.next, job.epoch
            ));
        }
        let first = !std::mem::replace(&mut taken.dispatched, true);
        let ordered = facts.setup.config.processing.ordering == Ordering::Partition;
        if !first || !ordered {
            return Ok(());
        }
        let Some(index) = facts.setup.index_of(id) else {
            return Ok(());
        };
        let partition = &facts.partitions[index];
        let known = facts
            .partition_record(id)
            .map_or(&[][..], |record| &record.done_above);
        let passed = partition.index_from(taken.next)..partition.index_from(offset);
        // A work queue forgets what was acked, even before the checkpoint has passed it.
        let forgets = facts.setup.source == SourceKind::Stream(Retention::WorkQueue);
        let skipped = partition.messages[passed].iter().find(|message| {
            let gone = message.dead_letter || message.removed || forgets && message.is_done();
            !gone && known.binary_search(&message.offset).is_err()
        });
        match skipped {
            Some(message) => Err(format!(
                "process {proc} begins {id} under epoch {} with {offset} and skips {}",
                job.epoch, message.offset
            )),
            None => Ok(()),
        }
    }
}

fn same_progress(
    proc: usize,
    id: &PartitionId,
    before: &PartitionRecord,
    after: &PartitionRecord,
) -> Verdict {
    let same = before.offset == after.offset
        && before.start == after.start
        && before.done_above == after.done_above;
    if same {
        return Ok(());
    }
    Err(format!(
        "process {proc} took partition {id} and changed its progress from {:?} to {:?}",
        before.next_offset(),
        after.next_offset()
    ))
}

fn first_start(facts: &Facts, id: &PartitionId, after: &PartitionRecord) -> Verdict {
    not_past_start(facts, id, after.start)
}

/// A start that was resolved some time ago is not later than the start position is now.
pub(super) fn not_past_start(facts: &Facts, id: &PartitionId, start: Offset) -> Verdict {
    let Some(index) = facts.setup.index_of(id) else {
        return Ok(());
    };
    let first = facts.partitions[index]
        .messages
        .iter()
        .find(|message| !message.removed)
        .map(|message| message.offset);
    let latest = match facts.setup.config.processing.start {
        StartPosition::Earliest => first,
        StartPosition::Offset(offset) => first.map(|first| first.max(Offset(offset))),
        StartPosition::Latest | StartPosition::Time(_) => Some(facts.end_of(index).max(Offset(1))),
    };
    match latest.filter(|latest| start > *latest) {
        Some(latest) => Err(format!(
            "partition {id} starts at {start}, later than {latest}, with {:?} asked for",
            facts.setup.config.processing.start
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::bench::{Bench, plain_setup};

    fn ready() -> Bench<ExactStart> {
        let mut setup = plain_setup();
        setup.config.processing.start = StartPosition::Earliest;
        let mut bench = Bench::with(ExactStart::default(), setup);
        bench.start(2);
        bench.publish("p00", &[0, 1, 2, 3]);
        bench
            .partition(0, "p00", |record| record.epoch.0 = 1)
            .expect("the first take");
        bench
            .partition(0, "p00", |record| record.offset = Some(Offset(1)))
            .expect("a commit");
        bench
            .partition(1, "p00", |record| record.epoch.0 = 2)
            .expect("the next take");
        bench
    }

    #[test]
    fn a_start_below_or_past_the_checkpoint_is_caught() {
        ready()
            .handle(1, "p00", 2)
            .expect("one past the checkpoint");
        ready().handle(1, "p00", 1).expect_err("below");
        ready().handle(1, "p00", 3).expect_err("skips 2");
    }

    #[test]
    fn a_wrong_report_is_caught() {
        let taken = |next: u64| Report::Taken {
            partition: PartitionId::new("p00"),
            epoch: Epoch(2),
            offset: None,
            next_offset: Offset(next),
            seized: false,
        };
        ready()
            .report(1, taken(2))
            .expect("one past the checkpoint");
        ready().report(1, taken(3)).expect_err("past it");
    }

    #[test]
    fn a_take_that_moves_the_checkpoint_is_caught() {
        let mut bench = ready();
        bench
            .partition(0, "p00", |record| {
                record.epoch.0 = 3;
                record.offset = Some(Offset(2));
            })
            .expect_err("progress belongs to commits");
    }

    #[test]
    fn a_first_start_past_the_backlog_is_caught() {
        let mut setup = plain_setup();
        setup.config.processing.start = StartPosition::Earliest;
        let mut bench = Bench::with(ExactStart::default(), setup);
        bench.start(1);
        bench.publish("p00", &[0, 1]);
        bench
            .partition(0, "p00", |record| record.start = Offset(2))
            .expect_err("0 and 1 are lost");
    }
}
