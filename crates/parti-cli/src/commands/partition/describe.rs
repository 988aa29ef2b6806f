//! `parti partition describe`

use parti::PartitionId;

use crate::commands::checkpoint;
use crate::exit::{CODES, Failure};
use crate::flags::{self, LocatedFlags};
use crate::places;
use crate::show::show;
use crate::view;

/// Show everything about one partition.
///
/// Example: parti partition describe 7 --store sqlite:data/group.db --group billing
#[derive(clap::Args)]
#[command(after_help = CODES)]
pub struct Args {
    /// The partition's id
    #[arg(value_name = "ID", value_parser = flags::partition)]
    partition: PartitionId,
    #[command(flatten)]
    look: LocatedFlags,
}

/// Does it.
pub async fn run(args: Args) -> Result<(), Failure> {
    let (group, output) = places::located_at(&args.look).await?;
    let Some(partition) = group.partition(&args.partition) else {
        return Err(checkpoint::unknown(&args.partition, &group));
    };
    show(output, partition, view::partition)
}
