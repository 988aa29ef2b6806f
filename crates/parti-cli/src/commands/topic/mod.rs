//! `parti topic …`

use clap::Subcommand;

use crate::exit::Failure;

mod create;
mod describe;

/// What to do with topics.
#[derive(Subcommand)]
pub enum Command {
    /// Make a topic with a fixed number of partitions
    Create(create::Args),
    /// Show a topic's partitions
    Describe(describe::Args),
}

/// Does it.
pub async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Create(args) => create::run(args).await,
        Command::Describe(args) => describe::run(args).await,
    }
}
