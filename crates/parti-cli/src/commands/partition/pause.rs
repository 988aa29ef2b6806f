//! `parti partition pause` and `parti partition resume`

use parti::PartitionId;
use parti::core::record::Request;

use crate::commands::request::{self, Asking};
use crate::exit::{CODES, Failure};
use crate::flags;

/// Stop handling partitions: their owners release them, and nobody takes them.
///
/// When it is done nobody handles a message of them, and their checkpoints can be reset.
///
/// Example: parti partition pause 7 8 --store sqlite:data/group.db --group billing
///          --why "poison message"
#[derive(clap::Args)]
#[command(after_help = CODES)]
pub struct Args {
    /// The partitions' ids
    #[arg(value_name = "ID", required = true, value_parser = flags::partition)]
    partitions: Vec<PartitionId>,
    #[command(flatten)]
    asking: Asking,
}

/// Pauses.
pub async fn run(args: Args) -> Result<(), Failure> {
    let pause = |partition| Request::Pause { partition };
    request::ask(args.asking, &|group| {
        request::each(group, &args.partitions, pause)
    })
    .await
}

/// Go on handling partitions that were paused, where their checkpoints are.
///
/// Example: parti partition resume 7 8 --store sqlite:data/group.db --group billing
#[derive(clap::Args)]
#[command(after_help = CODES)]
pub struct ResumeArgs {
    /// The partitions' ids
    #[arg(value_name = "ID", required = true, value_parser = flags::partition)]
    partitions: Vec<PartitionId>,
    #[command(flatten)]
    asking: Asking,
}

/// Resumes.
pub async fn resume(args: ResumeArgs) -> Result<(), Failure> {
    let resume = |partition| Request::Resume { partition };
    request::ask(args.asking, &|group| {
        request::each(group, &args.partitions, resume)
    })
    .await
}
