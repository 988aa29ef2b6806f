//! A move pauses its partition only once the new owner is ready: the leader takes a partition from
//! a live owner's `serve` only after whoever prepares it has said so, to this very prepare or a
//! later version.

use std::collections::BTreeMap;

use parti_core::ids::{Incarnation, PartitionId, Version, WorkerId};
use parti_core::key::Key;
use parti_core::record::{AssignmentRecord, Record};

use super::{Invariant, Verdict};
use crate::facts::{Facts, Seen};

/// See the module.
#[derive(Default)]
pub struct RevokeNeedsReady {
    /// Since which version each worker prepares a partition without a break.
    since: BTreeMap<(WorkerId, PartitionId), Version>,
    /// The highest version that each life of a worker said ready to.
    ready: BTreeMap<(WorkerId, Incarnation, PartitionId), Version>,
}

impl Invariant for RevokeNeedsReady {
    fn name(&self) -> &'static str {
        "a partition is revoked only when its new owner is ready"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Verdict {
        let Seen::Wrote {
            key,
            revision,
            old,
            new,
            ..
        } = seen
        else {
            return Ok(());
        };
        match (key, new) {
            (Key::Worker(id), Some(Record::Worker(record))) => {
                let life = record.incarnation_at(*revision);
                let ready = &record.ready;
                for partition in &ready.partitions {
                    let said = self
                        .ready
                        .entry((id.clone(), life, partition.clone()))
                        .or_default();
                    *said = (*said).max(ready.version);
                }
                Ok(())
            }
            (Key::Assignment(id), new) => {
                let before = old.and_then(|stored| assignment(&stored.record));
                let after = new.and_then(assignment);
                self.take_in(id, before, after);
                match (before, after) {
                    (Some(before), Some(after)) => self.check(facts, id, before, after),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}

impl RevokeNeedsReady {
    fn take_in(
        &mut self,
        id: &WorkerId,
        before: Option<&AssignmentRecord>,
        after: Option<&AssignmentRecord>,
    ) {
        // Another life starts anew, whatever the one before was told.
        let same_life = |before: &AssignmentRecord, after: &AssignmentRecord| {
            before.incarnation == after.incarnation
        };
        for (partition, _) in before.iter().flat_map(|record| &record.prepare) {
            let goes_on = |after: &AssignmentRecord| {
                prepares(after, partition) && before.is_some_and(|before| same_life(before, after))
            };
            if !after.is_some_and(goes_on) {
                self.since.remove(&(id.clone(), partition.clone()));
            }
        }
        let Some(after) = after else {
            return;
        };
        for (partition, _) in &after.prepare {
            self.since
                .entry((id.clone(), partition.clone()))
                .or_insert(after.version);
        }
    }

    fn check(
        &self,
        facts: &Facts,
        id: &WorkerId,
        before: &AssignmentRecord,
        after: &AssignmentRecord,
    ) -> Verdict {
        let lives = |id: &WorkerId, life: Incarnation| {
            facts
                .session_record(id)
                .is_some_and(|(record, present)| present == life && !record.status.is_over())
        };
        // A new leader may have found less than there was, by a stale read; that costs time only.
        let same = before.incarnation == after.incarnation && before.term == after.term;
        if !same || !lives(id, after.incarnation) {
            return Ok(());
        }
        for partition in &before.serve {
            let removed = facts
                .setup
                .index_of(partition)
                .is_some_and(|index| facts.partitions[index].unlisted);
            // An operator's pause waits for nobody.
            let paused = facts
                .overrides()
                .is_some_and(|overrides| overrides.pauses(partition));
            if removed || paused || after.serve.binary_search(partition).is_ok() {
                continue;
            }
            let mut waiting = None;
            for (key, stored) in &facts.records {
                let (Key::Assignment(to), Some(record)) = (key, assignment(&stored.record)) else {
                    continue;
                };
                if to == id || !prepares(record, partition) || !lives(to, record.incarnation) {
                    continue;
                }
                let since = self.since.get(&(to.clone(), partition.clone()));
                // A prepare that is younger than the revoke belongs to another move: whoever was
                // ready for this one went while the revoke was on its way.
                if since > Some(&after.version) {
                    continue;
                }
                let said = (to.clone(), record.incarnation, partition.clone());
                if self.ready.get(&said) >= since {
                    waiting = None;
                    break;
                }
                waiting = Some((to, since));
            }
            if let Some((to, since)) = waiting {
                return Err(format!(
                    "{partition} was taken from {id} by version {}, but {to}, which prepares it since \
                     version {since:?}, is not ready",
                    after.version
                ));
            }
        }
        Ok(())
    }
}

fn assignment(record: &Record) -> Option<&AssignmentRecord> {
    match record {
        Record::Assignment(record) => Some(record),
        _ => None,
    }
}

fn prepares(record: &AssignmentRecord, partition: &PartitionId) -> bool {
    record.prepare.iter().any(|(id, _)| id == partition)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::bench::{Bench, Session};
    use parti_core::ids::{Nonce, Term};
    use parti_core::record::Lifecycle;
    use std::sync::Arc;

    fn told(
        bench: &mut Bench<RevokeNeedsReady>,
        to: &Session,
        version: u64,
        serve: &[&str],
        prepare: &[&str],
    ) -> Verdict {
        let id = |name: &&str| PartitionId::new(name);
        let owner = WorkerId::new("worker-0");
        let record = AssignmentRecord {
            version: Version(version),
            term: Term(1),
            incarnation: to.incarnation,
            lifecycle: Lifecycle::Stable,
            serve: serve.iter().map(id).collect(),
            prepare: prepare
                .iter()
                .map(|name| (id(name), owner.clone()))
                .collect(),
            release: Vec::new(),
            added: Vec::new(),
            nonce: Nonce(version),
        };
        let key = Key::Assignment(to.id.clone());
        bench.write(0, key, Some(Record::Assignment(Arc::new(record))))
    }

    fn says_ready(bench: &mut Bench<RevokeNeedsReady>, who: &Session, version: u64) {
        let said = bench.session(1, who, |record| {
            record.ready.version = Version(version);
            record.ready.partitions = vec![PartitionId::new("p00")];
        });
        said.expect("saying so breaks nothing");
    }

    #[test]
    fn a_revoke_before_the_new_owner_is_ready_is_caught() {
        let mut bench = Bench::new(RevokeNeedsReady::default());
        bench.start(2);
        let (a, b) = (bench.claim(0, "worker-0"), bench.claim(1, "worker-1"));
        told(&mut bench, &a, 1, &["p00"], &[]).expect("fine");
        told(&mut bench, &b, 2, &[], &["p00"]).expect("fine");
        told(&mut bench, &a, 3, &[], &[]).expect_err("nobody is ready");
    }

    #[test]
    fn a_leftover_of_an_older_prepare_does_not_count() {
        let mut bench = Bench::new(RevokeNeedsReady::default());
        bench.start(2);
        let (a, b) = (bench.claim(0, "worker-0"), bench.claim(1, "worker-1"));
        told(&mut bench, &a, 1, &["p00"], &[]).expect("fine");
        told(&mut bench, &b, 2, &[], &["p00"]).expect("fine");
        says_ready(&mut bench, &b, 2);
        told(&mut bench, &b, 3, &[], &[]).expect("rolled back");
        told(&mut bench, &b, 4, &[], &["p00"]).expect("again");
        told(&mut bench, &a, 5, &[], &[]).expect_err("that was for version 2");
        told(&mut bench, &a, 6, &["p00"], &[]).expect("fine");
        says_ready(&mut bench, &b, 4);
        told(&mut bench, &a, 7, &[], &[]).expect("now it is");
    }
}
