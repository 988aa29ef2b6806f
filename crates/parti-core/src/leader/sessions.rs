//! The sessions of a group as a watch tells them, and the end of those that stay silent.
//!
//! A session ends by a write: a compare-and-set at the revision that stayed silent. An observer
//! with a stale view gets a conflict instead of evicting anyone.
//!
//! ```text
//!  Live, Leaving ── silent for the TTL ──────────────────────▶ Evicted ── for longer ──▶ Free
//!        │                                                        ▲
//!        └── an operator's eviction ──▶ Revoked, Dismissed ───────┘ given up by its holder,
//!                                                                   or silent for the TTL
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{Incarnation, Revision, WorkerId};
use crate::io::{Expect, StoreOp, StoreReply, Stored, WatchEvent, Write, WriteOutcome};
use crate::key::Key;
use crate::record::{EventKind, Record, SessionStatus, WorkerRecord};
use crate::session::silence::Silence;
use crate::time::Time;
use crate::worker::outbox::{Outbox, Purpose};

/// How many writes one request carries at the most.
const BATCH: usize = 256;
/// How long to wait after store trouble.
const PAUSE: Duration = Duration::from_millis(250);

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

    /// Whether a session other than this one lives and means to stay.
    pub fn anyone_stays_but(&self, me: &WorkerId) -> bool {
        self.iter()
            .any(|(id, _, record)| id != me && record.status == SessionStatus::Live)
    }

    /// One session.
    pub fn get(&self, id: &WorkerId) -> Option<(Revision, &Arc<WorkerRecord>)> {
        self.records
            .get(id)
            .map(|(revision, record)| (*revision, record))
    }
}

/// A life of a worker that an operator wants to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Eviction {
    /// Which life.
    pub life: Incarnation,
    /// Whether its process is to end, too.
    pub stay_away: bool,
}

/// The newest eviction of each worker that was ever evicted.
pub type Evictions = BTreeMap<WorkerId, Eviction>;

/// Ends sessions that stayed silent, by a write each.
#[derive(Clone, Debug, Default)]
pub struct Reaper {
    in_flight: BTreeMap<WorkerId, WorkerRecord>,
    evictions: Evictions,
    /// After store trouble, not before.
    not_before: Time,
    /// Ids that would be free, but for partitions whose records may still name their last life.
    /// Whatever ends that brings news; there is no time to wait for.
    kept: BTreeSet<WorkerId>,
}

impl Reaper {
    /// Lives that operators want to end.
    pub fn evict(&mut self, evictions: Evictions) {
        self.evictions = evictions;
    }

    /// How this session is to be revoked, if it is.
    fn revoked(&self, id: &WorkerId, at: Revision, record: &WorkerRecord) -> Option<SessionStatus> {
        let eviction = self.evictions.get(id)?;
        let is_open = matches!(record.status, SessionStatus::Live | SessionStatus::Leaving);
        let meant = is_open && eviction.life == record.incarnation_at(at);
        meant.then_some(if crate::planted!(EvictAtOnce) {
            SessionStatus::Evicted
        } else if eviction.stay_away {
            SessionStatus::Dismissed
        } else {
            SessionStatus::Revoked
        })
    }

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
        if now < self.not_before {
            return;
        }
        self.kept.clear();
        let mut writes = Vec::new();
        for (id, revision, record) in sessions.iter() {
            if self.in_flight.contains_key(id) || writes.len() == BATCH {
                continue;
            }
            let key = Key::Worker(id.clone());
            let silent_for = |ttl| id != me && silence.silent(now, &key, ttl) == Some(revision);
            let revoked = self.revoked(id, revision, record);
            let status = match record.status {
                status if !status.is_over() && silent_for(ttl) => SessionStatus::Evicted,
                status if !status.is_over() => match revoked {
                    Some(revoked) => revoked,
                    None => continue,
                },
                SessionStatus::Evicted if silent_for(id_ttl.saturating_sub(ttl)) => {
                    if still_named(id) {
                        self.kept.insert(id.clone());
                        continue;
                    }
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
                        let line = format!("{id} was silent, its session is over");
                        out.tell(EventKind::Crash, line);
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
                WriteOutcome::Conflict(None) | WriteOutcome::Failed(_) => {
                    self.not_before = out.now() + PAUSE;
                }
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
        for (id, revision, record) in sessions.iter() {
            if self.in_flight.contains_key(id) {
                continue;
            }
            if self.revoked(id, revision, record).is_some() {
                next = Time::ZERO;
            }
            if id == me {
                continue;
            }
            let wait = match record.status {
                status if !status.is_over() => ttl,
                SessionStatus::Evicted if self.kept.contains(id) => continue,
                SessionStatus::Evicted => id_ttl.saturating_sub(ttl),
                _ => continue,
            };
            next = next.min(silence.deadline(&Key::Worker(id.clone()), wait));
        }
        next.max(self.not_before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Incarnation, Nonce, Term, Version};
    use crate::io::StoreError;
    use crate::record::Ready;
    use crate::rng::Rng;
    use crate::worker::Action;

    const TTL: Duration = Duration::from_secs(6);
    const ID_TTL: Duration = Duration::from_secs(30);
    const HEARTBEAT: Duration = Duration::from_secs(2);

    /// An observer that renews its own session all the time, and one silent session.
    struct Bench {
        reaper: Reaper,
        sessions: Sessions,
        silence: Silence,
        out: Outbox,
        named: bool,
    }

    fn me() -> WorkerId {
        WorkerId::new("worker-0")
    }

    fn silent() -> WorkerId {
        WorkerId::new("worker-1")
    }

    impl Bench {
        fn new() -> Self {
            let mut bench = Self {
                reaper: Reaper::default(),
                sessions: Sessions::default(),
                silence: Silence::new(Time::ZERO, HEARTBEAT),
                out: Outbox::new(Rng::new(1)),
                named: true,
            };
            let record = WorkerRecord {
                incarnation: Some(Incarnation(3)),
                beat: 1,
                status: SessionStatus::Live,
                state: 4,
                term: Term(1),
                released: Version(0),
                applied: Version(0),
                ready: Ready::default(),
                blocked_by: Vec::new(),
                load: 0,
                degraded: None,
                partitions: 0,
                heeds: Revision(0),
                renewed_at: 0,
                badge: None,
                nonce: Nonce(0),
            };
            let stored = Stored {
                key: Key::Worker(silent()),
                revision: Revision(5),
                record: Record::Worker(Arc::new(record)),
            };
            let (sessions, silence) = (&mut bench.sessions, &mut bench.silence);
            sessions.learn(&stored, silence, Time::ZERO);
            bench
        }

        fn pass(&mut self, time: Duration) {
            let end = self.out.now() + time;
            while self.out.now() < end {
                self.out.set_now((self.out.now() + HEARTBEAT / 2).min(end));
                self.silence.succeeded(self.out.now());
            }
        }

        /// One step; the status it wrote, if any.
        fn step(&mut self) -> Option<SessionStatus> {
            let named = self.named;
            let (sessions, silence, out) = (&self.sessions, &self.silence, &mut self.out);
            self.reaper
                .step(&me(), sessions, silence, TTL, ID_TTL, |_| named, out);
            let mut actions = Vec::new();
            self.out.take_actions(&mut actions);
            let Some(Action::Store(request)) = actions.pop() else {
                return None;
            };
            let StoreOp::Write(writes) = request.op else {
                panic!("a write")
            };
            match &writes[0].value {
                Some(Record::Worker(record)) => Some(record.status),
                other => panic!("a session, not {other:?}"),
            }
        }

        fn answer(&mut self, outcome: WriteOutcome) {
            let reply = StoreReply::Write(vec![outcome]);
            let (sessions, silence) = (&mut self.sessions, &mut self.silence);
            self.reaper
                .answered(vec![silent()], reply, sessions, silence, &mut self.out);
        }

        fn deadline(&self) -> Time {
            self.reaper
                .next_deadline(&me(), &self.sessions, &self.silence, TTL, ID_TTL)
        }
    }

    #[test]
    fn a_store_that_refuses_is_not_asked_again_at_once() {
        let mut bench = Bench::new();
        assert_eq!(bench.step(), None);
        bench.pass(TTL);
        for error in [StoreError::Unavailable, StoreError::Rejected("no".into())] {
            assert_eq!(bench.step(), Some(SessionStatus::Evicted));
            bench.answer(WriteOutcome::Failed(error));
            assert_eq!(bench.step(), None);
            assert_eq!(bench.deadline(), bench.out.now() + PAUSE);
            bench.pass(PAUSE);
        }
        assert_eq!(bench.step(), Some(SessionStatus::Evicted));
    }

    #[test]
    fn an_evicted_life_is_revoked_first_and_ended_only_when_it_stays_silent() {
        let eviction = |life| Eviction {
            life: Incarnation(life),
            stay_away: false,
        };
        let mut bench = Bench::new();
        bench.reaper.evict([(silent(), eviction(2))].into());
        assert_eq!(bench.step(), None, "that was another life");
        bench.reaper.evict([(silent(), eviction(3))].into());
        assert_eq!(bench.deadline(), Time::ZERO);
        assert_eq!(bench.step(), Some(SessionStatus::Revoked));
        bench.answer(WriteOutcome::Failed(StoreError::Unavailable));
        assert_eq!(bench.deadline(), bench.out.now() + PAUSE);
        bench.pass(PAUSE);
        assert_eq!(bench.step(), Some(SessionStatus::Revoked));
        bench.answer(WriteOutcome::Done(Revision(9)));
        assert_eq!(bench.step(), None, "its holder gives up, or falls silent");
        bench.pass(TTL);
        assert_eq!(bench.step(), Some(SessionStatus::Evicted));
    }

    #[test]
    fn a_mark_that_is_still_needed_is_kept_without_looking_again_and_again() {
        let mut bench = Bench::new();
        bench.pass(TTL);
        assert_eq!(bench.step(), Some(SessionStatus::Evicted));
        bench.answer(WriteOutcome::Done(Revision(9)));
        bench.pass(ID_TTL);
        assert_eq!(bench.step(), None);
        assert_eq!(bench.deadline(), Time::NEVER);
        bench.named = false;
        assert_eq!(bench.step(), Some(SessionStatus::Free));
    }
}
