//! From what workers said to a few numbers.
//!
//! A partition's lines are put in the order of their times, which all processes take from one
//! clock. Then:
//!
//! ```text
//!   never handled   published, and done by nobody. A dead letter counts as done
//!   never stored    acked by the server, and not in the stream
//!   out of order    done for the first time after a higher offset; or not the offset that follows
//!                   the one before it under the same epoch; or two processes under one epoch
//!   repeated        done before, at the same offset
//!   allowed         handled before a seizure, and not in the checkpoint that the seizure found
//!   stored apart    in the stream before a message that was published earlier
//!   stored twice    in the stream at two offsets: its publisher had no answer and sent it again, and
//!                   the server had forgotten it (a work queue forgets the id with the message)
//! ```
//!
//! Order is the stream's, which workers can see, not the publisher's numbers: a cluster in trouble can
//! store messages in another order than it acks them in, and that is no worker's doing.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

use serde::Serialize;

use crate::ledger::{Done, Facts};
use crate::line::Event;

/// A message that was handled so long before its owner's last one should have been flushed by
/// then. Much longer than any flush interval used here.
const FLUSHED_BY_THEN: u64 = 15_000_000_000;

/// What the facts show.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Messages in the stream.
    pub published: u64,
    /// Handler calls that ended well, and dead letters.
    pub handled: u64,
    /// Messages in the stream that nobody handled.
    pub never_handled: u64,
    /// Messages that the server acked and does not have.
    pub never_stored: u64,
    /// Messages that were handled out of order.
    pub out_of_order: u64,
    /// Messages that the stream holds in another order than they were published in.
    pub stored_apart: u64,
    /// Messages that the stream holds, or held, at a second offset.
    pub stored_twice: u64,
    /// Handler calls on messages that were handled before.
    pub repeated: u64,
    /// How many of those a death or a freeze explains: unflushed when the partition was seized.
    pub unflushed: u64,
    /// Calls that ended after somebody else had taken the partition.
    pub late: u64,
    /// Unflushed messages that should have been flushed long before.
    pub overdue: u64,
    /// Messages in the dead letters.
    pub dead_lettered: u64,
    /// Examples of what must not be, for people.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
}

/// A partition that was taken from an owner whose session was over.
struct Seizure {
    t: u64,
    epoch: u64,
    offset: Option<u64>,
}

/// Counts what must not be.
pub fn audit(facts: &Facts) -> Counts {
    let mut counts = Counts {
        published: facts.published(),
        never_stored: facts.never_stored(),
        ..Counts::default()
    };
    let mut seizures: BTreeMap<u32, Vec<Seizure>> = BTreeMap::new();
    let mut takes: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
    for (_, line) in &facts.events {
        if let Event::Taken {
            partition,
            epoch,
            offset,
            seized,
        } = line.event
        {
            takes.entry(partition).or_default().push((line.t, epoch));
            if seized {
                let t = line.t;
                let seizure = Seizure { t, epoch, offset };
                seizures.entry(partition).or_default().push(seizure);
            }
        }
    }
    // A process's signs of life, to tell what it should have flushed.
    let mut times: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
    for done in facts.done.values().flatten() {
        times.entry(done.process).or_default().push(done.t);
    }
    for times in times.values_mut() {
        times.sort_unstable();
    }
    for (partition, number) in facts.missing() {
        counts.never_handled += 1;
        counts.example(|| format!("{partition}/{number} was never handled"));
    }
    for partition in facts.published.keys() {
        let mut lines = facts.done.get(partition).cloned().unwrap_or_default();
        lines.sort_by_key(|done| done.t);
        order(&mut counts, *partition, &lines);
        for seizure in seizures.get(partition).into_iter().flatten() {
            unflushed(&mut counts, &lines, seizure, &times);
        }
        let taken = takes.get(partition).map_or(&[][..], Vec::as_slice);
        counts.late += lines.iter().filter(|done| is_late(done, taken)).count() as u64;
    }
    counts
}

/// Whether somebody else had taken the partition before this call ended.
fn is_late(done: &Done, takes: &[(u64, u64)]) -> bool {
    let Some(epoch) = done.epoch else {
        return false;
    };
    takes.iter().any(|(t, taken)| *taken > epoch && *t < done.t)
}

/// What had been handled when a partition was seized, and was not in its checkpoint.
fn unflushed(
    counts: &mut Counts,
    lines: &[Done],
    seizure: &Seizure,
    times: &BTreeMap<usize, Vec<u64>>,
) {
    let open = lines.iter().filter(|done| {
        done.epoch.is_some_and(|epoch| epoch < seizure.epoch)
            && done.t < seizure.t
            && seizure.offset.is_none_or(|offset| done.offset > offset)
    });
    for done in open {
        counts.unflushed += 1;
        let lived = times.get(&done.process).map_or(&[][..], Vec::as_slice);
        let last = lived[..lived.partition_point(|t| *t < seizure.t)].last();
        if last.is_some_and(|last| last - done.t > FLUSHED_BY_THEN) {
            counts.overdue += 1;
        }
    }
}

fn order(counts: &mut Counts, partition: u32, lines: &[Done]) {
    // What the stream holds of this partition, in its order.
    let stream: BTreeSet<u64> = lines.iter().map(|done| done.offset).collect();
    let follows = |before: u64, offset: u64| {
        let mut later = stream.range((Excluded(before), Unbounded));
        later.next() == Some(&offset)
    };
    counts.stored_apart += stored_apart(lines);
    let mut done: BTreeSet<u64> = BTreeSet::new();
    let mut numbers: BTreeSet<u64> = BTreeSet::new();
    let mut highest = None;
    let mut under: BTreeMap<u64, Done> = BTreeMap::new();
    let mut previous: Option<Done> = None;
    for line in lines {
        counts.handled += 1;
        counts.dead_lettered += u64::from(line.epoch.is_none());
        // A letter is buried by the owner: it goes on where its process was.
        let own = previous.filter(|previous| previous.process == line.process);
        let epoch = line.epoch.or(own.and_then(|previous| previous.epoch));
        let before = epoch.and_then(|epoch| under.get(&epoch).copied());
        let steps_on = before.is_none_or(|before| follows(before.offset, line.offset));
        let alone = before.is_none_or(|before| before.process == line.process);
        let repeated = done.contains(&line.offset);
        counts.stored_twice += u64::from(!repeated && !numbers.insert(line.number));
        let behind = !repeated && highest.is_some_and(|highest| highest > line.offset);
        if repeated {
            counts.repeated += 1;
        }
        if !steps_on || !alone || behind {
            counts.out_of_order += 1;
            counts.example(|| {
                format!(
                    "{partition}/{} at {} out of order: process {} under epoch {epoch:?}, after {:?}",
                    line.number,
                    line.offset,
                    line.process,
                    before.map(|before| (before.process, before.offset))
                )
            });
        }
        done.insert(line.offset);
        highest = highest.max(Some(line.offset));
        let now = Done { epoch, ..*line };
        if let Some(epoch) = epoch {
            under.insert(epoch, now);
        }
        previous = Some(now);
    }
}

/// How many messages are in the stream before one that was published earlier.
fn stored_apart(lines: &[Done]) -> u64 {
    let offsets: BTreeMap<u64, u64> = lines
        .iter()
        .map(|done| (done.number, done.offset))
        .collect();
    let mut highest = 0;
    let mut apart = 0;
    for offset in offsets.into_values() {
        apart += u64::from(offset < highest);
        highest = highest.max(offset);
    }
    apart
}

impl Counts {
    fn example(&mut self, text: impl FnOnce() -> String) {
        const MOST: usize = 10;
        if self.examples.len() < MOST {
            self.examples.push(text());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was done in one partition, in this order: number, offset, epoch; one process each epoch.
    fn counted(lines: &[(u64, u64, u64)]) -> Counts {
        let mut facts = Facts::default();
        let numbers: BTreeSet<u64> = lines.iter().map(|line| line.0).collect();
        facts.published.insert(0, numbers.into_iter().collect());
        let done = lines
            .iter()
            .zip(0..)
            .map(|((number, offset, epoch), t)| Done {
                t,
                process: *epoch as usize,
                number: *number,
                offset: *offset,
                epoch: Some(*epoch),
            });
        facts.done.insert(0, done.collect());
        audit(&facts)
    }

    fn order(lines: &[(u64, u64, u64)]) -> (u64, u64, u64) {
        let counts = counted(lines);
        (counts.out_of_order, counts.stored_apart, counts.repeated)
    }

    #[test]
    fn what_is_handled_as_it_is_stored_is_in_order() {
        assert_eq!(order(&[(0, 5, 1), (1, 9, 1), (2, 11, 2)]), (0, 0, 0));
    }

    #[test]
    fn a_stream_that_swapped_two_messages_is_not_the_workers_doing() {
        assert_eq!(
            order(&[(0, 5, 1), (2, 9, 1), (1, 11, 1), (3, 12, 1)]),
            (0, 1, 0)
        );
    }

    #[test]
    fn a_step_back_or_over_a_message_is() {
        // Back: neither 9 nor 12 is what follows, and 9 comes for the first time after 11.
        assert_eq!(order(&[(0, 5, 1), (2, 11, 1), (1, 9, 1), (3, 12, 1)]).0, 3);
        // Over: another owner finds what was left out.
        assert_eq!(
            order(&[(0, 5, 1), (2, 11, 1), (1, 9, 2), (2, 11, 2)]),
            (2, 0, 1)
        );
    }

    #[test]
    fn a_message_that_is_in_the_stream_twice_is_handled_twice_and_repeated_by_nobody() {
        let counts = counted(&[(0, 5, 1), (1, 9, 1), (1, 11, 1), (2, 12, 1)]);
        assert_eq!(
            (counts.stored_twice, counts.repeated, counts.out_of_order),
            (1, 0, 0)
        );
        let counts = counted(&[(0, 5, 1), (1, 9, 1), (1, 9, 1)]);
        assert_eq!((counts.stored_twice, counts.repeated), (0, 1));
    }

    #[test]
    fn another_owner_may_begin_again_at_the_checkpoint() {
        assert_eq!(
            order(&[(0, 5, 1), (1, 9, 1), (0, 5, 2), (1, 9, 2), (2, 11, 2)]),
            (0, 0, 2)
        );
    }
}
