//! A message that kills its process does not crash the group in a circle: after `max_deliver`
//! announced tries it goes to the dead letters. The first kill comes unannounced.

use super::{Invariant, Verdict};
use crate::facts::{Facts, Seen};

/// See the module.
pub struct PoisonEnds;

impl Invariant for PoisonEnds {
    fn name(&self) -> &'static str {
        "a process-killing message ends in the dead letters"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Verdict {
        let Seen::CallLost { proc, job } = seen else {
            return Ok(());
        };
        let Some(index) = facts.setup.index_of(&job.partition) else {
            return Ok(());
        };
        let Some(message) = facts.partitions[index].message(job.message.offset) else {
            return Ok(());
        };
        let allowed = facts.setup.config.jetstream.max_deliver + 1;
        if message.kills <= allowed {
            return Ok(());
        }
        Err(format!(
            "{}/{} killed process {proc}: kill number {}, where {allowed} are enough",
            job.partition, job.message.offset, message.kills
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::bench::Bench;
    use parti_core::ids::Offset;

    #[test]
    fn a_circle_of_crashes_is_caught() {
        let mut bench = Bench::new(PoisonEnds);
        bench.start(1);
        let seen = Seen::Published {
            partition: 0,
            offset: Offset(0),
            key: 0,
            killer: true,
        };
        bench.see(seen).expect("fine");
        for kill in 1..=5 {
            bench.handle(0, "p00", 0).expect("fine");
            let job = bench.job("p00", 0);
            // The default of `max_deliver` is 3.
            assert_eq!(
                bench.see(Seen::CallLost { proc: 0, job: &job }).is_ok(),
                kill <= 4
            );
        }
    }
}
