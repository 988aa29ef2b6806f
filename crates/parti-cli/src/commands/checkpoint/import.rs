//! `parti checkpoint import`

use std::collections::BTreeSet;
use std::io::Read;

use parti::core::codec;
use parti::operate::{Checkpoints, Rules, Wanted};
use parti::{Epoch, Offset, PartitionId};

use super::Manner;
use super::formats::{self, Entry, Found};
use crate::exit::{CODES, Failure};
use crate::flags::{ChangeFlags, GroupFlags, OutputFlags, SourceFlags};
use crate::places;
use crate::show::plain;

/// Epochs that may have been given out since an export was made: no restored partition hands out
/// one of them again, so that nobody's fencing tokens repeat.
const JUMP: u64 = 1 << 20;

/// Take over checkpoints that were exported, here or elsewhere.
///
/// Reads what `parti checkpoint export` writes, and cursors of durable subscriptions as key and
/// value, in JSON or as etcdctl prints them:
///   /danube/subscriptions/NAMESPACE/TOPIC/SUBSCRIPTION/cursor   {"offset": 41, "updated_at": …}
///   /topics/TOPIC/subscriptions/SUBSCRIPTION/cursor             41
/// A topic NAME-part-3 becomes partition 3, any other topic a partition of its own name; --map says
/// it otherwise. Epochs jump, so that none is given out twice. What would go back is refused unless
/// --allow-back is given. If one partition is refused, none is changed. Partitions need not be there
/// yet; nor need the group, with --new-group.
///
/// Example: parti checkpoint import --store nats://localhost:4222 --group billing billing.jsonl
/// Example: etcdctl get --prefix /topics/ | parti checkpoint import --store sqlite:data/group.db
///          --group billing --new-group --subscription billing-v1 -
#[derive(clap::Args)]
#[command(after_help = CODES, verbatim_doc_comment)]
pub struct Args {
    #[command(flatten)]
    group: GroupFlags,
    #[command(flatten)]
    source: SourceFlags,
    /// The file; - is stdin
    #[arg(value_name = "FILE")]
    file: String,
    /// The subscription whose cursors to take; by default the group's name
    #[arg(long, value_name = "NAME")]
    subscription: Option<String>,
    /// Which partition a topic's cursor is for; may be given several times
    #[arg(long, value_name = "TOPIC=PARTITION")]
    map: Vec<String>,
    /// The group need not be there yet: its first workers begin where the import says
    #[arg(long)]
    new_group: bool,
    /// Take over what is behind the present checkpoint, too: those messages are handled again
    #[arg(long)]
    allow_back: bool,
    #[command(flatten)]
    change: ChangeFlags,
    #[command(flatten)]
    output: OutputFlags,
}

/// Does it.
pub async fn run(args: Args) -> Result<(), Failure> {
    let reason = args.change.reason.checked()?;
    let text = read(&args.file)?;
    let subscription = args.subscription.as_deref().unwrap_or(&args.group.group);
    let mut map = Vec::new();
    for pair in &args.map {
        map.push(
            pair.split_once('=').ok_or_else(|| {
                Failure::usage(format!("--map {pair}: give it as TOPIC=PARTITION"))
            })?,
        );
    }
    let wrong = |why: String| Failure::usage(format!("{}: {why}", args.file));
    let found = formats::read(&text, subscription, &map).map_err(wrong)?;
    tell_left_out(&found, subscription);
    let wanted = wanted(found.entries).map_err(wrong)?;
    let store = match args.new_group {
        true => places::first_records(&args.group, args.change.dry_run).await?,
        false => places::records(&args.group).await?,
    };
    let mut checkpoints = Checkpoints::read(&store).await?;
    if !checkpoints.has_group() && !args.new_group {
        let none = places::no_group(&store).await?;
        return Err(Failure::usage(format!(
            "{}; give --new-group if the import is to come before the group",
            none.line
        )));
    }
    if let Some(source) = places::opened_for(&checkpoints, &store, &args.source).await? {
        let ids: Vec<PartitionId> = wanted.iter().map(|one| one.partition.clone()).collect();
        let ranges = source.ranges(&ids).await?;
        checkpoints = checkpoints.of_source(&source).await?;
        for one in &wanted {
            super::fits(&checkpoints, &one.partition, one.next, &ranges)?;
        }
    }
    let manner = Manner {
        rules: Rules {
            force: args.change.force(),
            back: args.allow_back,
            unknown: true,
        },
        dry_run: args.change.dry_run,
        reason,
        shape: args.output.output,
    };
    super::carry_out(&store, &checkpoints, wanted, manner).await
}

fn read(file: &str) -> Result<String, Failure> {
    if file != "-" {
        return std::fs::read_to_string(file)
            .map_err(|error| Failure::usage(format!("{file}: {error}")));
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    Ok(text)
}

fn tell_left_out(found: &Found, subscription: &str) {
    if !found.others.is_empty() {
        let others: Vec<&str> = found.others.iter().map(String::as_str).collect();
        tell!(
            "only cursors of subscription {} are taken; there are others: {}",
            plain(subscription),
            plain(&others.join(", "))
        );
    }
    if found.ignored > 0 {
        tell!("{} keys are no cursors, and are left out", found.ignored);
    }
}

/// What the entries ask for; none twice.
fn wanted(entries: Vec<Entry>) -> Result<Vec<Wanted>, String> {
    let mut seen = BTreeSet::new();
    let mut wanted = Vec::new();
    for entry in entries {
        if !codec::is_canonical(&entry.partition) {
            return Err(format!(
                "{:?} is no partition's id; say with --map which one is meant",
                entry.partition
            ));
        }
        if !seen.insert(entry.partition.clone()) {
            return Err(format!(
                "partition {} is there twice; say with --map which topic is which partition",
                entry.partition
            ));
        }
        wanted.push(Wanted {
            done_above: entry.done_above.into_iter().map(Offset).collect(),
            above: Epoch(entry.epoch.saturating_add(JUMP)),
            ..Wanted::at(PartitionId::new(&entry.partition), Offset(entry.next))
        });
    }
    Ok(wanted)
}
