//! How good an answer is: balance and movement, worked out on demand.

use super::Input;
use super::level::peel;

/// A number of partitions and their weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// How many partitions.
    pub count: u64,
    /// What they weigh together.
    pub weight: u128,
}

impl Amount {
    fn add(&mut self, weight: u64) {
        self.count += 1;
        self.weight += u128::from(weight);
    }

    /// Both as shares of a whole; zero of nothing.
    pub fn share_of(&self, whole: Amount) -> (f64, f64) {
        (
            ratio(self.count as f64, whole.count as f64, 0.0),
            ratio(self.weight as f64, whole.weight as f64, 0.0),
        )
    }
}

/// What each worker serves, against the mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Balance {
    /// How many workers there are.
    pub workers: u64,
    /// What all workers serve together.
    pub served: Amount,
    /// What nobody serves.
    pub unserved: Amount,
    /// The largest count and the largest weight of a worker (not always the same worker).
    pub most: Amount,
    /// The smallest count and the smallest weight of a worker.
    pub least: Amount,
    /// The heaviest partition: no answer can bring the largest weight below it.
    pub heaviest: u64,
}

impl Balance {
    /// How evenly these owners spread the load. Owners out of range count as nobody.
    pub fn of(input: Input<'_>, owners: &[Option<u32>]) -> Self {
        let mut per_worker = vec![Amount::default(); input.workers.len()];
        let mut unserved = Amount::default();
        let mut served = Amount::default();
        let mut heaviest = 0;
        for (place, partition) in input.partitions.iter().enumerate() {
            let weight = partition.weight.max(1);
            heaviest = heaviest.max(weight);
            let owner = owners.get(place).copied().flatten();
            match owner.and_then(|owner| per_worker.get_mut(owner as usize)) {
                Some(worker) => {
                    worker.add(weight);
                    served.add(weight);
                }
                None => unserved.add(weight),
            }
        }
        let extreme = |pick: fn(u128, u128) -> u128| Amount {
            count: (per_worker.iter().map(|w| u128::from(w.count)))
                .reduce(pick)
                .unwrap_or(0) as u64,
            weight: per_worker
                .iter()
                .map(|w| w.weight)
                .reduce(pick)
                .unwrap_or(0),
        };
        Self {
            workers: per_worker.len() as u64,
            served,
            unserved,
            most: extreme(u128::max),
            least: extreme(u128::min),
            heaviest,
        }
    }

    /// The largest weight of a worker, divided by the mean. 1 is perfect.
    pub fn by_weight(&self) -> f64 {
        let mean = self.served.weight as f64 / self.workers.max(1) as f64;
        ratio(self.most.weight as f64, mean, 1.0)
    }

    /// The largest count of a worker, divided by the mean. 1 is perfect.
    pub fn by_count(&self) -> f64 {
        let mean = self.served.count as f64 / self.workers.max(1) as f64;
        ratio(self.most.count as f64, mean, 1.0)
    }
}

/// What changes hands, against the least that would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Movement {
    /// Taken from a worker that is still there.
    pub moved: Amount,
    /// Given to a worker where nobody served it (a start, a worker gone, a new partition). These
    /// have to go somewhere, so they are no cost of the strategy.
    pub placed: Amount,
    /// The least that had to be taken from workers still there: the count for even counts, the
    /// weight for even weights. Bounds from below; sizes of partitions can demand more.
    pub minimum: Amount,
}

impl Movement {
    /// How far these owners are from the input's `previous`.
    pub fn of(input: Input<'_>, owners: &[Option<u32>]) -> Self {
        let mut moved = Amount::default();
        let mut placed = Amount::default();
        for (place, partition) in input.partitions.iter().enumerate() {
            let weight = partition.weight.max(1);
            let owner = owners.get(place).copied().flatten();
            match (input.previous_owner(place), owner) {
                (Some(before), Some(after)) if before == after => {}
                (Some(_), _) => moved.add(weight),
                (None, Some(_)) => placed.add(weight),
                (None, None) => {}
            }
        }
        Self {
            moved,
            placed,
            minimum: minimum(input),
        }
    }

    /// Moved weight divided by the least that would do; 1 where nothing moved.
    pub fn by_weight(&self) -> f64 {
        excess(self.moved.weight as f64, self.minimum.weight as f64)
    }

    /// Moved count divided by the least that would do; 1 where nothing moved.
    pub fn by_count(&self) -> f64 {
        excess(self.moved.count as f64, self.minimum.count as f64)
    }
}

fn excess(moved: f64, minimum: f64) -> f64 {
    if moved == 0.0 {
        1.0
    } else {
        ratio(moved, minimum, f64::INFINITY)
    }
}

fn ratio(part: f64, whole: f64, of_nothing: f64) -> f64 {
    if whole == 0.0 {
        of_nothing
    } else {
        part / whole
    }
}

/// What lies above an even share at each worker: it has to leave, whatever the strategy.
fn minimum(input: Input<'_>) -> Amount {
    let workers = input.workers.len();
    if workers == 0 || input.previous.is_empty() {
        return Amount::default();
    }
    let mut before = vec![Amount::default(); workers];
    let mut heaviest = vec![0u64; workers];
    let mut weights = Vec::with_capacity(input.partitions.len());
    for (place, partition) in input.partitions.iter().enumerate() {
        let weight = partition.weight.max(1);
        weights.push(weight);
        if let Some(owner) = input.previous_owner(place) {
            before[owner as usize].add(weight);
            heaviest[owner as usize] = heaviest[owner as usize].max(weight);
        }
    }

    let total = weights.iter().map(|w| u128::from(*w)).sum();
    if weights.len() > workers {
        weights.select_nth_unstable_by(workers, |a, b| b.cmp(a));
        weights.truncate(workers); // only the heaviest can be heavier than a whole share
    }
    weights.sort_unstable_by(|a, b| b.cmp(a));
    let even = peel(weights.iter().map(|w| u128::from(*w)), total, workers);
    let share = even.rest.div_ceil(even.workers as u128);
    let most = input.partitions.len().div_ceil(workers) as u64;

    let mut least = Amount::default();
    for (before, heaviest) in before.iter().zip(heaviest) {
        // A partition heavier than a share may as well stay where it is, alone.
        let keeps = share.max(u128::from(heaviest));
        least.weight += before.weight.saturating_sub(keeps);
        least.count += before.count.saturating_sub(most);
    }
    least
}

#[cfg(test)]
mod tests {
    use super::super::tests::Case;
    use super::*;

    #[test]
    fn balance_is_the_largest_against_the_mean() {
        let case = Case::weighted(2, &[6, 2, 2, 2]);
        let balance = Balance::of(case.input(), &[Some(0), Some(1), Some(1), None]);
        assert_eq!(balance.by_weight(), 6.0 / 5.0);
        assert_eq!(balance.by_count(), 2.0 / 1.5);
        assert_eq!((balance.most.weight, balance.least.weight), (6, 4));
        assert_eq!((balance.most.count, balance.least.count), (2, 1));
        assert_eq!(
            balance.unserved,
            Amount {
                count: 1,
                weight: 2
            }
        );
        assert_eq!(balance.heaviest, 6);
    }

    #[test]
    fn nothing_is_perfectly_balanced() {
        let balance = Balance::of(Case::equal(0, 3).input(), &[None; 3]);
        assert_eq!((balance.by_weight(), balance.by_count()), (1.0, 1.0));
        assert_eq!(balance.unserved.count, 3);
        let balance = Balance::of(Case::equal(3, 0).input(), &[]);
        assert_eq!((balance.by_weight(), balance.by_count()), (1.0, 1.0));
    }

    #[test]
    fn movement_tells_moved_from_placed() {
        let mut case = Case::weighted(2, &[1, 2, 4, 8]);
        case.previous = vec![Some(0), Some(0), None, Some(7)];
        let after = [Some(0), Some(1), Some(1), Some(0)];
        let movement = Movement::of(case.input(), &after);
        assert_eq!(
            movement.moved,
            Amount {
                count: 1,
                weight: 2
            }
        );
        assert_eq!(
            movement.placed,
            Amount {
                count: 2,
                weight: 12
            }
        );
    }

    #[test]
    fn the_minimum_is_what_lies_above_an_even_share() {
        let mut case = Case::weighted(2, &[3, 3, 3, 3]);
        case.previous = vec![Some(0); 4];
        let movement = Movement::of(case.input(), &[Some(0), Some(0), Some(1), Some(1)]);
        assert_eq!(
            movement.minimum,
            Amount {
                count: 2,
                weight: 6
            }
        );
        assert_eq!((movement.by_weight(), movement.by_count()), (1.0, 1.0));
    }

    #[test]
    fn a_giant_need_not_move_but_its_company_must() {
        let mut case = Case::weighted(2, &[100, 1, 1]);
        case.previous = vec![Some(0); 3];
        let movement = Movement::of(case.input(), &[Some(0), Some(1), Some(1)]);
        assert_eq!(movement.minimum.weight, 2);
        assert_eq!(movement.by_weight(), 1.0);
    }
}
