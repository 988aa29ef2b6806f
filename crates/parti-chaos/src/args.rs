//! The command line.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use parti::core::config::parse_duration;

/// Groups of real worker processes on real servers, and everything that can happen to them.
#[derive(Parser)]
#[command(name = "parti-chaos", version)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Subcommand)]
pub enum Command {
    /// Run scenarios on JetStream and print what was lost, repeated and out of order
    Jetstream(JetStreamArgs),
    /// Run a load with churn for a while, and see whether anything grows
    Soak(SoakArgs),
    /// One worker process, as the other commands start it
    #[command(hide = true)]
    Worker(WorkerArgs),
}

/// How a stream keeps messages, and how they are acked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StreamKind {
    /// Limits retention, every message acked
    Limits,
    /// Limits retention, no acks: the checkpoint alone counts
    Unacked,
    /// Workqueue retention
    Workqueue,
}

impl StreamKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Limits, Self::Unacked, Self::Workqueue];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Limits => "limits",
            Self::Unacked => "unacked",
            Self::Workqueue => "workqueue",
        }
    }
}

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    Table,
    /// One JSON object per scenario and stream
    Json,
}

/// Options of `jetstream`.
#[derive(Args, Clone)]
pub struct JetStreamArgs {
    /// Only these scenarios, separated by commas
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// Only these kinds of stream, separated by commas
    #[arg(long, value_enum, value_delimiter = ',')]
    pub stream: Vec<StreamKind>,
    /// Messages per second
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    pub rate: u32,
    /// Partitions
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub partitions: u32,
    /// Version of nats-server
    #[arg(long, default_value = parti_servers::install::NATS_LATEST)]
    pub server: String,
    /// How long the slow handler takes
    #[arg(long, default_value = "60s", value_parser = duration)]
    pub slow: Duration,
    /// How results are printed
    #[arg(short, long, value_enum, default_value = "table")]
    pub output: Output,
    /// List the scenarios
    #[arg(long)]
    pub list: bool,
}

/// Options of `soak`.
#[derive(Args, Clone)]
pub struct SoakArgs {
    /// How long
    #[arg(long = "for", default_value = "30m", value_parser = duration)]
    pub length: Duration,
    /// The kind of stream
    #[arg(long, value_enum, default_value = "limits")]
    pub stream: StreamKind,
    /// Messages per second
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    pub rate: u32,
    /// Partitions
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub partitions: u32,
    /// Version of nats-server
    #[arg(long, default_value = parti_servers::install::NATS_LATEST)]
    pub server: String,
    /// Time between two samples
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub sample: Duration,
    /// Time between two changes of the group
    #[arg(long, default_value = "20s", value_parser = duration)]
    pub churn: Duration,
}

/// Options of a worker process.
#[derive(Args, Clone)]
pub struct WorkerArgs {
    /// The stream's URL
    #[arg(long)]
    pub source: String,
    /// The store's URL
    #[arg(long)]
    pub store: String,
    /// The group
    #[arg(long)]
    pub group: String,
    /// A file with settings
    #[arg(long)]
    pub config: PathBuf,
    /// How many partitions there are
    #[arg(long)]
    pub partitions: u32,
    /// The number it would like in its id
    #[arg(long)]
    pub number: Option<u64>,
    /// How long each message takes
    #[arg(long, default_value = "1ms", value_parser = duration)]
    pub work: Duration,
    /// Fail on this message each time, as in 3/17
    #[arg(long)]
    pub fail_on: Option<Place>,
    /// Panic on this message each time
    #[arg(long)]
    pub panic_on: Option<Place>,
    /// Abort the process on this message each time
    #[arg(long)]
    pub abort_on: Option<Place>,
    /// Take long on this message
    #[arg(long)]
    pub slow_on: Option<Place>,
    /// So long
    #[arg(long, default_value = "60s", value_parser = duration)]
    pub slow_for: Duration,
}

/// One message: its partition, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its partition.
    pub partition: u32,
    /// Its number, from 0.
    pub number: u64,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/');
        let place = parts.and_then(|(partition, number)| {
            Some(Self {
                partition: partition.parse().ok()?,
                number: number.parse().ok()?,
            })
        });
        place.ok_or_else(|| format!("{text} is no message; write it as PARTITION/NUMBER"))
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.partition, self.number)
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed = parse_duration(text);
    parsed.map_err(|_| format!("{text} is no duration; give one such as 500ms, 30s or 1h30m"))
}
