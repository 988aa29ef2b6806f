//! `parti partition list`

use parti::inspect::PartitionView;

use crate::commands::request;
use crate::exit::{CODES, Failure};
use crate::flags::{self, GroupFlags, OutputFlags, SourceFlags};
use crate::places;
use crate::show::show;
use crate::view;

/// Show a group's partitions: owner, epoch, checkpoint, and with --source their end and lag.
///
/// Example: parti partition list --store sqlite:data/group.db --source log:data --topic orders
///          --group billing --min-lag 1000
#[derive(clap::Args)]
#[command(after_help = CODES)]
pub struct Args {
    #[command(flatten)]
    group: GroupFlags,
    #[command(flatten)]
    source: SourceFlags,
    /// Only those that this worker owns
    #[arg(long, value_name = "WORKER")]
    owner: Option<String>,
    /// Only those that nobody serves
    #[arg(long, conflicts_with = "owner")]
    unserved: bool,
    /// Only those that are so far behind
    #[arg(long, value_name = "N", requires = "source", allow_negative_numbers = true,
        value_parser = flags::whole::<u64>(0..=u64::MAX))]
    min_lag: Option<u64>,
    #[command(flatten)]
    output: OutputFlags,
}

/// Does it.
pub async fn run(args: Args) -> Result<(), Failure> {
    let group = places::located(&args.group, &args.source).await?;
    if let Some(owner) = &args.owner {
        let owns = |own: &PartitionView| own.owner.as_ref().is_some_and(|id| id.as_str() == owner);
        // A worker that is gone for long may still be named by what it had.
        if !group.partitions.iter().any(owns) {
            request::worker(&group, owner)?;
        }
    }
    view::warn_stranded(&group);
    view::warn_unreadable(&group);
    let shown = |partition: &&PartitionView| {
        let owner = partition.owner.as_ref().map(|owner| owner.as_str());
        (args.owner.is_none() || args.owner.as_deref() == owner)
            && (!args.unserved || !partition.is_served())
            && args
                .min_lag
                .is_none_or(|least| partition.lag >= Some(least))
    };
    let partitions: Vec<&PartitionView> = group.partitions.iter().filter(shown).collect();
    show(args.output.output, &partitions, |partitions| {
        view::partitions(partitions.iter().copied()).to_string()
    })
}
