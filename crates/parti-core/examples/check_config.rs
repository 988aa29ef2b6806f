//! Checks a configuration file and prints every problem, one per line:
//! `cargo run -p parti-core --example check_config -- FILE`

// The bans are for the core. This is a program around it: it reads a file and prints.
#![allow(clippy::disallowed_macros, clippy::disallowed_methods)]

use std::process::ExitCode;

use parti_core::config::Config;

fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: check_config FILE   (JSON if it ends with .json, else YAML)");
        return ExitCode::from(2);
    };
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("{path}: {error}");
            return ExitCode::from(2);
        }
    };
    let config = if path.ends_with(".json") {
        Config::from_json(&text)
    } else {
        Config::from_yaml(&text)
    };
    match config {
        Ok(config) => {
            for hint in config.hints() {
                eprintln!("hint: {}: {} {}", hint.field, hint.value, hint.advice);
            }
            println!("{path}: no problems");
            ExitCode::SUCCESS
        }
        Err(problems) => {
            println!("{problems}");
            eprintln!("{path}: {} problems", problems.len());
            ExitCode::FAILURE
        }
    }
}
