//! `parti worker …`

use clap::Subcommand;

use crate::exit::Failure;

mod list;

/// What to do with workers.
#[derive(Subcommand)]
pub enum Command {
    List(list::Args),
}

/// Does it.
pub async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::List(args) => list::run(args).await,
    }
}
