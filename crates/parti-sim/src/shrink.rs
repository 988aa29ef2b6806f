//! Makes a failing scenario smaller: leaves faults out and makes them shorter, as long as the same
//! promise is still broken. The effort is bounded.

use std::sync::Arc;

use crate::scenario::Timed;
use crate::setup::{MILLI, Setup};
use crate::world::{self, Outcome};

/// How many runs a shrink may take.
const EFFORT: u32 = 200;

/// The smallest scenario found that still breaks a promise, and how it ends.
pub fn shrink(setup: &Arc<Setup>, faults: &[Timed]) -> (Vec<Timed>, Outcome) {
    let mut smallest = faults.to_vec();
    let mut outcome = world::run(setup, &smallest, false);
    let Some(broken) = outcome
        .violation
        .as_ref()
        .map(|violation| violation.invariant)
    else {
        return (smallest, outcome);
    };
    let mut effort = EFFORT;
    let mut attempt = |candidate: &[Timed]| -> Option<Outcome> {
        effort = effort.checked_sub(1)?;
        let tried = world::run(setup, candidate, false);
        let same = tried
            .violation
            .as_ref()
            .is_some_and(|violation| violation.invariant == broken);
        same.then_some(tried)
    };
    // Halves, then quarters, down to single faults.
    let mut piece = smallest.len().div_ceil(2).max(1);
    loop {
        let mut from = 0;
        while from < smallest.len() {
            let mut candidate = smallest.clone();
            candidate.drain(from..(from + piece).min(candidate.len()));
            match attempt(&candidate) {
                Some(tried) => (smallest, outcome) = (candidate, tried),
                None => from += piece,
            }
        }
        if piece == 1 {
            break;
        }
        piece /= 2;
    }
    for number in 0..smallest.len() {
        loop {
            let mut candidate = smallest.clone();
            let Some(length) = candidate[number].fault.length_mut() else {
                break;
            };
            *length /= 2;
            if *length < 10 * MILLI {
                break;
            }
            match attempt(&candidate) {
                Some(tried) => (smallest, outcome) = (candidate, tried),
                None => break,
            }
        }
    }
    (smallest, outcome)
}
