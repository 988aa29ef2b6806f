//! `parti checkpoint list`

use crate::exit::{CODES, Failure};
use crate::flags::{GroupFlags, OutputFlags};
use crate::places;
use crate::show::show;

/// Show all checkpoints of a group: the last done offset, and where reading goes on.
///
/// Example: parti checkpoint list --store sqlite:data/group.db --group billing
#[derive(clap::Args)]
#[command(after_help = CODES)]
pub struct Args {
    #[command(flatten)]
    group: GroupFlags,
    #[command(flatten)]
    output: OutputFlags,
}

/// Does it.
pub async fn run(args: Args) -> Result<(), Failure> {
    let group = places::group(&places::records(&args.group).await?).await?;
    show(args.output.output, &super::rows(&group), |rows| {
        super::table(rows)
    })
}
