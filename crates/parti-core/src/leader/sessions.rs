//! The sessions of a group as a watch tells them, and the end of those that stay silent.
//!
//! A session ends by a write: a compare-and-set at the revision that stayed silent. An observer
//! with a stale view gets a conflict instead of evicting anyone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{Revision, WorkerId};
use crate::io::{Expect, StoreOp, StoreReply, Stored, WatchEvent, Write, WriteOutcome};
use crate::key::Key;
use crate::record::{Record, SessionStatus, WorkerRecord};
use crate::session::silence::Silence;
use crate::time::Time;
use crate::worker::Report;
use crate::worker::outbox::{Outbox, Purpose};

/// How many writes one request carries at the most.
const BATCH: usize = 256;

/// The sessions of a group, as a watch tells them.
#[derive(Clone, Debug, Default)]
pub struct Sessions {
    records: BTreeMap<WorkerId, (Revision, Arc<WorkerRecord>)>,
    /// Whether a whole snapshot was seen.
    pub synced: bool,
}

impl Sessions {
    /// Takes in news; old ones are ignored.
    pub fn watched(&mut self, event: &WatchEvent, silence: &mut Silence, now: Time) {
        match event {
            WatchEvent::Snapshot(records) => {
                self.synced = true;
                for stored in records {
                    self.learn(stored, silence, now);
                }
            }
            WatchEvent::Changed(stored) => self.learn(stored, silence, now),
            // Sessions are not deleted; one that somebody removed by hand is still known here
            // until its worker claims anew.
            WatchEvent::Removed(..) => {}
        }
    }

    /// Takes in one record, however it was met.
    pub fn learn(&mut self, stored: &Stored, silence: &mut Silence, now: Time) {
        let (Key::Worker(id), Record::Worker(record)) = (&stored.key, &stored.record) else {
            return;
        };
        let known = self.records.get(id).map(|(revision, _)| *revision);
        if known.is_none_or(|known| stored.revision > known) {
            silence.saw(now, &stored.key, stored.revision);
            self.records
                .insert(id.clone(), (stored.revision, record.clone()));
        }
    }

    /// All sessions, over ones too.
    pub fn iter(&self) -> impl Iterator<Item = (&WorkerId, Revision, &Arc<WorkerRecord>)> {
        self.records
            .iter()
            .map(|(id, (revision, record))| (id, *revision, record))
    }

    /// One session.
    pub fn get(&self, id: &WorkerId) -> Option<(Revision, &Arc<WorkerRecord>)> {
        self.records
            .get(id)
            .map(|(revision, record)| (*revision, record))
    }
}

/// Ends sessions that stayed silent, by a write each.
#[derive(Clone, Debug, Default)]
pub struct Reaper {
    in_flight: BTreeMap<WorkerId, WorkerRecord>,
}

impl Reaper {
    /// Marks sessions as over that were silent for `ttl`, and frees ids that were for `id_ttl`.
    #[allow(clippy::too_many_arguments)]
    pub fn step(
        &mut self,
        me: &WorkerId,
        sessions: &Sessions,
        silence: &Silence,
        ttl: Duration,
        id_ttl: Duration,
        still_named: impl Fn(&WorkerId) -> bool,
        out: &mut Outbox,
    ) {
        let now = out.now();
        let mut writes = Vec::new();
        for (id, revision, record) in sessions.iter() {
            if id == me || self.in_flight.contains_key(id) || writes.len() == BATCH {
                continue;
            }
            let key = Key::Worker(id.clone());
            let silent_for = |ttl| silence.silent(now, &key, ttl) == Some(revision);
            let status = match record.status {
                SessionStatus::Live | SessionStatus::Leaving if silent_for(ttl) => {
                    SessionStatus::Evicted
                }
                SessionStatus::Evicted
                    if silent_for(id_ttl.saturating_sub(ttl)) && !still_named(id) =>
                {
                    SessionStatus::Free
                }
                _ => continue,
            };
            let ended = WorkerRecord {
                incarnation: Some(record.incarnation_at(revision)),
                status,
                nonce: out.nonce(),
                ..(**record).clone()
            };
            self.in_flight.insert(id.clone(), ended.clone());
            writes.push((id.clone(), revision, ended));
        }
        if writes.is_empty() {
            return;
        }
        if planted!(EvictionWithoutWrite) {
            return;
        }
        let ids = writes.iter().map(|(id, ..)| id.clone()).collect();
        let writes = writes
            .into_iter()
            .map(|(id, revision, record)| Write {
                key: Key::Worker(id),
                expect: Expect::At(revision),
                value: Some(Record::Worker(Arc::new(record))),
            })
            .collect();
        out.ask(Purpose::EndSessions(ids), StoreOp::Write(writes), ttl);
    }

    /// Whether this session is about to be marked as over.
    pub fn is_ending(&self, id: &WorkerId) -> bool {
        self.in_flight.contains_key(id)
    }

    /// What became of the marks.
    pub fn answered(
        &mut self,
        ids: Vec<WorkerId>,
        reply: StoreReply,
        sessions: &mut Sessions,
        silence: &mut Silence,
        out: &mut Outbox,
    ) {
        let StoreReply::Write(outcomes) = reply else {
            return;
        };
        for (id, outcome) in ids.into_iter().zip(outcomes) {
            let Some(ended) = self.in_flight.remove(&id) else {
                continue;
            };
            match outcome {
                WriteOutcome::Done(revision) => {
                    if ended.status == SessionStatus::Evicted {
                        out.report(Report::History(format!(
                            "{id} was silent, its session is over"
                        )));
                    }
                    let record = Record::Worker(Arc::new(ended));
                    let stored = Stored {
                        key: Key::Worker(id),
                        revision,
                        record,
                    };
                    sessions.learn(&stored, silence, out.now());
                }
                // It lives after all, or somebody else was faster.
                WriteOutcome::Conflict(Some(found)) => sessions.learn(&found, silence, out.now()),
                // Tried again while it stays silent; a mark that landed unseen shows in the watch.
                WriteOutcome::Conflict(None) | WriteOutcome::Failed(_) => {}
            }
        }
    }

    /// When the next session will have been silent for long enough.
    pub fn next_deadline(
        &self,
        me: &WorkerId,
        sessions: &Sessions,
        silence: &Silence,
        ttl: Duration,
        id_ttl: Duration,
    ) -> Time {
        let mut next = Time::NEVER;
        for (id, _, record) in sessions.iter() {
            if id == me || self.in_flight.contains_key(id) {
                continue;
            }
            let wait = match record.status {
                SessionStatus::Live | SessionStatus::Leaving => ttl,
                SessionStatus::Evicted => id_ttl.saturating_sub(ttl),
                SessionStatus::Goodbye | SessionStatus::Free => continue,
            };
            next = next.min(silence.deadline(&Key::Worker(id.clone()), wait));
        }
        next
    }
}
