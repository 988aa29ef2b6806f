//! `parti group list`

use parti::inspect::{self, Group};
use parti::store::GroupStore;
use serde::Serialize;

use crate::exit::{CODES, Failure};
use crate::flags::{OutputFlags, StoreFlags};
use crate::places;
use crate::show::{show, word};
use crate::table::{Table, or_dash};
use crate::view::is_there;

/// Show all groups of a store.
///
/// Example: parti group list --store nats://localhost:4222
#[derive(clap::Args)]
#[command(after_help = CODES)]
pub struct Args {
    #[command(flatten)]
    store: StoreFlags,
    #[command(flatten)]
    output: OutputFlags,
}

#[derive(Serialize)]
struct Line {
    group: String,
    state: String,
    leader: Option<String>,
    workers: usize,
    partitions: usize,
    owned: usize,
}

/// Does it.
pub async fn run(args: Args) -> Result<(), Failure> {
    let store = places::existing(&args.store.store).await?;
    let mut groups = Vec::new();
    for name in GroupStore::names(store.as_ref()).await? {
        let records = GroupStore::new(store.clone(), &name)?;
        // One that was deleted since the names were listed is none any more.
        if let Some(group) = inspect::group(&records).await? {
            groups.push(line(&group));
        }
    }
    show(args.output.output, &groups, |groups| {
        let mut table = Table::new([
            "GROUP",
            "STATE",
            "LEADER",
            ">WORKERS",
            ">PARTITIONS",
            ">OWNED",
        ]);
        for group in groups {
            table.row([
                group.group.clone().into(),
                group.state.clone().into(),
                or_dash(group.leader.as_ref()).into(),
                group.workers.into(),
                group.partitions.into(),
                group.owned.into(),
            ]);
        }
        table.to_string()
    })
}

fn line(group: &Group) -> Line {
    let there = group.workers.iter().filter(|worker| is_there(worker));
    let owned = group.partitions.iter().filter(|p| p.owner.is_some());
    let workers = there.count();
    let state = match &group.plan {
        _ if group.closed => "being deleted".to_owned(),
        _ if workers == 0 => "empty".to_owned(),
        Some(plan) => word(plan.state),
        None if group.coordination == "leaderless" => "leaderless".to_owned(),
        None => "starting".to_owned(),
    };
    Line {
        group: group.name.clone(),
        state,
        leader: group.leader.as_ref().map(ToString::to_string),
        workers,
        partitions: group.partitions.len(),
        owned: owned.count(),
    }
}
