//! What was published, what workers said, and what that proves.
//!
//! ```text
//!   load ──published(partition, number, offset)──┐
//!   workers' lines ──said(process, line)─────────┼──▶ Ledger ──▶ until(…): a scenario goes on
//!                                                └──────────────▶ audit: Counts
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::audit::{Counts, audit};
use crate::failure::Failure;
use crate::line::{Event, Line};

/// What does not come within this time never will. A guard: nothing is measured against it.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// A message that is done, as a worker told it.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// When.
    pub t: u64,
    /// Which process.
    pub process: usize,
    /// Its number in its partition.
    pub number: u64,
    /// Its place in the stream.
    pub offset: u64,
    /// Under which epoch; none for a dead letter, which does not tell.
    pub epoch: Option<u64>,
}

/// Everything that is known.
#[derive(Default)]
pub struct Facts {
    /// For each partition, the offset of each number.
    pub published: BTreeMap<u32, Vec<u64>>,
    /// For each partition, what was done.
    pub done: BTreeMap<u32, Vec<Done>>,
    /// Everything else that workers said, by process.
    pub events: Vec<(usize, Line)>,
    /// For each partition, the numbers that are done.
    numbers: BTreeMap<u32, BTreeSet<u64>>,
    /// How many messages each process handled.
    handled_by: BTreeMap<usize, u64>,
    /// Letters whose numbers are not known yet: a message can be done before its publisher hears
    /// that it is stored.
    letters: Vec<(usize, u64, u32, u64)>,
    /// What the server acked and does not have.
    never_stored: BTreeSet<(u32, u64)>,
    last_vitals: BTreeMap<usize, usize>,
}

impl Facts {
    /// How many messages are in the stream.
    pub fn published(&self) -> u64 {
        self.published.values().map(|all| all.len() as u64).sum()
    }

    /// How many different messages of a partition are done.
    pub fn done_of(&self, partition: u32) -> u64 {
        self.numbers
            .get(&partition)
            .map_or(0, |all| all.len() as u64)
    }

    /// How many messages a process handled.
    pub fn handled_by(&self, process: usize) -> u64 {
        self.handled_by.get(&process).copied().unwrap_or_default()
    }

    /// Whether everything that was published is done.
    pub fn drained(&self) -> bool {
        self.missing().next().is_none()
    }

    /// What was published, is stored as far as known, and is not done: partitions and numbers.
    pub fn missing(&self) -> impl Iterator<Item = (u32, u64)> {
        let short =
            |(partition, all): &(&u32, &Vec<u64>)| self.done_of(**partition) < all.len() as u64;
        let short = self.published.iter().filter(short);
        short.flat_map(|(partition, all)| {
            let done = self.numbers.get(partition);
            let numbers = 0..all.len() as u64;
            let open = numbers.filter(move |number| done.is_none_or(|done| !done.contains(number)));
            let named = open.map(|number| (*partition, number));
            named.filter(|named| !self.never_stored.contains(named))
        })
    }

    /// How many messages the server acked and does not have.
    pub fn never_stored(&self) -> u64 {
        self.never_stored.len() as u64
    }

    /// What a process said, apart from what it handled.
    pub fn said_by(&self, process: usize) -> impl DoubleEndedIterator<Item = &Event> {
        let own = self.events.iter().filter(move |(by, _)| *by == process);
        own.map(|(_, line)| &line.event)
    }

    /// A process's stable id, its latest.
    pub fn id_of(&self, process: usize) -> Option<&str> {
        self.said_by(process).rev().find_map(|event| match event {
            Event::Claimed { worker } => Some(worker.as_str()),
            _ => None,
        })
    }

    /// Whether a process leads, as far as it said.
    pub fn leads(&self, process: usize) -> bool {
        let last = self.said_by(process).rev().find_map(|event| match event {
            Event::Leading { leads } => Some(*leads),
            Event::SessionLost | Event::Ended { .. } => Some(false),
            _ => None,
        });
        last.unwrap_or(false)
    }

    /// How a process ended; none while it has not said.
    pub fn end_of(&self, process: usize) -> Option<&Option<String>> {
        self.said_by(process).rev().find_map(|event| match event {
            Event::Ended { error } => Some(error),
            _ => None,
        })
    }

    /// How many tasks a process has, as it last said.
    pub fn tasks_of(&self, process: usize) -> Option<usize> {
        self.last_vitals.get(&process).copied()
    }

    /// How many events of a kind there are.
    pub fn count(&self, wanted: impl Fn(&Event) -> bool) -> usize {
        let events = self.events.iter();
        events.filter(|(_, line)| wanted(&line.event)).count()
    }

    fn done(&mut self, partition: u32, done: Done) {
        self.done.entry(partition).or_default().push(done);
        self.numbers
            .entry(partition)
            .or_default()
            .insert(done.number);
    }

    /// Gives letters their numbers, as far as they are known.
    fn settle_letters(&mut self) {
        for (process, t, partition, offset) in std::mem::take(&mut self.letters) {
            let known = self.published.get(&partition);
            // Not always in order: see the audit.
            let number = known.and_then(|all| all.iter().position(|known| *known == offset));
            match number {
                Some(number) => self.done(
                    partition,
                    Done {
                        t,
                        process,
                        number: number as u64,
                        offset,
                        epoch: None,
                    },
                ),
                None => self.letters.push((process, t, partition, offset)),
            }
        }
    }
}

/// All facts. Clones share them.
#[derive(Clone, Default)]
pub struct Ledger {
    inner: Arc<(Mutex<Facts>, Notify)>,
}

impl Ledger {
    /// Everything known so far.
    pub fn facts(&self) -> MutexGuard<'_, Facts> {
        self.inner.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A partition's next number.
    pub fn next_number(&self, partition: u32) -> u64 {
        let facts = self.facts();
        let all = facts.published.get(&partition);
        all.map_or(0, |all| all.len() as u64)
    }

    /// The partition's next number is in the stream, at this offset.
    pub fn published(&self, partition: u32, offset: u64) {
        let mut facts = self.facts();
        facts.published.entry(partition).or_default().push(offset);
        facts.settle_letters();
        drop(facts);
        self.inner.1.notify_waiters();
    }

    /// What the stream holds: what is missing there cannot be handled.
    pub fn holds(&self, stored: &BTreeSet<(u32, u64)>) {
        let mut facts = self.facts();
        let never = facts.missing().filter(|named| !stored.contains(named));
        let never: Vec<(u32, u64)> = never.collect();
        facts.never_stored.extend(never);
        drop(facts);
        self.inner.1.notify_waiters();
    }

    /// A worker said something.
    pub fn said(&self, process: usize, line: Line) {
        let mut facts = self.facts();
        match line.event {
            Event::Handled {
                partition,
                number,
                offset,
                epoch,
                ..
            } => {
                *facts.handled_by.entry(process).or_default() += 1;
                facts.done(
                    partition,
                    Done {
                        t: line.t,
                        process,
                        number,
                        offset,
                        epoch: Some(epoch),
                    },
                );
            }
            Event::Vitals { tasks } => {
                facts.last_vitals.insert(process, tasks);
            }
            ref event => {
                if let Event::DeadLettered {
                    partition, offset, ..
                } = *event
                {
                    facts.letters.push((process, line.t, partition, offset));
                    facts.settle_letters();
                }
                facts.events.push((process, line));
            }
        }
        drop(facts);
        self.inner.1.notify_waiters();
    }

    /// Waits until the facts are as wanted.
    pub async fn until(&self, what: &str, wanted: impl Fn(&Facts) -> bool) -> Result<(), Failure> {
        let waiting = async {
            loop {
                let news = self.inner.1.notified();
                tokio::pin!(news);
                // From here on nothing is missed.
                news.as_mut().enable();
                if wanted(&self.facts()) {
                    return;
                }
                news.await;
            }
        };
        let came = tokio::time::timeout(PATIENCE, waiting).await;
        came.map_err(|_| Failure::new(format!("never came: {what}")))
    }

    /// Waits until so many further messages of every partition are done.
    pub async fn next_of_all(&self, partitions: u32, count: u64) -> Result<(), Failure> {
        let before: Vec<u64> = {
            let facts = self.facts();
            (0..partitions).map(|p| facts.done_of(p)).collect()
        };
        self.until("messages of every partition", |facts| {
            let mut all = (0..partitions).zip(&before);
            all.all(|(partition, before)| facts.done_of(partition) >= before + count)
        })
        .await
    }

    /// Counts what must not be.
    pub fn audit(&self) -> Counts {
        audit(&self.facts())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handled(partition: u32, number: u64) -> Line {
        let event = Event::Handled {
            partition,
            number,
            offset: number,
            epoch: 1,
            attempt: 1,
        };
        Line { t: number, event }
    }

    #[test]
    fn what_the_server_does_not_have_is_not_what_workers_lost() {
        let ledger = Ledger::default();
        for offset in 0..4 {
            ledger.published(0, offset);
        }
        ledger.said(0, handled(0, 0));
        ledger.said(0, handled(0, 2));
        let missing: Vec<_> = ledger.facts().missing().collect();
        assert_eq!(missing, [(0, 1), (0, 3)]);
        // The stream has 3: somebody lost it.
        ledger.holds(&BTreeSet::from([(0, 0), (0, 2), (0, 3)]));
        let counts = ledger.audit();
        assert_eq!((counts.never_handled, counts.never_stored), (1, 1));
        assert!(!ledger.facts().drained());
        ledger.said(0, handled(0, 3));
        assert!(ledger.facts().drained());
    }
}
