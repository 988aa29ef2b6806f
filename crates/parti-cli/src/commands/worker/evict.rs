//! `parti worker evict`

use std::time::Duration;

use parti::core::record::Request;
use parti::operate::Patience;

use crate::commands::request::{self, Asking};
use crate::exit::{CODES, Failure};
use crate::flags;

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
    /// It stays away: its process ends with an error, for its supervisor to start a new one; a
    /// consumer over HTTP is told not to register again. Otherwise it joins again; so does one that
    /// was frozen and could not be told: end that process itself
    #[arg(long)]
    for_good: bool,
    /// How long it must have been silent, in a group without a leader whose other workers are gone
    /// too; give more than the group's leaderless.lease_ttl
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = flags::duration)]
    silence: Duration,
    #[command(flatten)]
    asking: Asking,
}

/// Does it.
pub async fn run(args: Args) -> Result<(), Failure> {
    let patience = Patience {
        effect: args.asking.timeout,
        silence: args.silence,
    };
    request::ask_with(args.asking, patience, &|group| {
        let worker = request::worker(group, &args.worker)?;
        Ok(vec![Request::Evict {
            worker: worker.id.clone(),
            incarnation: worker.incarnation,
            stay_away: args.for_good,
        }])
    })
    .await
}
