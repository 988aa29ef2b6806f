//! The embedded log: every partition has dense offsets of its own, from 0, and every lane reads its
//! own partition. There is no consumer, no delivery and no ack; the world tells readers that a
//! partition grew ([`Log::grew`]), early, late or not at all.

use std::collections::BTreeMap;

use parti_core::config::StartPosition;
use parti_core::ids::{Offset, PartitionId};
use parti_core::io::{Body, Message, ReadBatch, SourceError, SourceEvent, SourceRequest};

use super::letters::{DeadLetter, DeadLetters};
use super::{Fate, Published};

/// One partition: its messages by offset. Trimmed ones stay for the audit.
#[derive(Clone, Debug, Default)]
struct Part {
    first: u64,
    messages: Vec<Entry>,
}

#[derive(Clone, Debug)]
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
            message: Message {
                offset,
                key,
                size,
                body: Body::EMPTY,
            },
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
            SourceRequest::Sweep { ask, .. } => Some(SourceEvent::Swept {
                ask,
                result: Err(no_consumer()),
            }),
            SourceRequest::Bounds { ask } => Some(SourceEvent::Bounds {
                ask,
                result: Err(no_consumer()),
            }),
            SourceRequest::UpdateConsumer { ask, .. }
            | SourceRequest::InspectConsumer { ask, .. }
            | SourceRequest::EvictConsumer { ask, .. }
            | SourceRequest::DeleteConsumer { ask }
            | SourceRequest::ResetConsumer { ask } => Some(SourceEvent::Consumer {
                ask,
                result: Err(no_consumer()),
            }),
            SourceRequest::External { ask, .. } => Some(SourceEvent::External {
                ask,
                result: Err(no_consumer()),
            }),
            SourceRequest::Pull { ask, .. } => Some(SourceEvent::PullEnded { ask }),
            SourceRequest::StopPull { .. }
            | SourceRequest::Ack { .. }
            | SourceRequest::Extend { .. } => None,
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
                .map(|entry| entry.message.clone())
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
            return Offset(0);
        };
        Offset(match start {
            StartPosition::Latest => part.messages.len() as u64,
            StartPosition::Earliest => part.first,
            StartPosition::Offset(offset) => offset.clamp(part.first, part.messages.len() as u64),
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parti_core::ids::Epoch;
    use parti_core::io::{Ask, Job};

    use super::*;

    fn p(name: &str) -> PartitionId {
        PartitionId::new(name)
    }

    fn log_with(partition: &str, count: u64) -> Log {
        let mut log = Log::new(3);
        for n in 0..count {
            log.publish(n * 1000, &p(partition), n, 1);
        }
        log
    }

    fn read(log: &mut Log, from: u64, upto: Option<u64>, limit: u32) -> (Vec<u64>, u64, u64, u64) {
        let upto = upto.map(Offset);
        let (ask, partition, from) = (Ask(1), p("a"), Offset(from));
        match log.request(SourceRequest::Read {
            ask,
            partition,
            from,
            upto,
            limit,
        }) {
            Some(SourceEvent::Read {
                result: Ok(batch), ..
            }) => {
                let offsets = batch
                    .messages
                    .iter()
                    .map(|message| message.offset.0)
                    .collect();
                (offsets, batch.next.0, batch.first.0, batch.end.0)
            }
            other => panic!("{other:?}"),
        }
    }

    fn resolve(log: &mut Log, start: StartPosition) -> u64 {
        match log.request(SourceRequest::Resolve {
            ask: Ask(1),
            partition: p("a"),
            start,
        }) {
            Some(SourceEvent::Resolved {
                result: Ok(offset), ..
            }) => offset.0,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn offsets_are_dense_from_zero_in_each_partition() {
        let mut log = log_with("a", 2);
        assert_eq!(log.publish(0, &p("b"), 0, 1), Offset(0));
        assert_eq!(log.publish(0, &p("a"), 0, 1), Offset(2));
        assert_eq!(
            (log.end(&p("a")), log.end(&p("b")), log.end(&p("c"))),
            (Offset(3), Offset(1), Offset(0))
        );
    }

    #[test]
    fn a_read_says_how_far_it_got() {
        let mut log = log_with("a", 5);
        assert_eq!(read(&mut log, 0, None, 9), (vec![0, 1, 2, 3, 4], 5, 0, 5));
        assert_eq!(read(&mut log, 1, None, 2), (vec![1, 2], 3, 0, 5));
        assert_eq!(read(&mut log, 1, Some(1), 9), (vec![1], 2, 0, 5));
        assert_eq!(read(&mut log, 5, None, 9), (vec![], 5, 0, 5));
        assert_eq!(
            read(&mut log, 8, None, 9),
            (vec![], 8, 0, 5),
            "past the end"
        );
        assert_eq!(
            read(&mut Log::new(1), 0, None, 9),
            (vec![], 0, 0, 0),
            "never published to"
        );
    }

    #[test]
    fn retention_is_visible_in_first() {
        let mut log = log_with("a", 5);
        log.trim(&p("a"), Offset(3));
        assert_eq!(read(&mut log, 0, None, 9), (vec![3, 4], 5, 3, 5));
        assert_eq!(
            read(&mut log, 0, Some(1), 9),
            (vec![], 2, 3, 5),
            "all of it is gone"
        );
        log.trim(&p("a"), Offset(1));
        assert_eq!(log.first(&p("a")), Offset(3), "what is gone stays gone");
        log.trim(&p("a"), Offset(99));
        assert_eq!(
            (log.first(&p("a")), log.end(&p("a"))),
            (Offset(5), Offset(5))
        );
    }

    #[test]
    fn a_rolled_back_partition_gives_offsets_again() {
        let mut log = log_with("a", 5);
        log.roll_back(&p("a"), Offset(2));
        assert_eq!(log.end(&p("a")), Offset(2));
        assert_eq!(log.publish(0, &p("a"), 77, 1), Offset(2));
        let audit = log.published();
        let of_two: Vec<(u64, Fate)> = audit
            .iter()
            .filter(|m| m.offset == Offset(2))
            .map(|m| (m.key, m.fate))
            .collect();
        assert_eq!(of_two, [(2, Fate::Vanished), (77, Fate::Kept)]);
        assert_eq!(
            (audit.len(), log.identity()),
            (6, 3),
            "nobody tells that it went back"
        );
    }

    #[test]
    fn a_recreated_log_is_another_one() {
        let mut log = log_with("a", 2);
        log.trim(&p("a"), Offset(1));
        log.recreate();
        assert_ne!(log.identity(), 3);
        assert_eq!(log.end(&p("a")), Offset(0));
        let fates: Vec<Fate> = log.published().iter().map(|message| message.fate).collect();
        assert_eq!(fates, [Fate::Trimmed, Fate::Vanished]);
    }

    #[test]
    fn start_positions_resolve_to_offsets() {
        let mut log = log_with("a", 5);
        log.trim(&p("a"), Offset(1));
        assert_eq!(resolve(&mut log, StartPosition::Latest), 5);
        assert_eq!(resolve(&mut log, StartPosition::Earliest), 1);
        assert_eq!(resolve(&mut log, StartPosition::Offset(3)), 3);
        assert_eq!(resolve(&mut log, StartPosition::Offset(0)), 1);
        assert_eq!(
            resolve(&mut log, StartPosition::Offset(9)),
            5,
            "never past the end"
        );
        assert_eq!(resolve(&mut log, StartPosition::Time(3)), 3);
        assert_eq!(resolve(&mut log, StartPosition::Time(0)), 1);
        assert_eq!(resolve(&mut log, StartPosition::Time(99)), 5);
        assert_eq!(resolve(&mut Log::new(1), StartPosition::Latest), 0);
    }

    #[test]
    fn there_are_no_consumers() {
        let mut log = log_with("a", 1);
        let update = SourceRequest::UpdateConsumer {
            ask: Ask(1),
            partitions: vec![p("a")],
        };
        let answer = log.request(update);
        assert!(
            matches!(answer, Some(SourceEvent::Consumer { result: Err(_), .. })),
            "{answer:?}"
        );
        assert_eq!(
            log.request(SourceRequest::Pull {
                ask: Ask(2),
                batch: 1
            }),
            Some(SourceEvent::PullEnded { ask: Ask(2) })
        );
        assert_eq!(
            log.request(SourceRequest::Ack {
                deliveries: vec![1]
            }),
            None
        );
    }

    #[test]
    fn dead_letters_are_kept_once() {
        let mut log = log_with("a", 1);
        let message = Message {
            offset: Offset(0),
            key: 0,
            size: 1,
            body: Body::EMPTY,
        };
        let job = Job {
            partition: p("a"),
            epoch: Epoch(1),
            message,
            attempt: 3,
        };
        for _ in 0..2 {
            let error = Arc::from("no");
            log.request(SourceRequest::DeadLetter {
                ask: Ask(1),
                job: job.clone(),
                error,
            });
        }
        assert_eq!(log.dead_letters().len(), 1);
    }
}
