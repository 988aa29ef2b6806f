//! `parti config …`

use clap::Subcommand;

use crate::exit::Failure;

mod check;
mod schema;
mod show;

/// What to do with settings.
#[derive(Subcommand)]
pub enum Command {
    /// Say everything that is wrong with a file of settings
    Check(check::Args),
    /// Print all settings with their values
    Show(show::Args),
    /// Print the JSON schema of a file of settings
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
