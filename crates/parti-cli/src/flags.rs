//! Flags that several commands share.

use std::ops::RangeInclusive;
use std::time::Duration;

use parti::core::codec::{self, Template};
use parti::core::config::parse_duration;
use parti::core::problem::Problem;
use parti::operate::{Patience, Reason};
use parti::source::jetstream;
use parti::{Config, PartitionId, StartPosition};
use serde_json::{Value, json};

use crate::exit::Failure;
use crate::show::{Shape, plain};

/// Which store.
#[derive(clap::Args)]
pub struct StoreFlags {
    /// Where the group's records live: sqlite:FILE, nats://…, etcd://…, postgres://…
    #[arg(long, value_name = "URL")]
    pub store: String,
}

/// Which group.
#[derive(clap::Args)]
pub struct GroupFlags {
    /// Where the group's records live: sqlite:FILE, nats://…, etcd://…, postgres://…
    #[arg(long, value_name = "URL")]
    pub store: String,
    /// The group's name
    #[arg(long, value_parser = group)]
    pub group: String,
}

/// Where messages come from, for what needs to know.
#[derive(clap::Args)]
pub struct SourceFlags {
    /// Where messages come from: log:FOLDER or jetstream://HOST:PORT/STREAM. Without it nothing is
    /// known of ends and lag. All partitions of a stream share its offsets, so there the lag is an
    /// upper bound
    #[arg(long, value_name = "URL")]
    pub source: Option<String>,
    /// The topic of a log
    #[arg(long, default_value = "messages")]
    pub topic: String,
    /// How a partition becomes a subject, such as dc.{0}.{1}.completion (JetStream only)
    #[arg(long, value_name = "TEMPLATE", value_parser = subject)]
    pub subject: Option<String>,
}

impl SourceFlags {
    /// What was named, for a message. A stream's URL may have a password.
    pub fn named(&self) -> String {
        match self.source.as_deref() {
            Some(url) if url.starts_with("log:") => {
                format!("--source {} (topic {})", plain(url), plain(&self.topic))
            }
            _ => "--source".to_owned(),
        }
    }
}

/// Takes a source where none is needed, only to say so.
#[derive(clap::Args)]
pub struct NoSource {
    #[arg(long, hide = true)]
    source: Option<String>,
}

impl NoSource {
    /// Refuses it.
    pub fn checked(&self) -> Result<(), Failure> {
        match self.source {
            None => Ok(()),
            Some(_) => Err(Failure::usage(
                "--source: checkpoints are in the store; leave it out, or see `parti partition list`, \
                 which shows them beside where the source ends",
            )),
        }
    }
}

/// How to show it.
#[derive(clap::Args)]
pub struct OutputFlags {
    /// How to show it
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Shape,
}

/// Which group, and how to show it.
#[derive(clap::Args)]
pub struct LookFlags {
    #[command(flatten)]
    pub group: GroupFlags,
    #[command(flatten)]
    pub output: OutputFlags,
}

/// The same, with where its messages come from.
#[derive(clap::Args)]
pub struct LocatedFlags {
    #[command(flatten)]
    pub group: GroupFlags,
    #[command(flatten)]
    pub source: SourceFlags,
    #[command(flatten)]
    pub output: OutputFlags,
}

/// Which partitions.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
pub struct PartitionFlags {
    /// The partition's id; may be given several times
    #[arg(long, short, value_name = "ID", value_parser = partition)]
    pub partition: Vec<PartitionId>,
    /// Every partition that the group knows
    #[arg(long)]
    pub all: bool,
}

/// How a checkpoint may be changed.
#[derive(clap::Args)]
pub struct ChangeFlags {
    /// Change partitions that are being served, too: each is paused until its owner has let go of
    /// it, changed, and resumed. An owner that does not let go in time is fenced. Ctrl-C ends the
    /// wait, and resumes what is paused
    #[arg(long)]
    force: bool,
    /// How long owners have to let go, with --force; --silence at least
    #[arg(long, default_value = "30s", value_parser = duration, value_name = "TIME")]
    timeout: Duration,
    /// Nobody is fenced before it was silent, or was told to let go, for so long: an idle owner would
    /// not notice. Give more than the group's heartbeat_ttl (leaderless.lease_ttl)
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "TIME")]
    silence: Duration,
    /// Only show what would change
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub reason: ReasonFlags,
}

impl ChangeFlags {
    /// How long to wait for owners, if they are to be asked at all.
    pub fn force(&self) -> Option<Patience> {
        let (effect, silence) = (self.timeout, self.silence);
        self.force.then_some(Patience { effect, silence })
    }
}

/// Who does something, and why.
#[derive(clap::Args)]
pub struct ReasonFlags {
    /// Why, for the group's history
    #[arg(long, default_value = "", value_name = "TEXT")]
    why: String,
    /// Who does it, for the group's history [default: the user's name]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

impl ReasonFlags {
    /// The reason, if the group's history can hold it.
    pub fn checked(&self) -> Result<Reason, Failure> {
        let reason = Reason {
            by: self.by.clone().unwrap_or_else(user),
            why: self.why.clone(),
        };
        match reason.check() {
            Ok(()) => Ok(reason),
            Err(wrong) => Err(Failure::usage(wrong)),
        }
    }
}

/// The user's name.
pub fn user() -> String {
    let named = ["USER", "LOGNAME"].into_iter();
    let mut named = named.filter_map(|name| std::env::var(name).ok());
    named.next().unwrap_or_else(|| "somebody".to_owned())
}

/// A flag's whole number from this range.
pub fn whole<T: TryFrom<u64>>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        let number = number.and_then(|number: u64| T::try_from(number).ok());
        number.ok_or_else(|| {
            format!(
                "give a whole number from {} to {}",
                range.start(),
                range.end()
            )
        })
    }
}

/// A flag's template of subjects.
pub fn subject(text: &str) -> Result<String, String> {
    template(Template::parse(text))
}

/// The same, for subjects of virtual partitions.
pub fn numbered_subject(text: &str) -> Result<String, String> {
    template(jetstream::numbered_template(text))
}

fn template(read: Result<Template, Problem>) -> Result<String, String> {
    match read {
        Ok(template) => Ok(template.to_string()),
        Err(problem) => Err(format!("it {}; {}", problem.what, problem.remedy)),
    }
}

/// A flag's duration.
pub fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|why| format!("it {why}; give one such as 500ms, 30s or 1h30m"))
}

/// A flag's command. An empty one would succeed with every message.
pub fn command(text: &str) -> Result<String, String> {
    match text.trim().is_empty() {
        true => Err("it is empty; give a command, or leave the flag out to print messages".into()),
        false => Ok(text.to_owned()),
    }
}

/// A flag's group.
pub fn group(text: &str) -> Result<String, String> {
    match text.len() {
        1..=codec::MAX_NAME => Ok(text.to_owned()),
        bytes => Err(format!(
            "a group's name has from 1 to {} bytes, this one has {bytes}",
            codec::MAX_NAME
        )),
    }
}

/// A flag's partition id.
pub fn partition(text: &str) -> Result<PartitionId, String> {
    if codec::is_canonical(text) {
        Ok(PartitionId::new(text))
    } else {
        Err("no partition has such an id; copy it from `parti partition list`".into())
    }
}

/// A start position as a setting has it: latest, earliest, an offset or a time.
pub fn start_value(text: &str) -> Value {
    match text {
        "latest" | "earliest" => json!(text),
        text => match text.parse::<u64>() {
            Ok(offset) => json!({ "offset": offset }),
            Err(_) => json!({ "time": text }),
        },
    }
}

/// A flag's start position.
pub fn start_position(flag: &str, text: &str) -> Result<StartPosition, Failure> {
    let tree = json!({ "processing": { "start": start_value(text) } });
    match Config::from_tree(&tree) {
        Ok(config) => Ok(config.processing.start),
        Err(_) => Err(Failure::usage(format!(
            "{flag} {text:?} is no place; give earliest, latest, an offset, or a time such as \
             2026-01-31T12:00:00Z"
        ))),
    }
}
