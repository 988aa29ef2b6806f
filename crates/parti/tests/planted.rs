//! The suite is examined too: each of these stores has one bug that a real backend could have, and
//! the case that is there for it must fail, for the right reason.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{FutureExt, StreamExt, stream};
use parti::store::conformance::{Subject, Suite};
use parti::store::{
    Change, Entry, Error, Expect, Memory, Revision, Scope, Store, StoreExt, Watch, Write,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    /// Writes whatever is there.
    Careless,
    /// Says that there was a conflict, and not with what.
    SilentConflict,
    /// Says what was there when the writer last looked.
    StaleConflict,
    /// Takes revision 0 for "nothing is there".
    ZeroIsAbsent,
    /// Takes the mark that a delete leaves for a value.
    TombstoneIsThere,
    /// Takes an empty value for a delete.
    EmptyIsGone,
    /// Lists whatever starts with the text, within a segment too.
    BarePrefix,
    /// Sorts as people do.
    SortsByLocale,
    /// Does not tell capital letters from small ones.
    FoldsCase,
    /// Lets one conflict fail the whole batch.
    AllOrNothing,
    /// Answers in the order of the keys.
    AnswersByKey,
    /// Leaves deletes out of its watches.
    WatchForgetsDeletes,
    /// Misses what happens between the snapshot and the changes.
    WatchSeam,
    /// Tells changes in pairs, the later one first.
    WatchDisorder,
    /// Ends its watch after a change.
    WatchEnds,
    /// Cuts large values off.
    CutsValues,
}

#[derive(Clone, Debug)]
struct Planted {
    bug: Bug,
    inner: Memory,
    tombstones: Arc<Mutex<BTreeMap<String, Revision>>>,
}

impl Planted {
    fn key(&self, key: &str) -> String {
        match self.bug {
            Bug::FoldsCase => key.to_lowercase(),
            _ => key.to_owned(),
        }
    }

    async fn write_one(&self, mut write: Write) -> Result<Revision, Error> {
        write.key = self.key(&write.key);
        let deleted = self
            .tombstones
            .lock()
            .expect("whole")
            .get(&write.key)
            .copied();
        match (self.bug, write.expect) {
            (Bug::ZeroIsAbsent, Expect::At(Revision(0))) if write.value.is_some() => {
                write.expect = Expect::Absent;
            }
            (Bug::TombstoneIsThere, Expect::At(at))
                if Some(at) == deleted && write.value.is_some() =>
            {
                write.expect = Expect::Absent;
            }
            _ => {}
        }
        if self.bug == Bug::CutsValues {
            write.value = write
                .value
                .map(|value| value.slice(..value.len().min(65_535)));
        }
        let seen = self.inner.read(&write.key).now_or_never();
        // Others write between the look and the write.
        tokio::task::yield_now().await;
        let outcome = self.inner.write_one(write.clone()).await;
        match (self.bug, outcome) {
            (Bug::Careless, Err(Error::Conflict { current })) => {
                write.expect = current.map_or(Expect::Absent, |now| Expect::At(now.revision));
                if write.value.is_none() && write.expect == Expect::Absent {
                    return Ok(Revision(1));
                }
                self.inner.write_one(write).await
            }
            (Bug::SilentConflict, Err(Error::Conflict { .. })) => Err(Error::conflict(None)),
            (Bug::StaleConflict, Err(Error::Conflict { .. })) => {
                Err(Error::conflict(seen.and_then(Result::ok).flatten()))
            }
            (_, outcome) => {
                if let (Ok(revision), None) = (&outcome, &write.value) {
                    let mut tombstones = self.tombstones.lock().expect("whole");
                    tombstones.insert(write.key, *revision);
                }
                outcome
            }
        }
    }

    fn shown(&self, entry: Entry) -> Option<Entry> {
        (self.bug != Bug::EmptyIsGone || !entry.value.is_empty()).then_some(entry)
    }
}

#[async_trait]
impl Store for Planted {
    fn name(&self) -> &str {
        "planted"
    }

    async fn read(&self, key: &str) -> Result<Option<Entry>, Error> {
        let found = self.inner.read(&self.key(key)).await?;
        Ok(found.and_then(|entry| self.shown(entry)))
    }

    async fn list(&self, scope: &Scope) -> Result<Vec<Entry>, Error> {
        scope.check()?;
        let everything = self.inner.list(&Scope::Under(String::new())).await?;
        let holds = |key: &str| match (self.bug, scope) {
            (Bug::BarePrefix, Scope::Under(prefix)) => {
                key.starts_with(prefix.trim_end_matches('/'))
            }
            _ => scope.holds(key),
        };
        let mut found: Vec<Entry> = everything
            .into_iter()
            .filter(|entry| holds(&entry.key))
            .filter_map(|entry| self.shown(entry))
            .collect();
        if self.bug == Bug::SortsByLocale {
            found.sort_by_key(|entry| entry.key.to_lowercase());
        }
        Ok(found)
    }

    async fn write(&self, mut batch: Vec<Write>) -> Vec<Result<Revision, Error>> {
        if self.bug == Bug::AnswersByKey {
            batch.sort_by(|a, b| a.key.cmp(&b.key));
        }
        if self.bug == Bug::AllOrNothing {
            for write in &batch {
                let now = self.inner.read(&write.key).await.ok().flatten();
                let now = now.map_or(Expect::Absent, |now| Expect::At(now.revision));
                if now != write.expect {
                    return batch.iter().map(|_| Err(Error::conflict(None))).collect();
                }
            }
        }
        let checks = parti::store::check_batch(&batch);
        let mut outcomes = Vec::new();
        for (check, write) in checks.into_iter().zip(batch) {
            outcomes.push(match check {
                Ok(()) => self.write_one(write).await,
                Err(error) => Err(error),
            });
        }
        outcomes
    }

    fn watch(&self, scope: Scope) -> Watch {
        let watch = self.inner.watch(scope.clone());
        match self.bug {
            Bug::WatchForgetsDeletes => watch
                .filter(|change| {
                    let told = !matches!(change, Change::Deleted { .. });
                    async move { told }
                })
                .boxed(),
            Bug::WatchEnds => watch.take(3).boxed(),
            Bug::WatchSeam => {
                let store = self.inner.clone();
                let snapshot = async move {
                    let mut known: Vec<Change> = store
                        .list(&scope)
                        .await
                        .unwrap_or_default()
                        .into_iter()
                        .map(Change::Put)
                        .collect();
                    known.push(Change::Synced);
                    stream::iter(known)
                };
                let changes = watch.skip_while(|change| {
                    let snapshot = !matches!(change, Change::Synced);
                    async move { snapshot }
                });
                // The watch beneath starts only once the snapshot was read to its end.
                let snapshot = stream::once(snapshot).flatten();
                snapshot.chain(changes.skip(1)).boxed()
            }
            Bug::WatchDisorder => watch
                .scan(false, |synced, change| {
                    *synced |= change == Change::Synced;
                    let told = (*synced, change);
                    async move { Some(told) }
                })
                .scan(None, |held: &mut Option<Change>, (synced, change)| {
                    let told = match (held.take(), change) {
                        (None, change @ Change::Put(_)) if synced => {
                            *held = Some(change);
                            vec![]
                        }
                        (None, change) => vec![change],
                        (Some(earlier), change) => vec![change, earlier],
                    };
                    async move { Some(stream::iter(told)) }
                })
                .flatten()
                .boxed(),
            _ => watch,
        }
    }
}

struct Examined(Planted);

#[async_trait]
impl Subject for Examined {
    fn name(&self) -> &str {
        "planted"
    }

    async fn connect(&self) -> Result<Arc<dyn Store>, Error> {
        Ok(Arc::new(self.0.clone()))
    }
}

/// A watch that misses something is found by waiting for it in vain.
const IN_VAIN: &str = "it hangs";

#[tokio::test(flavor = "multi_thread")]
async fn every_planted_bug_is_found_by_its_case() {
    let examinations = [
        (Bug::Careless, "races::one_wins", "winners"),
        (Bug::Careless, "writes::stale_delete", "carried out"),
        (
            Bug::SilentConflict,
            "writes::stale_update",
            "carries nothing",
        ),
        (
            Bug::StaleConflict,
            "races::one_wins",
            "the conflict carries",
        ),
        (Bug::ZeroIsAbsent, "that_never_was", "carried out"),
        (Bug::TombstoneIsThere, "of_a_delete_is_no", "carried out"),
        (Bug::EmptyIsGone, "values::an_empty_one_is_there", IN_VAIN),
        (Bug::BarePrefix, "lists::neighbours_stay_apart", IN_VAIN),
        (Bug::SortsByLocale, "lists::sorted_by_bytes", "the list of"),
        (Bug::FoldsCase, "keys::odd_ones", "out of place"),
        (Bug::AllOrNothing, "batches::five_thousand", "out of place"),
        (Bug::AnswersByKey, "batches::five_thousand", IN_VAIN),
        (Bug::WatchForgetsDeletes, "watches::one_key", IN_VAIN),
        (Bug::WatchSeam, "watches::the_seam", IN_VAIN),
        (Bug::WatchDisorder, "watches::revisions_come", "goes back"),
        (Bug::WatchEnds, "watches::snapshot_then_changes", "ended"),
        (Bug::CutsValues, "values::the_largest", IN_VAIN),
    ]
    .map(|(bug, case, reason)| tokio::spawn(examine(bug, case, reason)));
    let mut wrong = Vec::new();
    for examination in examinations {
        wrong.extend(examination.await.expect("no panic"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Runs the case on a store with the bug; answers with what is wrong about the result.
async fn examine(bug: Bug, case: &str, reason: &str) -> Vec<String> {
    let planted = Planted {
        bug,
        inner: Memory::new(),
        tombstones: Arc::default(),
    };
    let subject = Examined(planted);
    let mut suite = Suite::new(&subject).only(case);
    if reason == IN_VAIN {
        suite = suite.limit(Duration::from_secs(4));
    }
    let report = suite.run().await;
    let failures = report.failures();
    if failures.is_empty() {
        return vec![format!("{bug:?} was not found by {case}")];
    }
    let others = failures.iter().filter(|(_, why)| !why.contains(reason));
    others
        .map(|(case, why)| format!("{bug:?} in {case} for another reason: {why}"))
        .collect()
}

/// The same wrapper without a bug that shows: what was found above is the bugs' doing.
#[tokio::test(flavor = "multi_thread")]
async fn the_wrapper_itself_conforms() {
    let planted = Planted {
        bug: Bug::TombstoneIsThere,
        inner: Memory::new(),
        tombstones: Arc::default(),
    };
    let subject = Examined(planted);
    for cases in ["races", "values", "odd_ones", "seam", "one_key", "order"] {
        Suite::new(&subject).only(cases).run().await.assert();
    }
}
