//! Publishing: assignments and the plan are written by compare-and-set until they land.
//!
//! Only the newest wish per key counts. A conflict with a lower term is adopted and overwritten (a
//! late write of a predecessor), a conflict with a higher term ends this leader. A record that
//! cannot be read is reported and left alone: it may be of a newer format.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{Revision, Term, Version, WorkerId};
use crate::io::{Expect, StoreOp, StoreReply, Stored, Write, WriteOutcome};
use crate::key::Key;
use crate::record::{AssignmentRecord, PlanRecord, Record};
use crate::time::Time;
use crate::worker::Trouble;
use crate::worker::outbox::{Outbox, Purpose};

/// How many writes one request carries at the most.
const BATCH: usize = 256;
/// How long to wait after store trouble.
const PAUSE: Duration = Duration::from_millis(250);
/// How long to wait before looking again whether somebody removed a record that cannot be read.
const UNREADABLE: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
enum Wish {
    Put(Record),
    Delete,
}

impl Wish {
    fn version(&self) -> Version {
        match self {
            Wish::Put(record) => stamp_of(record).1,
            Wish::Delete => Version(0),
        }
    }

    /// The same, under a version that is no lower than this one. The term tells it apart from a
    /// predecessor's of that version, and the planner's next one is above both.
    fn at_least(self, version: Version) -> Self {
        match self {
            Wish::Put(Record::Assignment(record)) if record.version < version => {
                Wish::Put(Record::Assignment(Arc::new(AssignmentRecord {
                    version,
                    ..(*record).clone()
                })))
            }
            Wish::Put(Record::Plan(record)) if record.version < version => {
                Wish::Put(Record::Plan(Arc::new(PlanRecord {
                    version,
                    ..(*record).clone()
                })))
            }
            other => other,
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Cell {
    revision: Option<Revision>,
    /// What should be there, unless it is there or on its way.
    wish: Option<Wish>,
    in_flight: Option<Wish>,
    /// What stands there cannot be read: not tried again before.
    unreadable_until: Option<Time>,
}

impl Cell {
    /// When its wish may be sent; none when there is nothing to send.
    fn due(&self) -> Option<Time> {
        let waits = self.wish.is_some() && self.in_flight.is_none();
        waits.then(|| self.unreadable_until.unwrap_or(Time::ZERO))
    }
}

/// What publications met in their way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Met {
    /// A higher term than this leader's: it is outdated.
    pub higher_term: Option<Term>,
    /// A predecessor's version, not below the one that was to replace it (0: none was met).
    pub version: Version,
}

/// Writes what the planner decided.
#[derive(Clone, Debug)]
pub struct Publisher {
    term: Term,
    cells: BTreeMap<Key, Cell>,
    not_before: Time,
}

impl Publisher {
    /// Nothing to publish yet.
    pub fn new(term: Term) -> Self {
        Self {
            term,
            cells: BTreeMap::new(),
            not_before: Time::ZERO,
        }
    }

    /// An assignment record was found.
    pub fn found(&mut self, stored: &Stored) {
        self.cells.entry(stored.key.clone()).or_default().revision = Some(stored.revision);
    }

    /// The plan record was found.
    pub fn found_plan(&mut self, revision: Revision) {
        self.cells.entry(Key::Plan).or_default().revision = Some(revision);
    }

    /// A worker's assignment should be this.
    pub fn publish(&mut self, worker: WorkerId, record: AssignmentRecord) {
        self.wish(
            Key::Assignment(worker),
            Wish::Put(Record::Assignment(Arc::new(record))),
        );
    }

    /// The plan should be this.
    pub fn plan(&mut self, record: PlanRecord) {
        self.wish(Key::Plan, Wish::Put(Record::Plan(Arc::new(record))));
    }

    /// A worker's assignment should be gone.
    pub fn forget(&mut self, worker: WorkerId) {
        self.wish(Key::Assignment(worker), Wish::Delete);
    }

    fn wish(&mut self, key: Key, wish: Wish) {
        self.cells.entry(key).or_default().wish = Some(wish);
    }

    /// When to try again.
    pub fn next_deadline(&self) -> Time {
        let due = self.cells.values().filter_map(Cell::due).min();
        due.map_or(Time::NEVER, |due| due.max(self.not_before))
    }

    /// Sends whatever waits, in batches.
    pub fn step(&mut self, timeout: Duration, out: &mut Outbox) {
        if out.now() < self.not_before {
            return;
        }
        let now = out.now();
        // The plan speaks of the assignments, so it comes after them.
        let unpublished = self.cells.iter().any(|(key, cell)| {
            let due = cell.due().is_some_and(|due| now >= due);
            *key != Key::Plan && (due || cell.in_flight.is_some())
        });
        let mut keys = Vec::new();
        let mut writes = Vec::new();
        for (key, cell) in &mut self.cells {
            let due = cell.due().is_some_and(|due| now >= due);
            if !due || (*key == Key::Plan && unpublished) {
                continue;
            }
            let Some(wish) = cell.wish.take() else {
                continue;
            };
            let value = match &wish {
                Wish::Put(record) => Some(marked(record, out)),
                // Nothing there, nothing to delete.
                Wish::Delete if cell.revision.is_none() => continue,
                Wish::Delete => None,
            };
            cell.in_flight = Some(wish);
            let expect = cell.revision.map_or(Expect::Absent, Expect::At);
            writes.push(Write {
                key: key.clone(),
                expect,
                value,
            });
            keys.push(key.clone());
            if writes.len() == BATCH {
                let op = StoreOp::Write(std::mem::take(&mut writes));
                out.ask(Purpose::Publish(std::mem::take(&mut keys)), op, timeout);
            }
        }
        if !writes.is_empty() {
            out.ask(Purpose::Publish(keys), StoreOp::Write(writes), timeout);
        }
    }

    /// What became of the writes.
    pub fn answered(&mut self, keys: Vec<Key>, reply: StoreReply, out: &mut Outbox) -> Met {
        let mut met = Met::default();
        let StoreReply::Write(outcomes) = reply else {
            return met;
        };
        for (key, outcome) in keys.into_iter().zip(outcomes) {
            let Some(cell) = self.cells.get_mut(&key) else {
                continue;
            };
            let Some(mut sent) = cell.in_flight.take() else {
                continue;
            };
            match outcome {
                WriteOutcome::Done(revision) => {
                    cell.unreadable_until = None;
                    cell.revision = match sent {
                        Wish::Delete => None,
                        Wish::Put(_) => Some(revision),
                    };
                    continue;
                }
                WriteOutcome::Conflict(Some(Stored {
                    record: Record::Unreadable(why),
                    ..
                })) => {
                    if cell.unreadable_until.is_none() {
                        let key = format!("{key:?}");
                        let why = why.to_string();
                        out.trouble(Trouble::Unreadable { key, why });
                    }
                    // Expecting nothing there, it can never be overwritten.
                    cell.revision = None;
                    cell.unreadable_until = Some(out.now() + UNREADABLE);
                }
                WriteOutcome::Conflict(Some(found)) => {
                    let (term, version) = stamp_of(&found.record);
                    if term > self.term && !planted!(OldLeaderPublishes) {
                        met.higher_term = met.higher_term.max(Some(term));
                    }
                    if term < self.term && version >= sent.version() {
                        met.version = met.version.max(version);
                        sent = sent.at_least(version);
                    }
                    cell.revision = Some(found.revision);
                }
                WriteOutcome::Conflict(None) => cell.revision = None,
                WriteOutcome::Failed(_) => self.not_before = out.now() + PAUSE,
            }
            // It did not land, or nobody knows: it is wished again, unless a newer wish came.
            cell.wish.get_or_insert(sent);
        }
        met
    }
}

/// Term and version of a published record.
fn stamp_of(record: &Record) -> (Term, Version) {
    match record {
        Record::Assignment(record) => (record.term, record.version),
        Record::Plan(record) => (record.term, record.version),
        _ => (Term(0), Version(0)),
    }
}

/// The record with a fresh mark of this writer.
fn marked(record: &Record, out: &mut Outbox) -> Record {
    match record {
        Record::Assignment(record) => Record::Assignment(Arc::new(AssignmentRecord {
            nonce: out.nonce(),
            ..(**record).clone()
        })),
        Record::Plan(record) => Record::Plan(Arc::new(PlanRecord {
            nonce: out.nonce(),
            ..(**record).clone()
        })),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Incarnation, Nonce};
    use crate::io::{RequestId, StoreError};
    use crate::record::Lifecycle;
    use crate::rng::Rng;
    use crate::worker::Action;

    fn assignment(term: u64, version: u64) -> AssignmentRecord {
        AssignmentRecord {
            version: Version(version),
            term: Term(term),
            incarnation: Incarnation(1),
            lifecycle: Lifecycle::Stable,
            serve: Vec::new(),
            prepare: Vec::new(),
            release: Vec::new(),
            added: Vec::new(),
            nonce: Nonce(0),
        }
    }

    fn worker() -> WorkerId {
        WorkerId::new("worker-1")
    }

    fn found(term: u64, version: u64, revision: u64) -> Stored {
        let record = Record::Assignment(Arc::new(assignment(term, version)));
        Stored {
            key: Key::Assignment(worker()),
            revision: Revision(revision),
            record,
        }
    }

    struct Bench {
        publisher: Publisher,
        out: Outbox,
    }

    impl Bench {
        fn new() -> Self {
            Self {
                publisher: Publisher::new(Term(5)),
                out: Outbox::new(Rng::new(1)),
            }
        }

        /// Sends; the expectation and version of the one write, if there is one.
        fn sent(&mut self) -> Option<(RequestId, Expect, Option<Version>)> {
            self.publisher.step(Duration::from_secs(1), &mut self.out);
            let mut actions = Vec::new();
            self.out.take_actions(&mut actions);
            let Some(Action::Store(request)) = actions.pop() else {
                return None;
            };
            let StoreOp::Write(mut writes) = request.op else {
                panic!("a write")
            };
            let write = writes.pop().expect("one write");
            let version = match write.value {
                Some(Record::Assignment(record)) => Some(record.version),
                _ => None,
            };
            Some((request.id, write.expect, version))
        }

        fn answer(&mut self, id: RequestId, outcome: WriteOutcome) -> Met {
            let answered = self.out.answered(id, StoreReply::Write(vec![outcome]));
            let answered = answered.expect("somebody waits");
            let Purpose::Publish(keys) = answered.purpose else {
                panic!("a publication")
            };
            self.publisher.answered(keys, answered.reply, &mut self.out)
        }
    }

    #[test]
    fn a_late_write_of_a_predecessor_is_overwritten() {
        let mut bench = Bench::new();
        bench.publisher.publish(worker(), assignment(5, 7));
        let (id, expect, _) = bench.sent().expect("a write");
        assert_eq!(expect, Expect::Absent);
        let met = bench.answer(id, WriteOutcome::Conflict(Some(found(4, 9, 20))));
        assert_eq!((met.higher_term, met.version), (None, Version(9)));
        let (id, expect, version) = bench.sent().expect("again");
        assert_eq!(
            (expect, version),
            (Expect::At(Revision(20)), Some(Version(9))),
            "versions never fall"
        );
        bench.answer(id, WriteOutcome::Done(Revision(21)));
        assert!(bench.sent().is_none());
    }

    #[test]
    fn a_higher_term_ends_this_leader() {
        let mut bench = Bench::new();
        bench.publisher.publish(worker(), assignment(5, 7));
        let (id, ..) = bench.sent().expect("a write");
        let met = bench.answer(id, WriteOutcome::Conflict(Some(found(6, 1, 20))));
        assert_eq!(met.higher_term, Some(Term(6)));
    }

    #[test]
    fn only_the_newest_wish_is_written_and_an_open_fate_is_settled_by_it() {
        let mut bench = Bench::new();
        bench.publisher.publish(worker(), assignment(5, 7));
        let (id, ..) = bench.sent().expect("a write");
        bench.publisher.publish(worker(), assignment(5, 8));
        assert!(bench.sent().is_none(), "one write per key at a time");
        bench.answer(id, WriteOutcome::Failed(StoreError::Unknown));
        assert!(bench.sent().is_none(), "after trouble it waits a moment");
        bench.out.set_now(Time::ZERO + PAUSE);
        let (id, expect, version) = bench.sent().expect("the newest");
        assert_eq!((expect, version), (Expect::Absent, Some(Version(8))));
        // The earlier one had landed.
        bench.answer(id, WriteOutcome::Conflict(Some(found(5, 7, 20))));
        let (_, expect, version) = bench.sent().expect("once more");
        assert_eq!(
            (expect, version),
            (Expect::At(Revision(20)), Some(Version(8)))
        );
    }

    #[test]
    fn a_record_that_cannot_be_read_is_reported_once_and_never_overwritten() {
        let mut bench = Bench::new();
        bench.publisher.publish(worker(), assignment(5, 7));
        for round in 0..3 {
            let (id, expect, _) = bench.sent().expect("a write");
            assert_eq!(expect, Expect::Absent, "it can only be created");
            let newer = Stored {
                record: Record::Unreadable("v 9 is newer than v 1".into()),
                ..found(4, 3, 20)
            };
            bench.answer(id, WriteOutcome::Conflict(Some(newer)));
            let mut actions = Vec::new();
            bench.out.take_actions(&mut actions);
            assert_eq!(actions.len(), usize::from(round == 0), "{actions:?}");
            assert!(bench.sent().is_none(), "not at once");
            let next = bench.publisher.next_deadline();
            assert_eq!(next, bench.out.now() + UNREADABLE);
            bench.out.set_now(next);
        }
        // Somebody removed it.
        let (id, ..) = bench.sent().expect("a write");
        bench.answer(id, WriteOutcome::Done(Revision(31)));
        assert_eq!(bench.publisher.next_deadline(), Time::NEVER);
    }

    #[test]
    fn forgetting_deletes_at_the_known_revision_or_not_at_all() {
        let mut bench = Bench::new();
        bench.publisher.forget(worker());
        assert!(bench.sent().is_none());
        bench.publisher.found(&found(4, 3, 12));
        bench.publisher.forget(worker());
        let (id, expect, version) = bench.sent().expect("a delete");
        assert_eq!((expect, version), (Expect::At(Revision(12)), None));
        bench.answer(id, WriteOutcome::Done(Revision(13)));
        bench.publisher.publish(worker(), assignment(5, 9));
        assert_eq!(bench.sent().expect("a write").1, Expect::Absent);
    }
}
