//! A watch as its reader sees it, with the grammar of [`Change`] checked on the way.
//!
//! ```text
//!              Put                     Put, Deleted
//!            ┌─────┐                     ┌─────┐
//!   start ─▶ Telling ────── Synced ────▶ Following
//!              ▲  ▲                        │  │
//!              │  └──────── Restarted ─────┘  │ Interrupted
//!          Restarted                          ▼
//!              └─────────────────────── Interrupted ◀─┐
//!                                             └───────┘ Interrupted
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use futures_util::StreamExt;

use crate::store::{Change, Entry, Error, Revision, Scope, Watch};

/// What does not come within this time never will: a guard, nothing is measured against it.
const PATIENCE: Duration = Duration::from_secs(180);

/// Follows a watch and knows the state that it told. It is the reference for how a watch is to be
/// read, and complains about whatever the contract does not allow.
pub struct Observer {
    watch: Watch,
    scope: Scope,
    phase: Phase,
    entries: BTreeMap<String, Entry>,
    /// The newest change told of each key since the last restart: `None` is its deletion.
    newest: BTreeMap<String, (Revision, Option<Entry>)>,
    told: Vec<Change>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Telling,
    Following,
    Interrupted,
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer")
            .field("scope", &self.scope)
            .field("phase", &self.phase)
            .field("entries", &self.entries.len())
            .finish_non_exhaustive()
    }
}

impl Observer {
    /// Follows a watch of this scope from its start.
    pub fn new(watch: Watch, scope: Scope) -> Self {
        Self {
            watch,
            scope,
            phase: Phase::Telling,
            entries: BTreeMap::new(),
            newest: BTreeMap::new(),
            told: Vec::new(),
        }
    }

    /// What is there, as far as the watch told, sorted by key.
    pub fn entries(&self) -> Vec<Entry> {
        self.entries.values().cloned().collect()
    }

    /// What is at a key, as far as the watch told.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// Everything that the watch said, in order.
    pub fn told(&self) -> &[Change] {
        &self.told
    }

    /// How often it started anew.
    pub fn restarts(&self) -> usize {
        let restarts = self.told.iter().filter(|told| **told == Change::Restarted);
        restarts.count()
    }

    /// Whether a whole snapshot was told, and nothing interrupted it since.
    pub fn is_synced(&self) -> bool {
        self.phase == Phase::Following
    }

    /// Takes the next change. Fails if it is against the contract, or does not come.
    pub async fn step(&mut self) -> Result<(), String> {
        match tokio::time::timeout(PATIENCE, self.watch.next()).await {
            Ok(Some(change)) => self.take(change),
            Ok(None) => Err("the watch ended, which it never does by itself".into()),
            Err(_) => Err(format!("the watch says nothing more in {:?}", self.phase)),
        }
    }

    /// Goes on until the snapshot is complete.
    pub async fn synced(&mut self) -> Result<(), String> {
        while !self.is_synced() {
            self.step().await?;
        }
        Ok(())
    }

    /// Goes on until exactly this is there.
    pub async fn until(&mut self, expected: &[Entry]) -> Result<(), String> {
        let same = |own: &Self| own.is_synced() && own.entries.values().eq(expected);
        while !same(self) {
            self.step().await.map_err(|why| {
                let found = self.entries();
                let difference = super::room::difference(&found, expected);
                format!("a watch of {:?}: {why}; it told {difference}", self.scope)
            })?;
        }
        Ok(())
    }

    /// Goes on until a key is there at this revision, or deleted by it.
    pub async fn reaches(&mut self, key: &str, revision: Revision) -> Result<(), String> {
        while self.newest.get(key).is_none_or(|(at, _)| *at < revision) {
            self.step()
                .await
                .map_err(|why| format!("waiting for {key:?} at {}: {why}", revision.0))?;
        }
        Ok(())
    }

    /// Takes one change into account. Fails if it is against the contract.
    pub fn take(&mut self, change: Change) -> Result<(), String> {
        self.told.push(change.clone());
        match (self.phase, change) {
            (_, Change::Restarted) => {
                self.phase = Phase::Telling;
                self.entries.clear();
                self.newest.clear();
                Ok(())
            }
            // It keeps trying what cannot work; that is for a person, and no case expects it.
            (_, Change::Interrupted(error @ (Error::Rejected { .. } | Error::Corrupt { .. }))) => {
                Err(format!("the watch is refused: {error}"))
            }
            (_, Change::Interrupted(_)) => {
                self.phase = Phase::Interrupted;
                Ok(())
            }
            (Phase::Interrupted, other) => Err(format!(
                "after an interruption comes {}, and no restart",
                name(&other)
            )),
            (Phase::Telling, Change::Synced) => {
                self.phase = Phase::Following;
                Ok(())
            }
            (Phase::Following, Change::Synced) => Err("synced twice without a restart".into()),
            (Phase::Telling, Change::Deleted { key, .. }) => {
                Err(format!("the deletion of {key:?} within a snapshot"))
            }
            (_, Change::Put(entry)) => {
                let (key, revision) = (entry.key.clone(), entry.revision);
                self.newer(&key, revision, Some(entry.clone()))?;
                self.entries.insert(key, entry);
                Ok(())
            }
            (Phase::Following, Change::Deleted { key, revision }) => {
                self.newer(&key, revision, None)?;
                self.entries.remove(&key);
                Ok(())
            }
        }
    }

    fn newer(&mut self, key: &str, revision: Revision, now: Option<Entry>) -> Result<(), String> {
        if !self.scope.holds(key) {
            return Err(format!("{key:?} is told, which is not in the scope"));
        }
        if revision.0 == 0 {
            return Err(format!("{key:?} is told with revision 0"));
        }
        if let Some((newest, then)) = self.newest.get(key) {
            if revision < *newest {
                return Err(format!(
                    "{key:?} goes back from revision {} to {}",
                    newest.0, revision.0
                ));
            }
            if revision == *newest && *then != now {
                return Err(format!(
                    "{key:?} at revision {} is told as two different things",
                    revision.0
                ));
            }
        }
        self.newest.insert(key.to_owned(), (revision, now));
        Ok(())
    }
}

fn name(change: &Change) -> &'static str {
    match change {
        Change::Put(_) => "a value",
        Change::Deleted { .. } => "a deletion",
        Change::Synced => "the end of a snapshot",
        Change::Restarted => "a restart",
        Change::Interrupted(_) => "an interruption",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;

    fn put(revision: u64, value: &'static str) -> Change {
        Change::Put(Entry {
            key: "a/b".into(),
            revision: Revision(revision),
            value: value.into(),
        })
    }

    fn gone(revision: u64) -> Change {
        Change::Deleted {
            key: "a/b".into(),
            revision: Revision(revision),
        }
    }

    fn lost() -> Change {
        Change::Interrupted(Error::unavailable("gone"))
    }

    fn follow(changes: Vec<Change>) -> Result<Observer, String> {
        let scope = Scope::Under("a/".into());
        let mut observer = Observer::new(stream::pending().boxed(), scope);
        for change in changes {
            observer.take(change)?;
        }
        Ok(observer)
    }

    #[test]
    fn what_the_contract_allows_is_followed() {
        use Change::{Restarted, Synced};
        for (changes, entries) in [
            (vec![put(3, "x"), Synced, put(3, "x"), put(4, "y")], 1),
            (vec![Synced, put(3, "x"), gone(5), gone(5)], 0),
            (vec![Synced, put(3, "x"), lost(), lost(), Restarted], 0),
            (vec![lost(), Restarted, put(3, "x"), Synced], 1),
            (vec![put(3, "x"), Restarted, put(2, "w"), Synced], 1),
        ] {
            let observer = follow(changes.clone()).expect("allowed");
            assert_eq!(observer.entries().len(), entries, "{changes:?}");
        }
    }

    #[test]
    fn what_the_contract_forbids_is_named() {
        use Change::{Restarted, Synced};
        let foreign = Change::Deleted {
            key: "b".into(),
            revision: Revision(9),
        };
        for changes in [
            vec![gone(1)],
            vec![Synced, Synced],
            vec![Synced, put(0, "x")],
            vec![Synced, put(3, "x"), put(2, "w")],
            vec![Synced, put(3, "x"), put(3, "y")],
            vec![Synced, gone(4), put(3, "x")],
            vec![Synced, lost(), put(3, "x")],
            vec![Synced, lost(), Synced],
            vec![Synced, foreign],
            vec![Restarted, Change::Interrupted(Error::rejected("no"))],
        ] {
            assert!(follow(changes.clone()).is_err(), "{changes:?}");
        }
    }

    #[tokio::test]
    async fn a_watch_that_ends_is_named() {
        let mut observer = Observer::new(stream::empty().boxed(), Scope::Key("a".into()));
        let end = observer.step().await;
        assert!(end.is_err_and(|why| why.contains("ended")));
    }
}
