//! Publishing: assignments and the plan are written by compare-and-set until they land.
//!
//! Only the newest wish per key counts. A conflict with a lower term is adopted and overwritten (a
//! late write of a predecessor), a conflict with a higher term ends this leader.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{Revision, Term, WorkerId};
use crate::io::{Expect, StoreOp, StoreReply, Stored, Write, WriteOutcome};
use crate::key::Key;
use crate::record::{AssignmentRecord, PlanRecord, Record};
use crate::time::Time;
use crate::worker::outbox::{Outbox, Purpose};

/// How many writes one request carries at the most.
const BATCH: usize = 256;
/// How long to wait after store trouble.
const PAUSE: Duration = Duration::from_millis(250);

#[derive(Clone, Debug)]
enum Wish {
    Put(Record),
    Delete,
}

#[derive(Clone, Debug, Default)]
struct Cell {
    revision: Option<Revision>,
    /// What should be there, unless it is there or on its way.
    wish: Option<Wish>,
    in_flight: Option<Wish>,
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
        Self { term, cells: BTreeMap::new(), not_before: Time::ZERO }
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
        self.wish(Key::Assignment(worker), Wish::Put(Record::Assignment(Arc::new(record))));
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
        let waiting = self.cells.values().any(|cell| cell.wish.is_some() && cell.in_flight.is_none());
        if waiting { self.not_before } else { Time::NEVER }
    }

    /// Sends whatever waits, in batches.
    pub fn step(&mut self, timeout: Duration, out: &mut Outbox) {
        if out.now() < self.not_before {
            return;
        }
        let mut keys = Vec::new();
        let mut writes = Vec::new();
        for (key, cell) in &mut self.cells {
            if cell.in_flight.is_some() {
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
            writes.push(Write { key: key.clone(), expect, value });
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

    /// What became of the writes. True when a higher term was met.
    pub fn answered(&mut self, keys: Vec<Key>, reply: StoreReply, out: &mut Outbox) -> bool {
        let StoreReply::Write(outcomes) = reply else {
            return false;
        };
        let mut outdated = false;
        for (key, outcome) in keys.into_iter().zip(outcomes) {
            let Some(cell) = self.cells.get_mut(&key) else {
                continue;
            };
            let Some(sent) = cell.in_flight.take() else {
                continue;
            };
            match outcome {
                WriteOutcome::Done(revision) => {
                    cell.revision = match sent {
                        Wish::Delete => None,
                        Wish::Put(_) => Some(revision),
                    };
                    continue;
                }
                WriteOutcome::Conflict(Some(found)) => {
                    outdated |= term_of(&found.record) > Some(self.term);
                    cell.revision = Some(found.revision);
                }
                WriteOutcome::Conflict(None) => cell.revision = None,
                WriteOutcome::Failed(_) => self.not_before = out.now() + PAUSE,
            }
            // It did not land, or nobody knows: it is wished again, unless a newer wish came.
            cell.wish.get_or_insert(sent);
        }
        outdated
    }
}

fn term_of(record: &Record) -> Option<Term> {
    match record {
        Record::Assignment(record) => Some(record.term),
        Record::Plan(record) => Some(record.term),
        _ => None,
    }
}

/// The record with a fresh mark of this writer.
fn marked(record: &Record, out: &mut Outbox) -> Record {
    match record {
        Record::Assignment(record) => {
            Record::Assignment(Arc::new(AssignmentRecord { nonce: out.nonce(), ..(**record).clone() }))
        }
        Record::Plan(record) => {
            Record::Plan(Arc::new(PlanRecord { nonce: out.nonce(), ..(**record).clone() }))
        }
        other => other.clone(),
    }
}
