//! What an operator did by hand, told in the group's history.

use std::collections::BTreeMap;
use std::sync::Arc;

use parti_core::ids::{Revision, WorkerId};
use parti_core::io::{Expect, Write, WriteOutcome};
use parti_core::key::{Key, Prefix};
use parti_core::record::{EventKind, EventRecord, Record};
use parti_core::worker::chronicle;

use super::{nonce, wall_ms};
use crate::store::GroupStore;

/// How often the next free number is tried: workers write at the same time.
const TRIES: u32 = 32;

/// Appends a line, and has the oldest go as workers do: there may be none, for good. A history is for
/// people: what is in the way of it is no reason to fail what was done.
pub(super) async fn tell(store: &GroupStore, kind: EventKind, by: &str, text: String) {
    let (Ok(events), Ok(nonce)) = (store.list(Prefix::Events).await, nonce()) else {
        tracing::warn!(
            group = store.group(),
            text,
            "not told in the group's history"
        );
        return;
    };
    let there = events.iter().filter_map(|stored| match stored.key {
        Key::Event(number) => Some((number, stored.revision)),
        _ => None,
    });
    let there: BTreeMap<u64, Revision> = there.collect();
    let newest = there.keys().next_back();
    let mut next = newest.map_or(1, |newest| newest.saturating_add(1));
    let mut surplus: Vec<Write> = chronicle::surplus(&there, 1).collect();
    let event = Arc::new(EventRecord {
        at: wall_ms(),
        worker: WorkerId::new(by),
        kind,
        text,
        moves: None,
        nonce,
    });
    for _ in 0..TRIES {
        let mut writes = vec![Write {
            key: Key::Event(next),
            expect: Expect::Absent,
            value: Some(Record::Event(event.clone())),
        }];
        // Once: what stays because of trouble goes with the next line.
        writes.append(&mut surplus);
        match store.write(&writes).await.into_iter().next() {
            Some(WriteOutcome::Conflict(Some(found)))
                if found.record != Record::Event(event.clone()) =>
            {
                next = next.saturating_add(1);
            }
            Some(WriteOutcome::Failed(_)) => {}
            _ => return,
        }
    }
    tracing::warn!(
        group = store.group(),
        text = event.text,
        "not told in the group's history"
    );
}
