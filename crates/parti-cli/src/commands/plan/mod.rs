//! `parti plan`: what would happen before it does. Changes nothing.
//!
//! ```text
//!   --store --group ──▶ workers, partitions, owners ─┐
//!   --workers --partitions ──▶ from nothing ─────────┴─▶ Case ── --add --remove --weigh ──▶ Case
//!                                                                                             │
//!                    balance, movement, who gets what ◀── every strategy, side by side ◀──────┘
//! ```

mod case;
mod outcome;

use parti::inspect::whatif;

use crate::exit::{CODES, Failure};
use crate::flags::{self, OutputFlags};
use crate::show::show;

/// Show what would happen before it does: how each strategy would spread partitions over workers,
/// how even that is, and what would move. Changes nothing.
///
/// Workers and partitions come from a group that runs (--store, --group), or from numbers
/// (--workers, --partitions). What each owner has now counts: with numbers, each strategy starts
/// from its own answer. What operators decided stands: drained workers get nothing, nobody gets
/// what is paused, and pins hold. A group's own strategy comes first, with its parameters. Its own
/// plan may also wait: for windows, cooldown and threshold.
///
/// Example: parti plan --workers 3 --partitions 100 --add 1
/// Example: parti plan --store sqlite:data/group.db --group billing --remove worker-2 --weigh 7=5
#[derive(clap::Args)]
#[command(after_help = CODES, verbatim_doc_comment)]
pub struct Args {
    /// Where the group's records live: sqlite:FILE, nats://…, etcd://…, postgres://…
    #[arg(
        long,
        value_name = "URL",
        requires = "group",
        conflicts_with = "workers"
    )]
    store: Option<String>,
    /// The group's name
    #[arg(long, requires = "store", value_parser = flags::group)]
    group: Option<String>,
    /// So many workers
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = flags::whole::<u32>(0..=u32::MAX.into()),
        requires = "partitions",
        required_unless_present = "store"
    )]
    workers: Option<u32>,
    /// So many partitions, with the ids "0" to "N-1"
    #[arg(long, value_name = "N", conflicts_with = "store", allow_negative_numbers = true,
        value_parser = flags::whole::<u32>(0..=u32::MAX.into()))]
    partitions: Option<u32>,
    /// The partitions with their weights, one a line or as JSON or YAML: the records of a group do
    /// not hold weights
    #[arg(long, value_name = "FILE", conflicts_with = "partitions")]
    partitions_file: Option<String>,
    /// So many workers join
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true,
        value_parser = flags::whole::<u32>(0..=u32::MAX.into()))]
    add: u32,
    /// This worker goes; may be given several times
    #[arg(long, value_name = "WORKER")]
    remove: Vec<String>,
    /// This partition has this weight; may be given several times
    #[arg(long, value_name = "PARTITION=WEIGHT", value_parser = weight)]
    weigh: Vec<(parti::PartitionId, u64)>,
    /// The most partitions one worker may have
    #[arg(long, value_name = "N", allow_negative_numbers = true,
        value_parser = flags::whole::<u32>(0..=u32::MAX.into()))]
    cap: Option<u32>,
    #[command(flatten)]
    output: OutputFlags,
}

fn weight(text: &str) -> Result<(parti::PartitionId, u64), String> {
    let wrong = || "give it as PARTITION=WEIGHT, such as 7=5".to_owned();
    let (id, weight) = text.rsplit_once('=').ok_or_else(wrong)?;
    let weight: u64 = weight.parse().map_err(|_| wrong())?;
    if weight == 0 || weight > parti::core::partition::MAX_WEIGHT {
        return Err("a weight is 1 or more".to_owned());
    }
    Ok((flags::partition(id)?, weight))
}

/// Does it.
pub async fn run(args: Args) -> Result<(), Failure> {
    let before = case::read(&args).await?;
    let after = case::changed(&before, &args)?;
    let outcomes = whatif::outcomes(&before, &after, args.cap, &before.strategies());
    show(args.output.output, &outcomes, |outcomes| {
        outcome::table(outcomes, &after)
    })
}
