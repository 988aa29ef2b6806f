//! A message that was begun before, by an owner that died, gets its next try alone: no second such
//! message is announced by the same process before that try has ended.
//!
//! Otherwise the counts of harmless messages grow with that of the one that kills, and all of them
//! end in the dead letters.

use std::collections::BTreeMap;

use parti_core::ids::{Epoch, Offset, PartitionId};
use parti_core::key::Key;
use parti_core::record::{PartitionRecord, Record};
use parti_core::worker::{Action, Report};

use super::{Invariant, Verdict};
use crate::facts::{Facts, Proc, Seen};

/// See the module.
#[derive(Default)]
pub struct SuspectsAlone {
    tries: BTreeMap<Proc, BTreeMap<PartitionId, (Epoch, Offset)>>,
}

impl Invariant for SuspectsAlone {
    fn name(&self) -> &'static str {
        "a message that was begun before is tried alone"
    }

    fn see(&mut self, _: &Facts, seen: &Seen<'_>) -> Verdict {
        match seen {
            Seen::Wrote {
                proc,
                key: Key::Partition(id),
                old,
                new: Some(Record::Partition(new)),
                ..
            } => {
                let old = old.and_then(|old| match &old.record {
                    Record::Partition(old) => Some(&**old),
                    _ => None,
                });
                return self.wrote(*proc, id, old, new);
            }
            Seen::CallEnded { proc, job, .. } | Seen::CallLost { proc, job } => {
                self.ended(*proc, &job.partition);
            }
            Seen::Acted {
                proc,
                action: Action::Report(report),
                ..
            } => match report {
                Report::SessionLost => drop(self.tries.remove(proc)),
                Report::Fenced { partition, .. } | Report::Released { partition, .. } => {
                    self.ended(*proc, partition);
                }
                _ => {}
            },
            Seen::Crashed { proc } | Seen::Ended { proc, .. } => drop(self.tries.remove(proc)),
            _ => {}
        }
        Ok(())
    }
}

impl SuspectsAlone {
    fn ended(&mut self, proc: Proc, id: &PartitionId) {
        if let Some(tries) = self.tries.get_mut(&proc) {
            tries.remove(id);
        }
    }

    fn wrote(
        &mut self,
        proc: Proc,
        id: &PartitionId,
        old: Option<&PartitionRecord>,
        new: &PartitionRecord,
    ) -> Verdict {
        if old.is_some_and(|old| old.epoch != new.epoch) {
            // A new owner: whatever another process tries there ends without an effect.
            for tries in self.tries.values_mut() {
                tries.remove(id);
            }
        }
        let announced = new.begun.filter(|begun| begun.times > 1);
        let Some(begun) = announced.filter(|_| old.and_then(|old| old.begun) != new.begun) else {
            return Ok(());
        };
        let tries = self.tries.entry(proc).or_default();
        tries.insert(id.clone(), (new.epoch, begun.offset));
        if let Some((other, (_, offset))) = tries.iter().find(|(other, _)| *other != id) {
            return Err(format!(
                "process {proc} announced {id}/{} for the {}th time, while its try of \
                 {other}/{offset} had not ended",
                begun.offset, begun.times
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use parti_core::record::Begun;

    use super::*;
    use crate::invariants::bench::Bench;

    fn announce(bench: &mut Bench<SuspectsAlone>, id: &str, offset: u64, times: u32) -> Verdict {
        let offset = Offset(offset);
        bench.partition(0, id, |record| {
            record.begun = Some(Begun { offset, times });
        })
    }

    #[test]
    fn two_tries_at_once_are_caught() {
        let mut bench = Bench::new(SuspectsAlone::default());
        bench.start(1);
        bench.publish("p00", &[4]);
        announce(&mut bench, "p00", 4, 2).expect("alone");
        announce(&mut bench, "p01", 7, 1).expect("never begun before");
        announce(&mut bench, "p01", 7, 2).expect_err("the first one has not ended");
    }

    #[test]
    fn one_after_the_other_is_fine() {
        let mut bench = Bench::new(SuspectsAlone::default());
        bench.start(1);
        bench.publish("p00", &[4]);
        announce(&mut bench, "p00", 4, 2).expect("alone");
        bench.handle(0, "p00", 4).expect("announced");
        bench.done(0, "p00", 4);
        announce(&mut bench, "p01", 7, 2).expect("the first one has ended");
    }
}
