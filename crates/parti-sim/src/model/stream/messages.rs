//! What a stream holds: all messages in one sequence from 1, and an index by subject.

use std::collections::BTreeMap;

use parti_core::config::StartPosition;
use parti_core::ids::{Offset, PartitionId};
use parti_core::io::{Body, Message, ReadBatch, Swath};

use crate::model::{Fate, Published};

/// A subject's number within its stream.
pub(super) type SubjectId = u32;

/// One message. Removed ones stay for the audit.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub subject: SubjectId,
    pub message: Message,
    pub at: u64,
    pub fate: Fate,
}

#[derive(Clone, Debug)]
struct Subject {
    id: PartitionId,
    /// The sequences of its messages, growing.
    sequences: Vec<u64>,
}

/// All messages of one life of a stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Messages {
    entries: Vec<Entry>,
    subjects: Vec<Subject>,
    by_name: BTreeMap<PartitionId, SubjectId>,
    /// How many at the front are gone.
    gone: usize,
}

impl Messages {
    /// The number of a subject, new or known.
    pub fn subject(&mut self, partition: &PartitionId) -> SubjectId {
        if let Some(known) = self.by_name.get(partition) {
            return *known;
        }
        let number = self.subjects.len() as SubjectId;
        self.subjects.push(Subject {
            id: partition.clone(),
            sequences: Vec::new(),
        });
        self.by_name.insert(partition.clone(), number);
        number
    }

    /// The name of a subject.
    pub fn name(&self, subject: SubjectId) -> &PartitionId {
        &self.subjects[subject as usize].id
    }

    /// Appends a message.
    pub fn push(&mut self, now: u64, partition: &PartitionId, key: u64, size: u32) -> Offset {
        let subject = self.subject(partition);
        let sequence = self.last() + 1;
        let message = Message {
            offset: Offset(sequence),
            key,
            size,
            body: Body::EMPTY,
        };
        self.entries.push(Entry {
            subject,
            message,
            at: now,
            fate: Fate::Kept,
        });
        self.subjects[subject as usize].sequences.push(sequence);
        Offset(sequence)
    }

    /// The newest sequence ever given; 0 if none was.
    pub fn last(&self) -> u64 {
        self.entries.len() as u64
    }

    /// The oldest sequence still there; one past the last if none is.
    pub fn first(&self) -> u64 {
        self.gone as u64 + 1
    }

    /// The message with this sequence, if it is still there.
    pub fn get(&self, sequence: u64) -> Option<&Entry> {
        let index = usize::try_from(sequence.checked_sub(1)?).ok()?;
        self.entries
            .get(index)
            .filter(|entry| entry.fate == Fate::Kept)
    }

    /// Removes one message.
    pub fn remove(&mut self, sequence: u64, fate: Fate) {
        let Some(index) = sequence
            .checked_sub(1)
            .and_then(|index| usize::try_from(index).ok())
        else {
            return;
        };
        if let Some(entry) = self.entries.get_mut(index)
            && entry.fate == Fate::Kept
        {
            entry.fate = fate;
        }
        while self
            .entries
            .get(self.gone)
            .is_some_and(|entry| entry.fate != Fate::Kept)
        {
            self.gone += 1;
        }
    }

    /// Removes whatever is below `first`.
    pub fn trim(&mut self, first: u64) {
        for sequence in self.first()..first.min(self.last() + 1) {
            self.remove(sequence, Fate::Trimmed);
        }
    }

    /// Forgets whatever is above `last`, and answers what that was.
    pub fn roll_back(&mut self, identity: u64, last: u64) -> Vec<Published> {
        let keep = usize::try_from(last)
            .unwrap_or(usize::MAX)
            .min(self.entries.len());
        for subject in &mut self.subjects {
            let keep = subject
                .sequences
                .partition_point(|sequence| *sequence <= last);
            subject.sequences.truncate(keep);
        }
        self.gone = self.gone.min(keep);
        let lost = self.entries.split_off(keep);
        lost.iter()
            .map(|entry| self.published_as(identity, entry, vanished(entry.fate)))
            .collect()
    }

    /// One past the newest message of a subject.
    pub fn end(&self, partition: &PartitionId) -> Offset {
        let subject = self
            .by_name
            .get(partition)
            .map(|number| &self.subjects[*number as usize]);
        Offset(
            subject
                .and_then(|subject| subject.sequences.last())
                .map_or(1, |last| last + 1),
        )
    }

    /// How many messages from this sequence on are wanted.
    pub fn count_from(&self, sequence: u64, wants: impl Fn(SubjectId) -> bool) -> u64 {
        let start = usize::try_from(sequence.max(1) - 1).unwrap_or(usize::MAX);
        let rest = self.entries.get(start..).unwrap_or_default();
        let wanted = |entry: &&Entry| entry.fate == Fate::Kept && wants(entry.subject);
        rest.iter().filter(wanted).count() as u64
    }

    /// Reads a subject past all consumers, as a replica that has not got the last `lag` messages.
    pub fn read(
        &self,
        partition: &PartitionId,
        from: Offset,
        upto: Option<Offset>,
        limit: u32,
        lag: u64,
    ) -> ReadBatch {
        let visible = self.last().saturating_sub(lag);
        let stop = upto.map_or(visible, |upto| upto.0.min(visible));
        let sequences = self
            .by_name
            .get(partition)
            .map(|number| &self.subjects[*number as usize]);
        let sequences = sequences.map_or(&[][..], |subject| &subject.sequences);
        let start = sequences.partition_point(|sequence| *sequence < from.0);
        let wanted = sequences[start..]
            .iter()
            .take_while(|sequence| **sequence <= stop);
        let mut kept = wanted
            .filter_map(|sequence| self.get(*sequence))
            .map(|entry| entry.message.clone());
        let messages: Vec<Message> = kept.by_ref().take(limit as usize).collect();
        // Only a reader that was not cut short has proof up to where it was to stop.
        let next = match messages.last() {
            Some(message) if kept.next().is_some() => message.offset.next(),
            None if limit == 0 => from,
            Some(_) | None => Offset(stop + 1).max(from),
        };
        ReadBatch {
            messages,
            next,
            first: Offset(self.first()),
            end: Offset(visible + 1),
        }
    }

    /// Reads all subjects past all consumers and keeps those, as a replica that has not got the last
    /// `lag` messages.
    pub fn sweep(
        &self,
        partitions: &[PartitionId],
        from: Offset,
        upto: Offset,
        limit: u32,
        lag: u64,
    ) -> Swath {
        let stop = upto.0.min(self.last().saturating_sub(lag));
        let mut swath = Swath {
            messages: Vec::new(),
            next: Offset(stop + 1).max(from),
            first: Offset(self.first()),
        };
        let mut counts: BTreeMap<SubjectId, u32> = BTreeMap::new();
        for sequence in from.0.max(self.first())..=stop {
            let Some(entry) = self.get(sequence) else {
                continue;
            };
            let name = self.name(entry.subject);
            if !partitions.contains(name) {
                continue;
            }
            swath.messages.push((name.clone(), entry.message.clone()));
            let count = counts.entry(entry.subject).or_default();
            *count += 1;
            if *count >= limit {
                swath.next = entry.message.offset.next();
                break;
            }
        }
        swath
    }

    /// Turns a start position into an offset, neither before the beginning nor past the end.
    pub fn resolve(&self, partition: &PartitionId, start: StartPosition) -> Offset {
        Offset(match start {
            StartPosition::Latest => self.last() + 1,
            StartPosition::Earliest => self.first(),
            StartPosition::Offset(offset) => offset.clamp(self.first(), self.last() + 1),
            StartPosition::Time(millis) => {
                let since = millis.saturating_mul(1000);
                let Some(number) = self.by_name.get(partition) else {
                    return Offset(self.last() + 1);
                };
                let sequences = &self.subjects[*number as usize].sequences;
                let early = |sequence: &u64| self.entries[*sequence as usize - 1].at < since;
                let found = sequences.get(sequences.partition_point(early)).copied();
                found.unwrap_or(self.last() + 1).max(self.first())
            }
        })
    }

    /// All messages ever published here.
    pub fn published(&self, identity: u64) -> impl Iterator<Item = Published> + '_ {
        self.entries
            .iter()
            .map(move |entry| self.published_as(identity, entry, entry.fate))
    }

    /// All messages ever published here, which are now gone with their stream.
    pub fn vanished(&self, identity: u64) -> impl Iterator<Item = Published> + '_ {
        let gone = move |entry| self.published_as(identity, entry, vanished(entry.fate));
        self.entries.iter().map(gone)
    }

    fn published_as(&self, identity: u64, entry: &Entry, fate: Fate) -> Published {
        Published {
            source: identity,
            partition: self.name(entry.subject).clone(),
            offset: entry.message.offset,
            key: entry.message.key,
            at: entry.at,
            fate,
        }
    }
}

/// What became of a message when its stream went away: whoever was gone before stays so.
fn vanished(fate: Fate) -> Fate {
    if fate == Fate::Kept {
        Fate::Vanished
    } else {
        fate
    }
}
