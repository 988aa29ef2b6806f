//! The program `parti`.
//!
//! ```text
//!   main ──▶ commands/<name>.rs or commands/<noun>/<verb>.rs ──▶ the library `parti`
//!     └──▶ exit: one line on stderr, a fitting code
//! ```
//!
//! Data goes to stdout, everything else to stderr.

#![deny(
    clippy::print_stderr,
    reason = "it panics if nobody reads it: use tell!"
)]

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

#[macro_use]
mod tell;

mod commands;
mod exit;
mod flags;
mod lines;
mod logging;
mod places;
mod progress;
mod show;
mod signals;
mod table;
mod view;

const ABOUT: &str = "Consumer groups for any log: every partition to exactly one worker, \
nothing lost, nothing out of order.";

const EXAMPLES: &str = "\
Examples:
  parti demo                                    the whole story in half a minute, no server needed
  parti topic create --source log:data --topic orders --partitions 12
  parti produce --source log:data --topic orders < orders.jsonl
  parti consume --store sqlite:data/group.db --source log:data --topic orders --group billing
  parti status --store sqlite:data/group.db --source log:data --topic orders --group billing
  parti watch --store sqlite:data/group.db --source log:data --topic orders --group billing
  parti checkpoint reset --store sqlite:data/group.db --source log:data --topic orders
        --group billing --all --to earliest --dry-run
  parti plan --workers 3 --partitions 100 --add 1
  parti serve --store sqlite:data/group.db --source log:data";

#[derive(Parser)]
#[command(name = "parti", version, about = ABOUT, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(commands::demo::Args),
    /// Make topics, and look at them
    #[command(subcommand)]
    Topic(commands::topic::Command),
    Produce(commands::produce::Args),
    Consume(commands::consume::Args),
    Status(commands::status::Args),
    Watch(commands::watch::Args),
    /// Look at groups, rebalance and end them
    #[command(subcommand)]
    Group(commands::group::Command),
    /// Look at the workers of a group, drain and evict them
    #[command(subcommand)]
    Worker(commands::worker::Command),
    /// Look at the partitions of a group, move, pin and pause them
    #[command(subcommand)]
    Partition(commands::partition::Command),
    /// Look at what operators asked for
    #[command(subcommand)]
    Request(commands::request::Command),
    /// Look at checkpoints, move them, take them elsewhere
    #[command(subcommand)]
    Checkpoint(commands::checkpoint::Command),
    Plan(commands::plan::Args),
    Serve(commands::serve::Args),
    Doctor(commands::doctor::Args),
    /// Check settings, and print them
    #[command(subcommand)]
    Config(commands::config::Command),
    Completions(commands::completions::Args),
    Man(commands::man::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            tell!("parti: no threads can be started: {error}");
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
            Command::Watch(args) => commands::watch::run(args).await,
            Command::Group(command) => commands::group::run(command).await,
            Command::Worker(command) => commands::worker::run(command).await,
            Command::Partition(command) => commands::partition::run(command).await,
            Command::Request(command) => commands::request::run(command).await,
            Command::Checkpoint(command) => commands::checkpoint::run(command).await,
            Command::Plan(args) => commands::plan::run(args).await,
            Command::Serve(args) => commands::serve::run(args).await,
            Command::Doctor(args) => commands::doctor::run(args).await,
            Command::Config(command) => commands::config::run(command),
            Command::Completions(args) => commands::completions::run(&args),
            Command::Man(args) => commands::man::run(&args),
        }
    });
    // Commands that still run for messages end with their tasks; a line that waits on a terminal
    // must not keep the program.
    runtime.shutdown_timeout(Duration::from_millis(500));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            tell!("parti: {}", show::plain_lines(&failure.line));
            ExitCode::from(failure.code)
        }
    }
}
