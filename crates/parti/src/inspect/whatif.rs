//! What would happen before it does: how strategies would spread partitions over workers.
//!
//! ```text
//!   a group, or numbers ──▶ Case ── Wish: join, go, weigh ──▶ Case
//!                                                               │
//!       balance, movement, who gets what ◀── every strategy ◀───┘
//! ```
//!
//! A group's own plan may also wait: for windows, cooldown and threshold.

use std::collections::BTreeMap;
use std::sync::Arc;

use parti_core::codec;
use parti_core::config::{Config, StrategyChoice};
use parti_core::ids::{PartitionId, WorkerId};
use parti_core::partition::{self, MAX_WEIGHT, Partition};
use parti_core::problem::{Problem, Problems};
use parti_core::record::SessionStatus;
use parti_core::strategy::{Answer, Input, Strategy, from_choice};
use serde::Serialize;

use super::Group;

/// The most workers that make sense.
const MAX_WORKERS: u32 = 100_000;

/// Workers and partitions, with who serves what now.
#[derive(Clone, Debug)]
pub struct Case {
    /// Sorted, as strategies want them.
    pub workers: Vec<WorkerId>,
    /// Sorted by id.
    pub partitions: Arc<[Partition]>,
    /// Who serves each partition now; `None`: each strategy starts from its own answer.
    pub owners: Option<BTreeMap<PartitionId, WorkerId>>,
}

/// What is to be different.
#[derive(Clone, Debug, Default)]
pub struct Wish {
    /// So many workers join.
    pub add: u32,
    /// These go.
    pub remove: Vec<String>,
    /// These partitions have these weights.
    pub weights: Vec<(PartitionId, u64)>,
}

impl Case {
    /// A group as it is, with these partitions, or those that it knows: its records hold no weights.
    pub fn of(group: &Group, partitions: Option<Arc<[Partition]>>) -> Result<Self, Problems> {
        let there = |status| matches!(status, SessionStatus::Live | SessionStatus::Leaving);
        let workers = group.workers.iter().filter(|worker| there(worker.status));
        let workers = workers.map(|worker| worker.id.clone()).collect();
        let owners = group.partitions.iter().filter_map(|partition| {
            let owner = partition.owner.as_ref().filter(|_| partition.is_served());
            Some((partition.id.clone(), owner?.clone()))
        });
        let owners = owners.collect();
        let known = |id: &PartitionId| {
            let keys = codec::keys_of(id.as_str()).unwrap_or_default();
            Partition::new(keys, None)
        };
        let partitions = match partitions {
            Some(partitions) => partitions,
            None => {
                let known = group
                    .partitions
                    .iter()
                    .map(|partition| known(&partition.id));
                let known: Result<Vec<Partition>, Problem> = known.collect();
                partition::list(known?)?
            }
        };
        Ok(Self {
            workers: in_order(workers),
            partitions,
            owners: Some(owners),
        })
    }

    /// So many workers, who have nothing yet.
    pub fn numbered(workers: u32, partitions: Arc<[Partition]>) -> Result<Self, Problems> {
        at_most("workers", workers)?;
        let prefix = Config::default().worker_id_prefix;
        let workers = (0..u64::from(workers)).map(|number| codec::worker_id(&prefix, number));
        Ok(Self {
            workers: in_order(workers.collect()),
            partitions,
            owners: None,
        })
    }

    /// The same after a wish; one that cannot be is refused.
    pub fn changed(&self, wish: &Wish) -> Result<Self, Problems> {
        at_most("add", wish.add)?;
        let mut workers = self.workers.clone();
        for name in &wish.remove {
            let Some(place) = workers.iter().position(|worker| worker.as_str() == name) else {
                let known: Vec<&str> = self.workers.iter().map(WorkerId::as_str).collect();
                let remedy = format!("there are {}", known.join(", "));
                return Err(Problem::new("remove", name, "is no such worker", remedy).into());
            };
            workers.remove(place);
        }
        let prefix = Config::default().worker_id_prefix;
        let mut numbers = 0..;
        for _ in 0..wish.add {
            // The lowest number that was free before, as a worker that starts takes it.
            let free = numbers
                .by_ref()
                .map(|number| codec::worker_id(&prefix, number));
            let mut free = free.filter(|id| self.workers.binary_search(id).is_err());
            workers.extend(free.next());
        }
        let mut partitions = self.partitions.to_vec();
        for (id, weight) in &wish.weights {
            let Ok(place) = partitions.binary_search_by(|known| known.id.cmp(id)) else {
                let remedy = "name one that the group has";
                return Err(
                    Problem::new("weights", id.as_str(), "is no such partition", remedy).into(),
                );
            };
            if *weight == 0 || *weight > MAX_WEIGHT {
                let remedy = format!("a weight is from 1 to {MAX_WEIGHT}");
                return Err(
                    Problem::new("weights", weight.to_string(), "is no weight", remedy).into(),
                );
            }
            partitions[place].weight = *weight;
        }
        Ok(Self {
            workers: in_order(workers),
            partitions: partitions.into(),
            owners: self.owners.clone(),
        })
    }
}

/// Strategies want workers in order.
fn in_order(mut workers: Vec<WorkerId>) -> Vec<WorkerId> {
    workers.sort();
    workers.dedup();
    workers
}

fn at_most(field: &str, number: u32) -> Result<(), Problems> {
    if number > MAX_WORKERS {
        let remedy = format!("the most is {MAX_WORKERS}");
        return Err(Problem::new(field, number.to_string(), "is too many", remedy).into());
    }
    Ok(())
}

/// What one strategy would do.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Its name, with its parameters.
    pub strategy: String,
    /// The largest share against the mean, by weight; 1 is perfect.
    pub balance_by_weight: f64,
    /// The same by count.
    pub balance_by_count: f64,
    /// Taken from workers that stay.
    pub moved: u64,
    /// Given out that nobody had.
    pub placed: u64,
    /// The least that had to be taken from workers that stay, for even counts.
    pub least_moved: u64,
    /// Given to nobody.
    pub unserved: u64,
    /// What each worker has, before and after.
    pub workers: BTreeMap<WorkerId, Share>,
    /// Who has each partition, before and after.
    pub partitions: BTreeMap<PartitionId, Placed>,
}

/// What a worker has.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Share {
    /// How many partitions before.
    pub before: usize,
    /// How many after.
    pub after: usize,
    /// Their weight after.
    pub weight: u64,
}

/// Who has a partition.
#[derive(Clone, Debug, Serialize)]
pub struct Placed {
    /// Before.
    pub before: Option<WorkerId>,
    /// After.
    pub after: Option<WorkerId>,
}

/// Every strategy there is, with its default parameters.
pub fn strategies() -> [StrategyChoice; 3] {
    [
        Config::default().strategy,
        StrategyChoice::FairShare,
        StrategyChoice::RoundRobin,
    ]
}

/// What each of these strategies would do.
pub fn outcomes(
    before: &Case,
    after: &Case,
    cap: Option<u32>,
    strategies: &[StrategyChoice],
) -> Vec<Outcome> {
    let outcome = |choice: &StrategyChoice| outcome(&from_choice(choice), before, after, cap);
    strategies.iter().map(outcome).collect()
}

fn outcome(strategy: &Arc<dyn Strategy>, before: &Case, after: &Case, cap: Option<u32>) -> Outcome {
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
