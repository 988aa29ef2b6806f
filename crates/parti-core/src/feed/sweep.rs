//! Which lanes with a backlog are read together: one read of the whole stream, whose foreign messages
//! are dropped, instead of one read for each.
//!
//! ```text
//!   offsets ──▶        a lane below reads alone      ahead: it waits its turn
//!              ──┴───────────┬┴───┴┴────┴──────┬─────────┴──────▶
//!                            from    (swept)   at most a span further
//! ```
//!
//! A server finds the messages of one subject by a walk over all of them, which is about a sixteenth
//! of the work of sending them all. So the more lanes are at about the same place, the better one
//! sweep is. Whoever is at or past its beginning gets everything from it: nobody else may.

use crate::ids::{Offset, PartitionId};

/// The most offsets that one sweep covers.
pub(crate) const SPAN: u64 = 16_384;

/// A lane with a backlog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Behind {
    /// What it needs next.
    pub(crate) next: Offset,
    /// Up to where (inclusive) it has to be read.
    pub(crate) upto: Offset,
    /// How many messages it takes.
    pub(crate) room: u32,
    pub(crate) partition: PartitionId,
}

/// What to sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) from: Offset,
    pub(crate) upto: Offset,
    pub(crate) limit: u32,
    /// Sorted.
    pub(crate) partitions: Vec<PartitionId>,
}

/// Chooses the lowest sweep that saves work: one that stands for at least `enough` lanes that would be
/// read from its beginning to its end. `behind` is sorted by what is needed next.
pub(crate) fn choose(behind: &[Behind], enough: u32) -> Option<Choice> {
    for (index, lowest) in behind.iter().enumerate() {
        let (from, rest) = (lowest.next, &behind[index..]);
        if u64::from(enough) > rest.len() as u64 {
            return None;
        }
        let end = Offset(from.0.saturating_add(SPAN - 1));
        let covered = &rest[..rest.partition_point(|lane| lane.next <= end)];
        let upto = covered.iter().map(|lane| lane.upto).max()?.min(end);
        let alone = |lane: &Behind| (lane.upto.min(upto).0 + 1).saturating_sub(lane.next.0);
        let saved: u64 = covered.iter().map(alone).sum();
        if saved >= u64::from(enough) * (upto.0 + 1 - from.0) {
            let mut partitions: Vec<_> = covered.iter().map(|l| l.partition.clone()).collect();
            partitions.sort_unstable();
            let limit = covered.iter().map(|lane| lane.room).min()?;
            return Some(Choice {
                from,
                upto,
                limit,
                partitions,
            });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes(nexts: &[u64], upto: u64) -> Vec<Behind> {
        let lane = |(index, next): (usize, &u64)| Behind {
            next: Offset(*next),
            upto: Offset(upto),
            room: 10 + index as u32,
            partition: PartitionId::new(format!("{index}")),
        };
        nexts.iter().enumerate().map(lane).collect()
    }

    fn chosen(nexts: &[u64], upto: u64, enough: u32) -> Option<(u64, u64, u32, usize)> {
        let choice = choose(&lanes(nexts, upto), enough)?;
        let partitions = choice.partitions.len();
        Some((choice.from.0, choice.upto.0, choice.limit, partitions))
    }

    #[test]
    fn enough_lanes_at_one_place_are_swept_and_fewer_are_not() {
        assert_eq!(chosen(&[5, 5, 5], 100, 3), Some((5, 100, 10, 3)));
        assert_eq!(chosen(&[5, 5], 100, 3), None);
        assert_eq!(chosen(&[], 100, 1), None);
    }

    #[test]
    fn a_sweep_is_only_so_long_and_reaches_no_lane_beyond() {
        let far = 5 + SPAN;
        assert_eq!(
            chosen(&[5, 5, far], 1_000_000, 2),
            Some((5, far - 1, 10, 2))
        );
    }

    #[test]
    fn who_is_far_below_the_others_reads_alone() {
        // The one at 5 would make the sweep four times as long, for itself only.
        assert_eq!(chosen(&[5, 76, 77, 78], 100, 3), None);
        assert_eq!(
            chosen(&[5, 77, 77, 77], 100, 3),
            Some((77, 100, 11, 3)),
            "and is not swept along, or it would miss what lies before"
        );
    }
}
