//! The revisions that are known to be those of values.
//!
//! To the server a delete's marker is a message like others: a write that expects its sequence
//! would be accepted, although nothing is there to be overwritten. So only what is known to be a
//! value's revision is expected without a look; anything else is looked up first, which settles it,
//! as what a message is never changes. Whoever writes has mostly just read or written: looks are
//! rare.

use std::collections::HashSet;
use std::mem;
use std::sync::{Mutex, PoisonError};

/// How many are kept for sure; twice as many at most, of 8 bytes each and a little more.
const KEPT: usize = 1 << 18;

/// A set that forgets what has not been met for long.
#[derive(Debug, Default)]
pub(super) struct Known(Mutex<Generations>);

#[derive(Debug, Default)]
struct Generations {
    young: HashSet<u64>,
    old: HashSet<u64>,
}

impl Known {
    pub(super) fn note(&self, sequence: u64) {
        let mut generations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if generations.young.len() >= KEPT {
            generations.old = mem::take(&mut generations.young);
        }
        generations.young.insert(sequence);
    }

    pub(super) fn holds(&self, sequence: u64) -> bool {
        let generations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        generations.young.contains(&sequence) || generations.old.contains(&sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_new_is_kept_and_what_is_old_is_not() {
        let known = Known::default();
        let kept = KEPT as u64;
        (1..=3 * kept).for_each(|sequence| known.note(sequence));
        assert!(known.holds(3 * kept) && known.holds(2 * kept + 1));
        assert!(!known.holds(1) && !known.holds(3 * kept + 1));
    }
}
