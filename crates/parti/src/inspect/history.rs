//! What happened in a group, newest last.

use parti_core::io::Stored;
use parti_core::key::{Key, Prefix};
use parti_core::record::{EventKind, Moves, Record};
use serde::Serialize;

use crate::store::{Error, GroupStore};

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Happening {
    /// Its number: a later one has a higher one.
    pub number: u64,
    /// When, in milliseconds of the wall clock of whoever wrote it.
    pub at_ms: u64,
    /// Who wrote it: a worker, or an operator.
    pub by: String,
    /// What kind of thing.
    pub kind: EventKind,
    /// What happened.
    pub text: String,
    /// How it went, if partitions moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moves: Option<Moves>,
}

/// What happened in a group, oldest first: about the newest thousand lines. It is for people: a
/// process that dies takes what it had not yet written with it.
pub async fn history(store: &GroupStore) -> Result<Vec<Happening>, Error> {
    Ok(happenings(&store.list(Prefix::Events).await?))
}

pub(super) fn happenings(events: &[Stored]) -> Vec<Happening> {
    let read = |stored: &Stored| match (&stored.key, &stored.record) {
        (Key::Event(number), Record::Event(event)) => Some(Happening {
            number: *number,
            at_ms: event.at,
            by: event.worker.to_string(),
            kind: event.kind,
            text: event.text.clone(),
            moves: event.moves.clone(),
        }),
        _ => None,
    };
    let mut all: Vec<Happening> = events.iter().filter_map(read).collect();
    all.sort_by_key(|happening| happening.number);
    all
}
