//! `parti topic describe`

use parti::source::log::PartitionInfo;
use parti::{Offset, PartitionId};
use serde::Serialize;

use crate::exit::{CODES, Failure};
use crate::flags::OutputFlags;
use crate::places;
use crate::show::show;
use crate::table::Table;

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
    #[command(flatten)]
    output: OutputFlags,
}

#[derive(Serialize)]
struct Described<'a> {
    topic: &'a str,
    created_ms: u64,
    partitions: Vec<Row<'a>>,
}

#[derive(Serialize)]
struct Row<'a> {
    partition: &'a PartitionId,
    first: Offset,
    end: Offset,
    bytes: u64,
}

impl<'a> Row<'a> {
    fn of(info: &'a PartitionInfo) -> Self {
        Self {
            partition: &info.id,
            first: info.first,
            end: info.end,
            bytes: info.bytes,
        }
    }
}

/// Does it.
pub async fn run(args: Args) -> Result<(), Failure> {
    let place = places::existing_source(&args.source).await?;
    let log = places::log(place, "topic describe")?;
    let topic = log.topic(&args.topic).await?;
    let info = topic.describe().await?;
    let described = Described {
        topic: &info.name,
        created_ms: info.created_ms,
        partitions: info.partitions.iter().map(Row::of).collect(),
    };
    show(args.output.output, &described, |described| {
        let mut table = Table::new(["PARTITION", ">FIRST", ">END", ">BYTES"]);
        for row in &described.partitions {
            table.row([
                row.partition.to_string().into(),
                row.first.into(),
                row.end.into(),
                row.bytes.into(),
            ]);
        }
        table.to_string()
    })
}
