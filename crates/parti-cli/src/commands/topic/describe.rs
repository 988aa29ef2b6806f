//! `parti topic describe`

use serde_json::json;

use crate::exit::{CODES, Failure};
use crate::lines::{Table, print};
use crate::places::{self, Shape};

/// Show a topic's partitions: where each begins and ends.
///
/// Example: parti topic describe --source log:data --topic orders
#[derive(clap::Args)]
#[command(after_help = CODES)]
pub struct Args {
    /// The log, such as log:FOLDER
    #[arg(long, value_name = "URL")]
    source: String,
    /// The topic's name
    #[arg(long)]
    topic: String,
    /// How to show it
    #[arg(short, long, value_enum, default_value_t)]
    output: Shape,
}

/// Does it.
pub async fn run(args: Args) -> Result<(), Failure> {
    let topic = places::source(&args.source)
        .await?
        .log("topic describe")?
        .topic(&args.topic)
        .await?;
    let info = topic.describe().await?;
    match args.output {
        Shape::Json => {
            let partitions = info.partitions.iter().map(|partition| {
                json!({
                    "partition": partition.id.as_str(),
                    "first": partition.first.0,
                    "end": partition.end.0,
                    "bytes": partition.bytes,
                })
            });
            print(&format!(
                "{:#}\n",
                json!({
                    "topic": info.name,
                    "created_ms": info.created_ms,
                    "partitions": partitions.collect::<Vec<_>>(),
                })
            ))
        }
        Shape::Table => {
            let mut table = Table::new(["PARTITION", "FIRST", "END", "BYTES"]);
            for partition in &info.partitions {
                table.row([
                    partition.id.to_string(),
                    partition.first.to_string(),
                    partition.end.to_string(),
                    partition.bytes.to_string(),
                ]);
            }
            print(&table.to_string())
        }
    }
}
