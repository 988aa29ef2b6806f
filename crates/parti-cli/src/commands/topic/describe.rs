//! `parti topic describe`

use parti::source::JetStream;
use parti::source::log::{PartitionInfo, TopicInfo};
use parti::source::place::Place;
use parti::{Offset, PartitionId};
use serde::Serialize;

use crate::exit::{CODES, Failure};
use crate::flags::OutputFlags;
use crate::places;
use crate::show::{plain, show};
use crate::table::{Table, or_dash};

/// Show a topic's partitions: where each begins and ends.
///
/// Partitions of a stream share its offsets: each begins where the stream does, and ends past its
/// own newest message.
///
/// Example: parti topic describe --source log:data --topic orders
/// Example: parti topic describe --source jetstream://localhost:4222/ORDERS
#[derive(clap::Args)]
#[command(after_help = CODES, verbatim_doc_comment)]
pub struct Args {
    /// The log, such as log:FOLDER, or the stream, such as jetstream://HOST:PORT/STREAM
    #[arg(long, value_name = "URL")]
    source: String,
    /// The topic's name, in a log
    #[arg(long)]
    topic: Option<String>,
    #[command(flatten)]
    output: OutputFlags,
}

#[derive(Serialize)]
struct Described {
    topic: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_ms: Option<u64>,
    partitions: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    partition: PartitionId,
    first: Offset,
    end: Offset,
    /// What a stream tells of itself as a whole only.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
}

impl From<PartitionInfo> for Row {
    fn from(info: PartitionInfo) -> Self {
        Self {
            partition: info.id,
            first: info.first,
            end: info.end,
            bytes: Some(info.bytes),
        }
    }
}

impl From<TopicInfo> for Described {
    fn from(info: TopicInfo) -> Self {
        Self {
            topic: info.name,
            created_ms: Some(info.created_ms),
            partitions: info.partitions.into_iter().map(Row::from).collect(),
        }
    }
}

/// A stream that was made for a number of partitions. Those of another one are what a group says.
async fn of_stream(url: &str) -> Result<Described, Failure> {
    let stream = JetStream::connect(url).await?;
    let name = stream.stream().to_owned();
    let Some(partitions) = stream.partitions() else {
        return Err(Failure::usage(format!(
            "stream {} was not made for a number of partitions; `parti partition list` shows those \
             of a group, also with --source",
            plain(&name)
        )));
    };
    let ids: Vec<PartitionId> = (0..partitions)
        .map(|number| PartitionId::new(number.to_string()))
        .collect();
    let bounds = stream.bounds(&ids).await?;
    let row = |id: PartitionId| {
        let bounds = bounds.get(&id)?;
        Some(Row {
            partition: id,
            first: bounds.first,
            // One without messages ends where it begins.
            end: bounds.head.max(bounds.first),
            bytes: None,
        })
    };
    Ok(Described {
        topic: name,
        created_ms: None,
        partitions: ids.into_iter().filter_map(row).collect(),
    })
}

/// Does it.
pub async fn run(args: Args) -> Result<(), Failure> {
    let described = match (places::existing_source(&args.source).await?, args.topic) {
        (Place::Stream(url), None) => of_stream(&url).await?,
        (Place::Stream(_), Some(_)) => {
            return Err(Failure::usage(
                "--topic is for logs: the URL of a stream names it already; leave it out",
            ));
        }
        (Place::Log(log), Some(topic)) => log.topic(&topic).await?.describe().await?.into(),
        (Place::Log(_), None) => {
            return Err(Failure::usage(
                "--topic is missing: a log has several, each with a name",
            ));
        }
    };
    show(args.output.output, &described, |described| {
        let mut table = Table::new(["PARTITION", ">FIRST", ">END", ">BYTES"]);
        for row in &described.partitions {
            table.row([
                row.partition.to_string().into(),
                row.first.into(),
                row.end.into(),
                or_dash(row.bytes).into(),
            ]);
        }
        table.to_string()
    })
}
