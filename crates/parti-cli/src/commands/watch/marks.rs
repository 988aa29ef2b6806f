//! A letter and a colour for each worker, which it keeps as long as it is seen.

use std::collections::BTreeMap;

use parti::WorkerId;

/// In the order in which they are given out. Enough for 64 workers; whoever comes after them
/// shares [`Mark::REST`].
const LETTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789@%";

/// How a worker appears on the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Its letter. Colours repeat, letters do not.
    pub letter: char,
    /// Its number, for a colour.
    pub number: usize,
}

impl Mark {
    const REST: Mark = Mark {
        letter: '#',
        number: 0,
    };
}

/// Who has which mark.
#[derive(Debug, Default)]
pub struct Marks {
    numbers: BTreeMap<WorkerId, usize>,
}

impl Marks {
    /// These workers are there: each keeps its mark, new ones get the first that are free.
    pub fn see<'a>(&mut self, workers: impl IntoIterator<Item = &'a WorkerId>) {
        let mut before = std::mem::take(&mut self.numbers);
        let mut new = Vec::new();
        for worker in workers {
            match before.remove(worker) {
                Some(number) => drop(self.numbers.insert(worker.clone(), number)),
                None => new.push(worker.clone()),
            }
        }
        let mut taken: Vec<usize> = self.numbers.values().copied().collect();
        taken.sort_unstable();
        let mut free = (0..).filter(|number| taken.binary_search(number).is_err());
        for worker in new {
            if let Some(number) = free.next() {
                self.numbers.insert(worker, number);
            }
        }
    }

    /// A worker's mark.
    pub fn of(&self, worker: &WorkerId) -> Mark {
        let number = self.numbers.get(worker).copied();
        let mark = number.and_then(|number| {
            let letter = LETTERS.chars().nth(number)?;
            Some(Mark { letter, number })
        });
        mark.unwrap_or(Mark::REST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_keeps_its_letter_and_a_new_one_gets_the_first_free() {
        let ids: Vec<WorkerId> = ["a", "b", "c", "d"].map(WorkerId::new).to_vec();
        let mut marks = Marks::default();
        marks.see(&ids[..3]);
        marks.see([&ids[2], &ids[0], &ids[3]]);
        let letters: Vec<char> = ids.iter().map(|id| marks.of(id).letter).collect();
        assert_eq!(letters, ['A', '#', 'C', 'B']);
    }

    #[test]
    fn sixty_four_workers_have_letters_of_their_own() {
        let ids: Vec<WorkerId> = (0..70).map(|n| WorkerId::new(format!("{n:02}"))).collect();
        let mut marks = Marks::default();
        marks.see(&ids);
        let mut letters: Vec<char> = ids[..64].iter().map(|id| marks.of(id).letter).collect();
        letters.sort_unstable();
        letters.dedup();
        assert!(letters.len() == 64 && !letters.contains(&'#'));
        assert_eq!(marks.of(&ids[64]).letter, '#');
    }
}
