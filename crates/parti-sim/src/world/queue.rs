//! What is going to happen, in order of time; at the same time, in order of arrival.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::setup::Micros;

struct Entry<T> {
    at: Micros,
    number: u64,
    what: T,
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    /// The earliest is the greatest: the heap yields its greatest first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

/// A queue of things to come.
pub(super) struct Queue<T> {
    heap: BinaryHeap<Entry<T>>,
    number: u64,
}

impl<T> Queue<T> {
    pub fn new() -> Self {
        Self {
            heap: BinaryHeap::with_capacity(256),
            number: 0,
        }
    }

    /// Something will happen then.
    pub fn push(&mut self, at: Micros, what: T) {
        self.number += 1;
        self.heap.push(Entry {
            at,
            number: self.number,
            what,
        });
    }

    /// The next thing, and when it happens.
    pub fn pop(&mut self) -> Option<(Micros, T)> {
        self.heap.pop().map(|entry| (entry.at, entry.what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yields_by_time_and_then_by_arrival() {
        let mut queue = Queue::new();
        for (at, what) in [(5, 'c'), (1, 'a'), (5, 'd'), (2, 'b'), (5, 'e')] {
            queue.push(at, what);
        }
        let order: String = std::iter::from_fn(|| queue.pop().map(|(_, what)| what)).collect();
        assert_eq!(order, "abcde");
    }
}
