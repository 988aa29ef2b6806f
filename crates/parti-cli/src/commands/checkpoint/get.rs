//! `parti checkpoint get`

use parti::PartitionId;

use crate::exit::{CODES, Failure};
use crate::flags::{self, GroupFlags, NoSource, OutputFlags};
use crate::places;
use crate::show::show;

/// Show one checkpoint.
///
/// Example: parti checkpoint get --store sqlite:data/group.db --group billing --partition 7
#[derive(clap::Args)]
#[command(after_help = CODES)]
pub struct Args {
    #[command(flatten)]
    group: GroupFlags,
    /// The partition's id
    #[arg(long, short, value_name = "ID", value_parser = flags::partition)]
    partition: PartitionId,
    #[command(flatten)]
    no: NoSource,
    #[command(flatten)]
    output: OutputFlags,
}

/// Does it.
pub async fn run(args: Args) -> Result<(), Failure> {
    args.no.checked()?;
    let group = places::checkpoints(&places::records(&args.group).await?).await?;
    let Some(partition) = group.partition(&args.partition) else {
        return Err(super::unknown(&args.partition, &group));
    };
    let Some(row) = super::row(&group, partition) else {
        return Err(Failure::failed(format!(
            "partition {} has no checkpoint yet: nobody ever took it",
            args.partition
        )));
    };
    show(args.output.output, &row, |row| {
        super::table(std::slice::from_ref(row))
    })
}
