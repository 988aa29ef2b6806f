//! Many seeds at once, over all cores.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::fault::KINDS;
use crate::scenario::{self, Timed};
use crate::setup::{Micros, Setup};
use crate::world::{self, Outcome};

/// What many seeds came to.
#[derive(Debug, Default)]
pub struct Tally {
    /// How many seeds were run.
    pub seeds: u64,
    /// Simulated time in all.
    pub simulated: Micros,
    /// Events delivered and writes accepted.
    pub steps: u64,
    /// Faults that really happened, by kind.
    pub faults: [u64; KINDS.len()],
    /// The failing runs, by seed.
    pub failures: Vec<Outcome>,
}

/// Runs one seed as it stands.
pub fn run_seed(seed: u64) -> Outcome {
    let setup = Arc::new(Setup::of(seed));
    let faults: Vec<Timed> = scenario::of(&setup);
    world::run(&setup, &faults, false)
}

/// Runs the seeds `from .. from + count` on so many threads, until so many have failed.
pub fn run(from: u64, count: u64, jobs: usize, most_failures: usize) -> Tally {
    let next = AtomicU64::new(0);
    let failed = AtomicU64::new(0);
    let tallies: Vec<Tally> = thread::scope(|scope| {
        let work = || {
            let mut tally = Tally::default();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count || failed.load(Ordering::Relaxed) >= most_failures as u64 {
                    return tally;
                }
                let outcome = run_seed(from + number);
                if outcome.violation.is_some() {
                    failed.fetch_add(1, Ordering::Relaxed);
                }
                tally.add(outcome);
            }
        };
        let threads: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .filter_map(|thread| thread.join().ok())
            .collect()
    });
    let mut all = Tally::default();
    for tally in tallies {
        all.merge(tally);
    }
    all.failures.sort_by_key(|outcome| outcome.seed);
    all
}

impl Tally {
    fn add(&mut self, outcome: Outcome) {
        self.seeds += 1;
        self.simulated += outcome.simulated;
        self.steps += outcome.steps;
        for (sum, count) in self.faults.iter_mut().zip(outcome.faults) {
            *sum += u64::from(count);
        }
        if outcome.violation.is_some() {
            self.failures.push(outcome);
        }
    }

    /// Adds up.
    pub fn merge(&mut self, other: Tally) {
        self.seeds += other.seeds;
        self.simulated += other.simulated;
        self.steps += other.steps;
        for (sum, count) in self.faults.iter_mut().zip(other.faults) {
            *sum += count;
        }
        self.failures.extend(other.failures);
    }
}
