//! `parti config …`

use clap::Subcommand;

use crate::exit::Failure;

mod check;
mod schema;
mod show;

/// What to do with settings.
#[derive(Subcommand)]
pub enum Command {
    Check(check::Args),
    Show(show::Args),
    Schema(schema::Args),
}

/// Does it.
pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Check(args) => check::run(&args),
        Command::Show(args) => show::run(&args),
        Command::Schema(args) => schema::run(&args),
    }
}
