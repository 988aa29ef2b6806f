//! The simulator's command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    parti_sim::commands::main(&arguments)
}
