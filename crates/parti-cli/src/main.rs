//! The program `parti`.
//!
//! ```text
//!   main ──▶ commands/<name>.rs or commands/<noun>/<verb>.rs ──▶ the library `parti`
//!     └──▶ exit: one line on stderr, a fitting code
//! ```
//!
//! Data goes to stdout, everything else to stderr.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod commands;
mod exit;
mod lines;
mod places;
mod progress;
mod signals;

const ABOUT: &str = "Consumer groups for any log: every partition to exactly one worker, \
nothing lost, nothing out of order.";

const EXAMPLES: &str = "\
Examples:
  parti demo                                    the whole story in half a minute, no server needed
  parti topic create --source log:data --topic orders --partitions 12
  parti produce --source log:data --topic orders < orders.jsonl
  parti consume --store sqlite:data/group.db --source log:data --topic orders --group billing
  parti status --store sqlite:data/group.db --source log:data --topic orders --group billing";

#[derive(Parser)]
#[command(name = "parti", version, about = ABOUT, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show what Parti does: a producer and several workers, one joins, one leaves, one is killed
    Demo(commands::demo::Args),
    /// Make topics, and look at them
    #[command(subcommand)]
    Topic(commands::topic::Command),
    /// Append messages to a topic
    Produce(commands::produce::Args),
    /// Run one worker of a group
    Consume(commands::consume::Args),
    /// Show a group: workers, leader, partitions, lag
    Status(commands::status::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("parti: no threads can be started: {error}");
            return ExitCode::FAILURE;
        }
    };
    let done = runtime.block_on(async {
        match cli.command {
            Command::Demo(args) => commands::demo::run(args).await,
            Command::Topic(command) => commands::topic::run(command).await,
            Command::Produce(args) => commands::produce::run(args).await,
            Command::Consume(args) => commands::consume::run(args).await,
            Command::Status(args) => commands::status::run(args).await,
        }
    });
    // A line that still waits on a terminal must not keep the program.
    runtime.shutdown_background();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("parti: {}", failure.line);
            ExitCode::from(failure.code)
        }
    }
}
