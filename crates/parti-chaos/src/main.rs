//! Chaos: groups of real worker processes on real servers, and everything that can happen to them.
//!
//! ```text
//!   jetstream ──▶ for each scenario and kind of stream:
//!                   stage (servers, stream, load, processes of this same program)
//!                     ──▶ scenario ──▶ ledger ──▶ audit ──▶ a row of the table
//!   soak ───────▶ one stage, churn, samples, a verdict
//!   worker ─────▶ one of those processes
//! ```
//!
//! Results go to stdout, everything else to stderr. The exit code is 0 only if every verdict is
//! good.

use std::process::ExitCode;

use clap::Parser;

mod args;
mod audit;
mod crew;
mod failure;
mod jetstream;
mod ledger;
mod line;
mod load;
mod logs;
mod scenarios;
mod servers;
mod soak;
mod stage;
mod stored;
mod table;
mod vitals;
mod worker;

use args::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("parti-chaos: no threads can be started: {error}");
            return ExitCode::FAILURE;
        }
    };
    let good = runtime.block_on(async {
        match cli.command {
            Command::Jetstream(args) => jetstream::run(&args).await,
            Command::Soak(args) => soak::run(&args).await.unwrap_or_else(|failure| {
                eprintln!("parti-chaos: {failure}");
                false
            }),
            Command::Worker(args) => worker::run(args).await.is_ok(),
        }
    });
    // Handler calls that a worker left behind need not end first.
    runtime.shutdown_background();
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
