//! The standing slice of seeds, and every seed that once failed.

use parti_sim::campaign;
use parti_sim::regressions;

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
    let known = regressions::all().expect("well-formed files");
    assert!(!known.is_empty(), "the files are gone");
    for (name, regression) in known {
        if let Some(violation) = regression.run(false).violation {
            panic!("{name} ({}): {violation}", regression.comment);
        }
    }
}
