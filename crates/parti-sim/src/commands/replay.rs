//! `replay`: one world again, step by step.

use std::io::{self, Write};
use std::path::Path;

use super::{Arguments, number};
use crate::regressions::Regression;
use crate::scenario::Timed;
use crate::setup::Setup;
use crate::world;

pub(super) fn run(arguments: &[String]) -> Result<bool, String> {
    let arguments = Arguments::of(arguments, &["faults", "file", "save", "comment"])?;
    let faults: Option<Vec<Timed>> = match arguments.text("faults") {
        Some(json) => Some(serde_json::from_str(json).map_err(|why| format!("--faults: {why}"))?),
        None => None,
    };
    let comment = arguments.text("comment").unwrap_or_default();
    let case = match (&arguments.rest[..], arguments.text("file")) {
        ([seed], None) => Regression::of(number("SEED", seed)?, faults, comment),
        ([], Some(path)) => {
            let saved = Regression::load(Path::new(path))?;
            Regression {
                faults: faults.unwrap_or(saved.faults),
                ..saved
            }
        }
        _ => return Err("replay wants one SEED, or --file PATH".into()),
    };
    if let Some(name) = arguments.text("save") {
        println!("saved as {}", case.save(name)?.display());
    }
    let outcome = case.run(true);
    let text = describe(&case.setup, &case.faults, &outcome);
    // Whoever reads only the head closes the pipe: that is no error.
    let mut out = io::BufWriter::new(io::stdout().lock());
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    Ok(outcome.violation.is_none())
}

fn describe(setup: &Setup, faults: &[Timed], outcome: &world::Outcome) -> String {
    let mut text = String::new();
    let mut line = |words: String| {
        text.push_str(&words);
        text.push('\n');
    };
    line(format!(
        "seed {}: {:?}, {:?}",
        setup.seed, setup.class, setup.source
    ));
    line(format!("{:#?}", setup.config));
    line(format!("{:?}", setup.traffic));
    line(format!(
        "{} machines run at first, {} partitions",
        setup.initial,
        setup.partitions.len()
    ));
    for (number, machine) in setup.machines.iter().enumerate() {
        line(format!("machine {number}: {machine:?}"));
    }
    for timed in faults {
        line(format!(
            "fault at {:.6} s: {:?}",
            timed.at as f64 / 1e6,
            timed.fault
        ));
    }
    for step in &outcome.lines {
        line(step.clone());
    }
    line(format!(
        "{} steps, trace hash {:016x}",
        outcome.steps, outcome.hash
    ));
    match &outcome.violation {
        Some(violation) => line(format!("VIOLATION: {violation}")),
        None => line("no violation".into()),
    }
    text
}
