//! The store as it really is, with its past.
//!
//! ```text
//!            apply(writes)                          what the world may show of it
//!  worker ─────────────────▶ current records ──────▶ read, list         the truth
//!                            every version of a key ▶ read_as_of, …      a lagging replica
//!                            log of each family ────▶ changes            a watch, pulled
//!                            drain_log ─────────────▶ the invariants     each accepted write
//! ```
//!
//! Delay, loss, outages and broken watches are the world's business: the model only knows what is
//! true, what was true, and how to go back (`roll_back`) or to vanish (`replace`).

use std::collections::{BTreeMap, VecDeque};

use parti_core::ids::Revision;
use parti_core::io::{Expect, Scope, Stored, WatchEvent, Write, WriteOutcome};
use parti_core::key::{Key, Prefix};
use parti_core::record::Record;

/// How many changes the store remembers: minutes of a simulated group.
const HISTORY: usize = 1 << 16;

/// A write that the store accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The life of the store it happened in: see [`Store::life`].
    pub life: u64,
    /// What the write got.
    pub revision: Revision,
    /// Where.
    pub key: Key,
    /// What was there before.
    pub old: Option<Stored>,
    /// What is there now; `None` after a delete.
    pub new: Option<Record>,
}

/// What happened to a store so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Keys with a record now.
    pub keys: u64,
    /// The most keys there ever were.
    pub most_keys: u64,
    /// Accepted writes.
    pub writes: u64,
    /// Refused writes.
    pub conflicts: u64,
}

/// One version of a record; `None` is a deletion.
#[derive(Clone, Debug)]
struct Change {
    revision: Revision,
    value: Option<Record>,
}

/// All remembered versions of one key, oldest first, never empty.
type Versions = VecDeque<Change>;

/// The keys of one kind, and their changes in order. Kinds are kept apart because a watch or a
/// list never crosses them, and partition records change far more often than all others.
#[derive(Clone, Debug, Default)]
struct Family {
    keys: BTreeMap<Key, Versions>,
    changes: VecDeque<(Revision, Key)>,
}

/// The authoritative store.
#[derive(Clone, Debug)]
pub struct Store {
    families: [Family; 7],
    revision: Revision,
    /// Views as of an older revision than this are not known any more.
    floor: Revision,
    remembered: usize,
    history: usize,
    life: u64,
    accepted: Vec<Accepted>,
    counters: Counters,
}

impl Store {
    /// An empty store.
    pub fn new() -> Self {
        Self::remembering(HISTORY)
    }

    /// An empty store that remembers so many changes.
    pub fn remembering(history: usize) -> Self {
        Self {
            families: Default::default(),
            revision: Revision(0),
            floor: Revision(0),
            remembered: 0,
            history,
            life: 0,
            accepted: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// Carries out each write whose expectation holds; each fares on its own.
    pub fn apply(&mut self, writes: &[Write]) -> Vec<WriteOutcome> {
        writes.iter().map(|write| self.apply_one(write)).collect()
    }

    /// Carries out one write if its expectation holds.
    pub fn apply_one(&mut self, write: &Write) -> WriteOutcome {
        let old = self.read(&write.key);
        let holds = match (write.expect, &old) {
            (Expect::Absent, None) => true,
            (Expect::At(revision), Some(stored)) => stored.revision == revision,
            (Expect::Absent, Some(_)) | (Expect::At(_), None) => false,
        };
        let careless =
            parti_core::planted!(UnconditionalPut) && matches!(write.key, Key::Partition(_));
        if !holds && !careless {
            self.counters.conflicts += 1;
            return WriteOutcome::Conflict(old);
        }
        self.revision = self.revision.next();
        self.counters.writes += 1;
        match (&old, &write.value) {
            (None, Some(_)) => self.counters.keys += 1,
            (Some(_), None) => self.counters.keys -= 1,
            (None, None) | (Some(_), Some(_)) => {}
        }
        self.counters.most_keys = self.counters.most_keys.max(self.counters.keys);
        let family = &mut self.families[family_of(&write.key)];
        let change = Change {
            revision: self.revision,
            value: write.value.clone(),
        };
        match family.keys.get_mut(&write.key) {
            Some(versions) => versions.push_back(change),
            None => {
                family
                    .keys
                    .insert(write.key.clone(), VecDeque::from([change]));
            }
        }
        family.changes.push_back((self.revision, write.key.clone()));
        self.remembered += 1;
        self.forget_the_oldest();
        self.accepted.push(Accepted {
            life: self.life,
            revision: self.revision,
            key: write.key.clone(),
            old,
            new: write.value.clone(),
        });
        WriteOutcome::Done(self.revision)
    }

    /// What is there now.
    pub fn read(&self, key: &Key) -> Option<Stored> {
        let change = self.families[family_of(key)].keys.get(key)?.back()?;
        stored(key, change)
    }

    /// All that is there now, sorted by key.
    pub fn list(&self, prefix: Prefix) -> Vec<Stored> {
        let keys = &self.families[family_under(prefix)].keys;
        keys.iter()
            .filter_map(|(key, versions)| stored(key, versions.back()?))
            .collect()
    }

    /// What was there right after the write with this revision.
    pub fn read_as_of(&self, key: &Key, revision: Revision) -> Option<Stored> {
        as_of(
            key,
            self.families[family_of(key)].keys.get(key)?,
            revision.max(self.floor),
        )
    }

    /// All that was there right after the write with this revision, sorted by key.
    pub fn list_as_of(&self, prefix: Prefix, revision: Revision) -> Vec<Stored> {
        let keys = &self.families[family_under(prefix)].keys;
        let revision = revision.max(self.floor);
        keys.iter()
            .filter_map(|(key, versions)| as_of(key, versions, revision))
            .collect()
    }

    /// What a watch starts with, and after which revision its changes go on.
    pub fn snapshot(&self, scope: &Scope) -> (Vec<Stored>, Revision) {
        self.snapshot_as_of(scope, self.revision)
    }

    /// What a watch on a lagging replica starts with, and after which revision its changes go on.
    pub fn snapshot_as_of(&self, scope: &Scope, revision: Revision) -> (Vec<Stored>, Revision) {
        let revision = revision.clamp(self.floor, self.revision);
        let records = match scope {
            Scope::Key(key) => self.read_as_of(key, revision).into_iter().collect(),
            Scope::Prefix(prefix) => self.list_as_of(*prefix, revision),
        };
        (records, revision)
    }

    /// What changed after that revision, in order. Where that is not known any more (forgotten, or
    /// the store went back below it), a single fresh snapshot. A watch that lived through a
    /// roll-back or a replacement should be restarted: its revision means nothing any more.
    pub fn changes(&self, scope: &Scope, after: Revision) -> Vec<WatchEvent> {
        if after == self.revision {
            return Vec::new();
        }
        if after < self.floor || after > self.revision {
            return vec![WatchEvent::Snapshot(self.snapshot(scope).0)];
        }
        match scope {
            Scope::Key(key) => {
                let Some(versions) = self.families[family_of(key)].keys.get(key) else {
                    return Vec::new();
                };
                let from = versions.partition_point(|change| change.revision <= after);
                versions
                    .range(from..)
                    .map(|change| news(key, change))
                    .collect()
            }
            Scope::Prefix(prefix) => {
                let family = &self.families[family_under(*prefix)];
                let from = family
                    .changes
                    .partition_point(|(revision, _)| *revision <= after);
                let known = family.changes.range(from..);
                known
                    .filter_map(|(at, key)| family.news_at(key, *at))
                    .collect()
            }
        }
    }

    /// The newest revision.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Grows with every roll-back and replacement: two lives give the same revision to different
    /// writes.
    pub fn life(&self) -> u64 {
        self.life
    }

    /// What happened so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Every write accepted since the last call, in order, also those rolled back since.
    pub fn drain_log(&mut self) -> Vec<Accepted> {
        std::mem::take(&mut self.accepted)
    }

    /// Goes back to the state right after that revision, and counts on from there: a restored
    /// backup, or a failover to a replica that had not got everything. Goes back no further than
    /// history is remembered; answers how far it went.
    pub fn roll_back(&mut self, to: Revision) -> Revision {
        let to = to.clamp(self.floor, self.revision);
        self.life += 1;
        self.revision = to;
        for family in &mut self.families {
            let keep = family
                .changes
                .partition_point(|(revision, _)| *revision <= to);
            self.remembered -= family.changes.len() - keep;
            for (_, key) in family.changes.split_off(keep) {
                let Some(versions) = family.keys.get_mut(&key) else {
                    continue;
                };
                versions.truncate(versions.partition_point(|change| change.revision <= to));
                if versions.is_empty() {
                    family.keys.remove(&key);
                }
            }
        }
        self.counters.keys = self.count_keys();
        to
    }

    /// Vanishes: another, empty store answers under the same name, and counts from the beginning.
    pub fn replace(&mut self) {
        self.families = Default::default();
        self.revision = Revision(0);
        self.floor = Revision(0);
        self.remembered = 0;
        self.life += 1;
        self.counters.keys = 0;
    }

    fn count_keys(&self) -> u64 {
        let all = self.families.iter().flat_map(|family| family.keys.values());
        all.filter(|versions| versions.back().is_some_and(|last| last.value.is_some()))
            .count() as u64
    }

    /// Forgets the oldest changes, so that memory stays bounded however long a run is.
    fn forget_the_oldest(&mut self) {
        while self.remembered > self.history {
            let oldest = self
                .families
                .iter_mut()
                .filter(|family| !family.changes.is_empty());
            let oldest = oldest.min_by_key(|family| family.changes.front().map(|(at, _)| *at));
            let Some(family) = oldest else { return };
            let Some((at, key)) = family.changes.pop_front() else {
                return;
            };
            self.remembered -= 1;
            self.floor = at;
            // A version is needed until its successor, too, is older than the floor.
            if let Some(versions) = family.keys.get_mut(&key) {
                while versions
                    .get(1)
                    .is_some_and(|successor| successor.revision <= at)
                {
                    versions.pop_front();
                }
                if versions.len() == 1 && versions.front().is_some_and(|last| last.value.is_none())
                {
                    family.keys.remove(&key);
                }
            }
        }
    }
}

impl Default for Store {
    fn default() -> Self {
        Self::new()
    }
}

impl Family {
    fn news_at(&self, key: &Key, at: Revision) -> Option<WatchEvent> {
        let versions = self.keys.get(key)?;
        // Nearly always the last version is asked for.
        let last = versions.back()?;
        if last.revision == at {
            return Some(news(key, last));
        }
        let found = versions
            .binary_search_by_key(&at, |change| change.revision)
            .ok()?;
        versions.get(found).map(|change| news(key, change))
    }
}

/// Whether a watch on this scope tells of this key.
pub fn covers(scope: &Scope, key: &Key) -> bool {
    match scope {
        Scope::Key(watched) => watched == key,
        Scope::Prefix(prefix) => prefix.holds(key),
    }
}

fn family_of(key: &Key) -> usize {
    match key {
        Key::Group | Key::Leader | Key::Plan | Key::Overrides => 0,
        Key::Worker(_) => family_under(Prefix::Workers),
        Key::Assignment(_) => family_under(Prefix::Assignments),
        Key::Partition(_) => family_under(Prefix::Partitions),
        Key::Request(_) => family_under(Prefix::Requests),
        Key::Event(_) => family_under(Prefix::Events),
        Key::Topic(_) => family_under(Prefix::Topics),
    }
}

fn family_under(prefix: Prefix) -> usize {
    match prefix {
        Prefix::Workers => 1,
        Prefix::Assignments => 2,
        Prefix::Partitions => 3,
        Prefix::Requests => 4,
        Prefix::Events => 5,
        Prefix::Topics => 6,
    }
}

fn stored(key: &Key, change: &Change) -> Option<Stored> {
    let record = change.value.clone()?;
    Some(Stored {
        key: key.clone(),
        revision: change.revision,
        record,
    })
}

fn as_of(key: &Key, versions: &Versions, revision: Revision) -> Option<Stored> {
    let known = versions.partition_point(|change| change.revision <= revision);
    stored(key, versions.get(known.checked_sub(1)?)?)
}

fn news(key: &Key, change: &Change) -> WatchEvent {
    match stored(key, change) {
        Some(stored) => WatchEvent::Changed(stored),
        None => WatchEvent::Removed(key.clone(), change.revision),
    }
}

#[cfg(test)]
mod tests;
