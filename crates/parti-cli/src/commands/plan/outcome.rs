//! What each strategy would do.

use std::collections::BTreeMap;
use std::sync::Arc;

use parti::core::config::{Config, StrategyChoice};
use parti::core::strategy::{Answer, Input, Strategy, from_choice};
use parti::{PartitionId, WorkerId};
use serde::Serialize;

use super::case::Case;
use crate::table::{Table, or_dash};

/// What one strategy would do.
#[derive(Serialize)]
pub struct Outcome {
    strategy: String,
    /// The largest share against the mean; 1 is perfect.
    balance_by_weight: f64,
    balance_by_count: f64,
    /// Taken from workers that stay.
    moved: u64,
    /// Given out that nobody had.
    placed: u64,
    /// The least that had to be taken from workers that stay, for even counts.
    least_moved: u64,
    unserved: u64,
    workers: BTreeMap<WorkerId, Share>,
    partitions: BTreeMap<PartitionId, Placed>,
}

#[derive(Default, Serialize)]
struct Share {
    before: usize,
    after: usize,
    weight: u64,
}

#[derive(Serialize)]
struct Placed {
    before: Option<WorkerId>,
    after: Option<WorkerId>,
}

/// What every strategy would do.
pub fn all(before: &Case, after: &Case, cap: Option<u32>) -> Vec<Outcome> {
    let choices = [
        Config::default().strategy,
        StrategyChoice::FairShare,
        StrategyChoice::RoundRobin,
    ];
    let outcome = |choice: &StrategyChoice| one(&from_choice(choice), before, after, cap);
    choices.iter().map(outcome).collect()
}

fn one(strategy: &Arc<dyn Strategy>, before: &Case, after: &Case, cap: Option<u32>) -> Outcome {
    let had = match &before.owners {
        Some(owners) => owners.clone(),
        None => {
            let input = Input {
                workers: &before.workers,
                partitions: &before.partitions,
                previous: &[],
                capacity: cap,
            };
            owners(before, &strategy.assign(input))
        }
    };
    let number = |worker: &WorkerId| {
        let place = after.workers.binary_search(worker).ok()?;
        u32::try_from(place).ok()
    };
    let previous: Vec<Option<u32>> = (after.partitions.iter())
        .map(|partition| had.get(&partition.id).and_then(number))
        .collect();
    // Numbers without a change show a first assignment.
    let fresh = before.owners.is_none()
        && before.workers == after.workers
        && before.partitions == after.partitions;
    let input = Input {
        workers: &after.workers,
        partitions: &after.partitions,
        previous: if fresh { &[] } else { &previous },
        capacity: cap,
    };
    let answer = strategy.assign(input);
    let (balance, movement) = (answer.balance(input), answer.movement(input));
    let has = owners(after, &answer);
    let mut workers: BTreeMap<WorkerId, Share> = BTreeMap::new();
    for worker in before.workers.iter().chain(&after.workers) {
        workers.entry(worker.clone()).or_default();
    }
    let mut partitions = BTreeMap::new();
    for partition in after.partitions.iter() {
        let from = had.get(&partition.id).filter(|_| !fresh);
        let to = has.get(&partition.id);
        if let Some(from) = from {
            workers.entry(from.clone()).or_default().before += 1;
        }
        if let Some(to) = to {
            let share = workers.entry(to.clone()).or_default();
            share.after += 1;
            share.weight += partition.weight;
        }
        let placed = Placed {
            before: from.cloned(),
            after: to.cloned(),
        };
        partitions.insert(partition.id.clone(), placed);
    }
    Outcome {
        strategy: strategy.name(),
        balance_by_weight: balance.by_weight(),
        balance_by_count: balance.by_count(),
        moved: movement.moved.count,
        placed: movement.placed.count,
        least_moved: movement.minimum.count,
        unserved: balance.unserved.count,
        workers,
        partitions,
    }
}

fn owners(case: &Case, answer: &Answer) -> BTreeMap<PartitionId, WorkerId> {
    let pairs = case.partitions.iter().zip(&answer.owners);
    let owned = pairs.filter_map(|(partition, owner)| {
        let worker = case.workers.get((*owner)? as usize)?;
        Some((partition.id.clone(), worker.clone()))
    });
    owned.collect()
}

/// Strategies side by side, then who gets what.
pub fn table(outcomes: &[Outcome], after: &Case) -> String {
    let mut strategies = Table::new([
        "STRATEGY",
        ">BALANCE",
        ">BY COUNT",
        ">MOVED",
        ">LEAST",
        ">PLACED",
        ">UNSERVED",
    ]);
    for outcome in outcomes {
        strategies.row([
            outcome.strategy.clone().into(),
            format!("{:.3}", outcome.balance_by_weight).into(),
            format!("{:.3}", outcome.balance_by_count).into(),
            outcome.moved.into(),
            outcome.least_moved.into(),
            outcome.placed.into(),
            outcome.unserved.into(),
        ]);
    }
    let mut headings = vec!["WORKER".to_owned()];
    headings.extend(outcomes.iter().map(|outcome| outcome.strategy.clone()));
    let mut shares = Table::wide(headings);
    let workers = outcomes.first().map(|outcome| outcome.workers.keys());
    for worker in workers.into_iter().flatten() {
        let mut cells = vec![worker.to_string().into()];
        let there = after.workers.binary_search(worker).is_ok();
        for outcome in outcomes {
            let share = outcome.workers.get(worker);
            let text = share.map(|share| match (share.before, share.after) {
                (before, _) if !there => format!("{before} -> gone"),
                (before, after) if before == after => after.to_string(),
                (before, after) => format!("{before} -> {after}"),
            });
            cells.push(or_dash(text).into());
        }
        shares.wide_row(cells);
    }
    format!("{strategies}\n{shares}")
}
