//! `parti config schema`

use parti::Config;

use crate::exit::{CODES, Failure};
use crate::lines::print;

/// Print the JSON schema of a file of settings, for editors and checkers.
///
/// Example: parti config schema > parti.schema.json
#[derive(clap::Args)]
#[command(after_help = CODES)]
pub struct Args {}

/// Does it.
pub fn run(_: &Args) -> Result<(), Failure> {
    print(&format!("{:#}\n", Config::json_schema()))
}
