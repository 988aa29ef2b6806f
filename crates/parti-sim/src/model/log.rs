//! The embedded log: every partition has dense offsets of its own, from 0, and every lane reads its
//! own partition. There is no consumer, no delivery and no ack; the world tells readers that a
//! partition grew ([`Log::grew`]), early, late or not at all.

use std::collections::BTreeMap;

use parti_core::config::StartPosition;
use parti_core::ids::{Offset, PartitionId};
use parti_core::io::{Message, ReadBatch, SourceError, SourceEvent, SourceRequest};

use super::letters::{DeadLetter, DeadLetters};
use super::{Fate, Published};

/// One partition: its messages by offset. Trimmed ones stay for the audit.
#[derive(Clone, Debug, Default)]
struct Part {
    first: u64,
    messages: Vec<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    message: Message,
    at: u64,
}

/// The embedded log.
#[derive(Clone, Debug)]
pub struct Log {
    identity: u64,
    parts: BTreeMap<PartitionId, Part>,
    letters: DeadLetters,
    vanished: Vec<Published>,
}

impl Log {
    /// An empty log with this identity.
    pub fn new(identity: u64) -> Self {
        Self {
            identity,
            parts: BTreeMap::new(),
            letters: DeadLetters::default(),
            vanished: Vec::new(),
        }
    }

    /// Which log this is: another one after it was recreated.
    pub fn identity(&self) -> u64 {
        self.identity
    }

    /// Appends a message.
    pub fn publish(&mut self, now: u64, partition: &PartitionId, key: u64, size: u32) -> Offset {
        let part = match self.parts.get_mut(partition) {
            Some(part) => part,
            None => self.parts.entry(partition.clone()).or_default(),
        };
        let offset = Offset(part.messages.len() as u64);
        part.messages.push(Entry {
            message: Message { offset, key, size },
            at: now,
        });
        offset
    }

    /// The news that a partition may have grown.
    pub fn grew(partition: &PartitionId) -> SourceEvent {
        SourceEvent::Grew {
            partition: partition.clone(),
        }
    }

    /// Carries out a request. There is no consumer here: what asks for one is refused.
    pub fn request(&mut self, request: SourceRequest) -> Option<SourceEvent> {
        match request {
            SourceRequest::Read {
                ask,
                partition,
                from,
                upto,
                limit,
            } => {
                let result = Ok(self.read(&partition, from, upto, limit));
                Some(SourceEvent::Read { ask, result })
            }
            SourceRequest::Resolve {
                ask,
                partition,
                start,
            } => {
                let result = Ok(self.resolve(&partition, start));
                Some(SourceEvent::Resolved { ask, result })
            }
            SourceRequest::DeadLetter { ask, job, error } => {
                Some(self.letters.publish(self.identity, ask, job, error))
            }
            SourceRequest::Head { ask } => Some(SourceEvent::Head {
                ask,
                result: Err(no_consumer()),
            }),
            SourceRequest::UpdateConsumer { ask, .. }
            | SourceRequest::DeleteConsumer { ask }
            | SourceRequest::ResetConsumer { ask } => Some(SourceEvent::Consumer {
                ask,
                result: Err(no_consumer()),
            }),
            SourceRequest::Pull { .. } => Some(SourceEvent::PullEnded),
            SourceRequest::Ack { .. } | SourceRequest::Extend { .. } => None,
        }
    }

    /// The oldest offset that retention has kept.
    pub fn first(&self, partition: &PartitionId) -> Offset {
        Offset(self.parts.get(partition).map_or(0, |part| part.first))
    }

    /// One past the newest offset.
    pub fn end(&self, partition: &PartitionId) -> Offset {
        Offset(
            self.parts
                .get(partition)
                .map_or(0, |part| part.messages.len() as u64),
        )
    }

    /// Retention: removes whatever is below `first`.
    pub fn trim(&mut self, partition: &PartitionId, first: Offset) {
        if let Some(part) = self.parts.get_mut(partition) {
            part.first = part.first.max(first.0.min(part.messages.len() as u64));
        }
    }

    /// Goes back: the partition ends at `end` again, and the offsets from there on are given anew.
    pub fn roll_back(&mut self, partition: &PartitionId, end: Offset) {
        let Some(part) = self.parts.get_mut(partition) else {
            return;
        };
        let keep = usize::try_from(end.0)
            .unwrap_or(usize::MAX)
            .min(part.messages.len());
        for entry in part.messages.drain(keep..) {
            let trimmed = entry.message.offset.0 < part.first;
            let fate = if trimmed {
                Fate::Trimmed
            } else {
                Fate::Vanished
            };
            self.vanished
                .push(published(self.identity, partition, &entry, fate));
        }
        part.first = part.first.min(keep as u64);
    }

    /// Vanishes: another, empty log with another identity.
    pub fn recreate(&mut self) {
        for (partition, part) in std::mem::take(&mut self.parts) {
            for entry in &part.messages {
                let trimmed = entry.message.offset.0 < part.first;
                let fate = if trimmed {
                    Fate::Trimmed
                } else {
                    Fate::Vanished
                };
                self.vanished
                    .push(published(self.identity, &partition, entry, fate));
            }
        }
        self.identity += 1;
    }

    /// Every message ever published.
    pub fn published(&self) -> Vec<Published> {
        let mut all = self.vanished.clone();
        for (partition, part) in &self.parts {
            for entry in &part.messages {
                let trimmed = entry.message.offset.0 < part.first;
                let fate = if trimmed { Fate::Trimmed } else { Fate::Kept };
                all.push(published(self.identity, partition, entry, fate));
            }
        }
        all
    }

    /// The dead letters (`<topic>.dlq`).
    pub fn dead_letters(&self) -> &[DeadLetter] {
        self.letters.all()
    }

    fn read(
        &self,
        partition: &PartitionId,
        from: Offset,
        upto: Option<Offset>,
        limit: u32,
    ) -> ReadBatch {
        let Some(part) = self.parts.get(partition) else {
            let none = Offset(0);
            return ReadBatch {
                messages: Vec::new(),
                next: from,
                first: none,
                end: none,
            };
        };
        let end = part.messages.len() as u64;
        let start = from.0.max(part.first);
        let stop = upto.map_or(end, |upto| upto.0.saturating_add(1).min(end));
        let stop = stop.min(start.saturating_add(u64::from(limit)));
        let messages: Vec<Message> = if start < stop {
            part.messages[start as usize..stop as usize]
                .iter()
                .map(|entry| entry.message)
                .collect()
        } else {
            Vec::new()
        };
        let next = Offset(stop.max(from.0));
        ReadBatch {
            messages,
            next,
            first: Offset(part.first),
            end: Offset(end),
        }
    }

    fn resolve(&self, partition: &PartitionId, start: StartPosition) -> Offset {
        let Some(part) = self.parts.get(partition) else {
            return match start {
                StartPosition::Offset(offset) => Offset(offset),
                StartPosition::Latest | StartPosition::Earliest | StartPosition::Time(_) => {
                    Offset(0)
                }
            };
        };
        Offset(match start {
            StartPosition::Latest => part.messages.len() as u64,
            StartPosition::Earliest => part.first,
            StartPosition::Offset(offset) => offset.max(part.first),
            StartPosition::Time(millis) => {
                let since = millis.saturating_mul(1000);
                let found = part.messages.partition_point(|entry| entry.at < since);
                part.first.max(found as u64)
            }
        })
    }
}

fn published(source: u64, partition: &PartitionId, entry: &Entry, fate: Fate) -> Published {
    Published {
        source,
        partition: partition.clone(),
        offset: entry.message.offset,
        key: entry.message.key,
        at: entry.at,
        fate,
    }
}

fn no_consumer() -> SourceError {
    SourceError::Rejected("the embedded log has no consumers".into())
}
