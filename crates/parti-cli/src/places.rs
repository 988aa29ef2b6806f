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

/// Where messages come from.
pub enum Source {
    /// A folder with topics.
    Log(Log),
    /// The URL of a stream, not connected yet.
    JetStream(String),
}

/// The source that a URL names.
pub async fn source(url: &str) -> Result<Source, Failure> {
    match url.split_once(':') {
        Some(("log", folder)) if !folder.is_empty() => Ok(Source::Log(Log::open(folder).await?)),
        Some((scheme, _)) if scheme.eq_ignore_ascii_case("jetstream") => {
            Ok(Source::JetStream(url.to_owned()))
        }
        _ => Err(Failure::usage(
            "--source is neither a log nor a stream: give it as log:FOLDER, such as log:data, or \
             as jetstream://HOST:4222/STREAM",
        )),
    }
}

impl Source {
    /// The topic of a log; what a stream is asked for has no topic.
    pub fn log(self, what: &str) -> Result<Log, Failure> {
        match self {
            Source::Log(log) => Ok(log),
            Source::JetStream(_) => Err(Failure::usage(format!(
                "--source is a stream, and {what} is for logs; give it as log:FOLDER"
            ))),
        }
    }
}

/// A stream's URL with the template of its subjects, if one is given.
pub fn with_subject(url: String, template: Option<&str>) -> String {
    let Some(template) = template else {
        return url;
    };
    let mark = if url.contains('?') { '&' } else { '?' };
    let template = template.replace('%', "%25").replace('&', "%26");
    format!("{url}{mark}subject={template}")
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
