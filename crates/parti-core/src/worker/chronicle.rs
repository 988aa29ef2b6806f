//! The chronicle: what happened, appended to the group's history by whoever knows of it.
//!
//! ```text
//!  what the outbox was told ──▶ queue (bounded) ──▶ events/<n>, n + 1, …: create-if-absent, in batches
//!                                                     │ taken by another: the numbers after it
//!                                                     └ beyond the newest thousand: deleted
//! ```
//!
//! Nothing waits for it. Events are lost when a process dies before they were written, when more
//! come than can be written, or when the fate of a write is open: a history is for people.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{Revision, WorkerId};
use crate::io::{Expect, StoreOp, StoreReply, Write, WriteOutcome};
use crate::key::{Key, Prefix};
use crate::record::{EventRecord, Record};
use crate::time::Time;
use crate::worker::outbox::{Outbox, Purpose, Told};

/// How many events stay in the store.
pub const KEPT: usize = 1000;
/// How many wait to be written; older ones are lost.
const WAITING: usize = 256;
/// How many are written, and how many deleted, in one request.
const BATCH: usize = 32;
/// How long to wait after store trouble.
const PAUSE: Duration = Duration::from_secs(1);
/// After so many of its own, a writer looks what others wrote meanwhile.
const LOOK_AGAIN: usize = 200;

/// What goes for so many more to come: the oldest beyond the newest thousand, some at a time, each as
/// it was seen. For whoever appends; who is overtaken in it conflicts, and the event is gone anyway.
pub fn surplus(there: &BTreeMap<u64, Revision>, coming: usize) -> impl Iterator<Item = Write> {
    let surplus = (there.len() + coming).saturating_sub(KEPT).min(BATCH);
    there.iter().take(surplus).map(|(n, revision)| Write {
        key: Key::Event(*n),
        expect: Expect::At(*revision),
        value: None,
    })
}

#[derive(Clone, Copy, Debug)]
enum Next {
    /// To be found out.
    Unknown,
    /// Being found out.
    Asked,
    /// The number of the next event, unless somebody else was faster.
    Number(u64),
}

/// Appends events.
#[derive(Debug)]
pub struct Chronicle {
    timeout: Duration,
    waiting: VecDeque<Told>,
    next: Next,
    /// Events that are there, as far as is known, with the revisions that deleting them takes.
    there: BTreeMap<u64, Revision>,
    in_flight: Option<Vec<Told>>,
    written: usize,
    not_before: Time,
}

impl Chronicle {
    /// Nothing happened yet.
    pub fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            waiting: VecDeque::new(),
            next: Next::Unknown,
            there: BTreeMap::new(),
            in_flight: None,
            written: 0,
            not_before: Time::ZERO,
        }
    }

    /// Whether something can be sent.
    fn is_idle(&self) -> bool {
        self.waiting.is_empty() || self.in_flight.is_some() || matches!(self.next, Next::Asked)
    }

    /// When to act next.
    pub fn next_deadline(&self) -> Time {
        if self.is_idle() {
            Time::NEVER
        } else {
            self.not_before
        }
    }

    /// Takes in what was told, and writes what can be written.
    pub fn step(&mut self, me: &WorkerId, out: &mut Outbox) {
        self.waiting.extend(out.take_told());
        while self.waiting.len() > WAITING {
            self.waiting.pop_front();
        }
        if self.is_idle() || out.now() < self.not_before {
            return;
        }
        match self.next {
            Next::Unknown => {
                self.next = Next::Asked;
                let list = StoreOp::List(Prefix::Events);
                out.ask(Purpose::ReadEvents, list, self.timeout);
            }
            Next::Asked => {}
            Next::Number(number) => self.append(me, number, out),
        }
    }

    fn append(&mut self, me: &WorkerId, number: u64, out: &mut Outbox) {
        let count = self.waiting.len().min(BATCH);
        let told: Vec<Told> = self.waiting.drain(..count).collect();
        let mut writes = Vec::with_capacity(count);
        for (n, told) in (number..).zip(&told) {
            let event = EventRecord {
                at: told.at,
                worker: me.clone(),
                kind: told.kind,
                text: told.text.clone(),
                moves: told.moves.clone(),
                nonce: out.nonce(),
            };
            writes.push(Write {
                key: Key::Event(n),
                expect: Expect::Absent,
                value: Some(Record::Event(Arc::new(event))),
            });
        }
        writes.extend(surplus(&self.there, count));
        let keys = writes.iter().map(|write| write.key.clone()).collect();
        self.in_flight = Some(told);
        out.ask(
            Purpose::WriteEvents(keys),
            StoreOp::Write(writes),
            self.timeout,
        );
    }

    /// The history as it is.
    pub fn listed(&mut self, reply: StoreReply, out: &mut Outbox) {
        match reply {
            StoreReply::List(Ok(found)) => {
                self.there = found
                    .iter()
                    .filter_map(|stored| match stored.key {
                        Key::Event(n) => Some((n, stored.revision)),
                        _ => None,
                    })
                    .collect();
                let last = self.there.keys().next_back();
                self.next = Next::Number(last.map_or(1, |last| last.saturating_add(1)));
            }
            _ => {
                self.next = Next::Unknown;
                self.not_before = out.now() + PAUSE;
            }
        }
    }

    /// What became of events.
    pub fn written(&mut self, keys: Vec<Key>, reply: StoreReply, out: &mut Outbox) {
        let (Some(told), StoreReply::Write(outcomes)) = (self.in_flight.take(), reply) else {
            return;
        };
        let mut told = told.into_iter();
        let mut again = Vec::new();
        let Next::Number(mut next) = self.next else {
            return;
        };
        for (key, outcome) in keys.into_iter().zip(outcomes) {
            let Key::Event(n) = key else { continue };
            // First come the new ones, then those to be deleted.
            let Some(event) = told.next() else {
                if !matches!(outcome, WriteOutcome::Failed(_)) {
                    self.there.remove(&n);
                }
                continue;
            };
            next = next.max(n.saturating_add(1));
            match outcome {
                WriteOutcome::Done(revision) => {
                    self.there.insert(n, revision);
                    self.written += 1;
                }
                WriteOutcome::Conflict(found) => {
                    if let Some(found) = found {
                        self.there.insert(n, found.revision);
                    }
                    again.push(event);
                }
                WriteOutcome::Failed(_) => self.not_before = out.now() + PAUSE,
            }
        }
        for event in again.into_iter().rev() {
            self.waiting.push_front(event);
        }
        self.next = Next::Number(next);
        if self.written >= LOOK_AGAIN {
            (self.written, self.next) = (0, Next::Unknown);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Nonce;
    use crate::io::{RequestId, StoreError, Stored};
    use crate::record::EventKind;
    use crate::rng::Rng;
    use crate::worker::Action;

    struct Bench {
        chronicle: Chronicle,
        out: Outbox,
        records: BTreeMap<u64, Revision>,
        revision: u64,
    }

    impl Bench {
        fn new(there: u64) -> Self {
            Self {
                chronicle: Chronicle::new(Duration::from_secs(1)),
                out: Outbox::new(Rng::new(1)),
                records: (1..=there).map(|n| (n, Revision(n))).collect(),
                revision: there,
            }
        }

        fn tell(&mut self, text: &str) {
            self.out.tell(EventKind::Plan, text.into());
        }

        fn sent(&mut self) -> Option<(RequestId, StoreOp)> {
            self.chronicle.step(&WorkerId::new("w"), &mut self.out);
            let mut actions = Vec::new();
            self.out.take_actions(&mut actions);
            actions.into_iter().find_map(|action| match action {
                Action::Store(request) => Some((request.id, request.op)),
                _ => None,
            })
        }

        fn stored(&self, n: u64, revision: Revision) -> Stored {
            let event = EventRecord {
                at: 0,
                worker: WorkerId::new("other"),
                kind: EventKind::Plan,
                text: String::new(),
                moves: None,
                nonce: Nonce(0),
            };
            Stored {
                key: Key::Event(n),
                revision,
                record: Record::Event(Arc::new(event)),
            }
        }

        /// Sends and answers until nothing is left.
        fn run(&mut self) {
            while let Some((id, op)) = self.sent() {
                match op {
                    StoreOp::List(_) => {
                        let found = self.records.iter();
                        let found = found.map(|(n, revision)| self.stored(*n, *revision));
                        let reply = StoreReply::List(Ok(found.collect()));
                        self.chronicle.listed(reply, &mut self.out);
                    }
                    StoreOp::Write(writes) => {
                        let keys = writes.iter().map(|write| write.key.clone()).collect();
                        let outcomes = writes.iter().map(|write| self.write(write)).collect();
                        let answer = self.out.answered(id, StoreReply::Write(outcomes));
                        let reply = answer.expect("it was asked").reply;
                        self.chronicle.written(keys, reply, &mut self.out);
                    }
                    StoreOp::Read(_) => panic!("nothing is read"),
                }
            }
        }

        fn write(&mut self, write: &Write) -> WriteOutcome {
            let Key::Event(n) = write.key else {
                panic!("an event")
            };
            let found = self.records.get(&n).copied();
            match (write.expect, found) {
                (Expect::Absent, Some(revision)) => {
                    return WriteOutcome::Conflict(Some(self.stored(n, revision)));
                }
                (Expect::At(expected), _) if found != Some(expected) => {
                    return WriteOutcome::Conflict(None);
                }
                _ => {}
            }
            self.revision += 1;
            match write.value {
                Some(_) => self.records.insert(n, Revision(self.revision)),
                None => self.records.remove(&n),
            };
            WriteOutcome::Done(Revision(self.revision))
        }
    }

    #[test]
    fn events_go_on_after_the_last_one_and_the_oldest_go() {
        let mut bench = Bench::new(KEPT as u64 - 3);
        for n in 0..10 {
            bench.tell(&format!("event {n}"));
        }
        bench.run();
        assert_eq!(bench.records.len(), KEPT);
        assert_eq!(bench.records.keys().next(), Some(&8));
        assert_eq!(bench.records.keys().next_back(), Some(&(KEPT as u64 + 7)));
    }

    #[test]
    fn another_one_may_have_the_oldest_go_first() {
        let mut bench = Bench::new(KEPT as u64);
        bench.tell("one");
        bench.run();
        bench.records.retain(|n, _| *n > 5);
        bench.tell("two");
        bench.run();
        assert!(!bench.out.store_went_back(), "nothing was lost");
        assert_eq!(bench.records.keys().next_back(), Some(&(KEPT as u64 + 2)));
    }

    #[test]
    fn a_number_that_another_took_costs_a_higher_one() {
        let mut bench = Bench::new(3);
        bench.tell("one");
        bench.run();
        bench.records.insert(5, Revision(90));
        bench.tell("two");
        bench.run();
        assert_eq!(
            bench.records.keys().copied().collect::<Vec<_>>(),
            [1, 2, 3, 4, 5, 6]
        );
    }

    #[test]
    fn trouble_loses_events_and_hammers_on_nobody() {
        let mut bench = Bench::new(0);
        for n in 0..2 * WAITING {
            bench.tell(&format!("event {n}"));
        }
        let (_, op) = bench.sent().expect("a look");
        assert!(matches!(op, StoreOp::List(_)));
        let down = StoreReply::List(Err(StoreError::Unavailable));
        bench.chronicle.listed(down, &mut bench.out);
        assert!(bench.sent().is_none(), "not at once");
        assert_eq!(bench.chronicle.next_deadline(), Time::ZERO + PAUSE);
        bench.out.set_now(Time::ZERO + PAUSE);
        bench.run();
        assert_eq!(bench.records.len(), WAITING, "the newest");
    }
}
