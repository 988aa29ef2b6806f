//! `parti request …`, and what commands that ask a group for something have in common.

use clap::Subcommand;

use crate::exit::Failure;

mod asking;
mod list;

pub use asking::{Asking, ask, ask_with, each, target, worker};

/// What to do with requests.
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
