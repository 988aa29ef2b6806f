//! Fair share: equal counts, fewest moves.
//!
//! With `P` partitions and `W` workers, `base = P / W`, and the first `P mod W` workers in sorted
//! order get one more. The counts are thereby fixed, so the fewest moves are those where every
//! worker keeps as much of what it has as its count allows.
//!
//! ```text
//!  8 partitions:  1 worker 8 │ 2: 4 4 │ 3: 3 3 2 │ 4: 2 2 2 2 │ 5: 2 2 2 1 1
//! ```

use super::{Answer, Input, Strategy};

/// Counts by the rule `base = P / W`, the first `P mod W` workers get one more; among those
/// answers, one with the fewest moves. A worker that must give up some keeps its first ones in
/// sorted order; what is free fills the workers one after the other. Weights do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FairShare;

impl Strategy for FairShare {
    fn name(&self) -> String {
        "fair_share".into()
    }

    fn assign(&self, input: Input<'_>) -> Answer {
        if input.workers.is_empty() {
            return Answer::nobody(input);
        }
        let mut room = shares(input);
        let mut owners: Vec<Option<u32>> = (0..input.partitions.len())
            .map(|partition| {
                let owner = input.previous_owner(partition)?;
                let room = &mut room[owner as usize];
                *room = room.checked_sub(1)?;
                Some(owner)
            })
            .collect();

        let mut next = 0;
        for owner in owners.iter_mut().filter(|owner| owner.is_none()) {
            while next < room.len() && room[next] == 0 {
                next += 1;
            }
            let Some(room) = room.get_mut(next) else {
                break; // capacity ran out: the rest stays unserved
            };
            *room -= 1;
            *owner = Some(next as u32);
        }
        Answer { owners }
    }
}

/// How many partitions each worker gets.
fn shares(input: Input<'_>) -> Vec<u64> {
    let (partitions, workers) = (input.partitions.len(), input.workers.len());
    let (base, extra) = (partitions / workers, partitions % workers);
    let capacity = u64::from(input.capacity_or_unlimited());
    (0..workers)
        .map(|worker| ((base + usize::from(worker < extra)) as u64).min(capacity))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Case, counts, names};
    use super::*;

    #[test]
    fn counts_follow_the_rule() {
        let expected: [&[u64]; 5] = [&[8], &[4, 4], &[3, 3, 2], &[2, 2, 2, 2], &[2, 2, 2, 1, 1]];
        for (workers, expected) in (1..).zip(expected) {
            let case = Case::equal(workers, 8);
            let answer = FairShare.assign(case.input());
            assert_eq!(counts(&answer, workers), expected);
        }
    }

    #[test]
    fn a_first_start_fills_workers_one_after_the_other() {
        let answer = FairShare.assign(Case::equal(3, 8).input());
        assert_eq!(names(&answer), "0 0 0 1 1 1 2 2");
    }

    #[test]
    fn a_joiner_gets_the_upper_half() {
        let mut case = Case::equal(2, 8);
        case.previous = vec![Some(0); 8];
        assert_eq!(names(&FairShare.assign(case.input())), "0 0 0 0 1 1 1 1");
    }

    #[test]
    fn a_crash_moves_what_was_lost_and_what_the_counts_demand() {
        // A: P0 P1 P2, B (gone): P3 P4 P5, C: P6 P7. Four each: both keep all they have.
        let mut case = Case::equal(2, 8);
        case.previous = [0, 0, 0, 9, 9, 9, 1, 1].map(Some).to_vec();
        assert_eq!(names(&FairShare.assign(case.input())), "0 0 0 0 1 1 1 1");
    }

    #[test]
    fn moves_are_the_fewest_that_reach_the_counts() {
        let mut case = Case::equal(3, 7); // 3 2 2
        case.previous = [2, 2, 2, 1, 1, 0, 0].map(Some).to_vec();
        let answer = FairShare.assign(case.input());
        assert_eq!(counts(&answer, 3), [3, 2, 2]);
        assert_eq!(answer.movement(case.input()).moved.count, 1);
    }

    #[test]
    fn capacity_limits_every_share() {
        let mut case = Case::equal(3, 8);
        case.capacity = Some(2);
        let answer = FairShare.assign(case.input());
        assert_eq!(counts(&answer, 3), [2, 2, 2]);
        assert_eq!(answer.unserved().count(), 2);
    }
}
