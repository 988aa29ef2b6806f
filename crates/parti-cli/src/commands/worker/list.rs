//! `parti worker list`

use parti::inspect::WorkerView;

use crate::exit::{CODES, Failure};
use crate::flags::{GroupFlags, OutputFlags};
use crate::places;
use crate::show::show;
use crate::view;

/// Show a group's workers: whether each is there, how old its last beat is, what it has.
///
/// The beat's age is by the clocks of two machines, the worker's and this one. Whether a session
/// ends is never decided by it.
///
/// Example: parti worker list --store nats://localhost:4222 --group billing --all
#[derive(clap::Args)]
#[command(after_help = CODES)]
pub struct Args {
    #[command(flatten)]
    group: GroupFlags,
    /// Also those that went
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    output: OutputFlags,
}

/// Does it.
pub async fn run(args: Args) -> Result<(), Failure> {
    let store = places::records(&args.group).await?;
    let group = places::group(&store).await?;
    let shown = |worker: &&WorkerView| args.all || worker.owns > 0 || view::is_there(worker);
    let workers: Vec<&WorkerView> = group.workers.iter().filter(shown).collect();
    show(args.output.output, &workers, |_| {
        view::workers(&group, args.all).to_string()
    })
}
