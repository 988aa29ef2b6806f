//! Nothing runs out of order. `ordering: partition`: one message of a partition at a time, and none
//! before all earlier ones are done by somebody. `ordering: key`: the same per key. In any
//! ordering, only messages that exist, from the group's start on.

use parti_core::config::Ordering;

use super::{Invariant, Verdict};
use crate::facts::{Facts, Seen};

/// See the module.
pub struct Order;

impl Invariant for Order {
    fn name(&self) -> &'static str {
        "order within a partition"
    }

    fn needs_checkpoints(&self) -> bool {
        true
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Verdict {
        let Seen::CallBegan { proc, job, .. } = seen else {
            return Ok(());
        };
        let (id, offset, key) = (&job.partition, job.message.offset, job.message.key);
        let Some(index) = facts.setup.index_of(id) else {
            return Err(format!(
                "process {proc} handles a message of {id}, which does not exist"
            ));
        };
        let partition = &facts.partitions[index];
        let Some(message) = partition.message(offset) else {
            return Err(format!(
                "process {proc} handles {id}/{offset}, which was never published"
            ));
        };
        if message.key != key {
            return Err(format!(
                "process {proc} handles {id}/{offset} under another key"
            ));
        }
        if partition.start.is_none_or(|start| offset < start) {
            return Err(format!(
                "process {proc} handles {id}/{offset}, before the group's start {:?}",
                partition.start
            ));
        }
        let by_key = match facts.setup.config.processing.ordering {
            Ordering::Partition => false,
            Ordering::Key => true,
            Ordering::None => return Ok(()),
        };
        let before = &partition.messages[..partition.index_from(offset)];
        let open = before
            .iter()
            .skip(partition.done)
            .find(|earlier| !earlier.is_done() && (!by_key || earlier.key == key));
        if let Some(open) = open {
            return Err(format!(
                "process {proc} dispatched {id}/{offset} under epoch {} before {} was done",
                job.epoch, open.offset
            ));
        }
        let at_once = facts.procs[*proc]
            .calls
            .iter()
            .filter(|call| call.partition == index && (!by_key || call.key == key));
        if at_once.count() > 1 {
            return Err(format!(
                "process {proc} dispatched {id}/{offset} beside another one"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::bench::{Bench, plain_setup};

    fn ready(ordering: Ordering) -> Bench<Order> {
        let mut setup = plain_setup();
        setup.config.processing.ordering = ordering;
        let mut bench = Bench::with(Order, setup);
        bench.start(1);
        // Keys are even and odd.
        bench.publish("p00", &[0, 1, 2, 3]);
        bench
            .partition(0, "p00", |record| record.epoch.0 = 1)
            .expect("a take");
        bench
    }

    #[test]
    fn a_skipped_message_is_caught() {
        let mut bench = ready(Ordering::Partition);
        bench.handle(0, "p00", 0).expect("the first");
        bench.done(0, "p00", 0);
        bench.handle(0, "p00", 2).expect_err("1 is open");
    }

    #[test]
    fn two_at_once_are_caught() {
        let mut bench = ready(Ordering::Partition);
        bench.handle(0, "p00", 0).expect("the first");
        bench.end_call(0, "p00", 0, true).expect("done");
        bench.handle(0, "p00", 1).expect("the second");
        bench.handle(0, "p00", 1).expect_err("it already runs");
    }

    #[test]
    fn other_keys_may_overtake_but_not_the_same_key() {
        let mut bench = ready(Ordering::Key);
        bench.handle(0, "p00", 1).expect("the first of the odd key");
        bench
            .handle(0, "p00", 0)
            .expect("the even key is another one");
        bench.done(0, "p00", 1);
        bench.handle(0, "p00", 3).expect("the odd key goes on");
        bench.handle(0, "p00", 2).expect_err("0 still runs");
    }

    #[test]
    fn without_order_anything_goes_but_what_does_not_exist() {
        let mut bench = ready(Ordering::None);
        bench.handle(0, "p00", 3).expect("any");
        bench.handle(0, "p00", 1).expect("any");
        bench.handle(0, "p00", 9).expect_err("never published");
    }
}
