//! No thrash: partitions change hands no more often than changes of membership ask for, within a
//! generous factor of the optimum.

use parti_core::config::StrategyChoice;
use parti_core::record::Request;

use super::{Invariant, Verdict, partition_write};
use crate::facts::{Facts, Seen};

/// How many times the optimum is still no thrash: a change of membership may be answered before the
/// next one is seen, a leaderless group settles in steps, and balance is mended afterwards.
const FACTOR: u64 = 4;

/// See the module.
#[derive(Default)]
pub struct NoThrash {
    moves: u64,
    optimum: u64,
    sessions: u64,
    ended: u64,
}

impl Invariant for NoThrash {
    fn name(&self) -> &'static str {
        "no more moves than membership asks for"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Verdict {
        if let Seen::ListChanged = seen {
            let partitions = facts.partitions.len() as u64;
            self.optimum += match facts.setup.config.strategy {
                StrategyChoice::RoundRobin => partitions,
                StrategyChoice::ConsistentHash { .. } | StrategyChoice::FairShare => {
                    partitions.div_ceil(2)
                }
            };
        }
        self.optimum += asked_moves(facts, seen);
        let Seen::Wrote { .. } = seen else {
            return Ok(());
        };
        self.count_changes(facts);
        let Some((proc, id, before, after)) = partition_write(seen) else {
            return Ok(());
        };
        let taken = before.is_none_or(|before| before.epoch < after.epoch);
        if !taken {
            return Ok(());
        }
        self.moves += 1;
        let partitions = facts.partitions.len() as u64;
        let allowed = 2 * partitions + FACTOR * self.optimum;
        if self.moves <= allowed {
            return Ok(());
        }
        Err(format!(
            "process {proc} took partition {id}: take number {} where {} partitions and {} changes of \
             membership ask for {} at best",
            self.moves,
            partitions,
            self.sessions + self.ended,
            partitions + self.optimum
        ))
    }
}

impl NoThrash {
    fn count_changes(&mut self, facts: &Facts) {
        let sessions = || facts.procs.iter().flat_map(|proc| &proc.sessions);
        let (begun, ended) = (
            sessions().count() as u64,
            sessions().filter(|known| known.over.is_some()).count() as u64,
        );
        let changes = (begun - self.sessions) + (ended - self.ended);
        (self.sessions, self.ended) = (begun, ended);
        if changes == 0 {
            return;
        }
        let partitions = facts.partitions.len() as u64;
        let members = (begun - ended).max(1);
        let share = match facts.setup.config.strategy {
            // Counts on from worker to worker: any change moves nearly everything.
            StrategyChoice::RoundRobin => partitions,
            StrategyChoice::ConsistentHash { .. } | StrategyChoice::FairShare => {
                partitions.div_ceil(members)
            }
        };
        self.optimum += changes * share;
    }
}

/// How many moves an operator's wish asks for, at best. An eviction counts by the sessions that end
/// and begin.
fn asked_moves(facts: &Facts, seen: &Seen<'_>) -> u64 {
    let partitions = facts.partitions.len() as u64;
    // Counts on from worker to worker: one more or less moves nearly everything.
    let all = match facts.setup.config.strategy {
        StrategyChoice::RoundRobin => partitions,
        StrategyChoice::ConsistentHash { .. } | StrategyChoice::FairShare => 0,
    };
    match seen {
        // It is taken again.
        Seen::Forced { .. } => all.max(1),
        // What changed is not seen, and everybody aims anew, without a look at who serves what.
        Seen::Decided { .. } => all.max(partitions.div_ceil(2)),
        Seen::Asked { record, .. } => match &record.request {
            // Like a worker that goes, or comes.
            Request::Drain { .. } | Request::Undrain { .. } => {
                let members = facts.members().count().max(1) as u64;
                all.max(partitions.div_ceil(members))
            }
            // It moves, and another may move for balance.
            Request::Move { .. }
            | Request::Pin { .. }
            | Request::Unpin { .. }
            | Request::Pause { .. }
            | Request::Resume { .. } => all.max(2),
            // As much as balance lacks.
            Request::Rebalance => all.max(partitions.div_ceil(2)),
            Request::Evict { .. } => 0,
        },
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::bench::Bench;

    #[test]
    fn partitions_that_keep_changing_hands_are_caught() {
        let mut bench = Bench::new(NoThrash::default());
        bench.start(2);
        let (a, b) = (bench.claim(0, "worker-0"), bench.claim(1, "worker-1"));
        let mut epoch = 0;
        let mut caught = None;
        for round in 0..100 {
            let (proc, session) = if round % 2 == 0 { (0, &a) } else { (1, &b) };
            epoch += 1;
            if bench.take(proc, "p00", session, epoch).is_err() {
                caught = Some(round);
                break;
            }
        }
        // 2 × 4 partitions, and 4 × (4 + 2) for two joiners.
        assert_eq!(caught, Some(32));
    }
}
