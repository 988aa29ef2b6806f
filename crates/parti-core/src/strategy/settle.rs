//! The last step of the consistent hash: single moves where partitions are too coarse for limits.
//!
//! Two partitions of 10 at each of two workers, and a third worker joins: nobody has an excess
//! that a partition of 10 fits into, yet one of them should move.

use super::consistent_hash::Draft;
use super::ring::Ring;

/// How often a partition is looked at, on average, before settling gives up.
const LOOKS_PER_PARTITION: usize = 16;

/// Moves single partitions from the fullest workers to the emptiest, as long as somebody lacks
/// load or has too much of it, and both gain. Every move makes the loads more even, so it ends;
/// the limits bound its time, and the next look goes on from there.
pub(super) fn settle(draft: &mut Draft<'_>, ring: &Ring, homes: &[u32]) {
    if is_settled(draft) {
        return;
    }
    let holdings = Holdings::new(draft);
    let mut looks_left = LOOKS_PER_PARTITION * draft.owners.len();
    for _ in 0..2 * draft.seats.len() + 16 {
        let Some((partition, receiver)) = best_move(draft, &holdings, ring, homes, &mut looks_left)
        else {
            return;
        };
        draft.take_back(partition);
        draft.give(partition, receiver);
    }
}

fn is_settled(draft: &Draft<'_>) -> bool {
    let level = draft.level;
    (0u32..).zip(&draft.seats).all(|(worker, seat)| {
        let lacks = seat.load < level.low && draft.has_room(worker);
        let too_much = seat.load > level.high && seat.giant == 0;
        !lacks && !too_much
    })
}

/// A partition to move to the emptiest worker, from the fullest one that has a fitting one.
fn best_move(
    draft: &Draft<'_>,
    holdings: &Holdings,
    ring: &Ring,
    homes: &[u32],
    looks_left: &mut usize,
) -> Option<(u32, u32)> {
    let level = draft.level;
    let workers = 0..draft.seats.len() as u32;
    let receiver = (workers.clone())
        .filter(|worker| draft.has_room(*worker))
        .min_by_key(|worker| draft.seat(*worker).load)?;
    let low = draft.seat(receiver).load;
    let mut donors: Vec<u32> = workers
        .filter(|worker| draft.seat(*worker).load > low && draft.seat(*worker).giant == 0)
        .collect();
    donors.sort_by_key(|worker| std::cmp::Reverse(draft.seat(*worker).load));
    for donor in donors {
        let high = draft.seat(donor).load;
        let need = level
            .low
            .saturating_sub(low)
            .max(high.saturating_sub(level.high));
        if need == 0 {
            return None; // the receiver has enough, and from here on no donor has too much
        }
        let held = holdings.of(donor);
        *looks_left = looks_left.checked_sub(held.len())?;
        let gap = high - low;
        let wanted = need.min(gap / 2);
        let best = (held.iter().copied())
            .filter(|p| draft.owner(*p) == Some(donor) && draft.weight(*p) < gap)
            .min_by_key(|p| {
                let elsewhere = ring.worker(homes[*p as usize]) != receiver;
                (draft.weight(*p).abs_diff(wanted), elsewhere, *p)
            });
        if let Some(partition) = best {
            return Some((partition, receiver));
        }
    }
    None
}

/// Who held what when settling began.
struct Holdings {
    partitions: Vec<u32>,
    begins: Vec<usize>,
}

impl Holdings {
    fn new(draft: &Draft<'_>) -> Self {
        let mut begins = Vec::with_capacity(draft.seats.len() + 1);
        let mut end = 0;
        for seat in &draft.seats {
            begins.push(end);
            end += seat.count as usize;
        }
        begins.push(end);
        let mut next = begins.clone();
        let mut partitions = vec![0; end];
        for (partition, owner) in (0u32..).zip(&draft.owners) {
            if let Some(owner) = owner {
                let place = &mut next[*owner as usize];
                partitions[*place] = partition;
                *place += 1;
            }
        }
        Self { partitions, begins }
    }

    fn of(&self, worker: u32) -> &[u32] {
        let worker = worker as usize;
        &self.partitions[self.begins[worker]..self.begins[worker + 1]]
    }
}
