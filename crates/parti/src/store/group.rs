//! One group's records on a store that many groups share.
//!
//! The one place that knows how a typed [`Key`] of a group becomes the text of a store key:
//!
//! ```text
//!   group "orders", Key::Partition(p07)  ◀──▶  partitions/orders/p07
//!   group "orders", Key::Leader          ◀──▶  leader/orders
//! ```
//!
//! The kind comes first, so that `group/` lists all groups, and so that a backend can keep the
//! busy `partitions/` apart from what is watched.

use std::fmt;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use parti_core::codec;
use parti_core::io::{self, StoreError, WriteOutcome};
use parti_core::key::{Key, Prefix};
use parti_core::problem::Problem;
use parti_core::record::Record;

use super::{Bytes, Change, Entry, Error, MAX_VALUE, Revision, Scope, Store, Write};

type Listener = dyn Fn(&Error) + Send + Sync;

/// A group's typed view of a store.
#[derive(Clone)]
pub struct GroupStore {
    store: Arc<dyn Store>,
    group: String,
    segment: String,
    /// Told of every error that is no conflict.
    trouble: Option<Arc<Listener>>,
}

/// News of a group's watch.
#[derive(Clone, Debug, PartialEq)]
pub enum GroupChange {
    /// For the core.
    Event(io::WatchEvent),
    /// The watch does not hear anything at the moment.
    Interrupted(Error),
}

impl fmt::Debug for GroupStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group {:?} on {}", self.group, self.store.name())
    }
}

impl GroupStore {
    /// The records of this group.
    pub fn new(store: Arc<dyn Store>, group: &str) -> Result<Self, Error> {
        if group.is_empty() || group.len() > codec::MAX_NAME {
            return Err(Error::rejected(format!(
                "a group's name has from 1 to {} bytes, this one has {}",
                codec::MAX_NAME,
                group.len()
            )));
        }
        Ok(Self {
            store,
            segment: codec::escape(group),
            group: group.to_owned(),
            trouble: None,
        })
    }

    /// Why work must not begin under this name, if it must not. Only a new group is refused: one that
    /// is there goes on under any name.
    pub async fn unfit_to_begin(&self, field: &str) -> Result<Option<Problem>, Error> {
        match codec::check_readable(field, &self.group) {
            Err(problem) if self.read(&Key::Group).await?.is_none() => Ok(Some(problem)),
            _ => Ok(None),
        }
    }

    /// These records, telling somebody of every error that is no conflict.
    pub(crate) fn telling(mut self, trouble: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        self.trouble = Some(Arc::new(trouble));
        self
    }

    fn noted<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        if let (Err(error), Some(trouble)) = (&result, &self.trouble)
            && !matches!(error, Error::Conflict { .. })
        {
            trouble(error);
        }
        result
    }

    /// The store beneath.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The group's name.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The names of all groups that a store knows.
    pub async fn names(store: &dyn Store) -> Result<Vec<String>, Error> {
        let entries = store.list(&Scope::Under("group/".into())).await?;
        Ok(entries
            .iter()
            .filter_map(|entry| codec::unescape(entry.key.strip_prefix("group/")?))
            .collect())
    }

    /// What is at a key. May be stale.
    pub async fn read(&self, key: &Key) -> Result<Option<io::Stored>, Error> {
        let entry = self.noted(self.store.read(&self.text(key)).await)?;
        Ok(entry.map(|entry| stored(key.clone(), &entry)))
    }

    /// Everything under a prefix. May be stale. What is no key of ours is left out.
    pub async fn list(&self, prefix: Prefix) -> Result<Vec<io::Stored>, Error> {
        let entries = self.noted(self.store.list(&self.under(prefix)).await)?;
        Ok(entries
            .iter()
            .filter_map(|entry| Some(stored(self.parse(&entry.key)?, entry)))
            .collect())
    }

    /// Carries out each write whose expectation holds.
    pub async fn write(&self, writes: &[io::Write]) -> Vec<WriteOutcome> {
        let batch = writes.iter().map(|write| Write {
            key: self.text(&write.key),
            expect: write.expect,
            value: write.value.as_ref().map(|record| record.encode().into()),
        });
        let batch: Vec<Write> = batch.collect();
        let sizes: Vec<usize> = batch.iter().map(size).collect();
        let outcomes = self.store.write(batch).await;
        let outcomes = outcomes.into_iter().zip(sizes);
        writes
            .iter()
            .zip(outcomes)
            .map(|(write, (outcome, size))| {
                match self.noted(explained(outcome, &write.key, size)) {
                    Ok(revision) => WriteOutcome::Done(revision),
                    Err(Error::Conflict { current }) => WriteOutcome::Conflict(
                        current.map(|entry| stored(write.key.clone(), &entry)),
                    ),
                    Err(error) => WriteOutcome::Failed(for_core(&error)),
                }
            })
            .collect()
    }

    /// Watches a scope. A snapshot is collected before it is told.
    pub fn watch(&self, scope: &io::Scope) -> BoxStream<'static, GroupChange> {
        let text = match scope {
            io::Scope::Key(key) => Scope::Key(self.text(key)),
            io::Scope::Prefix(prefix) => self.under(*prefix),
        };
        self.watch_text(text)
    }

    /// Watches everything that the group has, by one watch of the store. The kind comes first in a
    /// key, so it hears other groups of the store, too; what is theirs is dropped unread.
    pub(crate) fn watch_all(&self) -> BoxStream<'static, GroupChange> {
        self.watch_text(Scope::Under(String::new()))
    }

    fn watch_text(&self, scope: Scope) -> BoxStream<'static, GroupChange> {
        let group = self.clone();
        let mut snapshot: Option<Vec<io::Stored>> = Some(Vec::new());
        self.store
            .watch(scope)
            .filter_map(move |change| {
                let told = group.tell(&mut snapshot, change);
                async move { told }
            })
            .boxed()
    }

    fn tell(&self, snapshot: &mut Option<Vec<io::Stored>>, change: Change) -> Option<GroupChange> {
        let event = match (change, &mut *snapshot) {
            (Change::Restarted, _) => {
                *snapshot = Some(Vec::new());
                return None;
            }
            (Change::Interrupted(error), _) => return Some(GroupChange::Interrupted(error)),
            (Change::Synced, _) => io::WatchEvent::Snapshot(snapshot.take()?),
            (Change::Put(entry), Some(known)) => {
                known.push(stored(self.parse(&entry.key)?, &entry));
                return None;
            }
            (Change::Put(entry), None) => {
                io::WatchEvent::Changed(stored(self.parse(&entry.key)?, &entry))
            }
            (Change::Deleted { key, .. }, Some(known)) => {
                let key = self.parse(&key)?;
                known.retain(|stored| stored.key != key);
                return None;
            }
            (Change::Deleted { key, revision }, None) => {
                io::WatchEvent::Removed(self.parse(&key)?, revision)
            }
        };
        Some(GroupChange::Event(event))
    }

    fn text(&self, key: &Key) -> String {
        let text = key.to_string();
        match text.split_once('/') {
            Some((kind, name)) => format!("{kind}/{}/{name}", self.segment),
            None => format!("{text}/{}", self.segment),
        }
    }

    fn under(&self, prefix: Prefix) -> Scope {
        Scope::Under(format!("{prefix}{}/", self.segment))
    }

    fn parse(&self, text: &str) -> Option<Key> {
        let (kind, rest) = text.split_once('/')?;
        let rest = rest.strip_prefix(&self.segment)?;
        match rest.strip_prefix('/') {
            Some(name) => Key::parse(&format!("{kind}/{name}")),
            None if rest.is_empty() => Key::parse(kind),
            None => None,
        }
    }
}

fn stored(key: Key, entry: &Entry) -> io::Stored {
    io::Stored {
        record: Record::decode(&key, &entry.value),
        revision: Revision(entry.revision.0),
        key,
    }
}

fn size(write: &Write) -> usize {
    write.value.as_ref().map_or(0, Bytes::len)
}

/// A record that is too large has one cause, which whoever runs the group can do something about.
fn explained(outcome: Result<Revision, Error>, key: &Key, size: usize) -> Result<Revision, Error> {
    match outcome {
        Err(Error::Rejected { .. }) if size > MAX_VALUE => Err(Error::rejected(format!(
            "record {key} has {size} bytes, the most is {MAX_VALUE}: these are too many partitions for \
             one worker; start more workers, use shorter partition keys, or make several groups"
        ))),
        other => other,
    }
}

/// The core knows fewer errors: what is unreadable comes to it as a record that says so.
pub(crate) fn for_core(error: &Error) -> StoreError {
    match error {
        Error::Unavailable { .. } => StoreError::Unavailable,
        Error::Unknown { .. } => StoreError::Unknown,
        // The core's own error says who refuses.
        Error::Rejected { why } => StoreError::Rejected(why.as_str().into()),
        Error::Conflict { .. } | Error::Corrupt { .. } => {
            StoreError::Rejected(error.to_string().into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Memory;
    use parti_core::ids::{PartitionId, WorkerId};

    #[test]
    fn keys_come_back_and_groups_stay_apart() {
        let store: Arc<dyn Store> = Arc::new(Memory::new());
        let of = |group| GroupStore::new(store.clone(), group).expect("a name");
        let (orders, dotted) = (of("orders"), of("or/d.ers"));
        for key in [
            Key::Group,
            Key::Leader,
            Key::Plan,
            Key::Worker(WorkerId::new("worker-7")),
            Key::Partition(PartitionId::new("a.b=2Ec")),
            Key::Event(7),
        ] {
            let text = orders.text(&key);
            assert_eq!(orders.parse(&text).as_ref(), Some(&key), "{text}");
            assert_eq!(dotted.parse(&text), None);
            assert_eq!(dotted.parse(&dotted.text(&key)), Some(key));
        }
        assert_eq!(orders.text(&Key::Leader), "leader/orders");
        assert_eq!(of("order").parse("leader/orders"), None);
        assert!(GroupStore::new(store.clone(), "").is_err());
        assert!(GroupStore::new(store, &"x".repeat(65)).is_err());
    }
}
