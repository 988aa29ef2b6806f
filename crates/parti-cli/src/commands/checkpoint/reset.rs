//! `parti checkpoint reset`

use futures_util::{StreamExt, TryStreamExt};
use parti::operate::{Checkpoints, Rules, Wanted};
use parti::source::place::Located;
use parti::{Offset, PartitionId, StartPosition};

use super::Manner;
use crate::exit::{CODES, Failure};
use crate::flags::{self, ChangeFlags, GroupFlags, OutputFlags, PartitionFlags, SourceFlags};
use crate::places;
use crate::show::plain;

/// A source is asked for so many places at once.
const ASK_AT_ONCE: usize = 16;

/// Go on at the earliest or latest message, at an offset or a time.
///
/// A partition that is being served is refused, unless it is paused or --force is given: then its
/// owner lets go of it, or is fenced, and it goes on at the new place under a higher epoch. If one
/// partition is refused, none is changed. What its owner still handles until then is not handled
/// again if it goes on at the latest message.
///
/// If the topic or stream was made anew, or is another one, stop all workers and give --all: the
/// group goes on with this one then. A group that was made without a log (`parti serve` without a
/// source) is refused: `parti checkpoint set` says where its partitions go on.
///
/// Example: parti checkpoint reset --store sqlite:data/group.db --source log:data --topic orders
///          --group billing --all --to 2026-01-31T12:00:00Z --dry-run
#[derive(clap::Args)]
#[command(after_help = CODES)]
pub struct Args {
    #[command(flatten)]
    group: GroupFlags,
    #[command(flatten)]
    source: SourceFlags,
    #[command(flatten)]
    which: PartitionFlags,
    /// Where to go on: earliest, latest, an offset, or a time such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "PLACE", allow_negative_numbers = true)]
    to: String,
    #[command(flatten)]
    change: ChangeFlags,
    #[command(flatten)]
    output: OutputFlags,
}

/// Does it.
pub async fn run(args: Args) -> Result<(), Failure> {
    let reason = args.change.reason.checked()?;
    let to = flags::start_position("--to", &args.to)?;
    let store = places::records(&args.group).await?;
    let group = places::group(&store).await?;
    if group.has_no_log() {
        return Err(Failure::refused(format!(
            "the group {} was made without a log: no source, whichever is given, says where its \
             partitions begin and end; give each its place by `parti checkpoint set --partition ID \
             --next OFFSET` (or --done), without --source; nothing was changed",
            plain(&group.name)
        )));
    }
    let Some(source) = places::opened(&args.source).await? else {
        return Err(Failure::usage(
            "--source is missing: only the log knows where its messages are",
        ));
    };
    let stranger = |id: &&PartitionId| group.partition(id).is_none();
    if let Some(stranger) = args.which.partition.iter().find(stranger) {
        return Err(super::unknown(stranger, &group));
    }
    // Before the places: a checkpoint that is past the end is of a log that went back.
    let checkpoints = Checkpoints::read(&store).await?;
    let checkpoints = checkpoints.of_source(&source).await?;
    let mut wanted = Vec::new();
    let mut partitions = args.which.partition;
    if args.which.all {
        let gone;
        (gone, partitions) =
            (checkpoints.all().into_iter()).partition(|id| checkpoints.is_gone(id));
        // Of a source that had more: what it says there means nothing any more.
        wanted.extend(gone.into_iter().map(|id| Wanted::at(id, Offset(0))));
    }
    wanted.extend(places_of(&source, &checkpoints, &partitions, to).await?);
    let manner = Manner {
        rules: Rules {
            force: args.change.force(),
            back: true,
            // All that the group names, also what nobody ever took.
            unknown: args.which.all,
        },
        dry_run: args.change.dry_run,
        reason,
        shape: args.output.output,
    };
    super::carry_out(&store, &checkpoints, wanted, manner).await
}

/// Where each partition is to go on.
async fn places_of(
    source: &Located,
    checkpoints: &Checkpoints,
    partitions: &[PartitionId],
    to: StartPosition,
) -> Result<Vec<Wanted>, Failure> {
    if !matches!(to, StartPosition::Time(_)) {
        let ranges = source.ranges(partitions).await?;
        let wanted = partitions.iter().map(|id| {
            let bounds = ranges.get(id);
            let bounds = bounds.ok_or_else(|| super::not_in_source(checkpoints, id))?;
            let next = match to {
                StartPosition::Earliest => bounds.first,
                StartPosition::Offset(next) => Offset(next),
                _ => bounds.end,
            };
            super::fits(checkpoints, id, next, &ranges)?;
            Ok(match to {
                StartPosition::Latest => Wanted::latest(id.clone(), next),
                _ => Wanted::at(id.clone(), next),
            })
        });
        return wanted.collect();
    }
    if let Some(gone) = partitions.iter().find(|id| checkpoints.is_gone(id)) {
        return Err(super::not_in_source(checkpoints, gone));
    }
    let asked = partitions.iter().map(|id| async move {
        let next = source.resolve(id, to).await?;
        Ok::<_, Failure>(Wanted::at(id.clone(), next))
    });
    futures_util::stream::iter(asked)
        .buffered(ASK_AT_ONCE)
        .try_collect()
        .await
}
