//! Flags and URLs that several commands share.

use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use parti::Config;
use parti::core::config::parse_duration;
use parti::source::log::Log;
use parti::store::{self, Store};

use crate::exit::Failure;

/// How a result is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Shape {
    /// For people
    #[default]
    Table,
    /// For programs
    Json,
}

/// A flag's duration.
pub fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|why| format!("it {why}; give one such as 500ms, 30s or 1h30m"))
}

/// The embedded log that a URL names.
pub async fn log(url: &str) -> Result<Log, Failure> {
    match url.split_once(':') {
        Some(("log", folder)) if !folder.is_empty() => Ok(Log::open(folder).await?),
        _ => Err(Failure::usage(
            "--source is no log: give it as log:FOLDER, such as log:data",
        )),
    }
}

/// The store that a URL names.
pub async fn store(url: &str) -> Result<Arc<dyn Store>, Failure> {
    Ok(store::open(url).await?)
}

/// The settings in a file, or the defaults.
pub fn config(file: Option<&str>) -> Result<Config, Failure> {
    let Some(file) = file else {
        return Ok(Config::default());
    };
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::usage(format!("--config {file}: {error}")))?;
    // JSON is YAML too.
    Config::from_yaml(&text).map_err(|problems| Failure::usage(format!("{file}:\n{problems}")))
}
