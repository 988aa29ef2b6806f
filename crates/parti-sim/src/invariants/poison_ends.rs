//! A message that kills its process does not crash the group in a circle.
//!
//! It kills at most `max_deliver` times after it was announced (`begun` in the partition's record),
//! and is a dead letter then. Unannounced it kills once, when nobody could suspect anything, and
//! after that only when so many messages succeeded in between that suspicion was over.

use std::collections::BTreeMap;

use parti_core::ids::{Offset, PartitionId};
use parti_core::io::{HandlerResult, Job};

use super::{Invariant, Verdict};
use crate::facts::{Facts, Seen};

#[derive(Clone, Copy, Default)]
struct Kills {
    announced: u32,
    unannounced: u32,
}

/// See the module.
#[derive(Default)]
pub struct PoisonEnds {
    kills: BTreeMap<(PartitionId, Offset), Kills>,
    /// How many messages were done since the partition last lost a process.
    successes: BTreeMap<PartitionId, u32>,
}

impl Invariant for PoisonEnds {
    fn name(&self) -> &'static str {
        "a process-killing message ends in the dead letters"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Verdict {
        if facts.setup.traffic.killers == 0 {
            return Ok(());
        }
        match seen {
            Seen::CallEnded {
                job,
                result: HandlerResult::Done,
                ..
            } => {
                *self.successes.entry(job.partition.clone()).or_default() += 1;
                Ok(())
            }
            Seen::CallLost { proc, job } => self.killed(facts, *proc, job),
            _ => Ok(()),
        }
    }
}

impl PoisonEnds {
    fn killed(&mut self, facts: &Facts, proc: usize, job: &Job) -> Verdict {
        let (id, offset) = (&job.partition, job.message.offset);
        let Some(index) = facts.setup.index_of(id) else {
            return Ok(());
        };
        if !facts.partitions[index]
            .message(offset)
            .is_some_and(|message| message.killer)
        {
            return Ok(());
        }
        let begun = facts.partition_record(id).and_then(|record| record.begun);
        let kills = self.kills.entry((id.clone(), offset)).or_default();
        if begun.is_some_and(|begun| begun.offset == offset) {
            self.successes.insert(id.clone(), 0);
            kills.announced += 1;
            let allowed = facts.setup.config.jetstream.max_deliver;
            if kills.announced > allowed {
                return Err(format!(
                    "{id}/{offset} killed process {proc}: announced kill number {}, where {allowed} \
                     are enough",
                    kills.announced
                ));
            }
            return Ok(());
        }
        kills.unannounced += 1;
        let successes = self.successes.insert(id.clone(), 0).unwrap_or_default();
        let wanted = facts.setup.config.processing.suspicion_successes;
        if kills.unannounced > 1 && successes < wanted {
            return Err(format!(
                "{id}/{offset} killed process {proc} unannounced again, though only {successes} \
                 messages succeeded in between"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::bench::{Bench, plain_setup};
    use parti_core::record::Begun;

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
}
