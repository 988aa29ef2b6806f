//! `run`: many seeds, a tally, and for each failing seed the smallest scenario found.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Arguments, all_cores};
use crate::campaign::{self, Tally};
use crate::fault::KINDS;
use crate::scenario;
use crate::setup::{SECOND, Setup};
use crate::shrink;

/// Failing seeds beyond these are counted, but not looked at.
const SHRINK_AT_MOST: usize = 5;
/// After so many seeds a campaign looks at the clock.
const SEEDS_AT_ONCE: u64 = 500;
/// A campaign that fails this often has nothing more to tell.
const FAILURES_AT_MOST: usize = 200;

pub(super) fn run(arguments: &[String]) -> Result<bool, String> {
    let arguments = Arguments::of(arguments, &["seeds", "minutes", "from", "jobs"])?;
    if let Some(word) = arguments.rest.first() {
        return Err(format!("{word:?} is not understood"));
    }
    let seeds = arguments.number("seeds")?;
    let minutes = arguments.number("minutes")?;
    if seeds.is_none() && minutes.is_none() {
        return Err("run wants --seeds N or --minutes M".into());
    }
    let from = arguments.number("from")?.unwrap_or(0);
    let jobs = arguments
        .number("jobs")?
        .map_or_else(all_cores, |jobs| jobs as usize);
    let begun = Instant::now();
    let until = minutes.map(|minutes| begun + Duration::from_secs(60 * minutes));
    let tally = run_until(from, seeds.unwrap_or(u64::MAX), jobs, until);
    let seconds = begun.elapsed().as_secs_f64();
    for outcome in tally.failures.iter().take(SHRINK_AT_MOST) {
        explain(outcome.seed);
    }
    for outcome in tally.failures.iter().skip(SHRINK_AT_MOST) {
        if let Some(violation) = &outcome.violation {
            println!(
                "seed {}: {violation}\n  {}",
                outcome.seed,
                replay_command(outcome.seed)
            );
        }
    }
    print_tally(&tally, seconds);
    Ok(tally.failures.is_empty())
}

/// Runs so many seeds, or as many as the time allows.
fn run_until(from: u64, seeds: u64, jobs: usize, until: Option<Instant>) -> Tally {
    let Some(until) = until else {
        return campaign::run(from, seeds, jobs, FAILURES_AT_MOST);
    };
    let mut all = Tally::default();
    while all.seeds < seeds && Instant::now() < until && all.failures.len() < FAILURES_AT_MOST {
        let some = SEEDS_AT_ONCE.min(seeds - all.seeds);
        all.merge(campaign::run(
            from + all.seeds,
            some,
            jobs,
            FAILURES_AT_MOST,
        ));
    }
    all
}

fn replay_command(seed: u64) -> String {
    format!("cargo run --release -p parti-sim -- replay {seed}")
}

fn explain(seed: u64) {
    let setup = Arc::new(Setup::of(seed));
    let faults = scenario::of(&setup);
    let (smallest, outcome) = shrink::shrink(&setup, &faults);
    let Some(violation) = outcome.violation else {
        println!("seed {seed} failed, and then did not: the simulation is not deterministic");
        return;
    };
    println!("seed {seed}: {violation}");
    println!("  {}", setup.summary());
    println!("  {}", replay_command(seed));
    println!(
        "  {} of {} faults are enough:",
        smallest.len(),
        faults.len()
    );
    for timed in &smallest {
        println!("    {:>9.6} s {:?}", timed.at as f64 / 1e6, timed.fault);
    }
    if let Ok(json) = serde_json::to_string(&smallest) {
        println!("  {} --faults '{json}'", replay_command(seed));
    }
}

fn print_tally(tally: &Tally, seconds: f64) {
    let hours = tally.simulated as f64 / SECOND as f64 / 3600.0;
    println!(
        "simulated: {hours:.1} hours in {seconds:.1} s, {} steps",
        tally.steps
    );
    println!(
        "speed: {:.0} seeds/s",
        tally.seeds as f64 / seconds.max(1e-9)
    );
    let faults: u64 = tally.faults.iter().sum();
    println!("faults injected: {faults}");
    for (kind, count) in KINDS
        .iter()
        .zip(tally.faults)
        .filter(|(_, count)| *count > 0)
    {
        println!("  {count:>9} {kind}");
    }
    for (invariant, count) in by_invariant(tally) {
        println!("broken in {count} seeds: {invariant}");
    }
    println!("{} seeds, {} violations", tally.seeds, tally.failures.len());
}

fn by_invariant(tally: &Tally) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for violation in tally
        .failures
        .iter()
        .filter_map(|outcome| outcome.violation.as_ref())
    {
        *counts.entry(violation.invariant).or_default() += 1;
    }
    counts
}
