//! `parti status`: a group at a glance.

use crate::exit::{CODES, Failure};
use crate::flags::LocatedFlags;
use crate::places;
use crate::show::show;
use crate::view;

/// Show a group: workers, leader, partitions with owner, epoch, checkpoint and lag.
///
/// A worker that was killed is shown as live until the others have ended its session; how old its
/// last beat is stands beside it, by the clocks of its machine and of this one.
///
/// Example: parti status --store sqlite:data/group.db --source log:data --topic orders
///          --group billing
#[derive(clap::Args)]
#[command(after_help = CODES)]
pub struct Args {
    #[command(flatten)]
    look: LocatedFlags,
}

/// Does it.
pub async fn run(args: Args) -> Result<(), Failure> {
    let (group, output) = places::located_at(&args.look).await?;
    view::warn_unreadable(&group);
    show(output, &group, |group| {
        format!(
            "{}\n{}\n{}",
            view::head(group),
            view::workers(group, false),
            view::partitions(&group.partitions)
        )
    })
}
