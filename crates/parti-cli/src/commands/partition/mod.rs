//! `parti partition …`

use clap::Subcommand;

use crate::exit::Failure;

mod describe;
mod list;

/// What to do with partitions.
#[derive(Subcommand)]
pub enum Command {
    List(list::Args),
    Describe(describe::Args),
}

/// Does it.
pub async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::List(args) => list::run(args).await,
        Command::Describe(args) => describe::run(args).await,
    }
}
