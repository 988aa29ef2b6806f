//! What would happen before it does: how strategies would spread partitions over workers.
//!
//! ```text
//!   a group, or numbers ──▶ Case ── Wish: join, go, weigh ──▶ Case
//!                                                               │
//!       balance, movement, who gets what ◀── every strategy ◀───┘
//!                                              below what operators decided
//! ```
//!
//! A group's own plan may also wait: for windows, cooldown and threshold.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;
use std::sync::Arc;

use parti_core::codec;
use parti_core::config::{Config, Coordination, StrategyChoice};
use parti_core::ids::{PartitionId, WorkerId};
use parti_core::partition::{self, MAX_WEIGHT, Partition};
use parti_core::problem::{Problem, Problems};
use parti_core::record::SessionStatus;
use parti_core::strategy::{Answer, Input, Question, Strategy, from_choice, from_name};
use serde::Serialize;

use super::{Group, WorkerView};

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
    standing: Standing,
}

/// What stands above any strategy.
#[derive(Clone, Debug, Default)]
struct Standing {
    /// Who gets nothing.
    apart: BTreeMap<WorkerId, Apart>,
    paused: BTreeSet<PartitionId>,
    pinned: BTreeMap<PartitionId, WorkerId>,
    /// Everybody computes who has what, from who is there and nothing else.
    leaderless: bool,
    /// By its name, as recorded.
    strategy: Option<String>,
}

/// Why a worker gets nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Apart {
    /// An operator has drained it.
    Drained,
    /// It hands over what it has, and goes.
    Leaving,
    /// It says that something is wrong with it. With a leader it keeps what it has.
    Degraded,
}

impl Apart {
    fn of(worker: &WorkerView) -> Option<Self> {
        if worker.drained {
            Some(Self::Drained)
        } else if worker.status == SessionStatus::Leaving {
            Some(Self::Leaving)
        } else {
            worker.degraded.as_ref().map(|_| Self::Degraded)
        }
    }
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
        let workers = there(group).map(|worker| worker.id.clone()).collect();
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
            standing: Standing::of(group),
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
            standing: Standing::default(),
        })
    }

    /// Why this worker gets nothing, if it does not.
    pub fn apart(&self, worker: &WorkerId) -> Option<Apart> {
        self.standing.apart.get(worker).copied()
    }

    /// How many of the partitions an operator has paused: nobody gets those.
    pub fn paused(&self) -> usize {
        let paused = |partition: &&Partition| self.standing.paused.contains(&partition.id);
        self.partitions.iter().filter(paused).count()
    }

    /// The group's own strategy with its parameters, if that is recorded.
    pub fn strategy(&self) -> Option<&str> {
        self.standing.strategy.as_deref()
    }

    /// Every strategy there is: the group's own with its parameters, before the others with theirs by
    /// default. One that this program does not have is left out.
    pub fn strategies(&self) -> Vec<StrategyChoice> {
        let own = self.strategy().and_then(from_name);
        let of_its_kind = own.as_ref().map(discriminant);
        let defaults = [
            Config::default().strategy,
            StrategyChoice::FairShare,
            StrategyChoice::RoundRobin,
        ];
        let others = defaults.into_iter();
        let others = others.filter(|choice| Some(discriminant(choice)) != of_its_kind);
        own.into_iter().chain(others).collect()
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
            standing: self.standing.clone(),
        })
    }

    /// Those who may receive, in order.
    fn receivers(&self) -> Vec<WorkerId> {
        let workers = self.workers.iter();
        let free = workers.filter(|worker| self.apart(worker).is_none());
        free.cloned().collect()
    }

    /// Whether this worker, if it is there, keeps what it has and gets nothing.
    fn keeps(&self, worker: &WorkerId) -> bool {
        !self.standing.leaderless
            && self.apart(worker) == Some(Apart::Degraded)
            && self.workers.binary_search(worker).is_ok()
    }
}

impl Standing {
    fn of(group: &Group) -> Self {
        let apart = there(group).filter_map(|worker| Some((worker.id.clone(), Apart::of(worker)?)));
        let paused = group.partitions.iter().filter(|one| one.paused);
        let pinned = group.partitions.iter().filter_map(|one| {
            let worker = one.pinned_to.clone()?;
            Some((one.id.clone(), worker))
        });
        Self {
            apart: apart.collect(),
            paused: paused.map(|one| one.id.clone()).collect(),
            pinned: pinned.collect(),
            leaderless: group.coordination == Coordination::Leaderless.name(),
            strategy: group.strategy.clone(),
        }
    }
}

fn there(group: &Group) -> impl Iterator<Item = &WorkerView> {
    let there = |status| matches!(status, SessionStatus::Live | SessionStatus::Leaving);
    let workers = group.workers.iter();
    workers.filter(move |worker| there(worker.status))
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
    /// Whether it is the group's own.
    pub own: bool,
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
    /// Given to nobody, though nobody paused it.
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
    let receivers = after.receivers();
    let number = |worker: &WorkerId| {
        let place = receivers.binary_search(worker).ok()?;
        u32::try_from(place).ok()
    };
    let previous: Vec<Option<u32>> = (after.partitions.iter())
        .map(|partition| had.get(&partition.id).and_then(number))
        .collect();
    // Numbers without a change show a first assignment.
    let fresh = before.owners.is_none()
        && before.workers == after.workers
        && before.partitions == after.partitions;
    let whole = Input {
        workers: &receivers,
        partitions: &after.partitions,
        previous: if fresh { &[] } else { &previous },
        capacity: cap,
    };
    let standing = &after.standing;
    let paused = |id: &PartitionId| standing.paused.contains(id);
    let kept = |id: &PartitionId| {
        had.get(id)
            .filter(|owner| after.keeps(owner) && !paused(id))
    };
    let question = Question::about(whole, |place| {
        let id = &after.partitions[place].id;
        !paused(id) && kept(id).is_none()
    });
    let pinned = |id: &PartitionId| standing.pinned.get(id).and_then(number);
    let answer = if standing.leaderless {
        // Everybody asks about all, also about what is paused.
        let anew = Input {
            previous: &[],
            ..whole
        };
        let all = Question::about(anew, |_| true);
        question.answer_of(&all.owners(&all.answer(&**strategy, pinned)))
    } else {
        question.answer(&**strategy, pinned)
    };
    let balance = answer.balance(question.input());
    let movement = answer.movement(question.input());
    let given = question.owners(&answer);
    let mut has = BTreeMap::new();
    for (partition, owner) in after.partitions.iter().zip(given) {
        let owner = owner.and_then(|owner| receivers.get(owner as usize));
        if let Some(owner) = owner.or(kept(&partition.id)) {
            has.insert(partition.id.clone(), owner.clone());
        }
    }
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
        own: standing.strategy == Some(strategy.name()),
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

#[cfg(test)]
mod tests;
