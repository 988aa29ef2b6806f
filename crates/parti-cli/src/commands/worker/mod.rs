//! `parti worker …`

use clap::Subcommand;

use crate::exit::Failure;

mod drain;
mod evict;
mod list;

/// What to do with workers.
#[derive(Subcommand)]
pub enum Command {
    List(list::Args),
    Drain(drain::Args),
    Undrain(drain::UndoArgs),
    Evict(evict::Args),
}

/// Does it.
pub async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::List(args) => list::run(args).await,
        Command::Drain(args) => drain::run(args).await,
        Command::Undrain(args) => drain::undo(args).await,
        Command::Evict(args) => evict::run(args).await,
    }
}
