//! The clerk: operators' requests, from the wish to its outcome.
//!
//! ```text
//!  requests/<id>: open ──▶ judged against the group (requests.rs) ──▶ refused, and why
//!       │ can be done                                                     ▲
//!       ▼                                                                 │ not any more
//!  overrides: compare-and-set ── landed ──▶ accepted ── its effect shows ─┴─▶ done
//!       │
//!       └──▶ the planner goes by them
//! ```
//!
//! A new leader reads the overrides and writes them anew under its own term before it plans
//! anything: what it read could be old, and what its predecessor still has in flight can land no
//! more. Whatever a leader leaves half done the next one does again: entering a request twice is
//! entering it once.
//!
//! Evictions stand in their requests alone: each names the life that is to end, so that it is the
//! same for whoever carries it out, and it is over when that life is.
//!
//! Without a leader there is no clerk: nothing would stop two who both believe to be it from carrying
//! out one request twice. There operators write the overrides, and revoke sessions, themselves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::requests::{self, Sight};
use super::sessions::{Eviction, Evictions};
use crate::ids::{Revision, Term};
use crate::io::{Expect, StoreOp, StoreReply, Stored, WatchEvent, Write, WriteOutcome};
use crate::key::Key;
use crate::record::{EventKind, Outcome, OverridesRecord, Record, Request, RequestRecord};
use crate::time::Time;
use crate::worker::outbox::{Outbox, Purpose};

/// How many requests are looked at in one go.
const BATCH: usize = 64;
/// How many requests are kept after their outcome.
pub const KEPT: usize = 100;
/// How long to wait after store trouble.
const PAUSE: Duration = Duration::from_millis(250);

/// A request as the store has it.
#[derive(Clone, Debug)]
struct Known {
    revision: Revision,
    record: Arc<RequestRecord>,
}

/// What stands in the record of the overrides.
#[derive(Clone, Debug)]
enum Overrides {
    /// Not known yet: to be read at this time.
    Unread(Time),
    /// Being read.
    Asked,
    /// Found, and not yet written anew under this term.
    Found(Option<Revision>, OverridesRecord),
    /// Written under this term.
    Landed(Revision, Arc<OverridesRecord>),
    /// Damaged, or of a newer program: left alone, and nothing can be overridden.
    Unreadable,
}

/// Carries out requests.
#[derive(Clone, Debug)]
pub struct Clerk {
    term: Term,
    timeout: Duration,
    overrides: Overrides,
    writing: Option<OverridesRecord>,
    requests: BTreeMap<Arc<str>, Known>,
    /// Whether a whole snapshot of the requests was seen.
    synced: bool,
    /// What is being written to requests: the record, or nothing for a deletion.
    answering: BTreeMap<Arc<str>, Option<Arc<RequestRecord>>>,
    not_before: Time,
}

/// What the leader has to do for the clerk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Everybody gets a share now.
    pub rebalance: bool,
}

impl Clerk {
    /// A clerk of the leader of this term.
    pub fn new(term: Term, timeout: Duration) -> Self {
        Self {
            term,
            timeout,
            overrides: Overrides::Unread(Time::ZERO),
            writing: None,
            requests: BTreeMap::new(),
            synced: false,
            answering: BTreeMap::new(),
            not_before: Time::ZERO,
        }
    }

    /// The overrides that plans go by; none while they are not known for certain.
    pub fn overrides(&self) -> Option<Arc<OverridesRecord>> {
        match &self.overrides {
            Overrides::Landed(_, record) => Some(record.clone()),
            Overrides::Unreadable => Some(Arc::default()),
            _ => None,
        }
    }

    /// The evictions that were accepted; none while requests are not known. Those that are done
    /// count, too: what an evicted life had does not go back to its successor.
    pub fn evictions(&self) -> Option<Evictions> {
        let mut evictions = Evictions::new();
        for known in self.requests.values() {
            let Request::Evict {
                worker,
                incarnation,
                stay_away,
            } = &known.record.request
            else {
                continue;
            };
            if matches!(known.record.outcome, Outcome::Accepted | Outcome::Done) {
                let eviction = Eviction {
                    life: *incarnation,
                    stay_away: *stay_away,
                };
                let newest = evictions.entry(worker.clone()).or_insert(eviction);
                *newest = eviction.max(*newest);
            }
        }
        self.synced.then_some(evictions)
    }

    /// When to act next.
    pub fn next_deadline(&self) -> Time {
        // What is under way, or waits for the group to change, is woken by that.
        match &self.overrides {
            Overrides::Unread(at) => *at,
            Overrides::Asked => Time::NEVER,
            _ if self.writing.is_some() => Time::NEVER,
            Overrides::Found(..) => self.not_before,
            Overrides::Landed(..) | Overrides::Unreadable => {
                if self.open().is_empty() {
                    Time::NEVER
                } else {
                    self.not_before
                }
            }
        }
    }

    /// News of requests.
    pub fn watched(&mut self, event: &WatchEvent) {
        match event {
            WatchEvent::Snapshot(records) => {
                self.synced = true;
                let there = |id: &Arc<str>| {
                    let key = Key::Request(id.clone());
                    records.iter().any(|stored| stored.key == key)
                };
                self.requests.retain(|id, _| there(id));
                records.iter().for_each(|stored| self.learn(stored));
            }
            WatchEvent::Changed(stored) => self.learn(stored),
            WatchEvent::Removed(Key::Request(id), at) => {
                if self
                    .requests
                    .get(id)
                    .is_some_and(|known| known.revision < *at)
                {
                    self.requests.remove(id);
                }
            }
            WatchEvent::Removed(..) => {}
        }
    }

    fn learn(&mut self, stored: &Stored) {
        // What cannot be read is left alone.
        let (Key::Request(id), Record::Request(record)) = (&stored.key, &stored.record) else {
            return;
        };
        let known = self.requests.get(id).map(|known| known.revision);
        if known.is_none_or(|known| stored.revision > known) {
            let (revision, record) = (stored.revision, record.clone());
            self.requests.insert(id.clone(), Known { revision, record });
        }
    }

    /// Does whatever is due. Nothing is judged before the group is known.
    pub fn step(&mut self, sight: Option<&dyn Sight>, out: &mut Outbox) -> Asked {
        let mut asked = Asked::default();
        let now = out.now();
        if let Overrides::Unread(at) = self.overrides
            && now >= at
        {
            self.overrides = Overrides::Asked;
            let read = StoreOp::Read(Key::Overrides);
            out.ask(Purpose::ReadOverrides, read, self.timeout);
        }
        if now < self.not_before || self.writing.is_some() {
            return asked;
        }
        match &self.overrides {
            Overrides::Found(_, found) => {
                let record = found.clone();
                self.write(record, out);
            }
            Overrides::Landed(_, record) => {
                if let Some(sight) = sight {
                    let record = record.clone();
                    asked = self.carry_out(&record, sight, out);
                }
            }
            Overrides::Unreadable => self.refuse_all(out),
            Overrides::Unread(_) | Overrides::Asked => {}
        }
        asked
    }

    /// Open requests in the order in which they were made. None while one of them is being answered:
    /// should that fail, it is judged again, and before any later one.
    fn open(&self) -> Vec<(Arc<str>, Known)> {
        let is_open = |id: &Arc<str>| {
            let known = self.requests.get(id);
            known.is_some_and(|known| known.record.outcome == Outcome::Open)
        };
        if self.answering.keys().any(is_open) {
            return Vec::new();
        }
        let mut open: Vec<(Arc<str>, Known)> = self
            .requests
            .iter()
            .filter(|(_, known)| known.record.outcome == Outcome::Open)
            .map(|(id, known)| (id.clone(), known.clone()))
            .collect();
        open.sort_by_key(|(_, known)| known.revision);
        open.truncate(BATCH);
        open
    }

    fn carry_out(
        &mut self,
        overrides: &OverridesRecord,
        sight: &dyn Sight,
        out: &mut Outbox,
    ) -> Asked {
        let mut asked = Asked::default();
        if self.requests.is_empty() && overrides.drained.is_empty() && overrides.pinned.is_empty() {
            return asked;
        }
        let open = self.open();
        let mut next = overrides.clone();
        next.forget_lives(|worker, life| sight.is_over(worker, life));
        let judged: Vec<Outcome> = open
            .iter()
            .map(|(id, known)| {
                let entered = match self.stays_paused(id, known) {
                    Some(why) => Err(why),
                    None => requests::enter(&known.record.request, &mut next, sight),
                };
                match entered {
                    Ok(()) => Outcome::Accepted,
                    Err(why) => Outcome::Refused { why },
                }
            })
            .collect();
        if next != *overrides {
            self.write(next, out);
            return asked;
        }
        let mut answers = Vec::new();
        for ((id, known), judged) in open.into_iter().zip(judged) {
            let request = &known.record.request;
            asked.rebalance |= *request == Request::Rebalance;
            let outcome = match judged {
                Outcome::Accepted => {
                    requests::outcome(request, overrides, sight).unwrap_or(Outcome::Accepted)
                }
                refused => refused,
            };
            answers.push((id, known, Some(outcome)));
        }
        for (id, known) in &self.requests {
            if known.record.outcome == Outcome::Accepted
                && !self.answering.contains_key(id)
                && let Some(outcome) = requests::outcome(&known.record.request, overrides, sight)
            {
                answers.push((id.clone(), known.clone(), Some(outcome)));
            }
        }
        answers.extend(self.surplus());
        self.answer(answers, out);
        asked
    }

    /// Why a forced change may not resume what it asks to, if an operator has paused it meanwhile.
    fn stays_paused(&self, id: &str, known: &Known) -> Option<String> {
        let Request::Resume { partition } = &known.record.request else {
            return None;
        };
        if !id.starts_with(requests::FORCED) {
            return None;
        }
        let all = self.requests.iter();
        let all = all.map(|(id, known)| (&**id, known.revision, &*known.record));
        let by = requests::wants_paused(all, partition, known.revision)?;
        Some(format!(
            "partition {partition} stays paused: {by} has paused it meanwhile"
        ))
    }

    /// Without overrides, nothing can be asked for.
    fn refuse_all(&mut self, out: &mut Outbox) {
        let why = "the record overrides cannot be read: update this program, or delete the record \
                   if it is damaged";
        let refused = Outcome::Refused { why: why.into() };
        let open = self.open().into_iter();
        let answers = open.map(|(id, known)| (id, known, Some(refused.clone())));
        let answers = answers.collect();
        self.answer(answers, out);
    }

    /// Requests whose outcome has been there for long enough: all but the newest.
    fn surplus(&self) -> Vec<(Arc<str>, Known, Option<Outcome>)> {
        let is_over = |known: &Known| known.record.outcome.is_final();
        let mut over: Vec<_> = self
            .requests
            .iter()
            .filter(|(id, known)| is_over(known) && !self.answering.contains_key(*id))
            .map(|(id, known)| (id.clone(), known.clone(), None))
            .collect();
        if over.len() <= KEPT {
            return Vec::new();
        }
        over.sort_by_key(|(_, known, _)| known.revision);
        over.truncate(over.len() - KEPT);
        over
    }

    /// Writes outcomes, or removes requests.
    fn answer(&mut self, answers: Vec<(Arc<str>, Known, Option<Outcome>)>, out: &mut Outbox) {
        let (mut ids, mut writes) = (Vec::new(), Vec::new());
        for (id, known, outcome) in answers.into_iter().take(BATCH) {
            let answered = outcome.map(|outcome| {
                if !matches!(outcome, Outcome::Accepted) {
                    out.tell(EventKind::Request, known.record.told(&outcome));
                }
                Arc::new(RequestRecord {
                    outcome,
                    nonce: out.nonce(),
                    ..(*known.record).clone()
                })
            });
            writes.push(Write {
                key: Key::Request(id.clone()),
                expect: Expect::At(known.revision),
                value: answered.clone().map(Record::Request),
            });
            self.answering.insert(id.clone(), answered);
            ids.push(id);
        }
        if !writes.is_empty() {
            out.ask(
                Purpose::AnswerRequests(ids),
                StoreOp::Write(writes),
                self.timeout,
            );
        }
    }

    fn write(&mut self, next: OverridesRecord, out: &mut Outbox) {
        let expect = match &self.overrides {
            Overrides::Found(Some(revision), _) | Overrides::Landed(revision, _) => {
                Expect::At(*revision)
            }
            _ => Expect::Absent,
        };
        let record = OverridesRecord {
            term: self.term,
            nonce: out.nonce(),
            ..next
        };
        self.writing = Some(record.clone());
        let value = Record::Overrides(Arc::new(record));
        let (purpose, key) = (Purpose::WriteOverrides, Key::Overrides);
        out.write(purpose, key, expect, value, self.timeout);
    }

    /// What was read. A higher term that was met means that this leader is outdated.
    pub fn read_answered(&mut self, reply: StoreReply, out: &mut Outbox) -> Option<Term> {
        if !matches!(self.overrides, Overrides::Asked) {
            return None;
        }
        match reply {
            StoreReply::Read(Ok(found)) => self.found(found, out),
            _ => {
                self.overrides = Overrides::Unread(out.now() + PAUSE);
                None
            }
        }
    }

    /// What stands there, if anything does.
    fn found(&mut self, found: Option<Stored>, out: &mut Outbox) -> Option<Term> {
        let Some(stored) = found else {
            self.overrides = Overrides::Found(None, OverridesRecord::default());
            return None;
        };
        match &stored.record {
            Record::Overrides(record) => {
                self.overrides = Overrides::Found(Some(stored.revision), (**record).clone());
                (record.term > self.term).then_some(record.term)
            }
            other => {
                out.unreadable(&Key::Overrides, other);
                self.overrides = Overrides::Unreadable;
                None
            }
        }
    }

    /// What became of the overrides.
    pub fn written(&mut self, reply: StoreReply, out: &mut Outbox) -> Option<Term> {
        let written = self.writing.take()?;
        let StoreReply::Write(outcomes) = reply else {
            return None;
        };
        match outcomes.into_iter().next() {
            Some(WriteOutcome::Done(revision)) => {
                self.overrides = Overrides::Landed(revision, Arc::new(written));
                None
            }
            Some(WriteOutcome::Conflict(found)) => {
                // A write of ours whose fate was open, or one of a predecessor: either way the
                // next one is made from what is there.
                self.found(found, out)
            }
            // Its fate is open: until a further write has landed, it is not known what stands.
            Some(WriteOutcome::Failed(_)) | None => {
                if let Overrides::Landed(revision, record) = &self.overrides {
                    self.overrides = Overrides::Found(Some(*revision), (**record).clone());
                }
                self.not_before = out.now() + PAUSE;
                None
            }
        }
    }

    /// What became of outcomes.
    pub fn answered(&mut self, ids: Vec<Arc<str>>, reply: StoreReply, out: &mut Outbox) {
        let StoreReply::Write(outcomes) = reply else {
            return;
        };
        for (id, outcome) in ids.into_iter().zip(outcomes) {
            let Some(sent) = self.answering.remove(&id) else {
                continue;
            };
            match (outcome, sent) {
                (WriteOutcome::Done(revision), Some(record)) => {
                    self.requests.insert(id, Known { revision, record });
                }
                (WriteOutcome::Done(_), None) | (WriteOutcome::Conflict(None), _) => {
                    self.requests.remove(&id);
                }
                (WriteOutcome::Conflict(Some(found)), _) => self.learn(&found),
                (WriteOutcome::Failed(_), _) => self.not_before = out.now() + PAUSE,
            }
        }
    }
}
