//! `parti produce`: messages from lines, or made up at a rate.

use std::io::IsTerminal;
use std::time::Duration;

use bytes::Bytes;
use parti::core::text::count;
use parti::source::JetStream;
use parti::source::jetstream::{NewMessage, Producer, StreamSettings};
use parti::source::log::{LogError, MAX_PARTITIONS, NewRecord, Topic, TopicSettings};
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
use crate::signals::{Ending, Endings};

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
    #[arg(long, value_name = "N", allow_negative_numbers = true,
        value_parser = flags::whole::<u32>(1..=MAX_PARTITIONS.into()))]
    partitions: Option<u32>,
    /// The field of a JSON line that is its key
    #[arg(long, value_name = "FIELD", conflicts_with = "rate")]
    key_field: Option<String>,
    /// Read lines from here instead of stdin
    #[arg(long, value_name = "FILE", conflicts_with = "rate")]
    file: Option<String>,
    /// Make up so many messages a second
    #[arg(long, value_name = "PER-SECOND", allow_negative_numbers = true,
        value_parser = flags::whole::<u32>(1..=u32::MAX.into()))]
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

    /// Appends all of them; once this returns they are safe. A failure says how many of those before
    /// are known to be. Answers how many there are now.
    async fn append(&self, lines: Vec<Line>, stored: &Stored) -> Result<u64, Failure> {
        let number = lines.len() as u64;
        let (failure, is_open) = match self.try_append(lines).await {
            Ok(()) => return Ok(stored.number + number),
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

/// Lines on their way from a reader to a topic.
struct Feed<'a> {
    topic: &'a Target,
    endings: Endings,
    /// A signal that has come: what was read goes in, and no more is read.
    ending: Option<Ending>,
    /// What was read, and not appended yet.
    batch: Vec<Line>,
    stored: Stored,
}

impl Feed<'_> {
    /// A line that was read; or why it has no key.
    fn take(&mut self, line: &[u8], key_field: Option<&str>) -> Result<(), String> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let key = key_field.map(|field| key_of(line, field)).transpose()?;
        self.batch.push(Line {
            key: key.map(Bytes::from),
            payload: Bytes::copy_from_slice(line),
        });
        Ok(())
    }

    /// Appends what was read. That may take long, where the log or stream is in trouble: a signal is
    /// told, and waits for it; another one ends this at once.
    async fn flush(&mut self) -> Result<(), Failure> {
        let batch = std::mem::take(&mut self.batch);
        let number = batch.len() as u64;
        if number == 0 {
            return Ok(());
        }
        let told = || {
            let lines = count(number, "line");
            tell!("stopping: what was read goes in first ({lines}); once more ends this at once");
        };
        if self.ending.is_some() {
            told();
        }
        let appended = {
            let appending = self.topic.append(batch, &self.stored);
            tokio::pin!(appending);
            loop {
                tokio::select! {
                    biased;
                    appended = &mut appending => break appended,
                    by = self.endings.next() => {
                        if self.ending.is_some() {
                            let so = format!("stopped. {}", self.stored.told(number, true));
                            return Err(Failure::ended(by, so));
                        }
                        self.ending = Some(by);
                        told();
                    }
                }
            }
        };
        self.stored.number = match (appended, self.ending) {
            (Ok(number), _) => number,
            (Err(failure), Some(by)) => return Err(Failure::ended(by, failure.line)),
            (Err(failure), None) => return Err(failure),
        };
        Ok(())
    }
}

async fn read_lines(
    topic: &Target,
    mut input: impl AsyncBufRead + Unpin,
    key_field: Option<&str>,
) -> Result<u64, Failure> {
    let bar = progress::bar(None, "produced");
    let mut feed = Feed {
        topic,
        endings: Endings::catch()?,
        ending: None,
        batch: Vec::new(),
        stored: Stored::new("line"),
    };
    let (mut number, mut line, mut append_at) = (0_u64, Vec::new(), None);
    let ended = loop {
        if let Some(by) = feed.ending {
            let lines = count(number, "line");
            let so = format!("stopped: {lines} produced, what follows was not");
            break Err(Failure::ended(by, so));
        }
        let read = tokio::select! {
            biased;
            by = feed.endings.next() => {
                feed.ending = Some(by);
                None
            }
            // What has come of a line when the time is over stays in `line`.
            read = input.read_until(b'\n', &mut line) => Some(read),
            () = at(append_at) => None,
        };
        let ended = match read {
            None => None,
            Some(Ok(0)) if line.is_empty() => Some(Ok(())),
            Some(Ok(_)) => {
                number += 1;
                append_at = append_at.or_else(|| Some(Instant::now() + LINGER));
                let taken = feed.take(&line, key_field);
                line.clear();
                match taken {
                    Ok(()) if feed.batch.len() < BATCH => continue,
                    Ok(()) => None,
                    // What came before it goes in, so that one line number says all.
                    Err(why) => Some(Err(Failure::usage(format!(
                        "line {number} {why}. {} produced, it and what follows were not: mend it, \
                         and give the rest again",
                        before(number - 1)
                    )))),
                }
            }
            Some(Err(error)) => Some(Err(Failure::failed(format!(
                "line {} cannot be read: {error}. {} produced, it and what follows were not",
                number + 1,
                before(number)
            )))),
        };
        append_at = None;
        feed.flush().await?;
        bar.set_position(feed.stored.number);
        if let Some(ended) = ended {
            break ended;
        }
    };
    bar.finish_and_clear();
    ended.map(|()| feed.stored.number)
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
        stored.number = topic.append(batch.collect(), &stored).await?;
        bar.set_position(stored.number);
    }
    bar.finish_and_clear();
    Ok(stored.number)
}
