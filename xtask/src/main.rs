//! The one entry for working on Parti.
//!
//! ```text
//! cargo xtask test      every test there is                        (the README's test command)
//! cargo xtask verify    everything a reviewer would complain about; never writes to the sources
//! cargo xtask fix       repairs what a machine can repair
//! cargo xtask e2e       only the tests of the whole program: browser, API, crowds, languages
//! cargo xtask campaign  many more cases against the API
//! cargo xtask numbers   measures the dashboard
//! ```
//!
//! Everything is built with the release profile, so that a cold clone compiles each crate once.

use std::path::PathBuf;
use std::process::ExitCode;

mod fix;
mod needs;
mod purity;
mod steps;
mod style;
mod test;
mod tools;
mod verify;

const USAGE: &str = "\
usage: cargo xtask <command>

  test     run every test
  verify   formatting, lints, documentation, purity, style, dependencies; never writes
  fix      format, and apply what clippy can apply by itself

  e2e      only the tests of the whole program: browser, API, crowds, languages
  campaign [SEED]   many more cases against the API than `test` has
  numbers  measure the dashboard in a browser

  purity   only the check of parti-core's dependencies and imports
  style    only the check of the sources' style
";

fn main() -> ExitCode {
    // `cargo run` keeps the caller's directory; every command here is about the whole workspace.
    let root = workspace_root();
    if let Err(error) = std::env::set_current_dir(&root) {
        eprintln!("cannot enter {}: {error}", root.display());
        return ExitCode::FAILURE;
    }

    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let passed = match arguments[..] {
        ["test"] => test::run(),
        ["verify"] => verify::run(),
        ["fix"] => fix::run(),
        ["e2e"] => test::run_outside(),
        ["campaign"] => test::campaign("2"),
        ["campaign", seed] => test::campaign(seed),
        ["numbers"] => test::numbers(),
        ["purity"] => steps::run("purity", purity::steps(), Vec::new()),
        ["style"] => steps::run("style", style::steps(), Vec::new()),
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            true
        }
        _ => {
            eprint!("{USAGE}");
            false
        }
    };
    if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The directory above this crate's. Asked at run time first: a target directory can be shared by
/// several checkouts.
fn workspace_root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    here.parent().map_or_else(|| here.clone(), PathBuf::from)
}
