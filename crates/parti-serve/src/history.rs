//! A group's history, as it is shown.

use std::collections::BTreeMap;

use parti::core::io::{Stored, WatchEvent};
use parti::core::key::{Key, Prefix};
use parti::core::record::Record;
use parti::store::{GroupChange, GroupStore};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::failure::Failure;

/// So many lines are sent along with a group.
pub const NEWEST: usize = 200;

/// One line of a group's history.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Line {
    /// Grows by one with each.
    pub n: u64,
    /// When, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// Who wrote it.
    pub worker: String,
    /// What kind of thing happened.
    pub kind: Value,
    /// What happened.
    pub text: String,
}

fn line(stored: &Stored) -> Option<Line> {
    let (Key::Event(n), Record::Event(event)) = (&stored.key, &stored.record) else {
        return None;
    };
    Some(Line {
        n: *n,
        at_ms: event.at,
        worker: event.worker.to_string(),
        kind: serde_json::to_value(event.kind).unwrap_or_default(),
        text: event.text.clone(),
    })
}

/// The newest lines before a number, oldest first.
pub async fn read(records: &GroupStore, before: u64, limit: usize) -> Result<Vec<Line>, Failure> {
    let all = records.list(Prefix::Events).await?;
    let mut lines: Vec<Line> = all.iter().filter_map(line).collect();
    lines.retain(|line| line.n < before);
    lines.sort_by_key(|line| line.n);
    Ok(lines.split_off(lines.len().saturating_sub(limit)))
}

/// What is known of a history that is watched.
#[derive(Debug, Default)]
pub struct Watched {
    newest: BTreeMap<u64, Line>,
}

impl Watched {
    /// Takes in what a watch says; the answer is what is new.
    pub fn take(&mut self, change: GroupChange) -> Vec<Line> {
        let stored = match change {
            GroupChange::Event(WatchEvent::Snapshot(all)) => all,
            GroupChange::Event(WatchEvent::Changed(one)) => vec![one],
            GroupChange::Event(WatchEvent::Removed(..)) | GroupChange::Interrupted(_) => {
                return vec![];
            }
        };
        let known = self.newest.keys().next_back().copied();
        let lines: BTreeMap<u64, Line> = stored.iter().filter_map(line).map(|l| (l.n, l)).collect();
        let fresh = lines
            .iter()
            .filter(|(n, _)| known.is_none_or(|known| **n > known));
        let mut fresh: Vec<Line> = fresh.map(|(_, line)| line.clone()).collect();
        self.newest.extend(lines);
        while self.newest.len() > NEWEST {
            self.newest.pop_first();
        }
        fresh.split_off(fresh.len().saturating_sub(NEWEST))
    }

    /// The newest lines, oldest first.
    pub fn newest(&self) -> Vec<Line> {
        self.newest.values().cloned().collect()
    }
}
