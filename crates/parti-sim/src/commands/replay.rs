//! `replay`: one world again, step by step.

use std::io::{self, Write};
use std::sync::Arc;

use super::{Arguments, number};
use crate::scenario::{self, Timed};
use crate::setup::Setup;
use crate::world;

pub(super) fn run(arguments: &[String]) -> Result<bool, String> {
    let arguments = Arguments::of(arguments, &["faults"])?;
    let [seed] = arguments.rest[..] else {
        return Err("replay wants one SEED".into());
    };
    let setup = Arc::new(Setup::of(number("SEED", seed)?));
    let faults: Vec<Timed> = match arguments.text("faults") {
        Some(json) => serde_json::from_str(json).map_err(|why| format!("--faults: {why}"))?,
        None => scenario::of(&setup),
    };
    let outcome = world::run(&setup, &faults, true);
    let text = describe(&setup, &faults, &outcome);
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
