//! `parti status`: a group at a glance.

use std::collections::BTreeMap;

use parti::core::record::SessionStatus;
use parti::inspect::{self, Group};
use parti::source::JetStream;
use parti::store::GroupStore;
use parti::{Offset, PartitionId};
use serde_json::json;

use crate::exit::{CODES, Failure};
use crate::lines::{Table, print};
use crate::places::{self, Shape};

/// Show a group: workers, leader, partitions with owner, epoch, checkpoint and lag.
///
/// Example: parti status --store sqlite:data/group.db --source log:data --topic orders --group billing
#[derive(clap::Args)]
#[command(after_help = CODES)]
pub struct Args {
    /// Where the group's records live
    #[arg(long, value_name = "URL")]
    store: String,
    /// The group's name
    #[arg(long)]
    group: String,
    /// Where messages come from; without it there is no lag. All partitions of a stream share its
    /// offsets, so there the lag is an upper bound
    #[arg(long, value_name = "URL")]
    source: Option<String>,
    /// The topic of a log
    #[arg(long, default_value = "messages")]
    topic: String,
    /// How a partition becomes a subject, such as dc.{0}.{1}.completion (JetStream only)
    #[arg(long, value_name = "TEMPLATE")]
    subject: Option<String>,
    /// How to show it
    #[arg(short, long, value_enum, default_value_t)]
    output: Shape,
}

/// Does it.
pub async fn run(args: Args) -> Result<(), Failure> {
    let store = places::store(&args.store).await?;
    let group_store = GroupStore::new(store.clone(), &args.group)?;
    let Some(group) = inspect::group(&group_store).await? else {
        let known = GroupStore::names(store.as_ref()).await?;
        let known = if known.is_empty() {
            "it has none yet".to_owned()
        } else {
            format!("it has {}", known.join(", "))
        };
        return Err(Failure::usage(format!(
            "--group {}: {} has no such group; {known}",
            args.group,
            store.name()
        )));
    };
    let mut ends = BTreeMap::new();
    if let Some(source) = &args.source {
        match places::source(source).await? {
            places::Source::Log(log) => {
                let info = log.topic(&args.topic).await?.describe().await?;
                ends.extend(info.partitions.into_iter().map(|p| (p.id, p.end)));
            }
            places::Source::JetStream(url) => {
                let url = places::with_subject(url, args.subject.as_deref());
                let stream = JetStream::connect(&url).await?;
                let ids: Vec<PartitionId> = group.partitions.iter().map(|p| p.id.clone()).collect();
                ends.extend(stream.ends(&ids).await?);
            }
        }
    }
    print(&match args.output {
        Shape::Json => as_json(&group, &ends),
        Shape::Table => as_table(&group, &ends),
    })
}

fn lag(ends: &BTreeMap<PartitionId, Offset>, id: &PartitionId, next: Offset) -> Option<u64> {
    ends.get(id).map(|end| end.0.saturating_sub(next.0))
}

fn as_json(group: &Group, ends: &BTreeMap<PartitionId, Offset>) -> String {
    let workers = group.workers.iter().map(|worker| {
        json!({
            "worker": worker.id.as_str(), "status": worker.status, "state": worker.state,
            "partitions": worker.owns, "degraded": worker.degraded,
        })
    });
    let partitions = group.partitions.iter().map(|partition| {
        json!({
            "partition": partition.id.as_str(),
            "owner": partition.owner.as_ref().map(|owner| owner.as_str()),
            "epoch": partition.epoch.0,
            "offset": partition.offset.map(|offset| offset.0),
            "next_offset": partition.next_offset.0,
            "end": ends.get(&partition.id).map(|end| end.0),
            "lag": lag(ends, &partition.id, partition.next_offset),
            "updated_ms": partition.updated_ms,
        })
    });
    let group = json!({
        "group": group.name,
        "leader": group.leader.as_ref().map(|(id, _)| id.as_str()),
        "term": group.leader.as_ref().map(|(_, term)| term.0),
        "plan": group.plan.as_ref().map(|plan| json!({
            "version": plan.version.0, "state": plan.state, "lifecycle": plan.lifecycle,
            "reason": plan.reason, "moving": plan.moving, "unserved": plan.unserved.len(),
        })),
        "workers": workers.collect::<Vec<_>>(),
        "partitions": partitions.collect::<Vec<_>>(),
    });
    format!("{group:#}\n")
}

fn as_table(group: &Group, ends: &BTreeMap<PartitionId, Offset>) -> String {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    let leader = group
        .leader
        .as_ref()
        .map(|(id, term)| format!("{id}, term {term}"));
    let plan = group.plan.as_ref().map(|plan| {
        let state = format!("{:?}", plan.state).to_lowercase();
        format!("version {}, {state}: {}", plan.version, plan.reason)
    });
    let mut workers = Table::new(["WORKER", "STATUS", "PARTITIONS", "DEGRADED"]);
    for worker in group.workers.iter().filter(|worker| {
        worker.owns > 0 || matches!(worker.status, SessionStatus::Live | SessionStatus::Leaving)
    }) {
        workers.row([
            worker.id.to_string(),
            format!("{:?}", worker.status).to_lowercase(),
            worker.owns.to_string(),
            or_dash(worker.degraded.clone()),
        ]);
    }
    let mut partitions = Table::new([
        "PARTITION",
        "OWNER",
        "EPOCH",
        "OFFSET",
        "NEXT",
        "END",
        "LAG",
    ]);
    for partition in &group.partitions {
        partitions.row([
            partition.id.to_string(),
            or_dash(partition.owner.as_ref().map(ToString::to_string)),
            partition.epoch.to_string(),
            or_dash(partition.offset.map(|offset| offset.to_string())),
            partition.next_offset.to_string(),
            or_dash(ends.get(&partition.id).map(ToString::to_string)),
            or_dash(lag(ends, &partition.id, partition.next_offset).map(|lag| lag.to_string())),
        ]);
    }
    format!(
        "group   {}\nleader  {}\nplan    {}\n\n{workers}\n{partitions}",
        group.name,
        or_dash(leader),
        or_dash(plan),
    )
}
