//! `parti topic create`

use std::time::Duration;

use parti::source::log::TopicSettings;

use crate::exit::{CODES, Failure};
use crate::places;

/// Make a topic with a fixed number of partitions.
///
/// Doing it again with the same number is fine; another number is refused, because messages with
/// one key would then be in two partitions.
///
/// Example: parti topic create --source log:data --topic orders --partitions 12 --keep-for 7d
#[derive(clap::Args)]
#[command(after_help = CODES)]
pub struct Args {
    /// The log, such as log:FOLDER
    #[arg(long, value_name = "URL")]
    source: String,
    /// The topic's name
    #[arg(long)]
    topic: String,
    /// How many partitions, for good
    #[arg(long, value_name = "N")]
    partitions: u32,
    /// Remove messages that are older, such as 36h or 7d; by default never
    #[arg(long, value_name = "AGE", value_parser = places::duration)]
    keep_for: Option<Duration>,
    /// Remove the oldest messages beyond this size in bytes; by default never
    #[arg(long, value_name = "BYTES")]
    keep_bytes: Option<u64>,
}

/// Does it.
pub async fn run(args: Args) -> Result<(), Failure> {
    let log = places::log(&args.source).await?;
    let topic = log
        .create_topic(
            &args.topic,
            TopicSettings {
                partitions: args.partitions,
                retention_age: args.keep_for,
                retention_bytes: args.keep_bytes,
            },
        )
        .await?;
    eprintln!(
        "topic {} has {} partitions",
        topic.name(),
        topic.partitions()
    );
    Ok(())
}
