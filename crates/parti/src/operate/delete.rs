//! The end of a group, by an operator.
//!
//! ```text
//!   sessions ── all silent? ──▶ ended by compare-and-set
//!       │ one renews: refused            │
//!       ▼                                ▼
//!   nothing was touched        `group` closed by compare-and-set  (new identity, no mode that a
//!                                        │                          worker could have)
//!                              sessions again ── one came: reopened, refused
//!                                        ▼
//!                              partitions, assignments, requests, events, topics, plan,
//!                              overrides, leader
//!                                        ▼
//!                              workers ── one came: unfinished; `group` stays closed
//!                                        ▼
//!                              `group` itself, last
//! ```
//!
//! Why the group's own record is closed first and deleted last: a worker reads it before anything
//! else, and joins only if it fits. While it is closed, whoever starts is refused before it claims
//! an id, and a sleeper that wakes finds another identity and stops. If it went first, a worker
//! that starts at that moment would make a new group out of half of the old one's checkpoints. If
//! it simply went last, a worker could join under it while its checkpoints disappear.
//!
//! One gap is left: a worker that has read the open record, and claims its id after the sessions
//! were looked at. It is found at the end, and told of; the closed record stays. One that slips past
//! that look, too, looks at the group's record once more as its watches begin, and stops.
//!
//! Interrupted at any point, the closed record is still there: the group is listed as being
//! deleted, nobody can join it, and deleting it again goes on. Epochs of a group that is made anew
//! start again; nothing of the old group can reach it, because revisions never do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use parti_core::ids::{Revision, SourceId, WorkerId};
use parti_core::io::{Expect, Scope, StoreError, Stored, WatchEvent, Write, WriteOutcome};
use parti_core::key::{Key, Prefix};
use parti_core::record::{GroupRecord, Record, SessionStatus, WorkerRecord};
use tokio::time::{Instant, sleep, timeout_at};

use super::{Error, nonce, of_core};
use crate::inspect::{CLOSED, Records};
use crate::store::{self, GroupChange, GroupStore};

/// The wait before a write is tried again.
const PAUSE: Duration = Duration::from_millis(200);
/// So many records are deleted at once.
const AT_ONCE: usize = 1_000;
/// How often a write is tried while the store is in trouble.
const TRIES: u32 = 5;

/// What was deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deleted {
    /// Sessions that were silent, and were ended for it.
    pub ended: usize,
    /// Workers' records.
    pub workers: usize,
    /// Partitions' records: checkpoints.
    pub partitions: usize,
    /// Everything else.
    pub others: usize,
}

/// How far a deletion came, whether or not it failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reached {
    /// Nothing of the group was touched, but for sessions that were silent.
    #[default]
    Nothing,
    /// Nothing was deleted, and nobody knows whether it can be joined: the write that prevents that
    /// got no answer.
    Closing,
    /// Nobody can join it, and some of it may be deleted.
    Deleting,
}

/// Deletes a group with everything that it has in the store. A worker counts as gone if its session
/// is over, or once it has been silent for `silence`, which should be longer than the group's
/// `heartbeat_ttl`.
pub async fn delete_group(store: &GroupStore, silence: Duration) -> Result<Deleted, Error> {
    delete_group_noting(store, silence, &mut Reached::default()).await
}

/// The same; `reached` says how far it came when it fails.
pub async fn delete_group_noting(
    store: &GroupStore,
    silence: Duration,
    reached: &mut Reached,
) -> Result<Deleted, Error> {
    let records = Records::read(store).await?;
    let others = others(store).await?;
    if records.is_empty() && others.is_empty() {
        return Err(Error::NoGroup(store.group().to_owned()));
    }
    check_readable(&records.workers)?;
    if records.is_closed() {
        *reached = Reached::Deleting;
    }
    let ended = end_silent(store, records.workers.clone(), silence).await?;
    let closed = match close(store, &records).await {
        Ok(closed) => closed,
        Err(error) => {
            if matches!(error, Error::Store(store::Error::Unknown { .. })) {
                *reached = Reached::Closing;
            }
            return Err(error);
        }
    };
    *reached = Reached::Deleting;
    if let Some(worker) = alive(&store.list(Prefix::Workers).await?) {
        reopen(store, &records, closed).await?;
        return Err(came(&worker));
    }
    let mut deleted = Deleted {
        ended,
        ..Deleted::default()
    };
    let partitions = store.list(Prefix::Partitions).await?;
    deleted.partitions = remove(store, partitions).await?;
    deleted.others = remove(store, self::others(store).await?).await?;
    let workers = store.list(Prefix::Workers).await?;
    if let Some(worker) = alive(&workers) {
        return Err(unfinished(&worker));
    }
    deleted.workers = remove(store, workers).await?;
    if let Some(worker) = alive(&store.list(Prefix::Workers).await?) {
        return Err(unfinished(&worker));
    }
    let group = Stored {
        key: Key::Group,
        revision: closed,
        record: Record::Unreadable("".into()),
    };
    deleted.others += remove(store, vec![group]).await?;
    Ok(deleted)
}

/// Everything but sessions, checkpoints and the group's own record.
async fn others(store: &GroupStore) -> Result<Vec<Stored>, store::Error> {
    let mut found = Vec::new();
    for prefix in [
        Prefix::Assignments,
        Prefix::Requests,
        Prefix::Events,
        Prefix::Topics,
    ] {
        found.extend(store.list(prefix).await?);
    }
    found.extend(store.read(&Key::Plan).await?);
    found.extend(store.read(&Key::Overrides).await?);
    found.extend(store.read(&Key::Leader).await?);
    Ok(found)
}

/// Refused while a session cannot be read.
pub(super) fn check_readable(workers: &[Stored]) -> Result<(), Error> {
    let unreadable = |stored: &&Stored| matches!(stored.record, Record::Unreadable(_));
    match workers.iter().find(unreadable) {
        None => Ok(()),
        Some(stored) => Err(Error::Refused(format!(
            "{} cannot be read, so nobody can say whether that worker lives; mend or remove it \
             with the store's own tools first",
            stored.key
        ))),
    }
}

/// Sessions as they were found, by worker.
pub(super) type Sessions = BTreeMap<WorkerId, (Revision, Arc<WorkerRecord>)>;

/// The sessions that are not over.
pub(super) fn living(workers: &[Stored]) -> Sessions {
    let living = workers
        .iter()
        .filter_map(|stored| match (&stored.key, &stored.record) {
            (Key::Worker(id), Record::Worker(record)) if !record.status.is_over() => {
                Some((id.clone(), (stored.revision, record.clone())))
            }
            _ => None,
        });
    living.collect()
}

fn alive(workers: &[Stored]) -> Option<WorkerId> {
    living(workers).into_keys().next()
}

fn came(worker: &WorkerId) -> Error {
    Error::Refused(format!(
        "{worker} is live: it renewed its session just now; stop every worker of the group first"
    ))
}

fn unfinished(worker: &WorkerId) -> Error {
    Error::Unfinished(format!(
        "{worker} joined while the group was being deleted; stop it, and delete the group again: \
         nobody else can join meanwhile"
    ))
}

/// Waits until every session that is not over has been silent for long enough, and ends it. One
/// that renews ends the waiting.
pub(super) async fn end_silent(
    store: &GroupStore,
    workers: Vec<Stored>,
    silence: Duration,
) -> Result<usize, Error> {
    let first = living(&workers);
    if first.is_empty() {
        return Ok(0);
    }
    hear_nothing(store, &first, silence).await?;
    for (worker, (revision, record)) in &first {
        let over = WorkerRecord {
            incarnation: Some(record.incarnation_at(*revision)),
            status: SessionStatus::Evicted,
            nonce: nonce()?,
            ..(**record).clone()
        };
        let write = Write {
            key: Key::Worker(worker.clone()),
            expect: Expect::At(*revision),
            value: Some(Record::Worker(Arc::new(over))),
        };
        // A session that was seen silent by mistake, through a stale read, conflicts here.
        if settled(store, write).await?.is_none() {
            return Err(came(worker));
        }
    }
    Ok(first.len())
}

/// Waits for as long as sessions may be silent; one that renews, or comes, is an error. Silence counts
/// only while the store is heard.
async fn hear_nothing(
    store: &GroupStore,
    first: &Sessions,
    silence: Duration,
) -> Result<(), Error> {
    let mut news = store.watch(&Scope::Prefix(Prefix::Workers));
    let mut deadline = None;
    loop {
        let change = match deadline {
            Some(deadline) => match timeout_at(deadline, news.next()).await {
                Ok(change) => change,
                Err(_) => return Ok(()),
            },
            None => news.next().await,
        };
        let heard = match change {
            Some(GroupChange::Event(WatchEvent::Snapshot(all))) => all,
            Some(GroupChange::Event(WatchEvent::Changed(stored))) => vec![stored],
            Some(GroupChange::Event(WatchEvent::Removed(..))) => continue,
            Some(GroupChange::Interrupted(_)) => {
                deadline = None;
                continue;
            }
            None => return Err(Error::Unfinished("the store's watch has ended".into())),
        };
        let renewed = living(&heard).into_iter().find(|(id, (revision, _))| {
            let before = first.get(id).map(|(revision, _)| revision);
            before.is_none_or(|before| revision > before)
        });
        if let Some((worker, _)) = renewed {
            return Err(came(&worker));
        }
        deadline.get_or_insert_with(|| Instant::now() + silence);
    }
}

/// Makes sure that nobody joins any more; answers the closed record's revision.
pub(super) async fn close(store: &GroupStore, records: &Records) -> Result<Revision, Error> {
    if let (true, Some(stored)) = (records.is_closed(), &records.group) {
        return Ok(stored.revision);
    }
    let nonce = nonce()?;
    let closed = GroupRecord {
        store: nonce,
        stream: records
            .identity()
            .map_or(SourceId::Untold, |group| group.stream),
        coordination: CLOSED.to_owned(),
        strategy: None,
        nonce,
    };
    let write = Write {
        key: Key::Group,
        expect: match &records.group {
            Some(stored) => Expect::At(stored.revision),
            None => Expect::Absent,
        },
        value: Some(Record::Group(Arc::new(closed))),
    };
    settled(store, write).await?.ok_or_else(|| {
        Error::Refused("somebody else changed the group's record just now; try again".into())
    })
}

/// Puts the group's record back as it was.
async fn reopen(store: &GroupStore, records: &Records, closed: Revision) -> Result<(), Error> {
    let value = match &records.group {
        Some(stored) if !records.is_closed() => Some(stored.record.clone()),
        _ => return Ok(()),
    };
    let write = Write {
        key: Key::Group,
        expect: Expect::At(closed),
        value,
    };
    settled(store, write).await?;
    Ok(())
}

/// Writes once, as often as the store's trouble makes necessary; `None` if somebody else was there.
pub(super) async fn settled(store: &GroupStore, write: Write) -> Result<Option<Revision>, Error> {
    let mut tries = 0;
    let mut is_open = false;
    loop {
        tries += 1;
        let outcome = store.write(std::slice::from_ref(&write)).await.pop();
        is_open |= matches!(outcome, Some(WriteOutcome::Failed(StoreError::Unknown)));
        match outcome {
            Some(WriteOutcome::Done(revision)) => return Ok(Some(revision)),
            Some(WriteOutcome::Conflict(Some(found)))
                if Some(&found.record) == write.value.as_ref() =>
            {
                return Ok(Some(found.revision));
            }
            Some(WriteOutcome::Conflict(_)) => return Ok(None),
            Some(WriteOutcome::Failed(StoreError::Rejected(why))) if !is_open => {
                return Err(store::Error::rejected(why).into());
            }
            Some(WriteOutcome::Failed(error)) if tries >= TRIES => {
                // An earlier try may still have landed.
                let fate = if is_open { StoreError::Unknown } else { error };
                return Err(of_core(&fate).into());
            }
            Some(WriteOutcome::Failed(_)) | None => sleep(PAUSE).await,
        }
    }
}

/// Deletes these records as they were found; answers how many. What was changed meanwhile is an
/// error, what is gone already is fine.
async fn remove(store: &GroupStore, records: Vec<Stored>) -> Result<usize, Error> {
    let count = records.len();
    let mut open: Vec<Write> = records
        .into_iter()
        .map(|stored| Write {
            key: stored.key,
            expect: Expect::At(stored.revision),
            value: None,
        })
        .collect();
    let mut tries = 0;
    while !open.is_empty() {
        let mut again = Vec::new();
        let mut trouble = None;
        for batch in open.chunks(AT_ONCE) {
            let outcomes = store.write(batch).await;
            for (write, outcome) in batch.iter().zip(outcomes) {
                match outcome {
                    WriteOutcome::Done(_) | WriteOutcome::Conflict(None) => {}
                    WriteOutcome::Conflict(Some(_)) => {
                        return Err(Error::Unfinished(format!(
                            "{} was written while the group was being deleted; stop whoever does, \
                             and delete the group again",
                            write.key
                        )));
                    }
                    WriteOutcome::Failed(error @ StoreError::Rejected(_)) => {
                        return Err(of_core(&error).into());
                    }
                    WriteOutcome::Failed(error) => {
                        again.push(write.clone());
                        trouble = Some(error);
                    }
                }
            }
        }
        tries += 1;
        match trouble {
            Some(error) if tries >= TRIES => return Err(of_core(&error).into()),
            Some(_) => sleep(PAUSE).await,
            None => {}
        }
        open = again;
    }
    Ok(count)
}
