//! `parti group history`

use parti::inspect::{self, Happening};

use crate::exit::{CODES, Failure};
use crate::flags::{self, GroupFlags, OutputFlags};
use crate::places;
use crate::show::{show, time, word};
use crate::table::Table;

/// Show what happened in a group: who came and went, elections, plans, moves, operators' requests.
///
/// About the newest thousand lines are kept.
///
/// Example: parti group history --store nats://localhost:4222 --group billing --last 20
#[derive(clap::Args)]
#[command(after_help = CODES)]
pub struct Args {
    #[command(flatten)]
    group: GroupFlags,
    /// Only the newest lines
    #[arg(long, value_name = "N", allow_negative_numbers = true,
        value_parser = flags::whole::<usize>(0..=u32::MAX.into()))]
    last: Option<usize>,
    /// Only lines of this kind; may be given several times
    #[arg(long, value_name = "KIND", value_parser = KINDS)]
    kind: Vec<String>,
    #[command(flatten)]
    output: OutputFlags,
}

const KINDS: [&str; 9] = [
    "join", "leave", "crash", "election", "plan", "handoff", "fencing", "request", "trouble",
];

/// Does it.
pub async fn run(args: Args) -> Result<(), Failure> {
    let store = places::records(&args.group).await?;
    let mut lines = inspect::history(&store).await?;
    if lines.is_empty() {
        // A name that is wrong is told apart from a group that is quiet.
        places::group(&store).await?;
    }
    if !args.kind.is_empty() {
        lines.retain(|line| args.kind.contains(&word(line.kind)));
    }
    let more = args.last.map_or(0, |last| lines.len().saturating_sub(last));
    lines.drain(..more);
    show(args.output.output, &lines, |lines| table(lines).to_string())
}

fn table(lines: &[Happening]) -> Table {
    let mut table = Table::new(["TIME", "KIND", "BY", "WHAT"]);
    for line in lines {
        table.row([
            time(line.at_ms).into(),
            word(line.kind).into(),
            line.by.clone().into(),
            line.text.clone().into(),
        ]);
    }
    table
}
