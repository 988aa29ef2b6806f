//! A message that kills its process does not crash the group in a circle.
//!
//! It kills at most `max_deliver` times after it was announced (`begun` in the partition's record),
//! and is a dead letter then. Unannounced it kills once, when nobody could suspect anything, and
//! after that only when so many messages succeeded in between that suspicion was over.
//!
//! What counts is what was known when the call began: a process that stood still in its call may
//! die of it long after another owner announced the message.

use std::collections::BTreeMap;

use parti_core::ids::{Epoch, Offset, PartitionId};
use parti_core::io::{HandlerResult, Job};
use parti_core::record::Begun;

use super::{Invariant, Verdict};
use crate::facts::{Facts, Proc, Seen};

/// What was known when a deadly call began.
#[derive(Clone, Copy)]
enum Known {
    /// It was announced.
    Announced,
    /// It was not, and did not have to be.
    Unannounced,
    /// It was not, though it had killed before and only so many messages succeeded since.
    Overlooked(u32),
}

/// See the module.
#[derive(Default)]
pub struct PoisonEnds {
    calls: BTreeMap<(Proc, PartitionId, Epoch, Offset), Known>,
    /// How often a message killed, and how often it was announced then.
    kills: BTreeMap<(PartitionId, Offset), (u32, u32)>,
    /// How many messages were done since the partition last lost a process.
    successes: BTreeMap<PartitionId, u32>,
}

impl Invariant for PoisonEnds {
    fn name(&self) -> &'static str {
        "a process-killing message ends in the dead letters"
    }

    fn needs_checkpoints(&self) -> bool {
        true
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Verdict {
        if facts.setup.traffic.killers == 0 {
            return Ok(());
        }
        match seen {
            Seen::CallBegan { proc, job, .. } => self.begins(facts, *proc, job),
            Seen::CallEnded {
                job,
                result: HandlerResult::Done,
                ..
            } => {
                *self.successes.entry(job.partition.clone()).or_default() += 1;
            }
            Seen::CallLost { proc, job } => return self.killed(facts, *proc, job),
            _ => {}
        }
        Ok(())
    }
}

fn call(proc: Proc, job: &Job) -> (Proc, PartitionId, Epoch, Offset) {
    let (partition, offset) = (job.partition.clone(), job.message.offset);
    (proc, partition, job.epoch, offset)
}

impl PoisonEnds {
    fn begins(&mut self, facts: &Facts, proc: Proc, job: &Job) {
        let (id, offset) = (&job.partition, job.message.offset);
        let Some(index) = facts.setup.index_of(id) else {
            return;
        };
        let message = facts.partitions[index].message(offset);
        if !message.is_some_and(|message| message.killer) {
            return;
        }
        let announced = facts.partition_record(id).is_some_and(|record| {
            let begun = |begun: Begun| begun.offset == offset && begun.times > 0;
            record.epoch == job.epoch && record.begun.is_some_and(begun)
        });
        let successes = self.successes.get(id).copied().unwrap_or_default();
        let wanted = facts.setup.config.processing.suspicion_successes;
        let has_killed = self.kills.contains_key(&(id.clone(), offset));
        let known = if announced {
            Known::Announced
        } else if has_killed && successes < wanted {
            Known::Overlooked(successes)
        } else {
            Known::Unannounced
        };
        self.calls.insert(call(proc, job), known);
    }

    fn killed(&mut self, facts: &Facts, proc: Proc, job: &Job) -> Verdict {
        let Some(known) = self.calls.remove(&call(proc, job)) else {
            return Ok(());
        };
        let (id, offset) = (&job.partition, job.message.offset);
        self.successes.insert(id.clone(), 0);
        let (times, announced) = self.kills.entry((id.clone(), offset)).or_default();
        *times += 1;
        let allowed = facts.setup.config.jetstream.max_deliver;
        match known {
            Known::Announced => *announced += 1,
            Known::Unannounced => return Ok(()),
            Known::Overlooked(successes) => {
                return Err(format!(
                    "{id}/{offset} killed process {proc} unannounced again (kill number {times}), \
                     though only {successes} messages succeeded in between"
                ));
            }
        }
        if *announced > allowed {
            return Err(format!(
                "{id}/{offset} killed process {proc}: announced kill number {announced}, where \
                 {allowed} are enough"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::bench::{Bench, plain_setup};

    fn ready() -> Bench<PoisonEnds> {
        let mut setup = plain_setup();
        setup.traffic.killers = 1;
        let mut bench = Bench::with(PoisonEnds::default(), setup);
        bench.start(1);
        bench.publish("p00", &[0, 1, 2, 3]);
        let seen = Seen::Published {
            partition: 0,
            offset: Offset(4),
            key: 0,
            killer: true,
        };
        bench.see(seen).expect("fine");
        bench
    }

    fn kill(bench: &mut Bench<PoisonEnds>) -> Verdict {
        bench.handle(0, "p00", 4).expect("fine");
        let job = bench.job("p00", 4);
        bench.see(Seen::CallLost { proc: 0, job: &job })
    }

    #[test]
    fn a_circle_of_announced_crashes_is_caught() {
        let mut bench = ready();
        kill(&mut bench).expect("nobody could know");
        for times in 1..=4 {
            let begun = Some(Begun {
                offset: Offset(4),
                times,
            });
            bench
                .partition(0, "p00", |record| record.begun = begun)
                .expect("fine");
            // The default of `max_deliver` is 3.
            assert_eq!(kill(&mut bench).is_ok(), times <= 3);
        }
    }

    #[test]
    fn an_unannounced_crash_in_suspicion_is_caught() {
        let mut bench = ready();
        kill(&mut bench).expect("nobody could know");
        for offset in [0, 1, 2] {
            bench.handle(0, "p00", offset).expect("fine");
            bench.done(0, "p00", offset);
        }
        kill(&mut bench).expect("three successes end suspicion");
        bench
            .partition(0, "p00", |record| record.epoch.0 = 1)
            .expect("the next owner");
        kill(&mut bench).expect_err("it had no success yet");
    }

    #[test]
    fn a_late_death_in_a_call_from_before_the_announcements_is_no_announced_one() {
        let mut bench = ready();
        bench.start(1);
        // Process 1 stands still in its call. Its successors announce.
        bench.handle(1, "p00", 4).expect("fine");
        let stale = bench.job("p00", 4);
        for times in 1..=3 {
            let announce = |record: &mut parti_core::record::PartitionRecord| {
                record.epoch.0 += 1;
                record.begun = Some(Begun {
                    offset: Offset(4),
                    times,
                });
            };
            bench.partition(0, "p00", announce).expect("fine");
            if times == 2 {
                bench
                    .see(Seen::CallLost {
                        proc: 1,
                        job: &stale,
                    })
                    .expect("nobody could know when it began");
            }
            kill(&mut bench).expect("three are allowed");
        }
    }
}
