//! `parti group delete`

use std::time::Duration;

use parti::operate::{self, Reached};
use serde::Serialize;

use crate::exit::{CODES, Failure};
use crate::flags::{self, GroupFlags, OutputFlags};
use crate::places;
use crate::show::{Shape, count, plain, show};

/// End a group for good: every record of it goes, its checkpoints, too.
///
/// Refused while a worker of the group lives. A session counts as dead once it is over, or once it
/// has been silent for as long as --silence says; then this ends it. While the group is being
/// deleted nobody can join it. If it is interrupted, do it again: it goes on.
///
/// Example: parti group delete --store sqlite:data/group.db --group billing
#[derive(clap::Args)]
#[command(after_help = CODES)]
pub struct Args {
    #[command(flatten)]
    group: GroupFlags,
    /// How long a worker must have been silent to count as dead; give more than the group's
    /// heartbeat_ttl
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = flags::duration)]
    silence: Duration,
    #[command(flatten)]
    output: OutputFlags,
}

/// What a program is told.
#[derive(Serialize)]
struct Done<'a> {
    group: &'a str,
    sessions_ended: usize,
    checkpoints: usize,
    workers: usize,
    other_records: usize,
}

/// Does it.
pub async fn run(args: Args) -> Result<(), Failure> {
    let store = places::records(&args.group).await?;
    let mut reached = Reached::default();
    let deleted = operate::delete_group_noting(&store, args.silence, &mut reached).await;
    let deleted = match deleted {
        Err(operate::Error::NoGroup(_)) => return Err(places::no_group(&store).await?),
        Err(error @ operate::Error::Store(_)) => {
            match reached {
                Reached::Nothing => tell!("nothing was deleted"),
                Reached::Closing => tell!(
                    "nothing was deleted, but it may be that nobody can join the group any more; \
                     again goes on"
                ),
                Reached::Deleting => {
                    tell!("the group may be half deleted, and nobody can join it; again goes on")
                }
            }
            return Err(error.into());
        }
        other => other?,
    };
    if deleted.ended > 0 {
        tell!(
            "ended {} after {:?} of silence",
            count(deleted.ended, "session"),
            args.silence
        );
    }
    if args.output.output != Shape::Table {
        let done = Done {
            group: &args.group.group,
            sessions_ended: deleted.ended,
            checkpoints: deleted.partitions,
            workers: deleted.workers,
            other_records: deleted.others,
        };
        return show(args.output.output, &done, |_| String::new());
    }
    tell!(
        "group {} is deleted: {}, {}, {}",
        plain(&args.group.group),
        count(deleted.partitions, "checkpoint"),
        count(deleted.workers, "worker"),
        count(deleted.others, "other record")
    );
    Ok(())
}
