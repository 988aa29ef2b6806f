//! Claiming a stable id: list, take the best free number, create-if-absent, and on a lost race the
//! next one, without listing again.
//!
//! A consumer's session that goes on here is claimed as it is, alive: its badge is what allows that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::codec;
use crate::config::{Config, RetryConfig};
use crate::ids::{Badge, Nonce, Revision, Term, Version, WorkerId};
use crate::io::{Expect, StoreError, StoreOp, StoreReply, WriteOutcome};
use crate::key::{Key, Prefix};
use crate::record::{Ready, Record, SessionStatus, WorkerRecord};
use crate::session::Belonging;
use crate::session::pace::{backoff, jittered};
use crate::session::silence::Silence;
use crate::time::Time;
use crate::worker::outbox::{Outbox, Purpose};
use crate::worker::{Fatal, State};

/// What a claim needs to know.
#[derive(Clone, Debug)]
pub struct Settings {
    prefix: String,
    min: u64,
    max: u64,
    ttl: Duration,
    id_ttl: Duration,
    heartbeat: Duration,
    timeout: Duration,
    retry: RetryConfig,
    pub(super) belongs: Belonging,
}

impl Settings {
    /// From the configuration.
    pub fn new(config: &Config, belongs: Belonging) -> Self {
        Self {
            belongs,
            prefix: config.worker_id_prefix.clone(),
            min: config.worker_id_min,
            max: config.worker_id_max,
            ttl: config.session_ttl(),
            id_ttl: config.worker_id_ttl,
            heartbeat: config.heartbeat(),
            timeout: config.operation_timeout,
            retry: config.retry.clone(),
        }
    }

    fn id(&self, number: u64) -> WorkerId {
        codec::worker_id(&self.prefix, number)
    }
}

/// How a claim goes.
#[derive(Clone, Debug)]
pub enum Progress {
    /// On its way.
    Going,
    /// The id is ours.
    Claimed {
        /// The id.
        id: WorkerId,
        /// Its number.
        number: u64,
        /// The revision of the claim.
        revision: Revision,
        /// When the claim was sent; `None` where an earlier try of it landed, nobody knows when.
        sent: Option<Time>,
    },
    /// There is none to be had.
    Failed(Fatal),
}

#[derive(Clone, Debug)]
enum Step {
    Listing,
    Writing {
        number: u64,
        expect: Expect,
        nonce: Nonce,
    },
    /// After store trouble: resume with this write, or list.
    Waiting {
        until: Time,
        resume: Option<(u64, Expect, Nonce)>,
    },
}

/// What a number's record was last seen to be.
#[derive(Clone, Copy, Debug)]
struct Sight {
    revision: Revision,
    status: SessionStatus,
    badge: Option<Badge>,
}

impl Sight {
    fn of(revision: Revision, record: &WorkerRecord) -> Self {
        Self {
            revision,
            status: record.status,
            badge: record.badge,
        }
    }
}

type Found = BTreeMap<u64, Sight>;

/// A claim under way.
#[derive(Clone, Debug)]
pub struct Claim {
    settings: Settings,
    preferred: Option<u64>,
    /// A worker that had an id before never gives up.
    patient: bool,
    step: Step,
    found: Found,
    silence: Silence,
    /// Since when every id is taken, and what was there then.
    exhausted: Option<(Time, Found)>,
    failures: u32,
}

impl Claim {
    /// Begins by listing.
    pub fn begin(
        settings: Settings,
        preferred: Option<u64>,
        patient: bool,
        out: &mut Outbox,
    ) -> Self {
        let silence = Silence::new(out.now(), settings.heartbeat);
        let mut claim = Self {
            settings,
            preferred,
            patient,
            step: Step::Listing,
            found: BTreeMap::new(),
            silence,
            exhausted: None,
            failures: 0,
        };
        claim.list(out);
        claim
    }

    fn list(&mut self, out: &mut Outbox) {
        self.step = Step::Listing;
        let timeout = self.settings.timeout.min(self.settings.ttl);
        out.ask(Purpose::Session, StoreOp::List(Prefix::Workers), timeout);
    }

    /// Whether a write of this claim may still land, or has.
    pub fn may_land(&self) -> bool {
        match self.step {
            Step::Listing => false,
            Step::Writing { .. } => true,
            Step::Waiting { resume, .. } => resume.is_some(),
        }
    }

    /// When to look again.
    pub fn next_deadline(&self) -> Time {
        match self.step {
            Step::Waiting { until, .. } => until,
            _ => Time::NEVER,
        }
    }

    /// A deadline may have come.
    pub fn tick(&mut self, out: &mut Outbox) -> Option<Fatal> {
        let Step::Waiting { until, resume } = self.step else {
            return None;
        };
        if out.now() < until {
            return None;
        }
        match resume {
            Some((number, expect, nonce)) => self.write(number, expect, nonce, out),
            None => self.list(out),
        }
        None
    }

    /// The answer to a list or a claim.
    pub fn answered(&mut self, sent: Time, reply: StoreReply, out: &mut Outbox) -> Progress {
        match (self.step.clone(), reply) {
            (Step::Listing, StoreReply::List(Ok(records))) => {
                self.failures = 0;
                self.silence.succeeded(out.now());
                self.found.clear();
                for stored in records {
                    if let (Key::Worker(id), Record::Worker(record)) = (&stored.key, &stored.record)
                        && let Some(number) = self.number(id)
                    {
                        self.found
                            .insert(number, Sight::of(stored.revision, record));
                        self.silence.saw(out.now(), &stored.key, stored.revision);
                    }
                }
                self.choose(out)
            }
            (Step::Listing, StoreReply::List(Err(error))) => self.failed(error, None, out),
            (
                Step::Writing {
                    number,
                    expect,
                    nonce,
                },
                StoreReply::Write(outcomes),
            ) => {
                match outcomes.into_iter().next() {
                    Some(WriteOutcome::Done(revision)) => {
                        self.claimed(number, revision, Some(sent))
                    }
                    Some(WriteOutcome::Conflict(Some(found))) => {
                        let Record::Worker(record) = &found.record else {
                            let sight = Sight {
                                revision: found.revision,
                                status: SessionStatus::Live,
                                badge: None,
                            };
                            return self.lost_race(number, sight, out);
                        };
                        if record.nonce == nonce && record.status == SessionStatus::Live {
                            // An earlier try of this same claim landed after all.
                            return self.claimed(number, found.revision, None);
                        }
                        self.lost_race(number, Sight::of(found.revision, record), out)
                    }
                    Some(WriteOutcome::Conflict(None)) => {
                        self.found.remove(&number);
                        self.choose(out)
                    }
                    Some(WriteOutcome::Failed(error)) => {
                        self.failed(error, Some((number, expect, nonce)), out)
                    }
                    None => Progress::Going,
                }
            }
            _ => Progress::Going,
        }
    }

    fn number(&self, id: &WorkerId) -> Option<u64> {
        codec::worker_number(&self.settings.prefix, id)
            .filter(|number| (self.settings.min..=self.settings.max).contains(number))
    }

    fn claimed(&self, number: u64, revision: Revision, sent: Option<Time>) -> Progress {
        Progress::Claimed {
            id: self.settings.id(number),
            number,
            revision,
            sent,
        }
    }

    fn lost_race(&mut self, number: u64, sight: Sight, out: &mut Outbox) -> Progress {
        self.found.insert(number, sight);
        let key = Key::Worker(self.settings.id(number));
        self.silence.saw(out.now(), &key, sight.revision);
        self.choose(out)
    }

    /// Takes over the session of the consumer that shows this badge, while it lives.
    fn go_on(&mut self, badge: Badge, number: u64, out: &mut Outbox) -> Progress {
        match self.found.get(&number) {
            Some(sight)
                if sight.status == SessionStatus::Live
                    && (sight.badge == Some(badge) || planted!(AnyBadge)) =>
            {
                let expect = Expect::At(sight.revision);
                self.start_write(number, expect, out)
            }
            _ => Progress::Failed(Fatal::SessionOver),
        }
    }

    /// Picks the best number that may be had now: the preferred one, else the lowest free one,
    /// else one whose last holder was ended, else one that has been silent for long.
    fn choose(&mut self, out: &mut Outbox) -> Progress {
        if let Belonging::Continued(badge, number) = self.settings.belongs {
            return self.go_on(badge, number, out);
        }
        let now = out.now();
        let range = self.settings.min..=self.settings.max;
        if let Some(number) = self.preferred.filter(|n| range.contains(n))
            && let Some(expect) = self.obtainable(number, self.settings.ttl, now, true)
        {
            return self.start_write(number, expect, out);
        }
        let free = range
            .clone()
            .find_map(|number| match self.found.get(&number) {
                None => Some((number, Expect::Absent)),
                Some(sight) => {
                    let free = matches!(sight.status, SessionStatus::Goodbye | SessionStatus::Free);
                    free.then_some((number, Expect::At(sight.revision)))
                }
            });
        if let Some((number, expect)) = free {
            return self.start_write(number, expect, out);
        }
        let last_resort = range.clone().find_map(|number| {
            let expect = self.obtainable(number, self.settings.id_ttl, now, false)?;
            Some((number, expect))
        });
        if let Some((number, expect)) = last_resort {
            return self.start_write(number, expect, out);
        }
        // Every id is taken. Watch long enough to tell the living from the silent.
        let first = self
            .exhausted
            .get_or_insert_with(|| (now, self.found.clone()));
        let waited = now.since(first.0);
        // Whoever renewed meanwhile is alive. Once that is all of them, only the usual retries are
        // left: somebody may just be about to leave.
        let renewed = |(number, before): (&u64, &Sight)| {
            let now = self.found.get(number);
            now.is_some_and(|now| now.revision != before.revision)
        };
        let retries = (1..=self.settings.retry.max_retries)
            .map(|failures| backoff(&self.settings.retry, failures))
            .sum::<Duration>();
        let hopeless = waited > retries && first.1.iter().all(renewed);
        let patience = self.settings.id_ttl + self.settings.heartbeat * 2;
        if (hopeless || waited > patience) && !self.patient {
            return Progress::Failed(Fatal::StableIdExhausted(
                self.settings.max - self.settings.min + 1,
            ));
        }
        let until = now + self.settings.heartbeat / 2;
        self.step = Step::Waiting {
            until,
            resume: None,
        };
        Progress::Going
    }

    /// What a claim of this number may expect to replace: a session that is over, or one that has
    /// been silent for `ttl`. Either way the claim itself is the write that ends it.
    fn obtainable(&self, number: u64, ttl: Duration, now: Time, fresh: bool) -> Option<Expect> {
        let Some(sight) = self.found.get(&number) else {
            return fresh.then_some(Expect::Absent);
        };
        if sight.status.is_over() {
            return Some(Expect::At(sight.revision));
        }
        let key = Key::Worker(self.settings.id(number));
        self.silence.silent(now, &key, ttl).map(Expect::At)
    }

    fn start_write(&mut self, number: u64, expect: Expect, out: &mut Outbox) -> Progress {
        self.exhausted = None;
        let nonce = out.nonce();
        self.write(number, expect, nonce, out);
        Progress::Going
    }

    fn write(&mut self, number: u64, expect: Expect, nonce: Nonce, out: &mut Outbox) {
        self.step = Step::Writing {
            number,
            expect,
            nonce,
        };
        let record = WorkerRecord {
            incarnation: None,
            beat: 0,
            status: SessionStatus::Live,
            state: State::ClaimingId as u8,
            term: Term(0),
            released: Version(0),
            applied: Version(0),
            ready: Ready::default(),
            blocked_by: Vec::new(),
            load: 0,
            degraded: None,
            partitions: 0,
            heeds: Revision(0),
            // A claim of open fate is repeated to the letter; the first renewal follows at once.
            renewed_at: 0,
            badge: self.settings.belongs.badge(),
            nonce,
        };
        let key = Key::Worker(self.settings.id(number));
        let timeout = self.settings.timeout.min(self.settings.heartbeat);
        out.write(
            Purpose::Session,
            key,
            expect,
            Record::Worker(Arc::new(record)),
            timeout,
        );
    }

    /// Store trouble. A claim whose fate is open is tried again as it is, mark and all: whichever
    /// try lands is the same claim.
    fn failed(
        &mut self,
        error: StoreError,
        resume: Option<(u64, Expect, Nonce)>,
        out: &mut Outbox,
    ) -> Progress {
        if let StoreError::Rejected(why) = &error
            && !self.patient
        {
            return Progress::Failed(Fatal::Rejected(why.to_string()));
        }
        self.failures += 1;
        if self.failures > self.settings.retry.max_retries && !self.patient {
            return Progress::Failed(Fatal::GaveUp {
                step: "claiming a stable id",
                attempts: self.failures,
            });
        }
        let wait = backoff(&self.settings.retry, self.failures);
        let until = out.now() + jittered(wait, out.rng());
        self.step = Step::Waiting { until, resume };
        Progress::Going
    }
}
