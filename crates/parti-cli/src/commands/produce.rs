//! `parti produce`: messages from lines, or made up at a rate.

use std::io::IsTerminal;
use std::time::Duration;

use bytes::Bytes;
use parti::source::JetStream;
use parti::source::jetstream::{NewMessage, Producer, StreamSettings};
use parti::source::log::{NewRecord, Topic, TopicSettings};
use parti::source::place::Place;
use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, BufReader};
use tokio::time::Instant;

use crate::exit::{CODES, Failure};
use crate::flags;
use crate::lines::print;
use crate::places;
use crate::progress;

/// Lines are appended together, up to so many with one sync.
const BATCH: usize = 1_000;

/// Append messages to a topic: each line of a file or of stdin, or made up at a rate.
///
/// With --key-field, lines are JSON objects and the field's value is the message's key: one key
/// always goes to one partition. Without a key, messages go round.
///
/// Example: parti produce --source log:data --topic orders --key-field customer < orders.jsonl
/// Example: parti produce --source log:data --topic load --partitions 12 --rate 500 --for 10s
/// Example: parti produce --source jetstream://localhost:4222/ORDERS --key-field customer < orders.jsonl
#[derive(clap::Args)]
#[command(after_help = CODES)]
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
    #[arg(long, value_name = "PER-SECOND")]
    rate: Option<u32>,
    /// For how long to make up messages
    #[arg(long = "for", value_name = "DURATION", requires = "rate", default_value = "10s", value_parser = flags::duration)]
    duration: Duration,
}

/// Does it.
pub async fn run(args: Args) -> Result<(), Failure> {
    let topic = Target::open(&args).await?;
    let produced = match (args.rate, &args.file) {
        (Some(0), _) => return Err(Failure::usage("--rate 0 makes no messages; give 1 or more")),
        (Some(rate), _) => make_up(&topic, rate, args.duration).await?,
        (None, Some(file)) => {
            let file = tokio::fs::File::open(file)
                .await
                .map_err(|error| Failure::usage(format!("--file {file}: {error}")))?;
            read_lines(&topic, BufReader::new(file), args.key_field.as_deref()).await?
        }
        (None, None) => {
            if std::io::stdin().is_terminal() {
                eprintln!("reading messages from the terminal, a line each; end with ctrl-D");
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

    /// Appends all of them; once this returns they are safe.
    async fn append(&self, lines: Vec<Line>) -> Result<(), Failure> {
        match self {
            Target::Log(topic) => {
                let records = lines.into_iter().map(|line| NewRecord {
                    key: line.key,
                    payload: line.payload,
                    ..NewRecord::default()
                });
                topic.append(records.collect()).await?;
            }
            Target::Stream(producer) => {
                let messages = lines.into_iter().map(|line| NewMessage {
                    key: line.key,
                    payload: line.payload,
                    ..NewMessage::default()
                });
                producer.publish(messages.collect()).await?;
            }
        }
        Ok(())
    }
}

async fn read_lines(
    topic: &Target,
    mut input: impl AsyncBufRead + Unpin,
    key_field: Option<&str>,
) -> Result<u64, Failure> {
    let bar = progress::bar(None, "produced");
    let (mut produced, mut number, mut batch) = (0, 0_u64, Vec::new());
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = input.read_until(b'\n', &mut line).await?;
        let mut ended = (read == 0).then_some(Ok(()));
        if ended.is_none() {
            number += 1;
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
                        "line {number} {why}. The {} lines before it were produced, it and what \
                         follows were not: mend it, and give the rest again",
                        number - 1
                    ))));
                }
            }
        }
        if batch.len() == BATCH || (ended.is_some() && !batch.is_empty()) {
            produced += batch.len() as u64;
            topic.append(std::mem::take(&mut batch)).await?;
            bar.set_position(produced);
        }
        if let Some(ended) = ended {
            bar.finish_and_clear();
            return ended.map(|()| produced);
        }
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
    let mut produced = 0_u64;
    while produced < total {
        beat.tick().await;
        let due = (f64::from(rate) * began.elapsed().as_secs_f64()) as u64;
        let count = due.min(total).saturating_sub(produced).min(10_000);
        if count == 0 {
            continue;
        }
        let batch = (produced..produced + count).map(|number| Line {
            key: Some(format!("key-{}", number % 1_000).into()),
            payload: json!({ "number": number }).to_string().into(),
        });
        topic.append(batch.collect()).await?;
        produced += count;
        bar.set_position(produced);
    }
    bar.finish_and_clear();
    Ok(produced)
}
