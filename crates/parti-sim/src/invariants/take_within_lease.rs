//! No partition is taken after the worker's own lease deadline: the time its last accepted renewal
//! was *sent*, plus the lease, by its own clock. What was asked for before may still land.

use parti_core::io::StoreOp;
use parti_core::key::Key;
use parti_core::record::Record;
use parti_core::worker::Action;

use super::{Invariant, Verdict};
use crate::facts::{Facts, Seen};

/// See the module.
pub struct TakeWithinLease;

impl Invariant for TakeWithinLease {
    fn name(&self) -> &'static str {
        "no take after the own lease deadline"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Verdict {
        let Seen::Acted {
            proc,
            local,
            action: Action::Store(request),
        } = seen
        else {
            return Ok(());
        };
        let StoreOp::Write(writes) = &request.op else {
            return Ok(());
        };
        let take = writes.iter().find_map(|write| {
            let (Key::Partition(id), Some(Record::Partition(record))) = (&write.key, &write.value)
            else {
                return None;
            };
            let present = facts.partition_record(id).map(|record| record.epoch);
            (record.owner.is_some() && Some(record.epoch) > present).then_some((id, record.epoch))
        });
        let Some((id, epoch)) = take else {
            return Ok(());
        };
        let Some(session) = facts.procs[*proc].session() else {
            return Err(format!("process {proc} takes {id} without a session"));
        };
        let deadline = session.renewal_sent + facts.setup.config.session_ttl();
        if *local < deadline {
            return Ok(());
        }
        Err(format!(
            "process {proc} ({}) asked for {id} under epoch {epoch} at {local:?} of its clock; its \
             lease ended at {deadline:?}",
            session.id
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::bench::Bench;
    use parti_core::ids::{Epoch, PartitionId};
    use parti_core::io::{Expect, RequestId, StoreRequest, Write};
    use parti_core::record::PartitionRecord;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn a_take_after_the_lease_is_caught() {
        let mut bench = Bench::new(TakeWithinLease);
        bench.start(1);
        let a = bench.claim(0, "worker-0");
        let write = |epoch| {
            let record = PartitionRecord {
                epoch: Epoch(epoch),
                owner: Some((a.id.clone(), a.incarnation)),
                ..PartitionRecord::default()
            };
            let write = Write {
                key: Key::Partition(PartitionId::new("p00")),
                expect: Expect::Absent,
                value: Some(Record::Partition(Arc::new(record))),
            };
            Action::Store(StoreRequest {
                id: RequestId(1),
                op: StoreOp::Write(vec![write]),
                timeout: Duration::from_secs(1),
            })
        };
        bench.act(0, write(1)).expect("the lease runs");
        bench.take(0, "p00", &a, 1).expect("it landed");
        bench.pass(6_000_000);
        bench.act(0, write(1)).expect("a commit is not a take");
        bench.act(0, write(2)).expect_err("the lease is over");
    }
}
