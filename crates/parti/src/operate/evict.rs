//! The end of a session of a group without a leader, by an operator.
//!
//! ```text
//!   Live ──▶ Revoked: cannot be renewed ──▶ its worker gives it up
//!                                       ├─▶ a peer ends it, once it is silent
//!                                       └─▶ nobody is there: the operator does, once it is silent
//! ```

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use parti_core::ids::{Incarnation, Revision, WorkerId};
use parti_core::io::{Expect, Scope, Stored, WatchEvent, Write, WriteOutcome};
use parti_core::key::Key;
use parti_core::leader::requests;
use parti_core::record::{OverridesRecord, Record, Request, SessionStatus, WorkerRecord};
use tokio::time::{Instant, timeout_at};

use super::request::{Seen, TRIES, busy, persistent_one};
use super::{Error, nonce, of_core};
use crate::inspect::Records;
use crate::store::{GroupChange, GroupStore};

/// Marks the session, so that it cannot be renewed: its worker gives it up, or it falls silent. The
/// inner error is the reason why it is refused.
pub(super) async fn revoke(
    store: &GroupStore,
    mut records: Records,
    request: &Request,
) -> Result<Result<Option<Revision>, String>, Error> {
    let Request::Evict {
        worker,
        incarnation,
        stay_away,
    } = request
    else {
        return Ok(Err("it is no eviction".into()));
    };
    let status = if *stay_away {
        SessionStatus::Dismissed
    } else {
        SessionStatus::Revoked
    };
    let key = Key::Worker(worker.clone());
    for _ in 0..TRIES {
        let sight = Seen {
            records: &records,
            heeded: None,
        };
        let mut nothing = OverridesRecord::default();
        if let Err(why) = requests::enter(request, &mut nothing, &sight) {
            return Ok(Err(why));
        }
        let found = records.workers.iter().find(|stored| stored.key == key);
        let Some((revision, before)) = found.and_then(open_session) else {
            return Ok(Ok(None));
        };
        match mark(store, &key, revision, *incarnation, status, before).await? {
            Marked::Done => return Ok(Ok(None)),
            Marked::Changed => records = Records::read(store).await?,
        }
    }
    Err(busy())
}

/// Waits until this life of a worker is over, and ends it itself once it has been silent for long
/// enough. Silence counts only while the store is heard, and decides nothing: whoever renewed the
/// session after all makes its end a conflict.
pub(super) async fn end_silent(
    store: &GroupStore,
    worker: &WorkerId,
    life: Incarnation,
    silence: Duration,
) -> Result<(), Error> {
    let key = Key::Worker(worker.clone());
    let mut news = store.watch(&Scope::Key(key.clone()));
    // The session as last heard, and until when it may be silent.
    let mut heard: Option<(Stored, Instant)> = None;
    loop {
        let deadline = heard.as_ref().map(|(_, deadline)| *deadline);
        let change = match deadline {
            Some(deadline) => timeout_at(deadline, news.next()).await,
            None => Ok(news.next().await),
        };
        let found = match change {
            Ok(Some(GroupChange::Event(WatchEvent::Changed(stored)))) => Some(stored),
            Ok(Some(GroupChange::Event(WatchEvent::Snapshot(all)))) => all.into_iter().next_back(),
            Ok(Some(GroupChange::Event(WatchEvent::Removed(..)))) => None,
            Ok(Some(GroupChange::Interrupted(_))) => {
                heard = None;
                continue;
            }
            Ok(None) => return Err(Error::Unfinished("the store's watch has ended".into())),
            Err(_) => {
                let silent = heard.take().map(|(stored, _)| stored);
                let Some((revision, record)) = silent.as_ref().and_then(session) else {
                    continue;
                };
                let (status, record) = (SessionStatus::Evicted, record.clone());
                match mark(store, &key, revision, life, status, record).await? {
                    Marked::Done => return Ok(()),
                    // The watch will tell.
                    Marked::Changed => continue,
                }
            }
        };
        let Some((revision, record)) = found.as_ref().and_then(session) else {
            return Ok(());
        };
        if record.status.is_over() || record.incarnation_at(revision) != life {
            return Ok(());
        }
        // A watch that begins anew tells again what was known.
        let until = match &heard {
            Some((known, until)) if known.revision == revision => *until,
            _ => Instant::now() + silence,
        };
        heard = found.map(|stored| (stored, until));
    }
}

enum Marked {
    Done,
    Changed,
}

/// Writes the session with another status, unless it has changed.
async fn mark(
    store: &GroupStore,
    key: &Key,
    revision: Revision,
    life: Incarnation,
    status: SessionStatus,
    before: WorkerRecord,
) -> Result<Marked, Error> {
    let record = Record::Worker(Arc::new(WorkerRecord {
        incarnation: Some(life),
        status,
        nonce: nonce()?,
        ..before
    }));
    let write = Write {
        key: key.clone(),
        expect: Expect::At(revision),
        value: Some(record.clone()),
    };
    match persistent_one(store, write).await {
        WriteOutcome::Done(_) => Ok(Marked::Done),
        // An earlier try of this very write.
        WriteOutcome::Conflict(Some(found)) if found.record == record => Ok(Marked::Done),
        WriteOutcome::Conflict(_) => Ok(Marked::Changed),
        WriteOutcome::Failed(error) => Err(of_core(&error).into()),
    }
}

fn session(stored: &Stored) -> Option<(Revision, &WorkerRecord)> {
    match &stored.record {
        Record::Worker(record) => Some((stored.revision, record)),
        _ => None,
    }
}

/// A session that is neither over nor revoked.
fn open_session(stored: &Stored) -> Option<(Revision, WorkerRecord)> {
    let (revision, record) = session(stored)?;
    let is_open = matches!(record.status, SessionStatus::Live | SessionStatus::Leaving);
    is_open.then(|| (revision, record.clone()))
}
