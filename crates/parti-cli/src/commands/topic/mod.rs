//! `parti topic …`

use clap::Subcommand;

use crate::exit::Failure;

mod create;
mod describe;

/// What to do with topics.
#[derive(Subcommand)]
pub enum Command {
    Create(create::Args),
    Describe(describe::Args),
}

/// Does it.
pub async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Create(args) => create::run(args).await,
        Command::Describe(args) => describe::run(args).await,
    }
}
