//! `parti topic create`

use std::time::Duration;

use parti::core::text::count;
use parti::source::JetStream;
use parti::source::jetstream::{MAX_REPLICAS, StreamSettings};
use parti::source::log::{MAX_PARTITIONS, TopicSettings};
use parti::source::place::Place;

use crate::exit::{CODES, Failure};
use crate::flags;
use crate::places;
use crate::show::plain;

/// Make a topic with a fixed number of partitions.
///
/// Doing it again with the same number is fine; another number is refused, because messages with
/// one key would then be in two partitions. Other limits than it has are refused, too.
///
/// A stream of JetStream is made with one subject for each partition, such as ORDERS.0 to
/// ORDERS.11, and keeps their number in its metadata.
///
/// Example: parti topic create --source log:data --topic orders --partitions 12 --keep-for 168h
/// Example: parti topic create --source jetstream://localhost:4222/ORDERS --partitions 12
#[derive(clap::Args)]
#[command(after_help = CODES, verbatim_doc_comment)]
pub struct Args {
    /// The log, such as log:FOLDER, or the stream, such as jetstream://HOST:PORT/STREAM
    #[arg(long, value_name = "URL")]
    source: String,
    /// The topic's name, in a log
    #[arg(long)]
    topic: Option<String>,
    /// How many partitions, for good
    #[arg(long, value_name = "N", allow_negative_numbers = true,
        value_parser = flags::whole::<u32>(1..=MAX_PARTITIONS.into()))]
    partitions: u32,
    /// Remove messages that are older, such as 36h or 168h; by default never
    #[arg(long, value_name = "AGE", value_parser = flags::duration)]
    keep_for: Option<Duration>,
    /// Remove the oldest messages beyond this size in bytes; by default never
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true,
        value_parser = flags::whole::<u64>(1..=i64::MAX.unsigned_abs()))]
    keep_bytes: Option<u64>,
    /// How a partition becomes a subject of the stream, such as orders.{0}
    #[arg(long, value_name = "TEMPLATE", value_parser = flags::numbered_subject)]
    subject: Option<String>,
    /// Remove each message of the stream once it is handled
    #[arg(long)]
    work_queue: bool,
    /// How many servers keep the stream, from 1 to 5; by default 1
    #[arg(long, value_name = "N", allow_negative_numbers = true,
        value_parser = flags::whole::<u32>(1..=MAX_REPLICAS.into()))]
    replicas: Option<u32>,
}

/// Does it.
pub async fn run(args: Args) -> Result<(), Failure> {
    let log = match places::source(&args.source).await? {
        Place::Log(log) => log,
        Place::Stream(_) if args.topic.is_some() => {
            return Err(Failure::usage(
                "--topic is for logs: the URL of a stream names it already; leave it out",
            ));
        }
        Place::Stream(url) => {
            let url = places::with_subject(url, args.subject.as_deref());
            let settings = StreamSettings {
                work_queue: args.work_queue,
                max_age: args.keep_for,
                max_bytes: args.keep_bytes,
                replicas: args.replicas.unwrap_or(1),
                ..StreamSettings::partitions(args.partitions)
            };
            let stream = JetStream::create(&url, &settings).await?;
            tell!(
                "stream {} has {}, with the subjects {}",
                plain(stream.stream()),
                count(args.partitions, "partition"),
                plain(&stream.template().to_string())
            );
            return Ok(());
        }
    };
    if let Some(flag) = of_stream(&args) {
        return Err(Failure::usage(format!(
            "{flag} is for streams of JetStream, and --source is a log; leave it out"
        )));
    }
    let Some(topic) = &args.topic else {
        return Err(Failure::usage(
            "--topic is missing: a log has several, each with a name",
        ));
    };
    let topic = log
        .create_topic(
            topic,
            TopicSettings {
                partitions: args.partitions,
                retention_age: args.keep_for,
                retention_bytes: args.keep_bytes,
            },
        )
        .await?;
    tell!(
        "topic {} has {}",
        plain(topic.name()),
        count(topic.partitions(), "partition")
    );
    Ok(())
}

/// A flag that was given and that no log knows.
fn of_stream(args: &Args) -> Option<&'static str> {
    let given = [
        ("--work-queue", args.work_queue),
        ("--replicas", args.replicas.is_some()),
        ("--subject", args.subject.is_some()),
    ];
    let mut given = given.into_iter().filter(|(_, is_given)| *is_given);
    given.next().map(|(flag, _)| flag)
}
