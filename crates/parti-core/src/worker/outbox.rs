//! The outbox: where the parts of a worker put their requests, and how they find their replies.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{Nonce, PartitionId, Revision, WorkerId};
use crate::io::{Expect, RequestId, StoreOp, StoreReply, StoreRequest, Write, WriteOutcome};
use crate::key::Key;
use crate::record::{EventKind, Moves, Record};
use crate::rng::Rng;
use crate::time::Time;
use crate::worker::{Action, Report, Trouble};

/// Which part of the worker asked, so that the reply finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Is the store still the one we know?
    Identity,
    /// Claiming and renewing the session.
    Session,
    /// Standing for election, renewing, resigning.
    Election,
    /// The leader's look at what its predecessor left: assignments.
    RecoverAssignments,
    /// The leader's look at what its predecessor left: the plan.
    RecoverPlan,
    /// The leader's look at what its predecessor left: the overrides.
    ReadOverrides,
    /// The leader's overrides; without one, the proof of what they are.
    WriteOverrides,
    /// What became of operators' requests, one per write.
    AnswerRequests(Vec<Arc<str>>),
    /// A look at the history.
    ReadEvents,
    /// The history goes on, one key per write.
    WriteEvents(Vec<Key>),
    /// The leader's publications, one per write.
    Publish(Vec<Key>),
    /// Ending silent sessions, one per write.
    EndSessions(Vec<WorkerId>),
    /// Reading a partition's record.
    ReadPartition(PartitionId),
    /// Reading the session of an owner that stands in the way.
    ReadOwner(WorkerId),
    /// Takes, commits and releases, one per write.
    Partitions(Vec<PartitionId>),
    /// Leaderless: looking for free partitions.
    LookAround,
}

/// How much is remembered for the history until somebody writes it down.
const TOLD: usize = 256;

/// Something for the group's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// When, in milliseconds of wall-clock time.
    pub at: u64,
    /// What kind of thing.
    pub kind: EventKind,
    /// What.
    pub text: String,
    /// How it went, if partitions moved.
    pub moves: Option<Moves>,
}

#[derive(Clone, Debug)]
struct Pending {
    purpose: Purpose,
    sent: Time,
    /// The highest revisions known when it was sent: a later write must get a higher one.
    known: Highest,
    /// What each write expected to find.
    expected: Vec<(Key, Expect)>,
}

/// A reply with what it answers.
#[derive(Debug)]
pub struct Answered {
    /// Which part asked.
    pub purpose: Purpose,
    /// When it was sent.
    pub sent: Time,
    /// The answer.
    pub reply: StoreReply,
}

/// The highest revisions seen. A store may keep checkpoints apart from all other records, and then
/// counts them by themselves.
#[derive(Clone, Copy, Debug, Default)]
struct Highest {
    checkpoints: Revision,
    others: Revision,
}

impl Highest {
    fn of(self, key: &Key) -> Revision {
        match key {
            Key::Partition(_) => self.checkpoints,
            _ => self.others,
        }
    }

    fn saw(&mut self, key: &Key, revision: Revision) {
        let highest = match key {
            Key::Partition(_) => &mut self.checkpoints,
            _ => &mut self.others,
        };
        *highest = (*highest).max(revision);
    }
}

/// Collects actions, numbers requests, remembers what was asked.
#[derive(Clone, Debug)]
pub struct Outbox {
    now: Time,
    wall_offset: u64,
    rng: Rng,
    next_id: u64,
    pending: BTreeMap<RequestId, Pending>,
    highest: Highest,
    went_back: bool,
    actions: Vec<Action>,
    told: Vec<Told>,
    /// Taken from dead owners, and not yet asked about.
    seized: BTreeMap<WorkerId, Vec<PartitionId>>,
}

impl Outbox {
    /// An empty outbox.
    pub fn new(rng: Rng) -> Self {
        Self {
            now: Time::ZERO,
            wall_offset: 0,
            rng,
            next_id: 0,
            pending: BTreeMap::new(),
            highest: Highest::default(),
            went_back: false,
            actions: Vec::new(),
            told: Vec::new(),
            seized: BTreeMap::new(),
        }
    }

    /// The time of the event being handled.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Sets the time of the event being handled.
    pub fn set_now(&mut self, now: Time) {
        self.now = self.now.max(now);
    }

    /// Milliseconds of wall-clock time, for records that people read.
    pub fn wall_ms(&self) -> u64 {
        self.wall_offset + self.now.0 / 1000
    }

    /// Tells what the wall clock showed at this process's time zero.
    pub fn set_wall_offset(&mut self, ms: u64) {
        self.wall_offset = ms;
    }

    /// A fresh mark for a write.
    pub fn nonce(&mut self) -> Nonce {
        Nonce(self.rng.next_u64())
    }

    /// Randomness for jitter.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// Adds an action.
    pub fn push(&mut self, action: Action) {
        self.actions.push(action);
    }

    /// Adds a report.
    pub fn report(&mut self, report: Report) {
        if let Report::Fenced { partition, epoch } = &report {
            let text = format!("partition {partition} was lost under epoch {epoch}");
            self.remember(EventKind::Fencing, text, None);
        }
        self.actions.push(Action::Report(report));
    }

    /// Adds a line to the group's history, and reports it.
    pub fn tell(&mut self, kind: EventKind, text: String) {
        self.remember(kind, text.clone(), None);
        self.report(Report::History(text));
    }

    /// Tells of moves that have ended.
    pub fn tell_moves(&mut self, text: String, moves: Moves) {
        self.remember(EventKind::Handoff, text.clone(), Some(moves));
        self.report(Report::History(text));
    }

    fn remember(&mut self, kind: EventKind, text: String, moves: Option<Moves>) {
        // Without a session nobody writes it down.
        if self.told.len() < TOLD {
            self.told.push(Told {
                at: self.wall_ms(),
                kind,
                text,
                moves,
            });
        }
    }

    /// What was told since the last time.
    pub fn take_told(&mut self) -> Vec<Told> {
        std::mem::take(&mut self.told)
    }

    /// Notes that a partition was taken from a dead owner.
    pub fn seized(&mut self, owner: &WorkerId, partition: &PartitionId) {
        let from = self.seized.entry(owner.clone()).or_default();
        from.push(partition.clone());
    }

    /// What was taken from dead owners since the last time.
    pub fn take_seized(&mut self) -> BTreeMap<WorkerId, Vec<PartitionId>> {
        std::mem::take(&mut self.seized)
    }

    /// Says that a record is not what its key promises: it is left alone.
    pub fn unreadable(&mut self, key: &Key, found: &Record) {
        let why = match found {
            Record::Unreadable(why) => why.to_string(),
            _ => "it is a record of another kind".into(),
        };
        let key = key.to_string();
        self.trouble(Trouble::Unreadable { key, why });
    }

    /// Adds a report of trouble. What a person has to look after goes into the history, too; what
    /// passes by itself, and may come again and again, does not.
    pub fn trouble(&mut self, trouble: Trouble) {
        let passes = matches!(
            trouble,
            Trouble::Source(_) | Trouble::Store(_) | Trouble::Listing(_)
        );
        if !passes {
            self.remember(EventKind::Trouble, trouble.to_string(), None);
        }
        self.report(Report::Trouble(trouble));
    }

    /// Sends a request to the store.
    pub fn ask(&mut self, purpose: Purpose, op: StoreOp, timeout: Duration) {
        let id = RequestId(self.next_id);
        self.next_id += 1;
        let expected = match &op {
            StoreOp::Write(writes) => writes
                .iter()
                .map(|write| (write.key.clone(), write.expect))
                .collect(),
            _ => Vec::new(),
        };
        let pending = Pending {
            purpose,
            sent: self.now,
            known: self.highest,
            expected,
        };
        self.pending.insert(id, pending);
        self.actions
            .push(Action::Store(StoreRequest { id, op, timeout }));
    }

    /// Sends one conditional write.
    pub fn write(
        &mut self,
        purpose: Purpose,
        key: Key,
        expect: Expect,
        value: Record,
        timeout: Duration,
    ) {
        let write = Write {
            key,
            expect,
            value: Some(value),
        };
        self.ask(purpose, StoreOp::Write(vec![write]), timeout);
    }

    /// Takes in a reply; `None` if nobody waits for it any more.
    pub fn answered(&mut self, id: RequestId, reply: StoreReply) -> Option<Answered> {
        let pending = self.pending.remove(&id)?;
        if let StoreReply::Write(outcomes) = &reply {
            for (outcome, (key, expect)) in outcomes.iter().zip(&pending.expected) {
                let lost = match outcome {
                    // Revisions grow strictly: one that we had already seen is given twice.
                    WriteOutcome::Done(revision) => {
                        self.seen(key, *revision);
                        *revision <= pending.known.of(key)
                    }
                    WriteOutcome::Conflict(found) => {
                        went_back(key, *expect, found.as_ref().map(|found| found.revision))
                    }
                    WriteOutcome::Failed(_) => false,
                };
                if !planted!(SkipIdentityCheck) {
                    self.went_back |= lost && !planted!(IgnoreStoreWentBack);
                }
            }
        }
        Some(Answered {
            purpose: pending.purpose,
            sent: pending.sent,
            reply,
        })
    }

    /// A revision was seen.
    pub fn seen(&mut self, key: &Key, revision: Revision) {
        self.highest.saw(key, revision);
    }

    /// Whether the store was caught going back in time.
    pub fn store_went_back(&self) -> bool {
        self.went_back
    }

    /// Replies to what was asked so far concern nobody any more.
    pub fn forget_pending(&mut self) {
        self.pending.clear();
    }

    /// All actions so far, in order.
    pub fn take_actions(&mut self, into: &mut Vec<Action>) {
        into.append(&mut self.actions);
    }
}

/// Whether a refused write proves that the store lost what it had: the record is older than the one
/// that was expected, or it is gone although records of its kind are never deleted.
fn went_back(key: &Key, expect: Expect, found: Option<Revision>) -> bool {
    match (expect, found) {
        (Expect::At(expected), Some(found)) => found < expected,
        (Expect::At(_), None) => is_never_deleted(key),
        (Expect::Absent, _) => false,
    }
}

/// Whether nobody deletes such a record, but for the end of the whole group.
fn is_never_deleted(key: &Key) -> bool {
    match key {
        Key::Group | Key::Leader | Key::Plan | Key::Overrides => true,
        Key::Worker(_) | Key::Partition(_) | Key::Topic(_) => true,
        Key::Assignment(_) | Key::Request(_) => false,
        // Whoever tells something has the oldest go: two may do so at once.
        Key::Event(_) => planted!(TrimmedHistoryProvesLoss),
    }
}
