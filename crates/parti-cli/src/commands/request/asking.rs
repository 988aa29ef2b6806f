//! What commands that ask a group for something have in common.

use std::time::Duration;

use parti::core::record::Request;
use parti::inspect::{Group, WorkerView};
use parti::operate::{self, CarriedOut, Patience};
use parti::{PartitionId, WorkerId};

use crate::commands::checkpoint;
use crate::exit::Failure;
use crate::flags::{self, GroupFlags, OutputFlags, ReasonFlags};
use crate::places;
use crate::show::{age, show};

/// Who asks, why, and for how long.
#[derive(clap::Args)]
pub struct Asking {
    #[command(flatten)]
    group: GroupFlags,
    #[command(flatten)]
    reason: ReasonFlags,
    /// How long to wait for the effect
    #[arg(long, default_value = "30s", value_parser = flags::duration, value_name = "TIME")]
    pub timeout: Duration,
    #[command(flatten)]
    output: OutputFlags,
}

/// What is to be asked for, once the group is known.
pub type Wish<'a> = &'a dyn Fn(&Group) -> Result<Vec<Request>, Failure>;

/// Asks for one thing after the other, waits for each, and says what happened.
pub async fn ask(asking: Asking, wish: Wish<'_>) -> Result<(), Failure> {
    let patience = Patience::from(asking.timeout);
    ask_with(asking, patience, wish).await
}

/// The same, with a wait of one's own for silence.
pub async fn ask_with(asking: Asking, patience: Patience, wish: Wish<'_>) -> Result<(), Failure> {
    let reason = asking.reason.checked()?;
    let store = places::records(&asking.group).await?;
    let group = places::group(&store).await?;
    let mut done = Vec::new();
    for request in wish(&group)? {
        let asked = operate::request(&store, request, reason.clone(), patience).await;
        match asked {
            Ok(carried_out) => done.push(carried_out),
            // What was done before stays, so it is said.
            Err(error) => {
                if !done.is_empty() {
                    show(asking.output.output, &done, |done| said(done))?;
                }
                return Err(error.into());
            }
        }
    }
    show(asking.output.output, &done, |done| said(done))
}

fn said(done: &[CarriedOut]) -> String {
    done.iter()
        .map(|one| format!("{}\n", sentence(one)))
        .collect()
}

fn sentence(done: &CarriedOut) -> String {
    let took = age(done.took_ms);
    match &done.request {
        Request::Drain { worker } => format!(
            "{worker} serves nothing any more (after {took}), until `parti worker undrain` or its \
             restart"
        ),
        Request::Undrain { worker } => format!("{worker} gets its share again"),
        Request::Evict { worker, .. } => {
            format!("the session of {worker} is over (after {took}); others take over what it had")
        }
        Request::Move { partition, worker } => format!(
            "{worker} serves partition {partition} (after {took}), and keeps it until it ends or \
             `parti partition unpin`"
        ),
        Request::Pin { partition, worker } => {
            format!("partition {partition} is pinned to {worker}, whenever that is there")
        }
        Request::Unpin { partition } => format!("the strategy decides about partition {partition}"),
        Request::Pause { partition } => format!(
            "nobody handles partition {partition} (after {took}), until `parti partition resume`"
        ),
        Request::Resume { partition } => format!("partition {partition} is handled again"),
        Request::Rebalance => "the group rebalances".to_owned(),
    }
}

/// A worker of the group, by its id.
pub fn worker<'a>(group: &'a Group, id: &str) -> Result<&'a WorkerView, Failure> {
    let mut all = group.workers.iter();
    if let Some(found) = all.find(|worker| worker.id.as_str() == id) {
        return Ok(found);
    }
    let ids: Vec<&str> = group
        .workers
        .iter()
        .map(|worker| worker.id.as_str())
        .collect();
    let known = match ids.is_empty() {
        true => "it has none".to_owned(),
        false => format!("it has {}", ids.join(", ")),
    };
    Err(Failure::usage(format!(
        "{id:?} is no worker of group {}: {known}",
        group.name
    )))
}

/// The same request for several partitions of the group.
pub fn each(
    group: &Group,
    partitions: &[PartitionId],
    request: impl Fn(PartitionId) -> Request,
) -> Result<Vec<Request>, Failure> {
    let known = partitions.iter().map(|id| match group.partition(id) {
        Some(_) => Ok(request(id.clone())),
        None => Err(checkpoint::unknown(id, group)),
    });
    known.collect()
}

/// A worker's id, where it is the target of something.
pub fn target(group: &Group, id: &str) -> Result<WorkerId, Failure> {
    worker(group, id).map(|worker| worker.id.clone())
}
