//! The group: led, served, readable, and of this source.

use std::sync::Arc;

use parti::core::text::few;
use parti::inspect::{self, Group};
use parti::source::place::Located;
use parti::store::{GroupStore, Store};
use parti::{Config, Fatal, SourceId};

use super::Findings;
use crate::flags::SourceFlags;
use crate::places;
use crate::show::{age, count, now_ms, word};
use crate::view::{self, is_there};

/// So many are named; the rest is counted.
const NAMED: usize = 5;

/// Checks a group.
pub async fn check(
    store: &Arc<dyn Store>,
    name: &str,
    source: Option<(&SourceFlags, &Located)>,
    config: &Config,
    findings: &mut Findings,
) {
    let read = async {
        let store = GroupStore::new(store.clone(), name)?;
        inspect::group(&store).await
    };
    let mut group = match read.await {
        Ok(Some(group)) => group,
        Ok(None) => {
            findings.fail(
                "group",
                format!("there is no group {name}; its first worker makes it"),
            );
            return;
        }
        Err(error) => {
            findings.fail("group", error);
            return;
        }
    };
    if group.closed {
        findings.warn("group", format!("{name} is {}", group.coordination));
    }
    for record in group.unreadable.iter().take(NAMED) {
        let text = format!("{} cannot be read: {}", record.key, record.why);
        findings.fail("group", text);
    }
    let more = group.unreadable.len().saturating_sub(NAMED);
    if more > 0 {
        findings.fail("group", format!("and {more} more cannot be read"));
    }
    leader(&group, findings);
    sessions(&group, config, findings);
    if let Some((flags, source)) = source {
        bounds(&mut group, flags, source, findings).await;
    }
    served(&group, findings);
}

fn leader(group: &Group, findings: &mut Findings) {
    let there = group
        .workers
        .iter()
        .filter(|worker| is_there(worker))
        .count();
    match (&group.leader, group.coordination.as_str()) {
        (_, "leaderless") => findings.ok("leader", "none is needed"),
        (Some(leader), _) if group.workers.iter().any(|w| w.id == *leader && is_there(w)) => {
            let state = group.plan.as_ref().map_or(String::new(), |plan| {
                format!(", {} since version {}", word(plan.state), plan.version)
            });
            findings.ok("leader", format!("{leader}{state}"));
        }
        _ if there == 0 => findings.warn("leader", "none: the group has no worker"),
        (Some(leader), _) => {
            findings.warn(
                "leader",
                format!("{leader} is gone; another one follows within the TTL"),
            );
        }
        (None, _) => findings.warn("leader", "none yet: an election is under way"),
    }
}

fn sessions(group: &Group, config: &Config, findings: &mut Findings) {
    let now = now_ms();
    let ttl = u64::try_from(config.session_ttl().as_millis()).unwrap_or(u64::MAX);
    let there: Vec<_> = group
        .workers
        .iter()
        .filter(|worker| is_there(worker))
        .collect();
    let mut well = there.len();
    for worker in there {
        let silent = worker.silent_ms(now).filter(|silent| *silent > ttl);
        if let Some(silent) = silent {
            well -= 1;
            let text = format!(
                "the last beat of {} is {} old, by two clocks: it is gone, or they differ; a \
                 leader ends its session",
                worker.id,
                age(silent)
            );
            findings.warn("workers", text);
        }
        if let Some(why) = &worker.degraded {
            findings.warn("workers", format!("{} is degraded: {why}", worker.id));
        }
    }
    findings.ok(
        "workers",
        format!("{} with a fresh beat", count(well, "worker")),
    );
}

async fn bounds(group: &mut Group, flags: &SourceFlags, source: &Located, findings: &mut Findings) {
    match source.identity().await {
        Ok(_) if group.has_no_log() => {
            findings.fail("source", places::without_log(&group.name, flags));
            return;
        }
        Ok(told) if group.is_of_other(told) => {
            findings.fail("source", Fatal::StreamReplaced);
            return;
        }
        Ok(told) if group.stream == SourceId::from(told) => {
            findings.ok("source", "it is the log that the group was made on");
        }
        // Nobody knows.
        Ok(_) => {}
        Err(error) => {
            findings.fail("source", error);
            return;
        }
    }
    let bounds = match source.bounds(&group.partition_ids()).await {
        Ok(bounds) => bounds,
        Err(error) => {
            findings.fail("checkpoints", error);
            return;
        }
    };
    group.locate(&bounds);
    let mut wrong = 0;
    for partition in &group.partitions {
        let (Some(next), Some(bounds)) = (partition.next_offset, bounds.get(&partition.id)) else {
            continue;
        };
        if bounds.hold(next) {
            continue;
        }
        wrong += 1;
        if wrong > NAMED {
            continue;
        }
        if next > bounds.end {
            findings.fail(
                "checkpoints",
                format!(
                    "partition {} would go on at {next}, and the log ends at {}: it went back, or \
                     is another one; `parti checkpoint reset` after a look",
                    partition.id, bounds.end
                ),
            );
        } else {
            findings.warn(
                "checkpoints",
                format!(
                    "partition {} would go on at {next}, and retention has removed everything \
                     below {}",
                    partition.id, bounds.first
                ),
            );
        }
    }
    if wrong > NAMED {
        let more = wrong - NAMED;
        findings.warn("checkpoints", format!("and {more} more like these"));
    }
    if wrong == 0 {
        let lag = group.lag().unwrap_or(0);
        findings.ok("checkpoints", format!("all within the log, lag {lag}"));
    }
}

fn served(group: &Group, findings: &mut Findings) {
    let idle = |p: &&inspect::PartitionView| p.is_idle();
    let unserved: Vec<&str> = (group.partitions.iter().filter(idle))
        .map(|partition| partition.id.as_str())
        .collect();
    let there = group.workers.iter().any(is_there);
    let total = count(group.partitions.len(), "partition");
    let paused = view::paused(group.partitions.iter());
    if unserved.is_empty() && paused.is_none() {
        findings.ok("partitions", format!("{total}, each with an owner"));
    } else if unserved.is_empty() {
        findings.ok(
            "partitions",
            format!("{total}, each with an owner or paused"),
        );
    } else if let Some(text) = view::stranded(group) {
        findings.fail("partitions", text);
    } else if there {
        let have = if unserved.len() == 1 { "has" } else { "have" };
        let named = few(&unserved, NAMED);
        let text = format!("{} of {total} {have} no owner: {named}", unserved.len());
        findings.warn("partitions", text);
    } else {
        findings.warn("partitions", format!("{total}, and no worker"));
    }
    if let Some(text) = paused {
        findings.warn("pauses", text);
    }
}
