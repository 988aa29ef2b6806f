//! `parti group describe`

use parti::inspect::{Group, Handoff, Plan, RequestView, Stranded, Unreadable, WorkerView};
use serde::Serialize;

use crate::exit::{CODES, Failure};
use crate::flags::LocatedFlags;
use crate::places;
use crate::show::{Shape, show};
use crate::view;

/// Show one group: leader, plan, workers, requests under way, what is moving, and how many of
/// everything.
///
/// `parti partition list` has the partitions, `parti status` both.
///
/// Example: parti group describe --store nats://localhost:4222 --group billing
#[derive(clap::Args)]
#[command(after_help = CODES)]
pub struct Args {
    #[command(flatten)]
    look: LocatedFlags,
}

/// A group without its partitions.
#[derive(Serialize)]
struct Described<'a> {
    group: &'a str,
    coordination: &'a str,
    closed: bool,
    leader: Option<String>,
    term: Option<u64>,
    plan: Option<&'a Plan>,
    workers: &'a [WorkerView],
    handoffs: &'a [Handoff],
    requests: &'a [RequestView],
    stranded: Option<Stranded>,
    partitions: usize,
    owned: usize,
    lag: Option<u64>,
    unreadable: &'a [Unreadable],
}

/// Does it.
pub async fn run(args: Args) -> Result<(), Failure> {
    let (group, output) = places::located_at(&args.look).await?;
    if output == Shape::Table {
        view::warn_unreadable(&group);
    }
    show(output, &described(&group), |_| table(&group))
}

fn described(group: &Group) -> Described<'_> {
    Described {
        group: &group.name,
        coordination: &group.coordination,
        closed: group.closed,
        leader: group.leader.as_ref().map(ToString::to_string),
        term: group.term.map(|term| term.0),
        plan: group.plan.as_ref(),
        workers: &group.workers,
        handoffs: &group.handoffs,
        requests: &group.requests,
        stranded: group.stranded(),
        partitions: group.partitions.len(),
        owned: group
            .partitions
            .iter()
            .filter(|p| p.owner.is_some())
            .count(),
        lag: group.lag(),
        unreadable: &group.unreadable,
    }
}

fn table(group: &Group) -> String {
    let totals = view::totals(group);
    let mut text = format!(
        "{}totals        {totals}\n\n{}",
        view::head(group),
        view::workers(group, true)
    );
    let requests = view::requests(group);
    if !requests.is_empty() {
        text.push_str(&format!("\n{requests}"));
    }
    let handoffs = view::handoffs(group);
    if !handoffs.is_empty() {
        text.push_str(&format!("\n{handoffs}"));
    }
    text
}
