//! The step of the consistent hash that takes partitions back: as little as will do.
//!
//! ```text
//!   load
//!     │ ▓▓▓          ▓▓▓            what is above the water is shed
//!     │ ███ ▓▓▓ ▓▓▓  ███
//!  ~~~│~███~███~███~~███~~~~~~~~~~  the highest water level that frees enough,
//!     │ ███ ███ ███  ███  ░░░       and never above the bound
//!     │ ███ ███ ███  ███  ░░░       ░ what a joiner lacks
//!     └──────────────────────────▶ workers
//! ```

use super::consistent_hash::Draft;
use super::ring::Ring;

/// Takes back what is too much where it is, and what others lack.
pub(super) fn shed(draft: &mut Draft<'_>, ring: &Ring, homes: &[u32]) {
    let workers = 0..draft.seats.len() as u32;
    let lacks: Vec<bool> = workers.map(|worker| draft.lacks(worker)).collect();
    draft.lacking = lacks.iter().filter(|lacks| **lacks).count();

    let Excess { mut of, need } = Excess::new(draft);
    if need == 0 {
        return;
    }
    let weights = draft.weights;
    let mut shed = 0;
    // The heaviest first, because they fit the fewest gaps. Among those of about the same weight,
    // first what hashes to a worker that lacks load: a worker that comes back then gets back much
    // of what it had.
    let magnitude = |partition: &u32| weights.of[*partition as usize].ilog2();
    for class in (weights.order).chunk_by(|a, b| magnitude(a) == magnitude(b)) {
        for pass in PASSES {
            for partition in class.iter().copied() {
                let Some(owner) = draft.owner(partition) else {
                    continue;
                };
                let weight = draft.weight(partition);
                let excess = &mut of[owner as usize];
                let fits = weight < *excess || (weight == *excess && pass.all && shed < need);
                let stays = weight == draft.seat(owner).giant;
                let home = ring.worker(homes[partition as usize]);
                if !fits || stays || (pass.only_at_home && !lacks[home as usize]) {
                    continue;
                }
                *excess -= weight;
                shed += weight;
                draft.take_back(partition);
            }
        }
    }
}

/// The order in which partitions of about the same weight are looked at.
struct Pass {
    /// Down to the water level. The last unit above it is mere rounding, and is shed only as far
    /// as needed.
    all: bool,
    /// Only what hashes to a worker that lacks load.
    only_at_home: bool,
}

const PASSES: [Pass; 4] = [
    pass(false, true),
    pass(false, false),
    pass(true, true),
    pass(true, false),
];

const fn pass(all: bool, only_at_home: bool) -> Pass {
    Pass { all, only_at_home }
}

/// How much is too much.
struct Excess {
    /// What each worker should give up.
    of: Vec<u64>,
    /// How much that has to be in all.
    need: u64,
}

impl Excess {
    fn new(draft: &Draft<'_>) -> Self {
        let level = draft.level;
        let mut of = vec![0; draft.seats.len()];
        let mut loads = Vec::with_capacity(draft.seats.len());
        let (mut from_giants, mut too_much, mut lack) = (0, 0, 0);
        for (worker, seat) in (0u32..).zip(&draft.seats) {
            if seat.giant > 0 {
                // A giant should be alone, but its company need not go for next to nothing.
                if seat.load > level.high_beside(seat.giant) {
                    of[worker as usize] = seat.load - seat.giant;
                    from_giants += seat.load - seat.giant;
                }
                continue;
            }
            too_much += seat.load.saturating_sub(level.high);
            if draft.lacks(worker) {
                lack += level.low - seat.load;
            }
            loads.push(seat.load);
        }

        let homeless = (0u32..)
            .zip(&draft.owners)
            .filter(|(_, owner)| owner.is_none());
        let homeless: u64 = homeless.map(|(p, _)| draft.weight(p)).sum();
        let need = lack.saturating_sub(homeless + from_giants).max(too_much);
        if need > 0 {
            let water = water_level(loads, need).min(level.high);
            for (seat, excess) in draft.seats.iter().zip(&mut of) {
                if seat.giant == 0 {
                    *excess = seat.load.saturating_sub(water);
                }
            }
        }
        Self {
            of,
            need: need + from_giants,
        }
    }
}

/// The highest level such that what lies above it is enough.
fn water_level(mut loads: Vec<u64>, need: u64) -> u64 {
    loads.sort_unstable_by(|a, b| b.cmp(a));
    // With the `n` largest loads cut down to one level, that level is (their sum - need) / n; it
    // is the right one unless it lies below the next load, which then is cut as well.
    let mut sum = 0u64;
    for (n, load) in (1u64..).zip(&loads) {
        sum += load;
        let water = sum.saturating_sub(need) / n;
        let next = loads.get(n as usize).copied().unwrap_or(0);
        if water >= next {
            return water;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn water_stands_as_high_as_it_can() {
        let above = |loads: &[u64], water: u64| -> u64 {
            loads.iter().map(|load| load.saturating_sub(water)).sum()
        };
        let loads = [79, 78, 78, 10, 0];
        for need in 1..=above(&loads, 0) {
            let water = water_level(loads.to_vec(), need);
            assert!(above(&loads, water) >= need, "{need}: {water}");
            assert!(above(&loads, water + 1) < need, "{need}: {water}");
        }
        assert_eq!(water_level(vec![5, 5], 11), 0);
        assert_eq!(water_level(vec![], 1), 0);
    }
}
