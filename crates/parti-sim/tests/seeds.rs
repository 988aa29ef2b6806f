//! The standing slice of seeds, and every seed that once failed.

use std::sync::Arc;

use parti_sim::campaign;
use parti_sim::regressions;
use parti_sim::scenario;
use parti_sim::setup::Setup;
use parti_sim::world;

const SEEDS: u64 = 2_000;

#[test]
fn the_first_seeds_break_no_promise() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let tally = campaign::run(0, SEEDS, cores, 10);
    let broken: Vec<String> = tally
        .failures
        .iter()
        .filter_map(|outcome| {
            Some(format!(
                "seed {}: {}",
                outcome.seed,
                outcome.violation.as_ref()?
            ))
        })
        .collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    assert_eq!(tally.seeds, SEEDS);
}

#[test]
fn what_failed_once_does_not_fail_again() {
    let known = regressions::parse(include_str!("../regressions.txt")).expect("a well-formed list");
    for regression in known {
        let setup = Arc::new(Setup::of(regression.seed));
        let faults = regression.faults.unwrap_or_else(|| scenario::of(&setup));
        let outcome = world::run(&setup, &faults, false);
        if let Some(violation) = outcome.violation {
            panic!(
                "seed {} ({}): {violation}",
                regression.seed, regression.comment
            );
        }
    }
}
