//! `parti group rebalance`

use parti::core::record::Request;

use crate::commands::request::{self, Asking};
use crate::exit::{CODES, Failure};

/// Rebalance now, whatever threshold and cooldown say.
///
/// Example: parti group rebalance --store nats://localhost:4222 --group billing
#[derive(clap::Args)]
#[command(after_help = CODES)]
pub struct Args {
    #[command(flatten)]
    asking: Asking,
}

/// Does it.
pub async fn run(args: Args) -> Result<(), Failure> {
    request::ask(args.asking, &|_| Ok(vec![Request::Rebalance])).await
}
