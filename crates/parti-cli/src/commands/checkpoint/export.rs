//! `parti checkpoint export`

use clap::ValueEnum;
use serde_json::json;

use crate::exit::{CODES, Failure};
use crate::flags::{GroupFlags, NoSource};
use crate::lines::{now, print};
use crate::places;
use crate::show::{count, plain};

/// Write all checkpoints as JSON, for a backup or another store.
///
/// A checkpoint of a partition that is being served is as of its last flush.
///
/// Example: parti checkpoint export --store sqlite:data/group.db --group billing > billing.jsonl
#[derive(clap::Args)]
#[command(after_help = CODES)]
pub struct Args {
    #[command(flatten)]
    group: GroupFlags,
    #[command(flatten)]
    no: NoSource,
    /// One JSON object for each partition, or one for all
    #[arg(short, long, value_enum, default_value_t)]
    output: Form,
}

/// How checkpoints are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Form {
    /// A line for each partition
    #[default]
    Jsonl,
    /// One document
    Json,
}

/// Does it.
pub async fn run(args: Args) -> Result<(), Failure> {
    args.no.checked()?;
    let group = places::checkpoints(&places::records(&args.group).await?).await?;
    let rows = super::rows(&group);
    let mut text = String::new();
    match args.output {
        Form::Jsonl => {
            for row in &rows {
                text.push_str(&serde_json::to_string(row).map_err(Failure::failed)?);
                text.push('\n');
            }
        }
        Form::Json => {
            let all = json!({ "group": group.name, "exported_at": now(), "partitions": rows });
            text = format!("{all:#}\n");
        }
    }
    print(&text)?;
    let rows = count(rows.len(), "checkpoint");
    tell!("{rows} of group {}", plain(&group.name));
    Ok(())
}
