//! `planted`: plants each known bug in turn and counts the seeds it takes to catch it.
//!
//! Bugs exist only in a build of their own: the command builds the simulator anew with
//! `--cfg parti_planted`, into a directory of its own, and runs that.

#[cfg(not(parti_planted))]
pub(super) fn run(arguments: &[String]) -> Result<bool, String> {
    use std::path::Path;
    use std::process::Command;

    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root.join("target"), std::path::PathBuf::from)
        .join("planted");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args([
            "run",
            "--release",
            "--quiet",
            "-p",
            "parti-sim",
            "--",
            "planted",
        ])
        .args(arguments)
        .current_dir(&root)
        .env("CARGO_TARGET_DIR", target)
        .env("RUSTFLAGS", "--cfg parti_planted")
        .status()
        .map_err(|why| format!("cargo could not be started: {why}"))?;
    Ok(status.success())
}

#[cfg(parti_planted)]
pub(super) fn run(arguments: &[String]) -> Result<bool, String> {
    use super::Arguments;
    use parti_core::planted::ALL;

    let arguments = Arguments::of(arguments, &["seeds", "bug"])?;
    let most = arguments.number("seeds")?.unwrap_or(8_000);
    let only = arguments.text("bug");
    let mut rows = Vec::new();
    for (bug, what) in ALL {
        let name = format!("{bug:?}");
        if only.is_some_and(|only| only != name) {
            continue;
        }
        let caught = catch(*bug, most);
        let line = match &caught {
            Some((seeds, by)) => format!("{seeds:>6}  {by}"),
            None => format!("{:>6}  ESCAPED within {most} seeds", "-"),
        };
        println!("{name:<28} {line:<70} {}", what.trim());
        rows.push(caught.is_some());
    }
    let escaped = rows.iter().filter(|caught| !**caught).count();
    println!(
        "{} bugs planted, {} caught, {escaped} escaped",
        rows.len(),
        rows.len() - escaped
    );
    Ok(escaped == 0)
}

/// How many seeds, counted from 0, it takes to see a violation, and of which promise. A seed that
/// fails without the bug proves nothing, and is passed over.
#[cfg(parti_planted)]
fn catch(bug: parti_core::planted::Bug, most: u64) -> Option<(u64, &'static str)> {
    use crate::campaign;
    use parti_core::planted::plant;

    let mut from = 0;
    let mut step = 16;
    while from < most {
        plant(Some(bug));
        let tally = campaign::run(from, step.min(most - from), super::all_cores(), usize::MAX);
        plant(None);
        for failure in tally.failures {
            if campaign::run_seed(failure.seed).violation.is_none() {
                let by = failure
                    .violation
                    .map_or("", |violation| violation.invariant);
                return Some((failure.seed + 1, by));
            }
        }
        from += step;
        step = (step * 2).min(512);
    }
    None
}
