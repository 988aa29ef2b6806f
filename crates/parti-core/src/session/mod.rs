//! The session: a stable id's claim, its heartbeat and its lease, in one record.
//!
//! ```text
//!           list             claim (compare-and-set)          every heartbeat, and on news
//! Idle ──────────▶ Listing ────────────▶ Claiming ─────▶ Live ──────────┐
//!                     ▲  all ids taken:     │ lost race    │ ▲           │ renew
//!                     └─── look again ◀─────┘ next number  │ └───────────┘
//!                                                          │ conflict: somebody ended it
//!                                                          ▼
//!                                                         Lost ──▶ claim anew
//! ```
//!
//! An operator ends a session by revoking it. Its record is then another than the holder expects, so
//! the next renewal conflicts. From that moment the holder dispatches nothing; by one more write it
//! marks the session as over, and only then may others take what it had. A holder that does not
//! answer is silent, and ends like any silent one: nobody is ever seized while it may dispatch.
//!
//! The lease counts from *before* the last successful renewal was sent, and ends a margin before
//! the TTL: by the time anybody may end the session, its holder has long stopped dispatching.

//! A consumer that is elsewhere has its session hosted. It shows a badge, and may go on at another
//! host: that one claims the id anew, in the middle of the old host's lease. The old host may still
//! renew, but nobody works there any more: the consumer itself has moved. What it still has on its way
//! to the store is fenced like that of any older life.

pub mod claim;
pub mod pace;
pub mod silence;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use crate::config::{Config, RetryConfig};
use crate::ids::{Badge, Incarnation, Revision, WorkerId};
use crate::io::{Expect, StoreReply, WriteOutcome};
use crate::key::Key;
use crate::record::{Record, SessionStatus, WorkerRecord};
use crate::time::Time;
use crate::worker::Fatal;
use crate::worker::outbox::{Outbox, Purpose};

use claim::Claim;
use pace::Pace;

/// How much earlier than the TTL a holder stops, as a fraction of it: covers clocks that run at
/// different rates.
const MARGIN_FRACTION: u32 = 10;

/// What became of the session by the last event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing to tell.
    Nothing,
    /// An id is claimed.
    Claimed,
    /// A renewal succeeded: the lease is good again, and the store was writable.
    Renewed,
    /// A renewal failed, or its fate is open: it is sent again.
    Missed,
    /// Somebody ended the session. Everything it held must stop at once.
    Lost,
    /// As lost, and an operator wants this worker not to come back.
    Dismissed,
    /// The goodbye is written (or the session is over anyway).
    Gone,
    /// There is no id to be had.
    Failed(Fatal),
}

/// Whose session this is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Belonging {
    /// The worker's own: it does the work, and comes back in a new life when it is lost.
    #[default]
    Own,
    /// A consumer's that is elsewhere and shows this badge. When it is lost, it is over.
    Hosted(Badge),
    /// The same consumer's, which goes on here with the number it had at another host.
    Continued(Badge, u64),
}

impl Belonging {
    /// What the consumer shows, if it is elsewhere.
    pub fn badge(self) -> Option<Badge> {
        match self {
            Self::Own => None,
            Self::Hosted(badge) | Self::Continued(badge, _) => Some(badge),
        }
    }
}

#[derive(Clone, Debug)]
enum Phase {
    Idle,
    Claiming(Box<Claim>),
    Live(Box<Live>),
}

#[derive(Clone, Debug)]
struct Live {
    id: WorkerId,
    incarnation: Incarnation,
    revision: Revision,
    beat: u64,
    /// What the last landed renewal said.
    said: Option<WorkerRecord>,
    /// What is on its way.
    in_flight: Option<WorkerRecord>,
    /// When the last renewal was sent.
    last_sent: Option<Time>,
    /// When the last successful renewal was sent.
    lease_from: Option<Time>,
    next_beat: Time,
    pace: Pace,
    /// An operator had it revoked: what follows once it is given up.
    after_giving_up: Option<Outcome>,
}

/// The session machine.
#[derive(Clone, Debug)]
pub struct Session {
    heartbeat: Duration,
    ttl: Duration,
    phase: Phase,
    retry: RetryConfig,
    claims: claim::Settings,
    /// The number last held: a worker that lost its session would like its id back.
    last_number: Option<u64>,
    ever_claimed: bool,
}

impl Session {
    /// A session that is yet to be claimed.
    pub fn new(config: &Config, preferred: Option<u64>, belongs: Belonging) -> Self {
        Self {
            heartbeat: config.heartbeat(),
            ttl: config.session_ttl(),
            phase: Phase::Idle,
            retry: config.retry.clone(),
            claims: claim::Settings::new(config, belongs),
            last_number: preferred,
            ever_claimed: false,
        }
    }

    /// Starts looking for an id.
    pub fn claim(&mut self, out: &mut Outbox) {
        let claim = Claim::begin(
            self.claims.clone(),
            self.last_number,
            self.ever_claimed,
            out,
        );
        self.phase = Phase::Claiming(Box::new(claim));
    }

    /// Whose session it is.
    pub fn belongs(&self) -> Belonging {
        self.claims.belongs
    }

    /// The claimed id with its incarnation, while there is one.
    pub fn id(&self) -> Option<(&WorkerId, Incarnation)> {
        match &self.phase {
            Phase::Live(live) => Some((&live.id, live.incarnation)),
            _ => None,
        }
    }

    /// Until when messages may be dispatched, by this worker's own clock.
    pub fn lease_until(&self) -> Time {
        let ttl = if planted!(LeaseWithoutMargin) {
            self.ttl * 3
        } else {
            self.ttl - self.ttl / MARGIN_FRACTION
        };
        match &self.phase {
            Phase::Live(live) => live.lease_from.map_or(Time::ZERO, |from| from + ttl),
            _ => Time::ZERO,
        }
    }

    /// The wall clock jumped: the lease counts as lapsed until the next renewal.
    pub fn clock_jumped(&mut self, out: &mut Outbox) {
        if let Phase::Live(live) = &mut self.phase {
            live.lease_from = None;
            live.next_beat = out.now();
        }
    }

    /// When the last renewal was sent, whatever became of it.
    pub fn last_sent(&self) -> Option<Time> {
        match &self.phase {
            Phase::Live(live) => live.last_sent,
            _ => None,
        }
    }

    /// When the next renewal or claim attempt is due.
    pub fn next_deadline(&self) -> Time {
        match &self.phase {
            Phase::Claiming(claim) => claim.next_deadline(),
            Phase::Live(live) if live.in_flight.is_none() => {
                live.next_beat.max(live.pace.not_before())
            }
            _ => Time::NEVER,
        }
    }

    /// Whether news of the worker wait to be written.
    pub fn differs(&self, body: &WorkerRecord) -> bool {
        match &self.phase {
            Phase::Live(live) => live.said.as_ref().is_none_or(|said| !same_news(said, body)),
            _ => false,
        }
    }

    /// Renews when a heartbeat is due or there are news, and drives a claim on.
    pub fn step(&mut self, body: &WorkerRecord, out: &mut Outbox) -> Outcome {
        let now = out.now();
        let news = self.differs(body);
        match &mut self.phase {
            Phase::Claiming(claim) => match claim.tick(out) {
                Some(fatal) => Outcome::Failed(fatal),
                None => Outcome::Nothing,
            },
            Phase::Live(live) => {
                // News do not hammer on a store that is in trouble, either.
                let may = live.in_flight.is_none() && now >= live.pace.not_before();
                if may && (now >= live.next_beat || news) {
                    live.renew(body.clone(), self.heartbeat, out);
                }
                Outcome::Nothing
            }
            _ => Outcome::Nothing,
        }
    }

    /// Whether there is no session, and none is sought.
    pub fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Idle)
    }

    /// Whether a claim is on its way that may give this worker an id.
    pub fn may_be_claimed(&self) -> bool {
        matches!(&self.phase, Phase::Claiming(claim) if claim.may_land())
    }

    /// The answer to a claim or renewal.
    pub fn answered(&mut self, sent: Time, reply: StoreReply, out: &mut Outbox) -> Outcome {
        let lease = out.now() < self.lease_until();
        match &mut self.phase {
            Phase::Claiming(claim) => match claim.answered(sent, reply, out) {
                claim::Progress::Going => Outcome::Nothing,
                claim::Progress::Failed(fatal) => Outcome::Failed(fatal),
                claim::Progress::Claimed {
                    id,
                    number,
                    revision,
                    sent,
                } => {
                    self.last_number = Some(number);
                    self.ever_claimed = true;
                    self.phase = Phase::Live(Box::new(Live {
                        id,
                        incarnation: Incarnation(revision.0),
                        revision,
                        beat: 0,
                        said: None,
                        in_flight: None,
                        last_sent: None,
                        lease_from: sent,
                        next_beat: out.now(),
                        pace: Pace::new(&self.retry, self.heartbeat),
                        after_giving_up: None,
                    }));
                    Outcome::Claimed
                }
            },
            Phase::Live(live) => {
                let outcome = live.answered(sent, reply, self.heartbeat, lease, out);
                if matches!(outcome, Outcome::Lost | Outcome::Dismissed | Outcome::Gone) {
                    self.phase = Phase::Idle;
                }
                outcome
            }
            Phase::Idle => Outcome::Nothing,
        }
    }
}

impl Live {
    fn renew(&mut self, body: WorkerRecord, heartbeat: Duration, out: &mut Outbox) {
        let status = match self.after_giving_up {
            Some(_) => SessionStatus::Evicted,
            None => body.status,
        };
        let record = WorkerRecord {
            incarnation: Some(self.incarnation),
            beat: self.beat + 1,
            status,
            renewed_at: out.wall_ms(),
            nonce: out.nonce(),
            ..body
        };
        self.in_flight = Some(record.clone());
        self.last_sent = Some(out.now());
        let key = Key::Worker(self.id.clone());
        let expect = Expect::At(self.revision);
        out.write(
            Purpose::Session,
            key,
            expect,
            Record::Worker(Arc::new(record)),
            heartbeat,
        );
    }

    fn answered(
        &mut self,
        sent: Time,
        reply: StoreReply,
        heartbeat: Duration,
        lease: bool,
        out: &mut Outbox,
    ) -> Outcome {
        let Some(said) = self.in_flight.take() else {
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
            Some(WriteOutcome::Done(_)) if said.status == SessionStatus::Evicted => self.given_up(),
            Some(WriteOutcome::Done(revision)) => {
                self.revision = revision;
                self.beat = said.beat;
                let goodbye = said.status == SessionStatus::Goodbye;
                self.said = Some(said);
                self.lease_from = Some(if planted!(LeaseFromReply) {
                    out.now()
                } else {
                    sent
                });
                self.next_beat = sent + heartbeat;
                if goodbye {
                    Outcome::Gone
                } else {
                    Outcome::Renewed
                }
            }
            Some(WriteOutcome::Conflict(Some(found))) => {
                let Record::Worker(record) = &found.record else {
                    return self.given_up();
                };
                // The mark may have landed unseen, and another have the id since.
                if record.incarnation_at(found.revision) != self.incarnation {
                    return self.given_up();
                }
                match record.status {
                    // An earlier renewal of ours landed late. Go on from there.
                    SessionStatus::Live | SessionStatus::Leaving => {
                        self.revision = found.revision;
                        self.beat = self.beat.max(record.beat);
                        self.next_beat = out.now();
                        Outcome::Nothing
                    }
                    revoked @ (SessionStatus::Revoked | SessionStatus::Dismissed) => {
                        self.revision = found.revision;
                        self.lease_from = None;
                        self.next_beat = out.now();
                        let stays_away = revoked == SessionStatus::Dismissed;
                        self.after_giving_up = Some(if stays_away {
                            Outcome::Dismissed
                        } else {
                            Outcome::Lost
                        });
                        Outcome::Nothing
                    }
                    SessionStatus::Goodbye => Outcome::Gone,
                    SessionStatus::Evicted | SessionStatus::Free => {
                        if planted!(IgnoreEviction) {
                            self.revision = found.revision;
                            self.next_beat = out.now();
                            return Outcome::Nothing;
                        }
                        self.given_up()
                    }
                }
            }
            // Nobody deletes sessions, so a missing one is one that somebody removed by hand.
            Some(WriteOutcome::Conflict(None)) => self.given_up(),
            // If its fate is open, the next renewal expects the same revision, and so settles it: it
            // lands, or conflicts with the earlier one of our own.
            Some(WriteOutcome::Failed(_)) | None => {
                self.pace.failed(lease, out);
                self.next_beat = self.pace.not_before();
                Outcome::Missed
            }
        }
    }
}

impl Live {
    /// The session is over: what this worker is to do.
    fn given_up(&self) -> Outcome {
        self.after_giving_up.clone().unwrap_or(Outcome::Lost)
    }
}

/// Whether two bodies tell the same, apart from what can wait for the next heartbeat.
fn same_news(a: &WorkerRecord, b: &WorkerRecord) -> bool {
    a.status == b.status
        && a.term == b.term
        && a.released == b.released
        && a.applied == b.applied
        && a.ready == b.ready
        && a.blocked_by == b.blocked_by
        && a.degraded == b.degraded
        && a.partitions == b.partitions
        && a.heeds == b.heeds
}
