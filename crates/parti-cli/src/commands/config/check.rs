//! `parti config check`

use parti::Config;

use crate::exit::{CODES, Failure};
use crate::show::count;

/// Say everything that is wrong with a file of settings, at once, each with what to do; and hints
/// about what is allowed but seldom meant.
///
/// Example: parti config check worker.yaml
#[derive(clap::Args)]
#[command(after_help = CODES)]
pub struct Args {
    /// The file, as YAML or JSON
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,
}

/// Does it.
pub fn run(args: &Args) -> Result<(), Failure> {
    let mut wrong = Vec::new();
    for file in &args.files {
        let text = std::fs::read_to_string(file)
            .map_err(|error| Failure::usage(format!("{file}: {error}")))?;
        match Config::from_yaml(&text) {
            Ok(config) => {
                for hint in config.hints() {
                    tell!(
                        "{file}: hint: {} {} {}",
                        hint.field,
                        hint.value,
                        hint.advice
                    );
                }
                tell!("{file}: good");
            }
            Err(problems) => {
                for problem in &problems {
                    tell!("{file}: {problem}");
                }
                wrong.push(format!("{file} has {}", count(problems.len(), "problem")));
            }
        }
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(Failure::usage(wrong.join(", ")))
    }
}
