//! How fast: from one checkpoint of a partition to the next, and from one look at the source to
//! the next.

use std::collections::{HashMap, VecDeque};

use parti::inspect::PartitionView;
use parti::{Offset, PartitionId};

/// A checkpoint that has not moved for this long, in milliseconds, does not move. What was done
/// after a longer rest counts as done within this time.
const STILL_MS: u64 = 15_000;
/// Over how many looks at the source a rate is taken.
const LOOKS: usize = 6;

/// One partition's progress.
#[derive(Clone, Copy, Debug)]
struct Pace {
    next: Offset,
    /// When that was written, by its writer's clock.
    written_ms: u64,
    /// When it was seen, by ours.
    seen_ms: u64,
    per_second: Option<f64>,
}

/// How fast everything goes.
#[derive(Debug, Default)]
pub struct Rates {
    paces: HashMap<PartitionId, Pace>,
    /// When the source was looked at, and how many messages it had ever had.
    looks: VecDeque<(u64, u64)>,
}

impl Rates {
    /// Takes over what checkpoints say now.
    pub fn checkpoints(&mut self, now_ms: u64, partitions: &[PartitionView]) {
        for partition in partitions {
            let Some(next) = partition.next_offset else {
                continue;
            };
            let new = Pace {
                next,
                written_ms: partition.updated_ms,
                seen_ms: now_ms,
                per_second: None,
            };
            match self.paces.get_mut(&partition.id) {
                None => drop(self.paces.insert(partition.id.clone(), new)),
                Some(pace) if pace.next == next => {}
                // An operator has moved it back.
                Some(pace) if pace.next > next => *pace = new,
                Some(pace) => {
                    let gap = new.written_ms.saturating_sub(pace.written_ms);
                    let per_second = rate(next.0 - pace.next.0, gap.clamp(1, STILL_MS));
                    *pace = Pace {
                        per_second: Some(per_second),
                        ..new
                    };
                }
            }
        }
    }

    /// Messages of a partition that are done, by second; `None` before two checkpoints were seen.
    pub fn done(&self, now_ms: u64, partition: &PartitionId) -> Option<f64> {
        let pace = self.paces.get(partition)?;
        if now_ms.saturating_sub(pace.seen_ms) > STILL_MS {
            return Some(0.0);
        }
        pace.per_second
    }

    /// The source was looked at, and has had so many messages so far.
    pub fn look(&mut self, now_ms: u64, messages: u64) {
        if self.looks.back().is_some_and(|(_, last)| *last > messages) {
            self.looks.clear();
        }
        self.looks.push_back((now_ms, messages));
        if self.looks.len() > LOOKS {
            self.looks.pop_front();
        }
    }

    /// Messages that come in, by second; `None` before two looks.
    pub fn incoming(&self) -> Option<f64> {
        let (first_ms, first) = self.looks.front()?;
        let (last_ms, last) = self.looks.back()?;
        let gap = last_ms.checked_sub(*first_ms).filter(|gap| *gap > 0)?;
        Some(rate(last - first, gap))
    }
}

fn rate(count: u64, ms: u64) -> f64 {
    count as f64 * 1_000.0 / ms as f64
}

#[cfg(test)]
mod tests {
    use super::super::tests::partition_view;
    use super::*;

    #[test]
    fn two_checkpoints_make_a_rate_by_the_writers_clock() {
        let mut rates = Rates::default();
        let mut view = partition_view("1", Some("worker-0"), 100);
        view.updated_ms = 50_000;
        rates.checkpoints(1_000, &[view.clone()]);
        assert_eq!(rates.done(1_000, &view.id), None);
        view.next_offset = Some(Offset(600));
        view.updated_ms = 55_000;
        rates.checkpoints(9_000, &[view.clone()]);
        rates.checkpoints(9_500, &[view.clone()]);
        assert_eq!(rates.done(10_000, &view.id), Some(100.0));
        assert_eq!(rates.done(9_001 + STILL_MS, &view.id), Some(0.0));
        // After a long rest, the rest does not count.
        view.next_offset = Some(Offset(615));
        view.updated_ms = 9_055_000;
        rates.checkpoints(9_009_000, &[view.clone()]);
        assert_eq!(rates.done(9_009_000, &view.id), Some(1.0));
        // Moved back by hand: nothing was done.
        view.next_offset = Some(Offset(0));
        rates.checkpoints(9_010_000, &[view.clone()]);
        assert_eq!(rates.done(9_010_000, &view.id), None);
    }

    #[test]
    fn looks_at_the_source_make_a_rate() {
        let mut rates = Rates::default();
        rates.look(0, 1_000);
        assert_eq!(rates.incoming(), None);
        rates.look(2_000, 1_200);
        assert_eq!(rates.incoming(), Some(100.0));
        rates.look(4_000, 10);
        assert_eq!(
            rates.incoming(),
            None,
            "another log, or one that was emptied"
        );
    }
}
