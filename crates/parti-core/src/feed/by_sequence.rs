//! What is kept of deliveries, by their consumer sequence.

use std::collections::VecDeque;

/// Values by sequence. Sequences come in ascending order, and most go nearly in it: so a queue is
/// all it takes.
#[derive(Clone, Debug)]
pub struct BySequence<T> {
    /// Ascending. What was taken leaves its place empty until it is at the front.
    places: VecDeque<(u64, Option<T>)>,
    /// Places that are not empty.
    count: usize,
}

impl<T> Default for BySequence<T> {
    fn default() -> Self {
        Self {
            places: VecDeque::new(),
            count: 0,
        }
    }
}

impl<T> BySequence<T> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Keeps a value, in the place of an earlier one of the same sequence.
    pub fn keep(&mut self, sequence: u64, value: T) {
        let place = (sequence, Some(value));
        self.count += 1;
        match self.places.back() {
            Some((last, _)) if *last >= sequence => match self.find(sequence) {
                Ok(at) => {
                    let (_, before) = std::mem::replace(&mut self.places[at], place);
                    self.count -= usize::from(before.is_some());
                }
                Err(at) => self.places.insert(at, place),
            },
            _ => self.places.push_back(place),
        }
        if self.places.len() / 2 > self.count {
            // One that stays long is at the front: not all the places behind it have to.
            self.places.retain(|(_, value)| value.is_some());
        }
    }

    /// The value of a sequence.
    pub fn get(&self, sequence: u64) -> Option<&T> {
        self.places[self.find(sequence).ok()?].1.as_ref()
    }

    /// The value of a sequence, which then is no more here.
    pub fn take(&mut self, sequence: u64) -> Option<T> {
        let at = self.find(sequence).ok()?;
        let value = self.places[at].1.take()?;
        self.count -= 1;
        self.tidy();
        Some(value)
    }

    /// The value of the least sequence, which then is no more here.
    pub fn take_first(&mut self) -> Option<T> {
        let (_, value) = self.places.pop_front()?;
        self.count -= 1;
        self.tidy();
        value
    }

    /// All of them, in order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut T)> {
        self.places
            .iter_mut()
            .filter_map(|(sequence, value)| Some((*sequence, value.as_mut()?)))
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.places.clear();
        self.count = 0;
    }

    /// No empty place is at the front.
    fn tidy(&mut self) {
        while self
            .places
            .pop_front_if(|(_, value)| value.is_none())
            .is_some()
        {}
    }

    fn find(&self, sequence: u64) -> Result<usize, usize> {
        self.places.binary_search_by_key(&sequence, |(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(sequences: &[u64]) -> BySequence<u64> {
        let mut kept = BySequence::default();
        for sequence in sequences {
            kept.keep(*sequence, *sequence);
        }
        kept
    }

    #[test]
    fn each_is_taken_once_in_any_order() {
        let mut kept = kept(&[3, 4, 7, 8]);
        assert_eq!((kept.len(), kept.get(7)), (4, Some(&7)));
        for sequence in [7, 3, 8, 4] {
            assert_eq!(kept.take(sequence), Some(sequence));
            assert_eq!(kept.take(sequence), None);
            assert_eq!(kept.get(sequence), None);
        }
        assert!(kept.is_empty() && kept.places.is_empty());
        assert_eq!(kept.take(5), None, "it never was here");
        assert_eq!(kept.take_first(), None);
    }

    #[test]
    fn the_first_is_the_least_that_is_left() {
        let mut kept = kept(&[1, 2, 3, 4]);
        kept.take(2);
        let first: Vec<_> = std::iter::from_fn(|| kept.take_first()).collect();
        assert_eq!(first, [1, 3, 4]);
        assert_eq!(kept.len(), 0);
    }

    #[test]
    fn one_that_stays_outlasts_any_number_that_go() {
        let mut kept = kept(&[1]);
        for sequence in 2..1_000 {
            kept.keep(sequence, sequence);
            assert_eq!(kept.take(sequence), Some(sequence));
            assert!(kept.places.len() <= 6, "few places are left empty");
        }
        assert_eq!((kept.len(), kept.take(1)), (1, Some(1)));
    }

    #[test]
    fn what_comes_late_or_again_has_its_place() {
        let mut kept = kept(&[5, 9, 7, 9]);
        kept.iter_mut().for_each(|(_, value)| *value += 1);
        assert_eq!(kept.len(), 3);
        assert_eq!(
            [5, 7, 9].map(|at| kept.take(at)),
            [Some(6), Some(8), Some(10)]
        );
    }

    #[test]
    fn nothing_is_left_of_what_is_forgotten() {
        let mut kept = kept(&[5, 6]);
        kept.clear();
        assert!(kept.is_empty() && kept.get(5).is_none());
    }
}
