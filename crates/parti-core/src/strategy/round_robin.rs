//! Round robin: deal the partitions out like cards. Simple and predictable; a change of
//! membership moves most of them.

use super::{Answer, Input, Strategy};

/// Partition `i` goes to worker `i mod W`, both in sorted order. Looks at neither weights nor
/// `previous`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundRobin;

impl Strategy for RoundRobin {
    fn name(&self) -> String {
        "round_robin".into()
    }

    fn assign(&self, input: Input<'_>) -> Answer {
        let workers = input.workers.len();
        if workers == 0 {
            return Answer::nobody(input);
        }
        let capacity = input.capacity_or_unlimited() as usize;
        let owner = |place: usize| (place / workers < capacity).then_some((place % workers) as u32);
        Answer {
            owners: (0..input.partitions.len()).map(owner).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Case, names};
    use super::*;

    #[test]
    fn deals_one_after_the_other() {
        let case = Case::equal(3, 7);
        let answer = RoundRobin.assign(case.input());
        assert_eq!(names(&answer), "0 1 2 0 1 2 0");
    }

    #[test]
    fn stops_at_capacity() {
        let mut case = Case::equal(3, 8);
        case.capacity = Some(2);
        assert_eq!(names(&RoundRobin.assign(case.input())), "0 1 2 0 1 2 - -");
    }

    #[test]
    fn does_not_look_at_who_served_before() {
        let mut case = Case::equal(2, 4);
        case.previous = vec![Some(1), Some(0), Some(1), Some(0)];
        assert_eq!(names(&RoundRobin.assign(case.input())), "0 1 0 1");
    }
}
