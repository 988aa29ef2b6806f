//! `parti worker evict`

use parti::core::record::Request;

use crate::commands::request::{self, Asking};
use crate::exit::{CODES, Failure};

/// End a worker's session, whether or not its handlers ever return.
///
/// For a worker that hangs: its session cannot be renewed any more, and others take over what it
/// had, as after a crash; what it did since its last checkpoint is done again. `parti worker drain`
/// is the gentle way.
///
/// Example: parti worker evict worker-1 --store sqlite:data/group.db --group billing --for-good
#[derive(clap::Args)]
#[command(after_help = CODES)]
pub struct Args {
    /// The worker's id
    #[arg(value_name = "ID")]
    worker: String,
    /// Its process ends with an error, for its supervisor to start a new one; otherwise it joins
    /// again
    #[arg(long)]
    for_good: bool,
    #[command(flatten)]
    asking: Asking,
}

/// Does it.
pub async fn run(args: Args) -> Result<(), Failure> {
    request::ask(args.asking, &|group| {
        let worker = request::worker(group, &args.worker)?;
        Ok(vec![Request::Evict {
            worker: worker.id.clone(),
            incarnation: worker.incarnation,
            stay_away: args.for_good,
        }])
    })
    .await
}
