//! `parti group …`

use clap::Subcommand;

use crate::exit::Failure;

mod delete;
mod describe;
mod list;

/// What to do with groups.
#[derive(Subcommand)]
pub enum Command {
    List(list::Args),
    Describe(describe::Args),
    Delete(delete::Args),
}

/// Does it.
pub async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::List(args) => list::run(args).await,
        Command::Describe(args) => describe::run(args).await,
        Command::Delete(args) => delete::run(args).await,
    }
}
