//! Balance: once the faults are over, nobody carries much more than the mean, and nobody stands
//! idle where there is plenty to do.

use std::collections::BTreeMap;

use parti_core::config::StrategyChoice;
use parti_core::ids::WorkerId;

use super::{Invariant, Verdict};
use crate::facts::Facts;

/// See the module.
pub struct Balance;

impl Invariant for Balance {
    fn name(&self) -> &'static str {
        "balance in the end"
    }

    fn settled(&self, facts: &Facts) -> Verdict {
        let mut loads: BTreeMap<&WorkerId, (u64, u64)> = facts
            .members()
            .map(|(_, session)| (&session.id, (0, 0)))
            .collect();
        let workers = loads.len() as u64;
        if workers == 0 {
            return Err("nobody is there".into());
        }
        for partition in facts.setup.partitions.iter() {
            let owner = facts
                .partition_record(&partition.id)
                .and_then(|record| record.owner.as_ref());
            if let Some((id, _)) = owner
                && let Some((weight, count)) = loads.get_mut(id)
            {
                *weight += partition.weight;
                *count += 1;
            }
        }
        let all = facts
            .setup
            .partitions
            .iter()
            .map(|partition| partition.weight);
        let (total, heaviest) = (all.clone().sum::<u64>(), all.max().unwrap_or(0));
        // Moves that merely mend balance are held back by the threshold.
        let threshold = facts
            .setup
            .config
            .assignment
            .min_rebalance_threshold
            .max(0.25);
        let mean = total as f64 / workers as f64;
        let allowed = mean * (1.0 + threshold) + 2.0 * heaviest as f64;
        let plenty = match facts.setup.config.strategy {
            StrategyChoice::ConsistentHash { .. } => 4 * workers,
            StrategyChoice::RoundRobin | StrategyChoice::FairShare => 2 * workers,
        };
        for (id, (weight, count)) in &loads {
            if *weight as f64 > allowed {
                return Err(format!(
                    "{id} carries {weight} where the mean is {mean:.1}: {loads:?}"
                ));
            }
            if *count == 0 && facts.setup.partitions.len() as u64 >= plenty {
                return Err(format!("{id} has nothing to do: {loads:?}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::bench::Bench;

    #[test]
    fn a_lopsided_group_is_not_settled() {
        let mut bench = Bench::new(Balance);
        bench.start(2);
        let (a, b) = (bench.claim(0, "worker-0"), bench.claim(1, "worker-1"));
        for id in ["p00", "p01", "p02", "p03"] {
            bench.take(0, id, &a, 1).expect("fine");
        }
        bench.settled().expect_err("worker-1 has nothing");
        bench.take(1, "p00", &b, 2).expect("fine");
        bench.take(1, "p01", &b, 2).expect("fine");
        bench.settled().expect("two each");
    }
}
