//! The command `jetstream`: every scenario on every kind of stream, one row each.

use std::time::Instant;

use crate::args::{JetStreamArgs, StreamKind};
use crate::audit::Counts;
use crate::failure::Failure;
use crate::scenarios::{ALL, IN_FLIGHT, Repeats, Scenario};
use crate::stage::{Run, Stage};
use crate::table::{Row, Table};

/// Plays what was asked for; true when every verdict is good.
pub async fn run(args: &JetStreamArgs) -> bool {
    if args.list {
        for scenario in ALL {
            println!("{:<20}{}", scenario.name, scenario.about);
        }
        return true;
    }
    let wanted = match chosen(&args.only) {
        Ok(wanted) => wanted,
        Err(failure) => {
            eprintln!("parti-chaos: {failure}");
            return false;
        }
    };
    let kinds = if args.stream.is_empty() {
        &StreamKind::ALL[..]
    } else {
        &args.stream[..]
    };
    let mut table = Table::begin(args.output);
    for scenario in wanted {
        for kind in kinds {
            let run = Run {
                kind: *kind,
                rate: args.rate,
                partitions: args.partitions,
                server: args.server.clone(),
                slow: args.slow,
            };
            eprintln!("{} on {}: {}", scenario.name, kind.name(), scenario.about);
            table.row(play(scenario, &run).await);
        }
    }
    table.end()
}

fn chosen(only: &[String]) -> Result<Vec<&'static Scenario>, Failure> {
    if only.is_empty() {
        return Ok(ALL.iter().collect());
    }
    let find = |name: &String| {
        let found = ALL.iter().find(|scenario| scenario.name == name);
        found.ok_or_else(|| Failure::new(format!("there is no scenario {name}; see --list")))
    };
    only.iter().map(find).collect()
}

/// Plays one scenario.
async fn play(scenario: &Scenario, run: &Run) -> Row {
    let begun = Instant::now();
    let (counts, failure) = match Stage::set(run, &(scenario.needs)()).await {
        Err(failure) => (Counts::default(), Some(failure)),
        Ok(mut stage) => {
            let played = (scenario.play)(&mut stage).await;
            let counts = stage.audit();
            let failure = played.err().or_else(|| complaint(scenario, &counts));
            if failure.is_some() {
                let folder = stage.keep_folder();
                eprintln!("what the workers said is in {}", folder.display());
            }
            (counts, failure)
        }
    };
    Row {
        scenario: scenario.name,
        stream: run.kind.name(),
        allowed: allowed(scenario, &counts),
        counts,
        seconds: begun.elapsed().as_secs_f64(),
        failure: failure.map(|failure| failure.to_string()),
    }
}

fn allowed(scenario: &Scenario, counts: &Counts) -> u64 {
    match scenario.repeats {
        Repeats::Never => 0,
        Repeats::Unflushed { frozen } => counts.unflushed + frozen * IN_FLIGHT,
    }
}

/// What is wrong with a scenario that was played to its end.
fn complaint(scenario: &Scenario, counts: &Counts) -> Option<Failure> {
    let late = match scenario.repeats {
        Repeats::Never => 0,
        Repeats::Unflushed { frozen } => frozen * IN_FLIGHT,
    };
    let what = if counts.published == 0 {
        "nothing was published"
    } else if counts.never_handled > 0 {
        "messages were lost"
    } else if counts.out_of_order > 0 {
        "messages were out of order"
    } else if counts.repeated > allowed(scenario, counts) {
        "messages were repeated"
    } else if counts.late > late {
        "calls ended after somebody else had the partition"
    } else if counts.overdue > 0 {
        "progress was not flushed in time"
    } else {
        return None;
    };
    Some(Failure::new(what))
}
