//! A subscription that is not reliable keeps nothing: no record ever shows progress of it. A process
//! that takes a partition again, with nobody in between, goes on where it was; whoever else takes it
//! begins no later than the start position. Under one epoch nothing is skipped.

use std::collections::BTreeMap;

use parti_core::config::Ordering;
use parti_core::ids::{Epoch, Offset, PartitionId};
use parti_core::io::Job;
use parti_core::worker::{Action, Report};

use super::exact_start::not_past_start;
use super::{Invariant, Verdict, partition_write};
use crate::facts::{Facts, Seen};
use crate::seen::Proc;

/// The last lane of a partition, and how far it is by what its worker has shown.
struct Lane {
    proc: Proc,
    epoch: Epoch,
    /// The newest epoch that its process took since, with nobody in between: not every take is
    /// served, and none is reported before it is.
    taken: Epoch,
    /// The first offset that it may still begin.
    next: Offset,
    /// What it began last: that may be done or not.
    begun: Option<Offset>,
}

/// See the module.
#[derive(Default)]
pub struct KeepsNothing {
    lanes: BTreeMap<PartitionId, Lane>,
}

impl Invariant for KeepsNothing {
    fn name(&self) -> &'static str {
        "what is not reliable keeps nothing"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Verdict {
        if facts.setup.config.processing.reliable {
            return Ok(());
        }
        if let Some((proc, id, before, after)) = partition_write(seen) {
            let started = before.is_some_and(|before| before.start != after.start);
            let kept = after.offset.is_some() || !after.done_above.is_empty();
            if started || kept || after.begun.is_some() {
                return Err(format!(
                    "process {proc} wrote progress of partition {id}: {after:?}"
                ));
            }
            if let Some(lane) = self.lanes.get_mut(&PartitionId::new(id))
                && (lane.proc, lane.taken.next()) == (proc, after.epoch)
            {
                lane.taken = after.epoch;
            }
            return Ok(());
        }
        match seen {
            Seen::Acted {
                proc,
                action: Action::Report(report),
                ..
            } => self.reported(facts, *proc, report),
            Seen::CallBegan { proc, job, .. } => self.dispatched(facts, *proc, job),
            _ => Ok(()),
        }
    }
}

impl KeepsNothing {
    fn reported(&mut self, facts: &Facts, proc: Proc, report: &Report) -> Verdict {
        match report {
            Report::Taken {
                partition,
                epoch,
                next_offset,
                ..
            } => {
                let next = *next_offset;
                let own = self.lanes.get(partition);
                let own = own.filter(|lane| (lane.proc, lane.taken) == (proc, *epoch));
                match own {
                    Some(lane) => goes_on(partition, lane, next, facts)?,
                    None => not_past_start(facts, partition, next)?,
                }
                let lane = Lane {
                    proc,
                    epoch: *epoch,
                    taken: *epoch,
                    next,
                    begun: None,
                };
                self.lanes.insert(partition.clone(), lane);
            }
            Report::Released {
                partition,
                epoch,
                next_offset,
                ..
            } => {
                if let Some(lane) = self.lanes.get_mut(partition)
                    && (lane.proc, lane.epoch) == (proc, *epoch)
                {
                    lane.next = *next_offset;
                    lane.begun = None;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn dispatched(&mut self, facts: &Facts, proc: Proc, job: &Job) -> Verdict {
        let ordered = facts.setup.config.processing.ordering == Ordering::Partition;
        let (id, offset) = (&job.partition, job.message.offset);
        let Some(lane) = self.lanes.get_mut(id).filter(|lane| lane.proc == proc) else {
            return Err(format!("process {proc} handles {id}, which it never took"));
        };
        if lane.epoch != job.epoch || !ordered || lane.begun == Some(offset) {
            return Ok(());
        }
        if offset < lane.next {
            return Err(format!(
                "process {proc} handles {id}/{offset}, but is at {} already",
                lane.next
            ));
        }
        let Some(index) = facts.setup.index_of(id) else {
            return Ok(());
        };
        let partition = &facts.partitions[index];
        let passed = partition.index_from(lane.next)..partition.index_from(offset);
        let skipped = partition.messages[passed].iter();
        if let Some(skipped) = skipped.into_iter().find(|message| !message.removed) {
            return Err(format!(
                "process {proc} goes on with {id}/{offset} and skips {}",
                skipped.offset
            ));
        }
        lane.next = offset.next();
        lane.begun = Some(offset);
        Ok(())
    }
}

/// What was begun last may be done; nothing else is open.
fn goes_on(id: &PartitionId, lane: &Lane, next: Offset, facts: &Facts) -> Verdict {
    let ordered = facts.setup.config.processing.ordering == Ordering::Partition;
    let from = lane.begun.unwrap_or(lane.next);
    let Some(index) = facts.setup.index_of(id) else {
        return Ok(());
    };
    // Which offset it is does not matter, only which message comes next.
    let place = |offset| facts.partitions[index].index_from(offset);
    if !ordered || (place(from)..=place(lane.next)).contains(&place(next)) {
        return Ok(());
    }
    Err(format!(
        "process {} comes back to {id} and starts at {next}, but was at {from}",
        lane.proc
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::bench::{Bench, plain_setup};
    use parti_core::config::StartPosition;

    fn ready() -> Bench<KeepsNothing> {
        let mut setup = plain_setup();
        setup.config.processing.start = StartPosition::Earliest;
        setup.config.processing.reliable = false;
        let mut bench = Bench::with(KeepsNothing::default(), setup);
        bench.start(2);
        bench.publish("p00", &[0, 1, 2, 3]);
        bench
            .partition(0, "p00", |record| record.epoch.0 = 1)
            .expect("the first take");
        bench.report(0, taken(1, 0)).expect("at the start");
        bench.handle(0, "p00", 0).expect("the first");
        bench
    }

    fn taken(epoch: u64, next: u64) -> Report {
        Report::Taken {
            partition: PartitionId::new("p00"),
            epoch: Epoch(epoch),
            offset: None,
            next_offset: Offset(next),
            seized: false,
        }
    }

    #[test]
    fn written_progress_is_caught() {
        ready()
            .partition(0, "p00", |record| record.owner = None)
            .expect("a release");
        ready()
            .partition(0, "p00", |record| record.offset = Some(Offset(0)))
            .expect_err("a checkpoint");
    }

    fn takes(bench: &mut Bench<KeepsNothing>, proc: Proc, epoch: u64) {
        bench
            .partition(proc, "p00", |record| record.epoch.0 = epoch)
            .expect("a take");
    }

    /// A process takes the partition by the second epoch, and starts there.
    fn starts(proc: Proc, next: u64) -> Verdict {
        let mut bench = ready();
        takes(&mut bench, proc, 2);
        bench.report(proc, taken(2, next))
    }

    #[test]
    fn a_process_that_comes_back_elsewhere_is_caught() {
        starts(0, 0).expect("it was not done");
        starts(0, 1).expect("it was done");
        starts(0, 2).expect_err("skips 1");
        starts(1, 0).expect("from the start");
        starts(1, 1).expect_err("not from the start");
    }

    #[test]
    fn a_take_that_is_never_served_counts_for_its_process() {
        for (between, own) in [(0, true), (1, false)] {
            let mut bench = ready();
            takes(&mut bench, between, 2);
            takes(&mut bench, 0, 3);
            assert_eq!(bench.report(0, taken(3, 1)).is_ok(), own);
        }
    }

    #[test]
    fn a_skipped_message_is_caught() {
        ready().handle(0, "p00", 2).expect_err("skips 1");
    }
}
