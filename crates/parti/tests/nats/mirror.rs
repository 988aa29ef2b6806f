//! What a watch has told, applied in order; and the rules that it must keep.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt;
use parti::store::{Bytes, Change, Error, Scope, Store, Watch};

/// Longer than any failover; only a broken watch lets it pass.
pub const PATIENCE: Duration = Duration::from_secs(180);

pub struct Mirror {
    watch: Watch,
    pub entries: BTreeMap<String, (u64, Bytes)>,
    pub synced: bool,
    pub restarts: usize,
    pub interruptions: Vec<Error>,
    /// The highest revision told of each key, also of deleted ones.
    told: BTreeMap<String, u64>,
}

impl Mirror {
    pub fn new(store: &dyn Store, scope: Scope) -> Self {
        Self {
            watch: store.watch(scope),
            entries: BTreeMap::new(),
            synced: false,
            restarts: 0,
            interruptions: Vec::new(),
            told: BTreeMap::new(),
        }
    }

    /// Forgets the revisions of a bucket that is gone.
    pub fn another_bucket(&mut self) {
        self.told.clear();
    }

    /// Reads on until this holds.
    pub async fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        let reading = async {
            while !holds(self) {
                let change = self.watch.next().await.expect("a watch never ends");
                self.apply(change);
            }
        };
        if tokio::time::timeout(PATIENCE, reading).await.is_err() {
            panic!(
                "{what}: not seen; {} entries, synced {}, {} restarts, {:?}",
                self.entries.len(),
                self.synced,
                self.restarts,
                self.interruptions
            );
        }
    }

    pub async fn until_synced(&mut self) {
        self.until("synced", |mirror| mirror.synced).await;
    }

    /// Reads on until it shows exactly this.
    pub async fn until_shows(&mut self, expected: &BTreeMap<String, u64>) {
        self.until("the expected revisions", |mirror| {
            mirror.synced
                && mirror.entries.len() == expected.len()
                && mirror.entries.iter().zip(expected).all(
                    |((key, (revision, _)), (other, expected))| {
                        key == other && revision == expected
                    },
                )
        })
        .await;
    }

    fn apply(&mut self, change: Change) {
        match change {
            Change::Put(entry) => {
                self.never_back(&entry.key, entry.revision.0);
                self.entries
                    .insert(entry.key, (entry.revision.0, entry.value));
            }
            Change::Deleted { key, revision } => {
                assert!(self.synced, "a delete within a snapshot");
                self.never_back(&key, revision.0);
                self.entries.remove(&key);
            }
            Change::Synced => {
                assert!(!self.synced, "synced twice");
                self.synced = true;
            }
            Change::Restarted => {
                assert!(
                    self.synced || !self.interruptions.is_empty(),
                    "restarted before it started"
                );
                self.entries.clear();
                self.synced = false;
                self.restarts += 1;
            }
            Change::Interrupted(error) => self.interruptions.push(error),
        }
    }

    fn never_back(&mut self, key: &str, revision: u64) {
        let told = self.told.entry(key.to_owned()).or_default();
        assert!(revision >= *told, "{key} at {revision} after {told}");
        *told = revision;
    }
}
