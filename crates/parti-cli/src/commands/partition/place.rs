//! `parti partition move`, `parti partition pin` and `parti partition unpin`

use parti::PartitionId;
use parti::core::record::Request;

use crate::commands::request::{self, Asking};
use crate::exit::{CODES, Failure};
use crate::flags;

/// Move partitions to a worker: nothing is lost, nothing handled twice.
///
/// They stay there as long as that process runs, so that no later plan moves them back; `parti
/// partition unpin` lets the strategy decide again.
///
/// Example: parti partition move 7 --to worker-2 --store sqlite:data/group.db --group billing
#[derive(clap::Args)]
#[command(after_help = CODES)]
pub struct MoveArgs {
    #[command(flatten)]
    place: Place,
}

/// Moves.
pub async fn relocate(args: MoveArgs) -> Result<(), Failure> {
    args.place
        .ask(|partition, worker| Request::Move { partition, worker })
        .await
}

/// Keep partitions on a worker, in all its lives, whenever it is there.
///
/// Example: parti partition pin 7 --to worker-2 --store sqlite:data/group.db --group billing
#[derive(clap::Args)]
#[command(after_help = CODES)]
pub struct PinArgs {
    #[command(flatten)]
    place: Place,
}

/// Pins.
pub async fn pin(args: PinArgs) -> Result<(), Failure> {
    args.place
        .ask(|partition, worker| Request::Pin { partition, worker })
        .await
}

/// What goes where.
#[derive(clap::Args)]
struct Place {
    /// The partitions' ids
    #[arg(value_name = "ID", required = true, value_parser = flags::partition)]
    partitions: Vec<PartitionId>,
    /// The worker's id
    #[arg(long, value_name = "WORKER")]
    to: String,
    #[command(flatten)]
    asking: Asking,
}

impl Place {
    async fn ask(
        self,
        request: impl Fn(PartitionId, parti::WorkerId) -> Request,
    ) -> Result<(), Failure> {
        request::ask(self.asking, &|group| {
            let worker = request::target(group, &self.to)?;
            request::each(group, &self.partitions, |id| request(id, worker.clone()))
        })
        .await
    }
}

/// Let the strategy decide about partitions that were moved or pinned.
///
/// Example: parti partition unpin 7 --store sqlite:data/group.db --group billing
#[derive(clap::Args)]
#[command(after_help = CODES)]
pub struct UnpinArgs {
    /// The partitions' ids
    #[arg(value_name = "ID", required = true, value_parser = flags::partition)]
    partitions: Vec<PartitionId>,
    #[command(flatten)]
    asking: Asking,
}

/// Unpins.
pub async fn unpin(args: UnpinArgs) -> Result<(), Failure> {
    let unpin = |partition| Request::Unpin { partition };
    request::ask(args.asking, &|group| {
        request::each(group, &args.partitions, unpin)
    })
    .await
}
