//! Log lines of commands that run for long, on stderr.

use std::io;

use clap::ValueEnum;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::exit::Failure;

/// How much is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Level {
    /// What failed
    Error,
    /// What an operator should look at, too
    Warn,
    /// Who came and went, and what was done, too
    #[default]
    Info,
    /// Every request, too
    Debug,
}

/// Logs from now on. What others' code has to say counts from a warning on.
pub fn start(level: Level) -> Result<(), Failure> {
    let own = match level {
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
    };
    let others = own.min(LevelFilter::WARN);
    let chosen = Targets::new()
        .with_default(others)
        .with_target("parti", own);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        // It would say on stderr that stderr cannot be written to, and panic.
        .log_internal_errors(false)
        .with_target(false);
    let logging = tracing_subscriber::registry().with(lines).with(chosen);
    logging.try_init().map_err(Failure::failed)
}
