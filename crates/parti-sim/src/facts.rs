//! What really happened: the world's own knowledge, built from observations alone.
//!
//! ```text
//!  world ──▶ Seen ──▶ Facts::take_in ──▶ every invariant looks at (facts, seen)
//! ```
//!
//! Nothing here asks a worker what it believes. Invariants compare what workers do with this.

mod wishes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parti_core::ids::{Badge, Epoch, Incarnation, Offset, PartitionId, Revision, Term, WorkerId};
use parti_core::io::{HandlerResult, Job, SourceKind, Stored};
use parti_core::key::Key;
use parti_core::record::{PartitionRecord, Record, SessionStatus, WorkerRecord};
use parti_core::time::Time;
use parti_core::worker::{Action, Report};

use crate::setup::{Micros, Setup};

pub use crate::seen::{Proc, Seen};

/// What really happened so far.
#[derive(Debug)]
pub struct Facts {
    /// What the seed stands for.
    pub setup: Arc<Setup>,
    /// The time of the present observation.
    pub now: Micros,
    /// What the store holds.
    pub records: BTreeMap<Key, Stored>,
    /// All processes, dead ones included.
    pub procs: Vec<ProcFacts>,
    /// All partitions, in the order of the setup.
    pub partitions: Vec<PartitionFacts>,
    /// When the group of processes last changed, or one of them stood still.
    pub membership_changed: Micros,
    /// When a partition last got another owner.
    pub ownership_changed: Micros,
    /// Whether the partition list has changed.
    pub list_changed: bool,
    /// How many lines the history has.
    pub events: u64,
    /// How many requests operators made.
    pub asked: u64,
    /// Whether they ever wanted a partition in a certain place.
    pub placed: bool,
    /// Workers that they ever wanted to be drained.
    pub drained: BTreeSet<WorkerId>,
    /// Lives that they wanted to end, and whether for good.
    pub evictions: BTreeSet<(WorkerId, Incarnation, bool)>,
    /// When the store was lost.
    pub store_lost: Option<Micros>,
    /// When all faults were over.
    pub healed: Option<Micros>,
    /// Trouble on the way to the store: of one machine or of all, and until when.
    troubles: Vec<(Option<usize>, Micros)>,
}

/// What is known of a process.
#[derive(Debug)]
pub struct ProcFacts {
    /// Where it runs.
    pub machine: usize,
    /// How it fares.
    pub life: Life,
    /// When it was asked to stop.
    pub stop_asked: Option<Micros>,
    /// All sessions it ever claimed, the newest last.
    pub sessions: Vec<SessionFacts>,
    /// Whenever it lost what it knew, or its right to it.
    pub ends: Vec<Micros>,
    /// Handler calls that run now.
    pub calls: Vec<Call>,
    /// When its way to the store was in trouble, or it stood still.
    pub hindered: Vec<(Micros, Micros)>,
    /// When a message between it and the store or the source took long.
    pub slowed: Vec<(Micros, Micros)>,
    /// When its last handler call ended.
    pub last_call: Micros,
    /// The term it leads in, as it says itself.
    pub leading: Option<Term>,
    /// The newest revision that a write of its own got, as far as it was told.
    pub acknowledged: Revision,
    /// The store lost a write that this process knew to be done.
    pub must_notice: bool,
}

/// How a process fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It runs.
    Running,
    /// It stands still.
    Paused(Micros),
    /// It was killed.
    Crashed(Micros),
    /// It ended by itself.
    Ended(Micros),
}

/// A session as the store knows it.
#[derive(Clone, Debug)]
pub struct SessionFacts {
    /// The stable id.
    pub id: WorkerId,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// When its last accepted renewal was sent, by its own clock.
    pub renewal_sent: Time,
    /// When its last accepted renewal was accepted.
    pub renewed: Micros,
    /// What the consumer that it is hosted for shows.
    pub badge: Option<Badge>,
    /// When it was over, and how.
    pub over: Option<(Micros, SessionStatus)>,
}

/// A handler call that runs.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Index of the partition.
    pub partition: usize,
    /// Under which epoch.
    pub epoch: Epoch,
    /// Which message.
    pub offset: Offset,
    /// Hash of its key.
    pub key: u64,
    /// Since when.
    pub started: Micros,
}

/// What is known of a partition.
#[derive(Debug, Default)]
pub struct PartitionFacts {
    /// All messages, in order.
    pub messages: Vec<MessageFacts>,
    /// Where the group started, once that is known.
    pub start: Option<Offset>,
    /// It was not in the list for a while.
    pub unlisted: bool,
    /// All messages from the start up to this index are done.
    pub done: usize,
}

/// What is known of a message.
#[derive(Debug)]
pub struct MessageFacts {
    /// Where it is.
    pub offset: Offset,
    /// Hash of its key.
    pub key: u64,
    /// When it was published.
    pub published: Micros,
    /// Whether it kills whoever handles it.
    pub killer: bool,
    /// How often it killed.
    pub kills: u32,
    /// Handler calls that completed it.
    pub completions: Vec<Completion>,
    /// Whether it is in the dead letters.
    pub dead_letter: bool,
    /// Whether retention removed it.
    pub removed: bool,
    /// When, and before whom it was still to come, if it was on its way to somebody.
    pub passed: Option<(Micros, Proc)>,
    /// When all messages up to this one were done.
    pub covered: Option<Micros>,
}

/// A handler call that completed a message.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// Who.
    pub proc: Proc,
    /// When the call began.
    pub started: Micros,
    /// When it ended.
    pub at: Micros,
    /// Whether the worker heard of it.
    pub reported: bool,
}

/// The process that holds, or last held, this worker's session.
fn whose(procs: &[ProcFacts], worker: &WorkerId) -> Option<Proc> {
    let is_theirs = |proc: &ProcFacts| proc.sessions.last().is_some_and(|s| s.id == *worker);
    procs.iter().rposition(is_theirs)
}

impl MessageFacts {
    /// Whether nobody needs to handle it any more.
    pub fn is_done(&self) -> bool {
        self.dead_letter || self.removed || !self.completions.is_empty()
    }

    /// Whether retention removed it before anybody had handled it to completion.
    pub fn is_overtaken(&self) -> bool {
        self.removed && !self.dead_letter && self.completions.is_empty()
    }
}

impl PartitionFacts {
    /// The index of the first message at or after this offset.
    pub fn index_from(&self, offset: Offset) -> usize {
        self.messages
            .partition_point(|message| message.offset < offset)
    }

    /// One past the newest message.
    pub fn end(&self) -> Offset {
        self.messages
            .last()
            .map_or(Offset(0), |last| last.offset.next())
    }

    /// The message at this offset.
    pub fn message(&self, offset: Offset) -> Option<&MessageFacts> {
        self.messages
            .get(self.index_from(offset))
            .filter(|message| message.offset == offset)
    }

    fn message_mut(&mut self, offset: Offset) -> Option<&mut MessageFacts> {
        let index = self.index_from(offset);
        self.messages
            .get_mut(index)
            .filter(|message| message.offset == offset)
    }

    /// The first message that is not done, from the start on.
    pub fn first_open(&self) -> Option<&MessageFacts> {
        self.messages.get(self.done)
    }

    fn advance(&mut self, now: Micros) {
        if self.start.is_none() {
            return;
        }
        while let Some(message) = self.messages.get_mut(self.done) {
            if !message.is_done() {
                return;
            }
            message.covered.get_or_insert(now);
            self.done += 1;
        }
    }
}

impl ProcFacts {
    /// Its present session, or its last one.
    pub fn session(&self) -> Option<&SessionFacts> {
        self.sessions.last()
    }

    /// Whether it exists.
    pub fn is_alive(&self) -> bool {
        matches!(self.life, Life::Running | Life::Paused(_))
    }

    /// Whether it was hindered at any time within this span.
    pub fn was_hindered(&self, from: Micros, to: Micros) -> bool {
        let still = matches!(self.life, Life::Paused(since) if since <= to);
        let within = |(begin, end): &(Micros, Micros)| *begin <= to && *end >= from;
        still || self.hindered.iter().any(within)
    }

    /// Whether any message to or from it took long within this span.
    pub fn was_slowed(&self, from: Micros, to: Micros) -> bool {
        let within = |(begin, end): &(Micros, Micros)| *begin <= to && *end >= from;
        self.slowed.iter().any(within)
    }
}

impl Facts {
    /// Nothing happened yet.
    pub fn new(setup: Arc<Setup>) -> Self {
        let partitions = setup
            .partitions
            .iter()
            .map(|_| PartitionFacts::default())
            .collect();
        Self {
            setup,
            now: 0,
            records: BTreeMap::new(),
            procs: Vec::new(),
            partitions,
            membership_changed: 0,
            ownership_changed: 0,
            list_changed: false,
            events: 0,
            asked: 0,
            placed: false,
            drained: BTreeSet::new(),
            evictions: BTreeSet::new(),
            store_lost: None,
            healed: None,
            troubles: Vec::new(),
        }
    }

    /// The record of a partition.
    pub fn partition_record(&self, id: &PartitionId) -> Option<&PartitionRecord> {
        match &self.records.get(&Key::Partition(id.clone()))?.record {
            Record::Partition(record) => Some(record),
            _ => None,
        }
    }

    /// The session record of an id, and which life of the id it tells of.
    pub fn session_record(&self, id: &WorkerId) -> Option<(&WorkerRecord, Incarnation)> {
        let stored = self.records.get(&Key::Worker(id.clone()))?;
        match &stored.record {
            Record::Worker(record) => Some((record, record.incarnation_at(stored.revision))),
            _ => None,
        }
    }

    /// The process that claimed this life of an id.
    pub fn holder(&self, id: &WorkerId, incarnation: Incarnation) -> Option<Proc> {
        let holds =
            |session: &SessionFacts| session.incarnation == incarnation && session.id == *id;
        self.procs
            .iter()
            .rposition(|proc| proc.sessions.iter().any(holds))
    }

    /// Processes that are there, with a session that is not over.
    pub fn members(&self) -> impl Iterator<Item = (Proc, &SessionFacts)> {
        self.procs
            .iter()
            .enumerate()
            .filter(|(_, proc)| proc.is_alive())
            .filter_map(|(index, proc)| {
                proc.session()
                    .filter(|session| session.over.is_none())
                    .map(|session| (index, session))
            })
    }

    /// One past the newest offset that the log has given to this partition, or could have: in a
    /// stream all partitions share one sequence.
    pub fn end_of(&self, partition: usize) -> Offset {
        match self.setup.source {
            SourceKind::Log | SourceKind::External => self.partitions[partition].end(),
            SourceKind::Stream(_) => self
                .partitions
                .iter()
                .map(PartitionFacts::end)
                .max()
                .unwrap_or_default(),
        }
    }

    /// Takes in one observation.
    pub fn take_in(&mut self, seen: &Seen<'_>) {
        match *seen {
            Seen::Published {
                partition,
                offset,
                key,
                killer,
            } => {
                self.partitions[partition].messages.push(MessageFacts {
                    offset,
                    key,
                    published: self.now,
                    killer,
                    kills: 0,
                    completions: Vec::new(),
                    dead_letter: false,
                    removed: false,
                    passed: None,
                    covered: None,
                });
            }
            Seen::Trimmed {
                partition,
                first,
                passed,
            } => {
                let now = self.now;
                let known = &mut self.partitions[partition];
                let upto = known.index_from(first);
                for message in &mut known.messages[..upto] {
                    if std::mem::replace(&mut message.removed, true) {
                        continue;
                    }
                    let to = passed.iter().find(|(offset, _)| *offset == message.offset);
                    let proc = to.and_then(|(_, worker)| whose(&self.procs, worker));
                    message.passed = proc.map(|proc| (now, proc));
                }
                known.advance(now);
            }
            Seen::Unlisted { partition } => self.partitions[partition].unlisted = true,
            Seen::ListChanged => {
                self.membership_changed = self.now;
                self.list_changed = true;
            }
            Seen::Started { machine } => {
                self.membership_changed = self.now;
                self.procs.push(ProcFacts {
                    machine,
                    life: Life::Running,
                    stop_asked: None,
                    sessions: Vec::new(),
                    ends: Vec::new(),
                    calls: Vec::new(),
                    // It comes into trouble that began before it.
                    hindered: self
                        .troubles
                        .iter()
                        .filter(|(of, _)| of.is_none_or(|hurt| hurt == machine))
                        .map(|(_, until)| (self.now, *until))
                        .filter(|(now, until)| now < until)
                        .collect(),
                    slowed: Vec::new(),
                    last_call: 0,
                    leading: None,
                    acknowledged: Revision(0),
                    must_notice: false,
                });
            }
            Seen::Wrote {
                proc,
                sent_local,
                revision,
                key,
                old,
                new,
                ..
            } => {
                self.take_in_write(proc, sent_local, revision, key, old, new);
            }
            Seen::Acted { proc, action, .. } => self.take_in_action(proc, action),
            Seen::CallBegan { proc, job, .. } => {
                let Some(partition) = self.setup.index_of(&job.partition) else {
                    return;
                };
                let started = self.now;
                self.procs[proc].calls.push(Call {
                    partition,
                    epoch: job.epoch,
                    offset: job.message.offset,
                    key: job.message.key,
                    started,
                });
            }
            Seen::CallEnded {
                proc,
                job,
                result,
                reported,
            } => {
                let started = self.forget_call(proc, job);
                if *result == HandlerResult::Done {
                    let now = self.now;
                    let Some(index) = self.setup.index_of(&job.partition) else {
                        return;
                    };
                    let partition = &mut self.partitions[index];
                    if let Some(message) = partition.message_mut(job.message.offset) {
                        message.completions.push(Completion {
                            proc,
                            started,
                            at: now,
                            reported,
                        });
                        partition.advance(now);
                    }
                }
            }
            Seen::CallLost { proc, job } => {
                self.forget_call(proc, job);
                let Some(index) = self.setup.index_of(&job.partition) else {
                    return;
                };
                if let Some(message) = self.partitions[index].message_mut(job.message.offset) {
                    message.kills += u32::from(message.killer);
                }
            }
            Seen::DeadLettered { partition, offset } => {
                let now = self.now;
                if let Some(message) = self.partitions[partition].message_mut(offset) {
                    message.dead_letter = true;
                    self.partitions[partition].advance(now);
                }
            }
            Seen::Deserted { proc } => self.procs[proc].ends.push(self.now),
            Seen::Crashed { proc } => {
                self.end(proc, Life::Crashed(self.now));
                self.procs[proc].ends.push(self.now);
            }
            Seen::Ended { proc, .. } => self.end(proc, Life::Ended(self.now)),
            Seen::Paused { proc } => {
                self.membership_changed = self.now;
                self.procs[proc].life = Life::Paused(self.now);
            }
            Seen::Resumed { proc } => {
                self.membership_changed = self.now;
                if let Life::Paused(since) = self.procs[proc].life {
                    self.procs[proc].hindered.push((since, self.now));
                    self.procs[proc].life = Life::Running;
                }
            }
            Seen::StopAsked { proc } => {
                self.membership_changed = self.now;
                self.procs[proc].stop_asked.get_or_insert(self.now);
            }
            Seen::StoreTrouble { machine, until, .. } => {
                let now = self.now;
                self.troubles.push((machine, until));
                for proc in self.procs.iter_mut().filter(|proc| proc.is_alive()) {
                    if machine.is_none_or(|machine| machine == proc.machine) {
                        proc.hindered.push((now, until));
                    }
                }
            }
            Seen::Revoked { .. }
            | Seen::Decided { .. }
            | Seen::Asked { .. }
            | Seen::Forced { .. } => self.take_in_wish(seen),
            Seen::Slow { proc, until } => self.procs[proc].slowed.push((self.now, until)),
            Seen::Answered { .. } | Seen::Delivered { .. } | Seen::TermShown { .. } => {}
            Seen::Acknowledged { proc, revision } => {
                let newest = &mut self.procs[proc].acknowledged;
                *newest = revision.max(*newest);
            }
            Seen::StoreLost { kept } => {
                self.store_lost = Some(self.now);
                for proc in self.procs.iter_mut().filter(|proc| proc.is_alive()) {
                    proc.must_notice = kept.is_none_or(|kept| proc.acknowledged > kept);
                }
            }
            Seen::Healed => self.healed = Some(self.now),
        }
    }

    fn end(&mut self, proc: Proc, life: Life) {
        self.membership_changed = self.now;
        if let Life::Paused(since) = self.procs[proc].life {
            // It stood still to its end.
            self.procs[proc].hindered.push((since, self.now));
        }
        self.procs[proc].life = life;
        self.procs[proc].leading = None;
    }

    /// Forgets a running call, and says since when it ran.
    fn forget_call(&mut self, proc: Proc, job: &Job) -> Micros {
        let Some(partition) = self.setup.index_of(&job.partition) else {
            return self.now;
        };
        self.procs[proc].last_call = self.now;
        let calls = &mut self.procs[proc].calls;
        let found = calls.iter().position(|call| {
            call.partition == partition
                && call.offset == job.message.offset
                && call.epoch == job.epoch
        });
        found.map_or(self.now, |found| calls.swap_remove(found).started)
    }

    fn take_in_write(
        &mut self,
        proc: Proc,
        sent_local: Time,
        revision: Revision,
        key: &Key,
        old: Option<&Stored>,
        new: Option<&Record>,
    ) {
        match (key, new) {
            (Key::Worker(id), Some(Record::Worker(record))) => {
                self.take_in_session(proc, sent_local, revision, id, record);
            }
            (Key::Partition(id), Some(Record::Partition(record))) => {
                if let Some(index) = self.setup.index_of(id) {
                    let now = self.now;
                    let partition = &mut self.partitions[index];
                    if partition.start.is_none() {
                        partition.start = Some(record.start);
                        partition.done = partition.index_from(record.start);
                        partition.advance(now);
                    }
                }
                let before = old.and_then(|stored| match &stored.record {
                    Record::Partition(record) => record.owner.as_ref(),
                    _ => None,
                });
                if before != record.owner.as_ref() {
                    self.ownership_changed = self.now;
                }
            }
            _ => {}
        }
        if let Key::Event(_) = key {
            // Nobody looks at the history but people; it is only counted.
            self.events = self.events + u64::from(old.is_none()) - u64::from(new.is_none());
            return;
        }
        match new {
            Some(record) => {
                let stored = Stored {
                    key: key.clone(),
                    revision,
                    record: record.clone(),
                };
                self.records.insert(key.clone(), stored);
            }
            None => {
                self.records.remove(key);
            }
        }
    }

    fn take_in_session(
        &mut self,
        proc: Proc,
        sent_local: Time,
        revision: Revision,
        id: &WorkerId,
        record: &WorkerRecord,
    ) {
        let now = self.now;
        let incarnation = record.incarnation_at(revision);
        if record.incarnation.is_none() && !record.status.is_over() {
            self.membership_changed = now;
            // Whoever had the id before, and was silent for a lease, has lost it; so has the host of
            // a consumer that goes on elsewhere.
            let lease = self.setup.shortest(self.setup.ttl());
            for known in &mut self.procs {
                for earlier in &mut known.sessions {
                    let silent = now - earlier.renewed >= lease;
                    let moved = record.badge.is_some() && record.badge == earlier.badge;
                    if earlier.id == *id && earlier.over.is_none() && (silent || moved) {
                        earlier.over = Some((now, SessionStatus::Evicted));
                        known.ends.push(now);
                    }
                }
            }
            self.procs[proc].sessions.push(SessionFacts {
                id: id.clone(),
                incarnation,
                renewal_sent: sent_local,
                renewed: now,
                badge: record.badge,
                over: None,
            });
            return;
        }
        let Some(holder) = self.holder(id, incarnation) else {
            return;
        };
        let Some(session) = self.procs[holder]
            .sessions
            .iter_mut()
            .rfind(|session| session.incarnation == incarnation && session.id == *id)
        else {
            return;
        };
        if record.status.is_over() {
            if session.over.is_none() {
                session.over = Some((now, record.status));
                self.membership_changed = now;
                if record.status != SessionStatus::Goodbye {
                    self.procs[holder].ends.push(now);
                }
            }
        } else if holder == proc {
            session.renewal_sent = session.renewal_sent.max(sent_local);
            session.renewed = now;
        }
    }

    fn take_in_action(&mut self, proc: Proc, action: &Action) {
        match action {
            Action::Report(Report::SessionLost) => {
                self.procs[proc].ends.push(self.now);
                self.procs[proc].leading = None;
            }
            Action::Report(Report::Leading(term)) => self.procs[proc].leading = *term,
            _ => {}
        }
    }
}
