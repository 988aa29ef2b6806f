//! Election: who leads, under which term. One record, compare-and-set, never deleted.
//!
//! ```text
//! Follower ── record absent, resigned, held by an older life of mine, or silent ──▶ Standing
//!     ▲                                                                              │ landed
//!     │ conflict: somebody else leads                                                ▼
//!     └────────────────────────────────────────────────────────────────────────── Leading
//! ```
//!
//! Terms order leaders; the lease only saves work. A leader that does not know yet that it was
//! replaced can do no harm: whatever it still writes expects revisions that its successor changed.

use std::sync::Arc;
use std::time::Duration;

use crate::config::Config;
use crate::ids::{Incarnation, Nonce, Revision, Term, WorkerId};
use crate::io::{Expect, StoreReply, Stored, WatchEvent, WriteOutcome};
use crate::key::Key;
use crate::record::{LeaderRecord, Record};
use crate::session::pace::Pace;
use crate::session::silence::Silence;
use crate::time::Time;
use crate::worker::Trouble;
use crate::worker::outbox::{Outbox, Purpose};

/// What became of the election by the last event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing to tell.
    Nothing,
    /// This worker leads now, under this term.
    Won(Term),
    /// A renewal succeeded.
    Renewed,
    /// This worker leads no longer.
    Lost,
}

#[derive(Clone, Debug)]
enum Known {
    /// The watch has not told yet.
    Unread,
    Absent,
    /// Damaged, or of a newer program: left alone, and nobody can stand until it is gone.
    Unreadable(Revision),
    At(Revision, Arc<LeaderRecord>),
}

impl Known {
    fn revision(&self) -> Option<Revision> {
        match self {
            Self::Unread | Self::Absent => None,
            Self::Unreadable(revision) | Self::At(revision, _) => Some(*revision),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Role {
    Follower,
    Leading { term: Term, next_beat: Time },
    Resigning { term: Term },
    Resigned,
}

/// Who decides who may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agent {
    /// The store's own record: whoever finds it free or silent.
    Store,
    /// Somebody outside, who says yes or no by [`Event::Elected`](crate::worker::Event::Elected). The
    /// term still comes from the record. Whoever asks it bounds each call by `election_timeout`, and
    /// says no when the answer does not come.
    External {
        /// What it said last.
        elected: bool,
    },
}

/// The election machine.
#[derive(Clone, Debug)]
pub struct Election {
    heartbeat: Duration,
    ttl: Duration,
    /// Limit for one call to the store.
    timeout: Duration,
    agent: Agent,
    known: Known,
    /// Whether that record is news: its holder was alive when this worker was already looking.
    heard: bool,
    role: Role,
    /// Whether it stands no more: it was told to resign, not merely told so by an agent.
    retired: bool,
    in_flight: Option<LeaderRecord>,
    /// The highest term met anywhere: whoever leads must be above it, or nobody listens.
    floor: Term,
    /// When anything was last written.
    last_sent: Time,
    /// After store trouble.
    pace: Pace,
}

impl Election {
    /// An election that has not begun.
    pub fn new(config: &Config, agent: Agent) -> Self {
        Self {
            heartbeat: config.heartbeat_interval,
            ttl: config.heartbeat_ttl,
            // A renewal that waited for longer than a heartbeat would be late for its lease.
            timeout: config.election_timeout.min(config.heartbeat_interval),
            agent,
            known: Known::Unread,
            heard: false,
            role: Role::Follower,
            retired: false,
            in_flight: None,
            floor: Term(0),
            last_sent: Time::ZERO,
            pace: Pace::new(&config.retry, config.heartbeat_interval),
        }
    }

    /// The highest term seen in the record.
    pub fn term(&self) -> Term {
        match &self.known {
            Known::At(_, record) => record.term,
            _ => Term(0),
        }
    }

    /// The term under which this worker leads.
    pub fn leading(&self) -> Option<Term> {
        match self.role {
            Role::Leading { term, .. } => Some(term),
            _ => None,
        }
    }

    /// Whether somebody leads, as far as this worker knows.
    pub fn is_decided(&self) -> bool {
        matches!(&self.known, Known::At(_, record) if record.holder.is_some())
    }

    /// The revision of the record that is known; zero if none is.
    pub fn revision(&self) -> Revision {
        self.known.revision().unwrap_or(Revision(0))
    }

    /// Whether nobody leads, as far as this worker knows: nobody holds the record, or nobody can,
    /// or whoever does has been silent for the TTL.
    pub fn is_vacant(&self, now: Time, silence: &Silence) -> bool {
        match &self.known {
            Known::At(revision, record) if record.holder.is_some() => {
                silence.silent(now, &Key::Leader, self.ttl) == Some(*revision)
            }
            _ => true,
        }
    }

    /// Who led under the record that is known, with its revision.
    pub fn holder(&self) -> Option<&(WorkerId, Incarnation)> {
        match &self.known {
            Known::At(_, record) => record.holder.as_ref(),
            _ => None,
        }
    }

    /// Whether somebody leads under this term and was heard doing so, not only found in a record
    /// that may be old.
    pub fn hears_leader_of(&self, term: Term) -> bool {
        self.heard && self.is_decided() && self.term() == term
    }

    /// The session is lost: a new life starts as a follower.
    pub fn reset(&mut self) {
        self.role = Role::Follower;
        self.in_flight = None;
    }

    /// An external agent spoke.
    pub fn agent_says(&mut self, elected: bool) {
        self.agent = Agent::External { elected };
    }

    /// Gives up leadership and does not stand again.
    pub fn resign(&mut self) {
        self.retired = true;
        self.role = match self.role {
            Role::Leading { term, .. } => Role::Resigning { term },
            _ => Role::Resigned,
        };
    }

    /// What follows a resignation: whom an agent deposed, it may elect again.
    fn after_resigning(&self) -> Role {
        if self.retired {
            Role::Resigned
        } else {
            Role::Follower
        }
    }

    /// Something of a higher term was met: either somebody else leads, or the record was lost and
    /// terms began anew. Standing once more, above that term, tells which.
    pub fn outdone(&mut self, by: Term) {
        self.floor = self.floor.max(by);
        if matches!(self.role, Role::Leading { term, .. } if term <= by) {
            self.role = Role::Follower;
        }
    }

    /// Whether a resignation is still to be written, or may have to be: a candidacy that is on its
    /// way can land, and who goes without taking it back leaves a leader that is not there.
    pub fn is_resigning(&self) -> bool {
        let stands = self.in_flight.as_ref().is_some_and(|r| r.holder.is_some());
        match self.role {
            Role::Resigning { .. } => true,
            Role::Resigned => stands,
            Role::Follower | Role::Leading { .. } => false,
        }
    }

    /// News of the leader record.
    pub fn watched(
        &mut self,
        event: &WatchEvent,
        silence: &mut Silence,
        out: &mut Outbox,
    ) -> Outcome {
        match event {
            WatchEvent::Snapshot(records) => match records.first() {
                Some(stored) => self.learn(stored, silence, out),
                None => {
                    if matches!(self.known, Known::Unread | Known::Unreadable(_)) {
                        self.known = Known::Absent;
                    }
                    Outcome::Nothing
                }
            },
            WatchEvent::Changed(stored) => self.learn(stored, silence, out),
            // Somebody removed what could not be read: as we asked for.
            WatchEvent::Removed(_, at) if matches!(self.known, Known::Unreadable(of) if of < *at) =>
            {
                self.known = Known::Absent;
                Outcome::Nothing
            }
            // Nobody deletes it. If somebody did, our next write meets a conflict and tells.
            WatchEvent::Removed(..) => Outcome::Nothing,
        }
    }

    /// Takes in the record; a term above the own one ends leadership.
    fn learn(&mut self, stored: &Stored, silence: &mut Silence, out: &mut Outbox) -> Outcome {
        if self
            .known
            .revision()
            .is_some_and(|known| stored.revision <= known)
        {
            return Outcome::Nothing;
        }
        let Record::Leader(record) = &stored.record else {
            return self.cannot_read(stored, out);
        };
        silence.saw(out.now(), &Key::Leader, stored.revision);
        self.heard = !matches!(self.known, Known::Unread);
        self.known = Known::At(stored.revision, record.clone());
        match self.role {
            Role::Leading { term, .. } if record.term > term => {
                self.role = Role::Follower;
                Outcome::Lost
            }
            Role::Resigning { term } if record.term > term => {
                self.role = self.after_resigning();
                Outcome::Nothing
            }
            _ => Outcome::Nothing,
        }
    }

    /// Says so once per write of it. Whoever led by this record does so no more.
    fn cannot_read(&mut self, stored: &Stored, out: &mut Outbox) -> Outcome {
        let why = match &stored.record {
            Record::Unreadable(why) => why.to_string(),
            _ => "it is a record of another kind".into(),
        };
        out.trouble(Trouble::NoElection(why));
        // Should it be removed, terms go on from here.
        self.floor = self.floor.max(self.term());
        self.known = Known::Unreadable(stored.revision);
        match self.role {
            Role::Leading { .. } => {
                self.role = Role::Follower;
                Outcome::Lost
            }
            Role::Resigning { .. } => {
                self.role = self.after_resigning();
                Outcome::Nothing
            }
            Role::Follower | Role::Resigned => Outcome::Nothing,
        }
    }

    /// The session was renewed then: a leader renews its record with it.
    pub fn beat_with(&mut self, session_sent: Time) {
        if let Role::Leading { next_beat, .. } = &mut self.role
            && session_sent > self.last_sent
        {
            *next_beat = session_sent;
        }
    }

    /// When to act next, if nothing happens.
    pub fn next_deadline(&self, silence: &Silence) -> Time {
        if self.in_flight.is_some() {
            return Time::NEVER;
        }
        let due = match self.role {
            Role::Leading { next_beat, .. } => next_beat,
            Role::Resigning { .. } => Time::ZERO,
            // Nothing but news can help.
            Role::Follower if matches!(self.known, Known::Unreadable(_)) => Time::NEVER,
            Role::Follower if self.agent == Agent::Store => {
                silence.deadline(&Key::Leader, self.ttl)
            }
            Role::Follower => Time::NEVER,
            Role::Resigned => Time::NEVER,
        };
        due.max(self.pace.not_before())
    }

    /// Stands, renews or resigns, as is due. `lease` tells whether the own session is alive.
    pub fn step(
        &mut self,
        me: &WorkerId,
        incarnation: Incarnation,
        lease: bool,
        silence: &Silence,
        out: &mut Outbox,
    ) -> Outcome {
        let now = out.now();
        if self.in_flight.is_some() || now < self.pace.not_before() {
            return Outcome::Nothing;
        }
        match self.role {
            Role::Leading { term, next_beat } => {
                if matches!(self.agent, Agent::External { elected: false }) {
                    self.role = Role::Resigning { term };
                    return Outcome::Lost;
                }
                if now >= next_beat {
                    self.write(Some((me.clone(), incarnation)), term, out);
                }
                Outcome::Nothing
            }
            Role::Resigning { term } => {
                self.write(None, term, out);
                Outcome::Nothing
            }
            Role::Follower if lease => self.consider(me, incarnation, silence, out),
            Role::Follower | Role::Resigned => Outcome::Nothing,
        }
    }

    fn consider(
        &mut self,
        me: &WorkerId,
        incarnation: Incarnation,
        silence: &Silence,
        out: &mut Outbox,
    ) -> Outcome {
        let told = match self.agent {
            Agent::Store => None,
            Agent::External { elected } => Some(elected),
        };
        let (may_stand, term) = match &self.known {
            Known::Unread | Known::Unreadable(_) => return Outcome::Nothing,
            Known::Absent => (told.unwrap_or(true), self.floor.next()),
            Known::At(revision, record) => match &record.holder {
                Some((holder, life))
                    if holder == me && *life == incarnation && record.term > self.floor =>
                {
                    // A candidacy of ours landed late, and nobody minded.
                    let term = record.term;
                    self.role = Role::Leading {
                        term,
                        next_beat: out.now(),
                    };
                    return Outcome::Won(term);
                }
                // This life is the older one: it has been replaced, and is about to find out.
                Some((holder, life)) if holder == me && *life > incarnation => {
                    return Outcome::Nothing;
                }
                // An older life of mine cannot lead any more, nor can this one under a term to
                // which nobody listens.
                Some((holder, _)) if holder == me => (told.unwrap_or(true), self.above(record)),
                None => (told.unwrap_or(true), self.above(record)),
                Some(_) => {
                    let silent =
                        silence.silent(out.now(), &Key::Leader, self.ttl) == Some(*revision);
                    (told.unwrap_or(silent), self.above(record))
                }
            },
        };
        if may_stand {
            self.write(Some((me.clone(), incarnation)), term, out);
        }
        Outcome::Nothing
    }

    /// The next term after this record's, and after all that were met.
    fn above(&self, record: &LeaderRecord) -> Term {
        record.term.max(self.floor).next()
    }

    fn write(&mut self, holder: Option<(WorkerId, Incarnation)>, term: Term, out: &mut Outbox) {
        let (expect, beat) = match &self.known {
            Known::At(revision, record) => (Expect::At(*revision), record.beat + 1),
            _ => (Expect::Absent, 1),
        };
        let nonce: Nonce = out.nonce();
        let record = LeaderRecord {
            holder,
            term,
            beat,
            nonce,
        };
        self.in_flight = Some(record.clone());
        self.last_sent = out.now();
        let value = Record::Leader(Arc::new(record));
        out.write(Purpose::Election, Key::Leader, expect, value, self.timeout);
    }

    /// The answer to a candidacy, renewal or resignation.
    pub fn answered(
        &mut self,
        sent: Time,
        reply: StoreReply,
        silence: &mut Silence,
        out: &mut Outbox,
    ) -> Outcome {
        let Some(record) = self.in_flight.take() else {
            return Outcome::Nothing;
        };
        let StoreReply::Write(outcomes) = reply else {
            return Outcome::Nothing;
        };
        let outcome = outcomes.into_iter().next();
        if matches!(
            outcome,
            Some(WriteOutcome::Done(_) | WriteOutcome::Conflict(_))
        ) {
            self.pace.succeeded();
        }
        match outcome {
            Some(WriteOutcome::Done(revision)) => {
                if self.known.revision().is_some_and(|known| known > revision) {
                    // Somebody has written since, and the watch was faster than this reply.
                    return Outcome::Nothing;
                }
                let (term, resigned) = (record.term, record.holder.is_none());
                silence.saw(out.now(), &Key::Leader, revision);
                self.known = Known::At(revision, Arc::new(record));
                self.landed(term, resigned, sent)
            }
            Some(WriteOutcome::Conflict(Some(found))) => {
                let ours = matches!(&found.record, Record::Leader(there)
                    if there.term == record.term && there.holder == record.holder);
                let was_leading = matches!(self.role, Role::Leading { .. });
                // What was believed to be known is outdated.
                if matches!(self.known, Known::Absent) {
                    self.known = Known::Unread;
                }
                self.learn(&found, silence, out);
                // Somebody may have written since, and the watch was faster than this reply.
                let stands = self.known.revision() == Some(found.revision);
                if ours && stands {
                    return self.landed(record.term, record.holder.is_none(), sent);
                }
                self.role = match self.role {
                    Role::Resigning { .. } => self.after_resigning(),
                    Role::Resigned => Role::Resigned,
                    _ => Role::Follower,
                };
                if was_leading {
                    Outcome::Lost
                } else {
                    Outcome::Nothing
                }
            }
            Some(WriteOutcome::Conflict(None)) => {
                self.known = Known::Absent;
                Outcome::Nothing
            }
            // If its fate is open, the next write expects the same revision, and so settles it.
            Some(WriteOutcome::Failed(_)) | None => {
                self.pace.failed(true, out);
                Outcome::Nothing
            }
        }
    }

    /// A write of ours stands in the record.
    fn landed(&mut self, term: Term, resigned: bool, sent: Time) -> Outcome {
        let next_beat = sent + self.heartbeat;
        match self.role {
            Role::Leading { term: led, .. } if led == term && !resigned => {
                self.role = Role::Leading { term, next_beat };
                Outcome::Renewed
            }
            Role::Leading { .. } | Role::Follower if !resigned => {
                self.role = Role::Leading { term, next_beat };
                Outcome::Won(term)
            }
            _ if resigned => {
                self.role = self.after_resigning();
                Outcome::Nothing
            }
            // Asked to resign while a renewal was on its way: the resignation follows.
            _ => {
                self.role = Role::Resigning { term };
                Outcome::Nothing
            }
        }
    }
}
