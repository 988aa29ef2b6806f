//! What a case is given: its part of the key space, connections, and the questions it asks often.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::Subject;
use super::observer::Observer;
use crate::store::{Bytes, Entry, Error, Expect, Revision, Scope, Store, StoreExt, Write};

/// Why a case failed.
#[derive(Debug)]
pub(super) struct Failure(String);

impl Failure {
    pub(super) fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self(format!("an error out of place: {error}"))
    }
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self(why)
    }
}

/// How often a read that may be stale is asked again, and how long it rests in between. Together
/// a generous guard: what is not visible by then never will be.
const ASKED: u32 = 1_500;
const REST: Duration = Duration::from_millis(20);

/// A part of the key space that no other case uses, on a store that others may use too.
pub(super) struct Room<'s> {
    subject: &'s dyn Subject,
    space: String,
    seed: u64,
}

impl<'s> Room<'s> {
    pub(super) fn new(subject: &'s dyn Subject, space: String, seed: u64) -> Self {
        Self {
            subject,
            space,
            seed,
        }
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    /// The full text of a key of this room.
    pub(super) fn key(&self, name: impl fmt::Display) -> String {
        format!("{}{name}", self.space)
    }

    /// Everything of this room.
    pub(super) fn scope(&self) -> Scope {
        Scope::Under(self.space.clone())
    }

    /// Everything below a name in this room.
    pub(super) fn under(&self, name: impl fmt::Display) -> Scope {
        Scope::Under(format!("{}{name}/", self.space))
    }

    pub(super) async fn connect(&self) -> Result<Arc<dyn Store>, Failure> {
        let connected = self.subject.connect().await;
        connected.map_err(|error| Failure::new(format!("cannot connect: {error}")))
    }

    pub(super) async fn connections(&self, count: usize) -> Result<Vec<Arc<dyn Store>>, Failure> {
        let mut all = Vec::new();
        for _ in 0..count {
            all.push(self.connect().await?);
        }
        Ok(all)
    }

    pub(super) async fn disturb(&self) -> Result<(), Failure> {
        let disturbed = self.subject.disturb().await;
        disturbed.map_err(|error| Failure::new(format!("the disturbance failed: {error}")))
    }

    /// A watch that has told all there is.
    pub(super) async fn watch(
        &self,
        store: &Arc<dyn Store>,
        scope: Scope,
    ) -> Result<Observer, Failure> {
        let mut observer = Observer::new(store.watch(scope.clone()), scope);
        observer.synced().await?;
        Ok(observer)
    }

    /// Fails unless a read shows this, at once or, because reads may be stale, later.
    pub(super) async fn shows(
        &self,
        store: &Arc<dyn Store>,
        key: &str,
        expected: Option<&Entry>,
    ) -> Result<(), Failure> {
        let mut found = store.read(key).await?;
        for _ in 0..ASKED {
            if found.as_ref() == expected {
                return Ok(());
            }
            tokio::time::sleep(REST).await;
            found = store.read(key).await?;
        }
        Err(Failure::new(format!(
            "a read shows {}, not {}",
            shown(found.as_ref()),
            shown(expected)
        )))
    }

    /// Fails unless a list shows this, at once or, because lists may be stale, later.
    pub(super) async fn lists(
        &self,
        store: &Arc<dyn Store>,
        scope: &Scope,
        expected: &[Entry],
    ) -> Result<(), Failure> {
        let mut found = store.list(scope).await?;
        for _ in 0..ASKED {
            if found == expected {
                return Ok(());
            }
            // Staleness explains an older state of a key, but no disorder.
            if !found.is_sorted_by(|a, b| a.key < b.key) {
                break;
            }
            tokio::time::sleep(REST).await;
            found = store.list(scope).await?;
        }
        Err(Failure::new(format!(
            "the list of {scope:?} is wrong: {}",
            difference(&found, expected)
        )))
    }
}

/// A write that creates.
pub(super) fn create(key: &str, value: impl Into<Bytes>) -> Write {
    Write {
        key: key.to_owned(),
        expect: Expect::Absent,
        value: Some(value.into()),
    }
}

/// A write that overwrites.
pub(super) fn update(key: &str, revision: Revision, value: impl Into<Bytes>) -> Write {
    Write {
        key: key.to_owned(),
        expect: Expect::At(revision),
        value: Some(value.into()),
    }
}

/// A write that deletes.
pub(super) fn delete(key: &str, revision: Revision) -> Write {
    Write {
        key: key.to_owned(),
        expect: Expect::At(revision),
        value: None,
    }
}

pub(super) fn entry(key: &str, revision: Revision, value: impl Into<Bytes>) -> Entry {
    Entry {
        key: key.to_owned(),
        revision,
        value: value.into(),
    }
}

/// Creates a key and answers with what is there then.
pub(super) async fn created(
    store: &Arc<dyn Store>,
    key: &str,
    value: impl Into<Bytes>,
) -> Result<Entry, Failure> {
    let value = value.into();
    let revision = store.create(key, value.clone()).await?;
    if revision.0 == 0 {
        return Err(Failure::new("a write answered revision 0"));
    }
    Ok(entry(key, revision, value))
}

/// Fails unless a write was refused with exactly this as the current state.
pub(super) fn refused(
    what: &str,
    outcome: Result<Revision, Error>,
    current: Option<&Entry>,
) -> Result<(), Failure> {
    match outcome {
        Err(Error::Conflict { current: told }) if told.as_deref() == current => Ok(()),
        Err(Error::Conflict { current: told }) => Err(Failure::new(format!(
            "{what}: the conflict carries {}, not {}",
            shown(told.as_deref()),
            shown(current)
        ))),
        Err(error) => Err(Failure::new(format!("{what}: no conflict but: {error}"))),
        Ok(revision) => Err(Failure::new(format!(
            "{what}: it was carried out, as revision {}",
            revision.0
        ))),
    }
}

/// Fails unless a write was rejected for good.
pub(super) fn rejected<T: fmt::Debug>(
    what: &str,
    outcome: Result<T, Error>,
) -> Result<(), Failure> {
    match outcome {
        Err(Error::Rejected { .. }) => Ok(()),
        other => Err(Failure::new(format!("{what}: not rejected but {other:?}"))),
    }
}

/// Runs all at once, each as a task of its own, and answers in order.
pub(super) async fn all<T: Send + 'static>(
    works: impl IntoIterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Result<Vec<T>, Failure> {
    let tasks: Vec<_> = works.into_iter().map(tokio::spawn).collect();
    let mut answers = Vec::new();
    for task in tasks {
        let answer = task.await;
        answers.push(answer.map_err(|error| Failure::new(format!("a task: {error}")))?);
    }
    Ok(answers)
}

/// An entry for a message: its value shortened.
pub(super) fn shown(entry: Option<&Entry>) -> String {
    let Some(entry) = entry else {
        return "nothing".into();
    };
    let start = &entry.value[..entry.value.len().min(24)];
    format!(
        "{:?} at revision {} with {} bytes {:?}",
        entry.key,
        entry.revision.0,
        entry.value.len(),
        String::from_utf8_lossy(start)
    )
}

/// The first thing in which two lists differ.
pub(super) fn difference(found: &[Entry], expected: &[Entry]) -> String {
    let at = found.iter().zip(expected).take_while(|(a, b)| a == b);
    let at = at.count();
    format!(
        "{} entries where {} belong; at number {at} is {}, where {} belongs",
        found.len(),
        expected.len(),
        shown(found.get(at)),
        shown(expected.get(at))
    )
}
