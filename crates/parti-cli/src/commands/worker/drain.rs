//! `parti worker drain` and `parti worker undrain`

use parti::core::record::Request;

use crate::commands::request::{self, Asking};
use crate::exit::{CODES, Failure};

/// Move everything off a worker, and give it nothing any more.
///
/// Its partitions are handed over one by one: nothing is lost, nothing handled twice. It stays in
/// the group, ready to be stopped; its restart ends the drain, and so does `parti worker undrain`.
///
/// Example: parti worker drain worker-1 --store sqlite:data/group.db --group billing
///          --why "new kernel"
#[derive(clap::Args)]
#[command(after_help = CODES)]
pub struct Args {
    /// The worker's id
    #[arg(value_name = "ID")]
    worker: String,
    #[command(flatten)]
    asking: Asking,
}

/// Drains.
pub async fn run(args: Args) -> Result<(), Failure> {
    request::ask(args.asking, &|group| {
        let worker = request::target(group, &args.worker)?;
        Ok(vec![Request::Drain { worker }])
    })
    .await
}

/// End a drain: the worker gets its share again.
///
/// Example: parti worker undrain worker-1 --store sqlite:data/group.db --group billing
#[derive(clap::Args)]
#[command(after_help = CODES)]
pub struct UndoArgs {
    /// The worker's id
    #[arg(value_name = "ID")]
    worker: String,
    #[command(flatten)]
    asking: Asking,
}

/// Ends it.
pub async fn undo(args: UndoArgs) -> Result<(), Failure> {
    request::ask(args.asking, &|group| {
        let worker = request::target(group, &args.worker)?;
        Ok(vec![Request::Undrain { worker }])
    })
    .await
}
