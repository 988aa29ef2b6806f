//! From one view of a group to the next, as what changed.

use std::collections::BTreeMap;

use parti::inspect::{Group, Happening};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::history::{NEWEST, newest};

/// What changed; `None` if nothing did.
pub fn between(before: &Group, now: &Group) -> Option<Value> {
    let known = before.history.last().map(|one| one.number);
    let new = |one: &&Happening| known.is_none_or(|known| one.number > known);
    let new: Vec<Happening> = now.history.iter().filter(new).cloned().collect();
    let events = newest(&new, NEWEST);
    let (workers, workers_gone) = listed(&before.workers, &now.workers, |worker| &worker.id);
    let (partitions, gone) = listed(&before.partitions, &now.partitions, |one| &one.id);
    let (head, head_before) = (head(now), head(before));
    let handoffs = before.handoffs != now.handoffs;
    let lists = [&workers, &workers_gone, &partitions, &gone];
    let same = lists.iter().all(|list| list.is_empty()) && events.is_empty();
    if same && !handoffs && head == head_before {
        return None;
    }
    let mut change = json!({
        "head": head,
        "workers": workers,
        "workers_gone": workers_gone,
        "partitions": partitions,
        "partitions_gone": gone,
        "events": events,
    });
    if handoffs {
        change["handoffs"] = json!(now.handoffs);
    }
    Some(change)
}

/// Everything but the lists.
fn head(group: &Group) -> Value {
    // Small: the lists, which are not, are left behind before anything is made of it.
    let bare = Group {
        name: group.name.clone(),
        coordination: group.coordination.clone(),
        stream: None,
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
fn listed<'a, T: PartialEq + Serialize, I: Ord + ToString + 'a>(
    before: &'a [T],
    now: &'a [T],
    id: impl Fn(&'a T) -> &'a I,
) -> (Vec<Value>, Vec<Value>) {
    let mut known: BTreeMap<&I, &T> = before.iter().map(|one| (id(one), one)).collect();
    let mut changed = Vec::new();
    for one in now {
        if known.remove(id(one)) != Some(one) {
            changed.push(serde_json::to_value(one).unwrap_or(Value::Null));
        }
    }
    let gone = known.keys().map(|id| Value::String(id.to_string()));
    (changed, gone.collect())
}
