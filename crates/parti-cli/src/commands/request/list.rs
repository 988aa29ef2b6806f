//! `parti request list`

use crate::exit::{CODES, Failure};
use crate::flags::LookFlags;
use crate::places;
use crate::show::show;
use crate::view;

/// Show what operators asked for and is not carried out yet: what, who, since when, why.
///
/// `parti group history --kind request` has what became of the others. A request is not taken back,
/// as its leader may already carry it out; ask for the opposite: undrain, unpin, resume.
///
/// Example: parti request list --store nats://localhost:4222 --group billing
#[derive(clap::Args)]
#[command(after_help = CODES)]
pub struct Args {
    #[command(flatten)]
    look: LookFlags,
}

/// Does it.
pub async fn run(args: Args) -> Result<(), Failure> {
    let (group, output) = places::looked_at(&args.look).await?;
    show(output, &group.requests, |_| {
        view::requests(&group).to_string()
    })
}
