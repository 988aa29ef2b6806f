//! `parti completions`: what a shell needs to complete our commands.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::exit::{CODES, Failure};
use crate::lines::print;

/// Print what a shell needs to complete commands and flags.
///
/// Example: parti completions bash > /etc/bash_completion.d/parti
/// Example: parti completions zsh > "${fpath[1]}/_parti"
#[derive(clap::Args)]
#[command(after_help = CODES, verbatim_doc_comment)]
pub struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Does it.
pub fn run(args: &Args) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "parti", &mut text);
    print(&String::from_utf8_lossy(&text))
}
