//! `parti checkpoint set`

use parti::operate::{Checkpoints, Rules, Wanted};
use parti::{Offset, PartitionId};

use super::Manner;
use crate::exit::{CODES, Failure};
use crate::flags::{self, ChangeFlags, GroupFlags, OutputFlags, SourceFlags};
use crate::places;

/// Say where one partition goes on, by its offset.
///
/// Give the last offset that counts as done (--done), or the one to go on at (--next). With
/// --source an offset that the log does not have is refused. A partition that is being served is
/// refused, too, unless it is paused or --force is given: then its owner lets go of it, or is
/// fenced, and it goes on at the new place under a higher epoch. A group that was made without a log
/// has offsets of its own: leave --source away.
///
/// Example: parti checkpoint set --store sqlite:data/group.db --source log:data --topic orders
///          --group billing --partition 7 --next 4200 --dry-run
#[derive(clap::Args)]
#[command(after_help = CODES, group(clap::ArgGroup::new("place").required(true).args(["done", "next"])))]
pub struct Args {
    #[command(flatten)]
    group: GroupFlags,
    #[command(flatten)]
    source: SourceFlags,
    /// The partition's id
    #[arg(long, short, value_name = "ID", value_parser = flags::partition)]
    partition: PartitionId,
    /// The last offset that is done
    #[arg(long, value_name = "OFFSET", allow_negative_numbers = true,
        value_parser = flags::whole::<u64>(0..=Offset::LARGEST.0))]
    done: Option<u64>,
    /// The offset to go on at
    #[arg(long, value_name = "OFFSET", allow_negative_numbers = true,
        value_parser = flags::whole::<u64>(0..=Offset::LARGEST.0 + 1))]
    next: Option<u64>,
    #[command(flatten)]
    change: ChangeFlags,
    #[command(flatten)]
    output: OutputFlags,
}

/// Does it.
pub async fn run(args: Args) -> Result<(), Failure> {
    let reason = args.change.reason.checked()?;
    let next = match (args.next, args.done) {
        (Some(next), _) => Offset(next),
        (None, done) => Offset(done.map_or(0, |done| done + 1)),
    };
    let store = places::records(&args.group).await?;
    let mut checkpoints = Checkpoints::read(&store).await?;
    if !checkpoints.has_group() {
        return Err(places::no_group(&store).await?);
    }
    match places::opened_for(&checkpoints, &store, &args.source).await? {
        Some(source) => {
            let ranges = source.ranges(std::slice::from_ref(&args.partition)).await?;
            checkpoints = checkpoints.of_source(&source).await?;
            super::fits(&checkpoints, &args.partition, next, &ranges)?;
        }
        None if checkpoints.has_no_log() => {}
        None => tell!("without --source nobody can say whether the log has offset {next}"),
    }
    let manner = Manner {
        rules: Rules {
            force: args.change.force(),
            back: true,
            unknown: false,
        },
        dry_run: args.change.dry_run,
        reason,
        shape: args.output.output,
    };
    let wanted = vec![Wanted::at(args.partition, next)];
    super::carry_out(&store, &checkpoints, wanted, manner).await
}
