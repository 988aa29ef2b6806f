//! What changed lately, read once for all watches of a handle.
//!
//! ```text
//!   beat ──▶ the first watch that wants its news ── reads what is new ──▶ Recent
//!            all others ◀────────── their part of it, without the file ───┘
//! ```
//!
//! A service has a few watches for each of a thousand sessions: if each asked the file after every
//! write, that would be thousands of readings for one change. Partitions' records are not here: they
//! change often, and hardly anybody watches them.

use std::collections::VecDeque;

use tokio::sync::Mutex;

use super::Inner;
use super::records::{self, News};
use crate::store::{Change, Entry, Error, Scope};

/// So many changes are kept; whoever is further behind reads for itself.
const KEPT: usize = 1_024;

/// What changed lately.
#[derive(Default)]
pub(super) struct Recent(Mutex<Option<Held>>);

struct Held {
    /// Changes above this revision are here,
    above: i64,
    /// up to this one,
    upto: i64,
    /// as of this beat, in their order.
    beat: u64,
    changes: VecDeque<(i64, Change)>,
}

impl Held {
    fn new(revision: i64) -> Self {
        Self {
            above: revision,
            upto: revision,
            // No beat that anybody has heard: a new one reads.
            beat: 0,
            changes: VecDeque::new(),
        }
    }

    fn take_in(&mut self, changes: Vec<Change>, upto: i64) {
        self.upto = upto;
        for change in changes {
            if let Change::Put(Entry { revision, .. }) | Change::Deleted { revision, .. } = &change
            {
                self.changes.push_back((records::number(*revision), change));
            }
        }
        while self.changes.len() > KEPT {
            if let Some((revision, _)) = self.changes.pop_front() {
                self.above = revision;
            }
        }
    }

    /// The part of it that a watch has not told, if it is all here.
    fn news(&self, scope: &Scope, since: i64) -> Option<News> {
        if since < self.above {
            return None;
        }
        let first = self
            .changes
            .partition_point(|(revision, _)| *revision <= since);
        let changes = self
            .changes
            .range(first..)
            .filter(|(_, change)| match change {
                Change::Put(entry) => scope.holds(&entry.key),
                Change::Deleted { key, .. } => scope.holds(key),
                _ => false,
            });
        Some(News::Changes {
            changes: changes.map(|(_, change)| change.clone()).collect(),
            // A watch that has just begun may know more than was read at this beat.
            revision: self.upto.max(since),
            complete: true,
        })
    }
}

impl Recent {
    /// What became of a scope since a revision, as of a beat. `None`: it is not here.
    pub(super) async fn news(
        &self,
        inner: &Inner,
        scope: &Scope,
        since: i64,
        beat: u64,
    ) -> Result<Option<News>, Error> {
        if records::may_be_of_partitions(scope) {
            return Ok(None);
        }
        let mut held = self.0.lock().await;
        loop {
            let known = held.get_or_insert_with(|| Held::new(since));
            if known.beat >= beat {
                return Ok(known.news(scope, since));
            }
            let after = known.upto;
            let news = inner.read(move |connection| records::beside_partitions(connection, after));
            match news.await? {
                News::Changes {
                    changes,
                    revision,
                    complete,
                } => {
                    known.take_in(changes, revision);
                    if complete {
                        known.beat = beat;
                    }
                }
                News::Gap => {
                    *held = None;
                    return Ok(None);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::store::Revision;

    fn put(key: &str, revision: u64) -> Change {
        Change::Put(Entry {
            key: key.into(),
            revision: Revision(revision),
            value: Bytes::new(),
        })
    }

    fn told(held: &Held, scope: &Scope, since: i64) -> Option<(usize, i64)> {
        match held.news(scope, since)? {
            News::Changes {
                changes, revision, ..
            } => Some((changes.len(), revision)),
            News::Gap => None,
        }
    }

    #[test]
    fn each_watch_gets_its_part_and_whoever_is_far_behind_reads_for_itself() {
        let mut held = Held::new(10);
        held.take_in(vec![put("a/1", 11), put("b/1", 12), put("a/2", 14)], 15);
        let a = Scope::Under("a/".into());
        assert_eq!(told(&held, &a, 10), Some((2, 15)));
        assert_eq!(told(&held, &a, 11), Some((1, 15)));
        assert_eq!(told(&held, &Scope::Key("b/1".into()), 11), Some((1, 15)));
        assert_eq!(told(&held, &a, 9), None, "what was before is not here");
        assert_eq!(told(&held, &a, 20), Some((0, 20)), "nobody goes back");
        let many = (16..16 + KEPT as u64).map(|revision| put("a/1", revision));
        held.take_in(many.collect(), 16 + KEPT as i64);
        assert_eq!(told(&held, &a, 13), None, "14 is not here any more");
        assert_eq!(told(&held, &a, 14), Some((KEPT, 16 + KEPT as i64)));
    }
}
