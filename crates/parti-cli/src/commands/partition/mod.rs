//! `parti partition …`

use clap::Subcommand;

use crate::exit::Failure;

mod describe;
mod list;
mod pause;
mod place;

/// What to do with partitions.
#[derive(Subcommand)]
pub enum Command {
    List(list::Args),
    Describe(describe::Args),
    Move(place::MoveArgs),
    Pause(pause::Args),
    Resume(pause::ResumeArgs),
    Pin(place::PinArgs),
    Unpin(place::UnpinArgs),
}

/// Does it.
pub async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::List(args) => list::run(args).await,
        Command::Describe(args) => describe::run(args).await,
        Command::Move(args) => place::relocate(args).await,
        Command::Pause(args) => pause::run(args).await,
        Command::Resume(args) => pause::resume(args).await,
        Command::Pin(args) => place::pin(args).await,
        Command::Unpin(args) => place::unpin(args).await,
    }
}
