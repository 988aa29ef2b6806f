//! `parti man`: a page for each command.

use std::path::PathBuf;

use clap::CommandFactory;

use crate::exit::{CODES, Failure};

/// Write a manual page for each command into a folder.
///
/// Example: parti man man && man -l man/parti-checkpoint-reset.1
#[derive(clap::Args)]
#[command(after_help = CODES)]
pub struct Args {
    /// The folder; it is made if it is not there
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

/// Does it.
pub fn run(args: &Args) -> Result<(), Failure> {
    let wrong =
        |error: std::io::Error| Failure::usage(format!("{}: {error}", args.folder.display()));
    std::fs::create_dir_all(&args.folder).map_err(wrong)?;
    clap_mangen::generate_to(crate::Cli::command(), &args.folder).map_err(wrong)?;
    let pages = std::fs::read_dir(&args.folder).map_err(wrong)?.count();
    tell!("{pages} pages in {}", args.folder.display());
    Ok(())
}
