//! `parti group …`

use clap::Subcommand;

use crate::exit::Failure;

mod delete;
mod describe;
mod history;
mod list;
mod rebalance;

/// What to do with groups.
#[derive(Subcommand)]
pub enum Command {
    List(list::Args),
    Describe(describe::Args),
    History(history::Args),
    Rebalance(rebalance::Args),
    Delete(delete::Args),
}

/// Does it.
pub async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::List(args) => list::run(args).await,
        Command::Describe(args) => describe::run(args).await,
        Command::History(args) => history::run(args).await,
        Command::Rebalance(args) => rebalance::run(args).await,
        Command::Delete(args) => delete::run(args).await,
    }
}
