//! What an operator did by hand, told in the group's history.

use std::sync::Arc;

use parti_core::ids::WorkerId;
use parti_core::io::{Expect, Write, WriteOutcome};
use parti_core::key::{Key, Prefix};
use parti_core::record::{EventKind, EventRecord, Record};

use super::{nonce, wall_ms};
use crate::store::GroupStore;

/// How often the next free number is tried: workers write at the same time.
const TRIES: u32 = 32;

/// Appends a line. A history is for people: what is in the way of it is no reason to fail what was
/// done.
pub(super) async fn tell(store: &GroupStore, kind: EventKind, by: &str, text: String) {
    let (Ok(events), Ok(nonce)) = (store.list(Prefix::Events).await, nonce()) else {
        tracing::warn!(
            group = store.group(),
            text,
            "not told in the group's history"
        );
        return;
    };
    let numbers = events.iter().filter_map(|stored| match stored.key {
        Key::Event(number) => Some(number),
        _ => None,
    });
    let mut next = numbers.max().map_or(1, |newest| newest + 1);
    let event = Arc::new(EventRecord {
        at: wall_ms(),
        worker: WorkerId::new(by),
        kind,
        text,
        moves: None,
        nonce,
    });
    for _ in 0..TRIES {
        let write = Write {
            key: Key::Event(next),
            expect: Expect::Absent,
            value: Some(Record::Event(event.clone())),
        };
        match store.write(&[write]).await.pop() {
            Some(WriteOutcome::Conflict(Some(found)))
                if found.record != Record::Event(event.clone()) =>
            {
                next += 1;
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
