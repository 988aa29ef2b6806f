//! The store of one process: a map behind a lock.
//!
//! Reads are never stale, nothing is ever unavailable, and everything is gone with the process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream;
use tokio::sync::mpsc;

use super::{Change, Entry, Error, Expect, Revision, Scope, Store, Watch, Write, check_batch};

/// A store in memory. Clones share their content.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    entries: BTreeMap<String, Entry>,
    revision: u64,
    watches: Vec<Watcher>,
}

#[derive(Debug)]
struct Watcher {
    scope: Scope,
    // Unbounded: a watcher that does not keep up holds the changes it has not read yet, as long as
    // it lives. Records are small and a watcher of ours always reads.
    changes: mpsc::UnboundedSender<Change>,
}

impl Memory {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        // Nothing panics while it holds the lock, and each step leaves the map whole.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn write(&mut self, write: Write) -> Result<Revision, Error> {
        let Write { key, expect, value } = write;
        let current = self.entries.get_mut(&key);
        let holds = match (expect, &current) {
            (Expect::Absent, None) => true,
            (Expect::At(revision), Some(entry)) => entry.revision == revision,
            (Expect::Absent, Some(_)) | (Expect::At(_), None) => false,
        };
        if !holds {
            return Err(Error::conflict(current.cloned()));
        }
        self.revision += 1;
        let revision = Revision(self.revision);
        match (&value, current) {
            (Some(value), Some(entry)) => {
                entry.revision = revision;
                entry.value = value.clone();
            }
            (Some(value), None) => {
                let entry = Entry {
                    key: key.clone(),
                    revision,
                    value: value.clone(),
                };
                self.entries.insert(key.clone(), entry);
            }
            (None, _) => {
                self.entries.remove(&key);
            }
        }
        let change = || match &value {
            Some(value) => Change::Put(Entry {
                key: key.clone(),
                revision,
                value: value.clone(),
            }),
            None => Change::Deleted {
                key: key.clone(),
                revision,
            },
        };
        // Telling is also how we learn who has gone.
        self.watches.retain(|watcher| {
            if watcher.scope.holds(&key) {
                watcher.changes.send(change()).is_ok()
            } else {
                !watcher.changes.is_closed()
            }
        });
        Ok(revision)
    }

    fn list(&self, scope: &Scope) -> Vec<Entry> {
        match scope {
            Scope::Key(key) => self.entries.get(key).cloned().into_iter().collect(),
            Scope::Under(prefix) => self
                .entries
                .range(prefix.clone()..)
                .take_while(|(key, _)| key.starts_with(prefix.as_str()))
                .map(|(_, entry)| entry.clone())
                .collect(),
        }
    }
}

#[async_trait]
impl Store for Memory {
    fn name(&self) -> &str {
        "memory:"
    }

    async fn read(&self, key: &str) -> Result<Option<Entry>, Error> {
        super::check_key(key)?;
        Ok(self.shared().entries.get(key).cloned())
    }

    async fn list(&self, scope: &Scope) -> Result<Vec<Entry>, Error> {
        scope.check()?;
        Ok(self.shared().list(scope))
    }

    async fn write(&self, batch: Vec<Write>) -> Vec<Result<Revision, Error>> {
        let checks = check_batch(&batch);
        let mut shared = self.shared();
        batch
            .into_iter()
            .zip(checks)
            .map(|(write, check)| check.and_then(|()| shared.write(write)))
            .collect()
    }

    fn watch(&self, scope: Scope) -> Watch {
        let store = self.clone();
        let start = move || {
            if let Err(error) = scope.check() {
                return (vec![Change::Interrupted(error)], None);
            }
            let (changes, receiver) = mpsc::unbounded_channel();
            let mut shared = store.shared();
            let mut known: Vec<Change> = shared.list(&scope).into_iter().map(Change::Put).collect();
            known.push(Change::Synced);
            shared.watches.push(Watcher { scope, changes });
            (known, Some(receiver))
        };
        // The snapshot and the registration happen under one lock: no change falls between them.
        stream::once(async move { start() })
            .flat_map(|(known, receiver)| {
                let changes = stream::unfold(receiver, |receiver| async move {
                    let mut receiver = receiver?;
                    let change = receiver.recv().await?;
                    Some((change, Some(receiver)))
                });
                stream::iter(known).chain(changes).chain(stream::pending())
            })
            .boxed()
    }
}
