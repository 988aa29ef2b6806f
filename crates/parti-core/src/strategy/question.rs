//! The part of the partitions that a strategy is asked about, and what beats its answer.
//!
//! ```text
//!   all partitions ── those that somebody may get ──▶ Strategy::assign ──▶ pins above it
//! ```
//!
//! For whoever plans (the leader), and for whoever shows what would be planned.

use std::borrow::Cow;

use super::{Answer, Input, Strategy};
use crate::ids::{PartitionId, WorkerId};
use crate::partition::Partition;

/// A question to a strategy, about some of the partitions.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    workers: &'a [WorkerId],
    partitions: Cow<'a, [Partition]>,
    previous: Vec<Option<u32>>,
    capacity: Option<u32>,
    /// The place of each of them among all.
    places: Vec<usize>,
    all: usize,
}

impl<'a> Question<'a> {
    /// About those partitions only whose places are `asked` for.
    pub fn about(whole: Input<'a>, asked: impl Fn(usize) -> bool) -> Self {
        let all = whole.partitions.len();
        let places: Vec<usize> = (0..all).filter(|place| asked(*place)).collect();
        let partitions = if places.len() == all {
            Cow::Borrowed(whole.partitions)
        } else {
            let some = places.iter().map(|place| whole.partitions[*place].clone());
            Cow::Owned(some.collect())
        };
        let previous = if whole.previous.is_empty() {
            Vec::new()
        } else {
            let owners = places.iter().map(|place| whole.previous.get(*place));
            owners.map(|owner| owner.copied().flatten()).collect()
        };
        Self {
            workers: whole.workers,
            partitions,
            previous,
            capacity: whole.capacity,
            places,
            all,
        }
    }

    /// As a strategy is asked.
    pub fn input(&self) -> Input<'_> {
        Input {
            workers: self.workers,
            partitions: &self.partitions,
            previous: &self.previous,
            capacity: self.capacity,
        }
    }

    /// What the strategy says; but what is pinned goes to that worker.
    pub fn answer(
        &self,
        strategy: &dyn Strategy,
        pinned: impl Fn(&PartitionId) -> Option<u32>,
    ) -> Answer {
        let mut answer = strategy.assign(self.input());
        put_pins(&self.partitions, &mut answer.owners, pinned);
        answer
    }

    /// Who has each of all partitions by this answer: nobody what was not asked about.
    pub fn owners(&self, answer: &Answer) -> Vec<Option<u32>> {
        let mut owners = vec![None; self.all];
        for (&place, owner) in self.places.iter().zip(&answer.owners) {
            owners[place] = *owner;
        }
        owners
    }

    /// The answer to this question by which all partitions have these owners.
    pub fn answer_of(&self, owners: &[Option<u32>]) -> Answer {
        let owners = self.places.iter().map(|place| owners.get(*place));
        Answer {
            owners: owners.map(|owner| owner.copied().flatten()).collect(),
        }
    }
}

/// Puts pins above a strategy's answer. `pinned` is the place of the worker among those that may
/// receive, none for whoever may not.
pub fn put_pins(
    partitions: &[Partition],
    owners: &mut [Option<u32>],
    pinned: impl Fn(&PartitionId) -> Option<u32>,
) {
    for (partition, owner) in partitions.iter().zip(owners) {
        *owner = pinned(&partition.id).or(*owner);
    }
}

#[cfg(test)]
mod tests {
    use super::super::RoundRobin;
    use super::super::tests::Case;
    use super::*;

    #[test]
    fn only_some_are_asked_about_and_pins_beat_the_answer() {
        let mut case = Case::equal(2, 5);
        case.previous = [1, 1, 0, 0, 0].map(Some).to_vec();
        let question = Question::about(case.input(), |place| place != 1);
        let input = question.input();
        let asked: Vec<_> = input.partitions.iter().map(|one| one.id.clone()).collect();
        let all: Vec<_> = case.partitions.iter().map(|one| one.id.clone()).collect();
        assert_eq!(asked, [0, 2, 3, 4].map(|place: usize| all[place].clone()));
        assert_eq!(input.previous, [1, 0, 0, 0].map(Some));
        // What is not asked about is nobody's, pinned or not.
        let pinned = |id: &PartitionId| [&all[1], &all[4]].contains(&id).then_some(0);
        let answer = question.answer(&RoundRobin, pinned);
        assert_eq!(answer.owners, [0, 1, 0, 0].map(Some));
        let owners = question.owners(&answer);
        assert_eq!(owners, [Some(0), None, Some(1), Some(0), Some(0)]);
        assert_eq!(question.answer_of(&owners), answer);
    }

    #[test]
    fn without_a_previous_one_none_is_made_up() {
        let case = Case::equal(2, 3);
        let question = Question::about(case.input(), |place| place > 0);
        assert!(question.input().previous.is_empty());
        let answer = question.answer(&RoundRobin, |_| None);
        assert_eq!(question.owners(&answer), [None, Some(0), Some(1)]);
    }
}
