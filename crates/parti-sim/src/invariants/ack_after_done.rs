//! In a work queue an ack removes the message for good: only what was handled to completion, is in
//! the dead letters, or lies before the group's start, is ever acked.

use std::collections::BTreeMap;

use parti_core::ids::Offset;
use parti_core::io::{Retention, SourceKind, SourceRequest};
use parti_core::worker::Action;

use super::{Invariant, Verdict};
use crate::facts::{Facts, Proc, Seen};

/// See the module.
#[derive(Default)]
pub struct AckAfterDone {
    deliveries: BTreeMap<(Proc, u64), (usize, Offset)>,
}

impl Invariant for AckAfterDone {
    fn name(&self) -> &'static str {
        "a work queue's message is acked only when done"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Verdict {
        if facts.setup.source != SourceKind::Stream(Retention::WorkQueue) {
            return Ok(());
        }
        match seen {
            Seen::Delivered {
                proc,
                sequence,
                partition,
                offset,
            } => {
                self.deliveries
                    .insert((*proc, *sequence), (*partition, *offset));
                Ok(())
            }
            Seen::Acted {
                proc,
                action: Action::Source(SourceRequest::Ack { deliveries }),
                ..
            } => {
                for sequence in deliveries {
                    let Some((partition, offset)) = self.deliveries.get(&(*proc, *sequence)) else {
                        return Err(format!(
                            "process {proc} acked {sequence}, never delivered to it"
                        ));
                    };
                    let known = &facts.partitions[*partition];
                    let wanted = known.start.is_none_or(|start| *offset >= start);
                    let open = known
                        .message(*offset)
                        .is_some_and(|message| !message.is_done());
                    if wanted && open {
                        return Err(format!(
                            "process {proc} acked {}/{offset}, which is not done",
                            facts.setup.partitions[*partition].id
                        ));
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::bench::{Bench, plain_setup};

    fn ack(deliveries: &[u64]) -> Action {
        Action::Source(SourceRequest::Ack {
            deliveries: deliveries.to_vec(),
        })
    }

    #[test]
    fn an_ack_before_the_handler_is_caught() {
        let mut setup = plain_setup();
        setup.source = SourceKind::Stream(Retention::WorkQueue);
        let mut bench = Bench::with(AckAfterDone::default(), setup);
        bench.start(1);
        bench.publish("p00", &[1, 2]);
        for (sequence, offset) in [(1, Offset(1)), (2, Offset(2))] {
            bench
                .see(Seen::Delivered {
                    proc: 0,
                    sequence,
                    partition: 0,
                    offset,
                })
                .expect("fine");
        }
        bench.handle(0, "p00", 1).expect("fine");
        bench.done(0, "p00", 1);
        bench.act(0, ack(&[1])).expect("1 is done");
        bench.act(0, ack(&[2])).expect_err("2 is open");
        bench.act(0, ack(&[3])).expect_err("3 was never delivered");
    }
}
