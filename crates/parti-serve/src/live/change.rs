//! From one view of a group to the next, as what changed.

use std::collections::BTreeMap;

use parti::SourceId;
use parti::inspect::{Group, Handoff, Happening, PartitionView, Unreadable, WorkerView};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::history::{Line, NEWEST, newest};

/// What changed. Nothing is copied: only what changed is ever written out.
#[derive(Serialize)]
pub struct Difference<'a> {
    head: Value,
    workers: Vec<&'a WorkerView>,
    workers_gone: Vec<String>,
    partitions: Vec<&'a PartitionView>,
    partitions_gone: Vec<String>,
    events: Vec<Line>,
    #[serde(skip_serializing_if = "Option::is_none")]
    handoffs: Option<&'a [Handoff]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unreadable: Option<&'a [Unreadable]>,
}

/// What changed; `None` if nothing did.
pub fn between<'a>(before: &'a Group, now: &'a Group) -> Option<Difference<'a>> {
    let known = before.history.last().map(|one| one.number);
    let new = |one: &Happening| known.is_none_or(|known| one.number > known);
    // The newest are the last.
    let old = now.history.iter().rev().position(|one| !new(one));
    let begin = old.map_or(0, |old| now.history.len() - old);
    let (workers, workers_gone) = listed(&before.workers, &now.workers, |worker| &worker.id);
    let (partitions, gone) = listed(&before.partitions, &now.partitions, |one| &one.id);
    let difference = Difference {
        head: head(now),
        workers,
        workers_gone,
        partitions,
        partitions_gone: gone,
        events: newest(&now.history[begin..], NEWEST),
        handoffs: (before.handoffs != now.handoffs).then_some(&now.handoffs),
        unreadable: (before.unreadable != now.unreadable).then_some(&now.unreadable),
    };
    let is_same = difference.workers.is_empty()
        && difference.workers_gone.is_empty()
        && difference.partitions.is_empty()
        && difference.partitions_gone.is_empty()
        && difference.events.is_empty()
        && difference.handoffs.is_none()
        && difference.unreadable.is_none()
        && difference.head == head(before);
    (!is_same).then_some(difference)
}

/// Everything but the lists.
fn head(group: &Group) -> Value {
    // Small: the lists, which are not, are left behind before anything is made of it.
    let bare = Group {
        name: group.name.clone(),
        coordination: group.coordination.clone(),
        stream: SourceId::Untold,
        strategy: None,
        closed: group.closed,
        leader: group.leader.clone(),
        term: group.term,
        plan: group.plan.clone(),
        workers: Vec::new(),
        handoffs: Vec::new(),
        requests: group.requests.clone(),
        partitions: Vec::new(),
        history: Vec::new(),
        unreadable: Vec::new(),
    };
    let mut head = match serde_json::to_value(bare) {
        Ok(Value::Object(head)) => head,
        _ => Map::new(),
    };
    for list in ["workers", "handoffs", "partitions", "unreadable"] {
        head.remove(list);
    }
    Value::Object(head)
}

/// Those that are new or changed, whole; and the ids of those that are gone.
fn listed<'a, T: PartialEq, I: Ord + ToString + 'a>(
    before: &'a [T],
    now: &'a [T],
    id: impl Fn(&'a T) -> &'a I,
) -> (Vec<&'a T>, Vec<String>) {
    // Nearly always the same ones, in the same order.
    let pairs = || before.iter().zip(now);
    if before.len() == now.len() && pairs().all(|(old, new)| id(old) == id(new)) {
        let changed = pairs().filter(|(old, new)| old != new);
        return (changed.map(|(_, new)| new).collect(), Vec::new());
    }
    let mut known: BTreeMap<&I, &T> = before.iter().map(|one| (id(one), one)).collect();
    let mut changed = Vec::new();
    for one in now {
        if known.remove(id(one)) != Some(one) {
            changed.push(one);
        }
    }
    let gone = known.keys().map(|id| id.to_string());
    (changed, gone.collect())
}
