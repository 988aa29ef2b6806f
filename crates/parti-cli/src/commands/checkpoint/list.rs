//! `parti checkpoint list`

use crate::exit::{CODES, Failure};
use crate::flags::{LookFlags, NoSource};
use crate::places;
use crate::show::show;

/// Show all checkpoints of a group: the last done offset, and where reading goes on.
///
/// Example: parti checkpoint list --store sqlite:data/group.db --group billing
#[derive(clap::Args)]
#[command(after_help = CODES)]
pub struct Args {
    #[command(flatten)]
    look: LookFlags,
    #[command(flatten)]
    no: NoSource,
}

/// Does it.
pub async fn run(args: Args) -> Result<(), Failure> {
    args.no.checked()?;
    let group = places::checkpoints(&places::records(&args.look.group).await?).await?;
    show(args.look.output.output, &super::rows(&group), |rows| {
        super::table(rows)
    })
}
