//! `parti produce`: messages from lines, or made up at a rate.

use std::io::IsTerminal;
use std::time::Duration;

use bytes::Bytes;
use parti::core::text::count;
use parti::source::JetStream;
use parti::source::jetstream::{NewMessage, Producer, StreamSettings};
use parti::source::log::{LogError, NewRecord, Topic, TopicSettings};
use parti::source::place::Place;
use serde_json::{Value, json};
use tokio::fs::File;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, BufReader};
use tokio::time::{Instant, sleep_until};

use crate::exit::{CODES, Failure};
use crate::flags;
use crate::lines::print;
use crate::places;
use crate::progress;
use crate::signals::Endings;

/// Lines are appended together, up to so many with one sync.
const BATCH: usize = 1_000;
/// And so long one waits for others, where they come slowly.
const LINGER: Duration = Duration::from_millis(100);

/// Append messages to a topic: each line of a file or of stdin, or made up at a rate.
///
/// With --key-field, lines are JSON objects and the field's value is the message's key: one key
/// always goes to one partition. Without a key, messages go round.
///
/// Example: parti produce --source log:data --topic orders --key-field customer < orders.jsonl
/// Example: parti produce --source log:data --topic load --partitions 12 --rate 500 --for 10s
/// Example: parti produce --source jetstream://localhost:4222/ORDERS --key-field customer < orders.jsonl
#[derive(clap::Args)]
#[command(after_help = CODES, verbatim_doc_comment)]
pub struct Args {
    /// The log, such as log:FOLDER, or the stream, such as jetstream://HOST:PORT/STREAM
    #[arg(long, value_name = "URL")]
    source: String,
    /// The topic's name, in a log
    #[arg(long, default_value = "messages")]
    topic: String,
    /// Make the topic or stream with so many partitions, if there is none
    #[arg(long, value_name = "N")]
    partitions: Option<u32>,
    /// The field of a JSON line that is its key
    #[arg(long, value_name = "FIELD", conflicts_with = "rate")]
    key_field: Option<String>,
    /// Read lines from here instead of stdin
    #[arg(long, value_name = "FILE", conflicts_with = "rate")]
    file: Option<String>,
    /// Make up so many messages a second
    #[arg(long, value_name = "PER-SECOND", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// For how long to make up messages
    #[arg(long = "for", value_name = "DURATION", requires = "rate", default_value = "10s", value_parser = flags::duration)]
    duration: Duration,
}

/// Does it.
pub async fn run(args: Args) -> Result<(), Failure> {
    // What cannot be read is refused before a topic is made for it.
    let file = match &args.file {
        Some(file) => Some(opened(file).await?),
        None => None,
    };
    let topic = Target::open(&args).await?;
    let produced = match (args.rate, file) {
        (Some(rate), _) => make_up(&topic, rate, args.duration).await?,
        (None, Some(file)) => {
            read_lines(&topic, BufReader::new(file), args.key_field.as_deref()).await?
        }
        (None, None) => {
            if std::io::stdin().is_terminal() {
                tell!("reading messages from the terminal, a line each; end with ctrl-D");
            }
            let stdin = BufReader::new(tokio::io::stdin());
            read_lines(&topic, stdin, args.key_field.as_deref()).await?
        }
    };
    print(&format!(
        "{}\n",
        json!({"topic": topic.name(), "produced": produced})
    ))
}

/// The file that --file names.
async fn opened(name: &str) -> Result<File, Failure> {
    let wrong = |why: String| Failure::usage(format!("--file {name}: {why}"));
    let file = File::open(name).await;
    let file = file.map_err(|error| wrong(error.to_string()))?;
    let about = file.metadata().await;
    match about.map_err(|error| wrong(error.to_string()))?.is_dir() {
        true => Err(wrong(
            "it is a folder; give a file with one message a line".into(),
        )),
        false => Ok(file),
    }
}

/// Where messages go.
enum Target {
    Log(Topic),
    Stream(Box<Producer>),
}

/// A message, and its key.
struct Line {
    key: Option<Bytes>,
    payload: Bytes,
}

impl Target {
    async fn open(args: &Args) -> Result<Self, Failure> {
        match (places::source(&args.source).await?, args.partitions) {
            (Place::Log(log), Some(partitions)) => {
                let settings = TopicSettings {
                    partitions,
                    ..TopicSettings::default()
                };
                Ok(Target::Log(log.create_topic(&args.topic, settings).await?))
            }
            (Place::Log(log), None) => Ok(Target::Log(log.topic(&args.topic).await?)),
            (Place::Stream(url), partitions) => {
                let stream = match partitions {
                    Some(count) => {
                        JetStream::create(&url, &StreamSettings::partitions(count)).await?
                    }
                    None => JetStream::connect(&url).await?,
                };
                Ok(Target::Stream(Box::new(stream.producer()?)))
            }
        }
    }

    fn name(&self) -> &str {
        match self {
            Target::Log(topic) => topic.name(),
            Target::Stream(producer) => producer.stream(),
        }
    }

    /// Appends all of them to those that are stored already; once this returns they are safe, and
    /// counted. A failure says how many are known to be.
    async fn append(&self, lines: Vec<Line>, stored: &mut Stored) -> Result<(), Failure> {
        let number = lines.len() as u64;
        let (failure, is_open) = match self.try_append(lines).await {
            Ok(()) => {
                stored.number += number;
                return Ok(());
            }
            Err(failed) => failed,
        };
        let line = format!("{}. {}", failure.line, stored.told(number, is_open));
        Err(failure.told(line))
    }

    /// Appends all of them. If that fails: whether some may be stored all the same.
    async fn try_append(&self, lines: Vec<Line>) -> Result<(), (Failure, bool)> {
        match self {
            Target::Log(topic) => {
                let records = lines.into_iter().map(|line| NewRecord {
                    key: line.key,
                    payload: line.payload,
                    ..NewRecord::default()
                });
                // One batch is one transaction.
                let of_log = |error| {
                    let is_open = matches!(error, LogError::Unknown(_));
                    (Failure::from(error), is_open)
                };
                topic.append(records.collect()).await.map_err(of_log)?;
            }
            Target::Stream(producer) => {
                let messages = lines.into_iter().map(|line| NewMessage {
                    key: line.key,
                    payload: line.payload,
                    ..NewMessage::default()
                });
                let published = producer.publish(messages.collect()).await;
                published.map_err(|error| (Failure::from(error), true))?;
            }
        }
        Ok(())
    }
}

/// What is known to be stored.
struct Stored {
    number: u64,
    /// What one of them is called.
    what: &'static str,
}

impl Stored {
    fn new(what: &'static str) -> Self {
        Self { number: 0, what }
    }

    /// How far it came, when the next so many failed.
    fn told(&self, failed: u64, is_open: bool) -> String {
        let Self { number, what } = self;
        let stored = match number {
            0 => "Nothing was produced before that".to_owned(),
            1 => format!("The first {what} was produced"),
            number => format!("The first {number} {what}s were produced"),
        };
        let rest = match number {
            0 => "nor was this",
            _ => "what follows was not",
        };
        match is_open {
            true => format!(
                "{stored}; whether the next {} went in, or some of them, is not known",
                count(failed, what)
            ),
            false => format!("{stored}, {rest}: mend it, and give the rest again"),
        }
    }
}

async fn read_lines(
    topic: &Target,
    mut input: impl AsyncBufRead + Unpin,
    key_field: Option<&str>,
) -> Result<u64, Failure> {
    let bar = progress::bar(None, "produced");
    let (mut stored, mut number, mut batch) = (Stored::new("line"), 0_u64, Vec::new());
    let mut endings = Endings::catch()?;
    let mut append_at = None;
    let mut line = Vec::new();
    loop {
        let mut ended = tokio::select! {
            biased;
            // What was read goes in first.
            by = endings.next() => Some(Err(Failure::ended(
                by,
                format!("stopped: {} produced, what follows was not", count(number, "line")),
            ))),
            // What has come of a line when the time is over stays in `line`.
            read = input.read_until(b'\n', &mut line) => match read {
                Ok(0) if line.is_empty() => Some(Ok(())),
                Ok(_) => None,
                Err(error) => Some(Err(Failure::failed(format!(
                    "line {} cannot be read: {error}. {} produced, it and what follows were not",
                    number + 1,
                    before(number)
                )))),
            },
            () = at(append_at) => {
                append_at = None;
                topic.append(std::mem::take(&mut batch), &mut stored).await?;
                bar.set_position(stored.number);
                continue;
            }
        };
        if ended.is_none() {
            number += 1;
            append_at = append_at.or_else(|| Some(Instant::now() + LINGER));
            if line.last() == Some(&b'\n') {
                line.pop();
            }
            match key_field.map(|field| key_of(&line, field)).transpose() {
                Ok(key) => batch.push(Line {
                    key: key.map(Bytes::from),
                    payload: Bytes::copy_from_slice(&line),
                }),
                // What came before it goes in, so that one line number says all.
                Err(why) => {
                    ended = Some(Err(Failure::usage(format!(
                        "line {number} {why}. {} produced, it and what follows were not: mend it, \
                         and give the rest again",
                        before(number - 1)
                    ))));
                }
            }
            line.clear();
        }
        if batch.len() == BATCH || (ended.is_some() && !batch.is_empty()) {
            append_at = None;
            topic
                .append(std::mem::take(&mut batch), &mut stored)
                .await?;
            bar.set_position(stored.number);
        }
        if let Some(ended) = ended {
            bar.finish_and_clear();
            return ended.map(|()| stored.number);
        }
    }
}

/// So many lines came before the one that is told of.
fn before(lines: u64) -> String {
    match lines {
        1 => "The line before it was".to_owned(),
        lines => format!("The {lines} lines before it were"),
    }
}

/// Waits until then; for good, if there is no such time.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// The key of a JSON line, or what is wrong with it.
fn key_of(line: &[u8], field: &str) -> Result<String, String> {
    let object: Value = serde_json::from_slice(line)
        .map_err(|error| format!("is not JSON ({error}); --key-field needs JSON lines"))?;
    match object.get(field) {
        None => Err(format!(
            "has no field {field:?}; with --key-field every line needs its key"
        )),
        Some(Value::Null) => Err(format!(
            "has null as its {field:?}; with --key-field every line needs its key"
        )),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Ok(other.to_string()),
    }
}

/// Messages with a number and a key each, a batch every 20 ms.
async fn make_up(topic: &Target, rate: u32, length: Duration) -> Result<u64, Failure> {
    let total = (f64::from(rate) * length.as_secs_f64()).round() as u64;
    let bar = progress::bar(Some(total), "produced");
    let began = Instant::now();
    let mut beat = tokio::time::interval(Duration::from_millis(20));
    let mut stored = Stored::new("message");
    while stored.number < total {
        beat.tick().await;
        let due = (f64::from(rate) * began.elapsed().as_secs_f64()) as u64;
        let produced = stored.number;
        let count = due.min(total).saturating_sub(produced).min(10_000);
        if count == 0 {
            continue;
        }
        let batch = (produced..produced + count).map(|number| Line {
            key: Some(format!("key-{}", number % 1_000).into()),
            payload: json!({ "number": number }).to_string().into(),
        });
        topic.append(batch.collect(), &mut stored).await?;
        bar.set_position(stored.number);
    }
    bar.finish_and_clear();
    Ok(stored.number)
}
