//! `parti config show`

use clap::ValueEnum;
use parti::Config;

use crate::exit::{CODES, Failure};
use crate::lines::print;
use crate::places;

/// Print all settings with their values: those of a file, and the defaults of the rest.
///
/// Example: parti config show --config worker.yaml
#[derive(clap::Args)]
#[command(after_help = CODES)]
pub struct Args {
    /// Settings, as YAML or JSON; without it all defaults
    #[arg(long, value_name = "FILE")]
    config: Option<String>,
    /// How to print them
    #[arg(short, long, value_enum, default_value_t)]
    output: Form,
}

/// How settings are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Form {
    /// As a file has them
    #[default]
    Yaml,
    /// For programs
    Json,
}

/// Does it.
pub fn run(args: &Args) -> Result<(), Failure> {
    let config = places::config(args.config.as_deref(), Config::default())?;
    match args.output {
        Form::Yaml => print(&config.to_yaml()),
        Form::Json => print(&format!("{}\n", config.to_json())),
    }
}
