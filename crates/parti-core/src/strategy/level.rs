//! What an even share is: weights on a common scale, giants set apart, and the limits that
//! follow.

use super::Input;

/// Sums stay below this many bits, so that no product below overflows 64.
const SCALE_BITS: u32 = 56;
/// A worker may exceed or miss an even share by one part in so many before anything moves.
const TOLERANCE: u64 = 100;

/// What is left to share once the giants have a worker each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Even {
    /// How many partitions weigh more than an even share of the rest.
    pub giants: usize,
    /// What the others weigh together.
    pub rest: u128,
    /// How many workers share that. At least one.
    pub workers: usize,
}

/// Sets apart, from the heaviest on, each partition that outweighs an even share of what is left:
/// it fills a worker by itself, and the others share the rest.
pub(super) fn peel(
    heaviest_first: impl Iterator<Item = u128>,
    total: u128,
    workers: usize,
) -> Even {
    let mut even = Even {
        giants: 0,
        rest: total,
        workers: workers.max(1),
    };
    for weight in heaviest_first {
        // Nothing outweighs the whole rest, so the last worker is never given away.
        if weight * even.workers as u128 <= even.rest {
            break;
        }
        even.giants += 1;
        even.rest -= weight;
        even.workers -= 1;
    }
    even
}

/// The partitions' weights on a scale where sums cannot overflow, and the heaviest first.
pub(super) struct Weights {
    /// Per partition; at least 1.
    pub of: Vec<u64>,
    /// All partitions, heaviest first, equals in the input's order.
    pub order: Vec<u32>,
}

impl Weights {
    pub fn new(input: Input<'_>) -> Self {
        let raw = || input.partitions.iter().map(|p| p.weight.max(1));
        let unit = raw().fold(0, greatest_common_divisor);
        let units: u128 = raw().map(|w| u128::from(w / unit)).sum();
        let bits = u128::BITS - units.leading_zeros();
        let shift = bits.saturating_sub(SCALE_BITS);
        let of: Vec<u64> = raw().map(|w| ((w / unit) >> shift).max(1)).collect();
        let order = heaviest_first(&of);
        Self { of, order }
    }
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    if a == 1 {
        return 1;
    }
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn heaviest_first(weights: &[u64]) -> Vec<u32> {
    if weights.windows(2).all(|pair| pair[0] >= pair[1]) {
        return (0..weights.len() as u32).collect();
    }
    let heaviest = weights.iter().copied().max().unwrap_or(0);
    if let Ok(heaviest) = u32::try_from(heaviest) {
        // Weight and index in one word: half the memory, and a faster sort.
        let mut keys: Vec<u64> = (0u64..)
            .zip(weights)
            .map(|(index, weight)| ((u64::from(heaviest) - weight) << 32) | index)
            .collect();
        keys.sort_unstable();
        keys.into_iter().map(|key| key as u32).collect()
    } else {
        let mut keys: Vec<(u64, u32)> = (0u32..)
            .zip(weights)
            .map(|(index, weight)| (heaviest - weight, index))
            .collect();
        keys.sort_unstable();
        keys.into_iter().map(|(_, index)| index).collect()
    }
}

/// The loads that a worker without a giant should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Level {
    /// How many of the heaviest partitions are giants, each with a worker of its own.
    pub giants: usize,
    /// Below this a worker gets more, at the cost of others.
    pub low: u64,
    /// Up to this a worker is filled first: an even share, rounded down.
    pub share: u64,
    /// Above this a worker gives up some. No answer's largest load can be much smaller.
    pub high: u64,
}

impl Level {
    pub fn new(weights: &Weights, workers: usize) -> Self {
        let heaviest_first = || weights.order.iter().map(|p| weights.of[*p as usize]);
        let total = weights.of.iter().map(|w| u128::from(*w)).sum();
        let even = peel(heaviest_first().map(u128::from), total, workers);
        let share = (even.rest / even.workers as u128) as u64;
        Self {
            giants: even.giants,
            low: share - share / TOLERANCE,
            share,
            high: (share + share / TOLERANCE).max(unavoidable(weights, even)),
        }
    }

    /// Above this, a worker with this giant gives up the giant's company.
    pub fn high_beside(&self, giant: u64) -> u64 {
        self.high.max(giant + giant / TOLERANCE)
    }
}

/// A largest load that no answer avoids: of `k` times as many partitions as workers, and one
/// more, some worker gets `k + 1`, none of them lighter than the last.
fn unavoidable(weights: &Weights, even: Even) -> u64 {
    let rest = &weights.order[even.giants..];
    let last_of_each_round = rest.iter().step_by(even.workers);
    let loads = (1u64..).zip(last_of_each_round);
    loads
        .map(|(round, partition)| round * weights.of[*partition as usize])
        .max()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::tests::Case;
    use super::*;

    fn level(workers: usize, weights: &[u64]) -> Level {
        Level::new(
            &Weights::new(Case::weighted(workers, weights).input()),
            workers,
        )
    }

    #[test]
    fn equal_weights_are_counted() {
        let seventy = level(10, &[7; 1000]);
        assert_eq!((seventy.low, seventy.share, seventy.high), (99, 100, 101));
        let few = level(5, &[7; 8]);
        assert_eq!((few.low, few.share, few.high), (1, 1, 2));
    }

    #[test]
    fn giants_are_set_apart_one_after_the_other() {
        // 100 of 118 is above a third; then 9 of 18 is exactly a half and no giant.
        let level = level(3, &[1, 100, 9, 8]);
        assert_eq!((level.giants, level.share), (1, 9));
    }

    #[test]
    fn order_is_heaviest_first_and_stable() {
        let small = Weights::new(Case::weighted(1, &[1, 3, 2, 3, 1]).input());
        assert_eq!(small.order, [1, 3, 2, 0, 4]);
        let big = u64::from(u32::MAX) * 8 + 1;
        let large = Weights::new(Case::weighted(1, &[1, big, 2, big, 1]).input());
        assert_eq!(large.order, [1, 3, 2, 0, 4]);
    }

    #[test]
    fn the_largest_weights_do_not_overflow() {
        let weights = Weights::new(Case::weighted(3, &[u64::MAX, u64::MAX - 1, 0]).input());
        assert!(weights.of.iter().sum::<u64>() <= 1 << SCALE_BITS);
        assert_eq!(weights.of[2], 1);
        Level::new(&weights, 3);
    }
}
