//! A stream that behaves as JetStream was measured to (nats-server 2.15.1, alone and as a cluster).
//!
//! ```text
//!  publish ──▶ messages: one sequence from 1, a subject per partition
//!                 │
//!                 ├──▶ Read, Head, Resolve             past all consumers
//!                 └──▶ durable of each worker: filter, hidden position, pending, redeliveries
//!                          │   pulls, each of one connection, taking turns
//!                          ▼
//!                      deliveries(now) ──▶ (client, Delivered | PullEnded)
//! ```
//!
//! *Acks on the wire name the message, not only the consumer sequence*: a client answers to the
//! reply address that came with the delivery. Consumer sequences are given again after a reset, a
//! recreation and a change of the consumer's leader, so a world whose network delays acks should
//! turn sequences into messages where the client sends them: [`Replies`] does that, and
//! [`Stream::ack`] and [`Stream::extend`] take the result. `request` with an `Ack` takes each
//! sequence for the newest delivery that had it.
//!
//! A reset keeps the durable's creation stamp on a real server, and the client that asked for it
//! counts it as another life. The model does so for everybody: a reset gives another identity.

mod durable;
mod messages;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use parti_core::config::{AckMode, JetStreamConfig};
use parti_core::ids::{Offset, PartitionId, WorkerId};
use parti_core::io::{
    Ask, Bounds, ConsumerState, Retention, SourceError, SourceEvent, SourceRequest,
};
use parti_core::rng::Rng;

use super::letters::{DeadLetter, DeadLetters};
use super::{ClientId, Published};
use durable::{Durable, Filter};
use messages::Messages;

/// How a stream and its consumers are set up. Times are microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamConfig {
    /// How messages are forgotten.
    pub retention: Retention,
    /// Whether messages are acked one by one.
    pub ack: AckMode,
    /// After how long an unacked message comes again.
    pub ack_wait: u64,
    /// How many messages of a consumer may be unacked.
    pub max_ack_pending: u32,
    /// How many pulls of a consumer may be open.
    pub max_waiting: u32,
    /// How long a pull stays open.
    pub pull_expiry: u64,
}

impl StreamConfig {
    /// As a worker with these settings sets it up.
    pub fn of(retention: Retention, config: &JetStreamConfig) -> Self {
        Self {
            retention,
            ack: config.ack,
            ack_wait: u64::try_from(config.ack_wait.as_micros()).unwrap_or(u64::MAX),
            max_ack_pending: config.max_ack_pending,
            max_waiting: config.max_waiting,
            pull_expiry: 5_000_000,
        }
    }
}

/// What a consumer's info shows. Its position is not in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerInfo {
    /// One life of its sequences: its creation stamp, another one after a reset.
    pub identity: u64,
    /// Its filters, sorted; empty means the whole stream.
    pub filters: Vec<PartitionId>,
    /// Stream sequence of the newest first delivery: not the position.
    pub delivered: Offset,
    /// The newest consumer sequence.
    pub sequence: u64,
    /// Up to this stream sequence, everything counts as acked.
    pub ack_floor: Offset,
    /// How many deliveries are not acked yet.
    pub pending: usize,
}

/// There is no consumer.
const ABSENT: ConsumerState = ConsumerState {
    identity: 0,
    delivered: 0,
    as_wanted: false,
};

/// A JetStream-like stream with its durables. A durable is named by its worker's id.
#[derive(Clone, Debug)]
pub struct Stream {
    config: StreamConfig,
    identity: u64,
    messages: Messages,
    durables: BTreeMap<String, Durable>,
    /// What is to be told at the next call of `deliveries`.
    outbox: Vec<(ClientId, SourceEvent)>,
    letters: DeadLetters,
    vanished: Vec<Published>,
    replica_lag: u64,
    newest_stamp: u64,
}

impl Stream {
    /// An empty stream with this identity (its creation stamp).
    pub fn new(identity: u64, config: StreamConfig) -> Self {
        Self {
            config,
            identity,
            messages: Messages::default(),
            durables: BTreeMap::new(),
            outbox: Vec::new(),
            letters: DeadLetters::default(),
            vanished: Vec::new(),
            replica_lag: 0,
            newest_stamp: 0,
        }
    }

    /// How it is set up.
    pub fn config(&self) -> &StreamConfig {
        &self.config
    }

    /// Which stream this is: another one after it was recreated.
    pub fn identity(&self) -> u64 {
        self.identity
    }

    /// Appends a message.
    pub fn publish(&mut self, now: u64, partition: &PartitionId, key: u64, size: u32) -> Offset {
        self.messages.push(now, partition, key, size)
    }

    /// Carries out a request; answers at once where there is an answer. Pulls are answered by
    /// `deliveries`.
    pub fn request(
        &mut self,
        now: u64,
        durable: &str,
        client: ClientId,
        request: SourceRequest,
    ) -> Option<SourceEvent> {
        match request {
            SourceRequest::UpdateConsumer { ask, partitions } => {
                let result = self.update(now, durable, &partitions);
                Some(SourceEvent::Consumer { ask, result })
            }
            SourceRequest::DeleteConsumer { ask } => {
                self.delete(durable);
                Some(SourceEvent::Consumer {
                    ask,
                    result: Ok(ABSENT),
                })
            }
            SourceRequest::ResetConsumer { ask } => Some(SourceEvent::Consumer {
                ask,
                result: self.reset(now, durable),
            }),
            SourceRequest::Bounds { ask } => Some(SourceEvent::Bounds {
                ask,
                result: Ok(Bounds {
                    first: self.first(),
                    last: self.head(),
                }),
            }),
            SourceRequest::Read {
                ask,
                partition,
                from,
                upto,
                limit,
            } => {
                let batch = self
                    .messages
                    .read(&partition, from, upto, limit, self.replica_lag);
                Some(SourceEvent::Read {
                    ask,
                    result: Ok(batch),
                })
            }
            SourceRequest::Sweep {
                ask,
                partitions,
                from,
                upto,
                limit,
            } => {
                let swath = self
                    .messages
                    .sweep(&partitions, from, upto, limit, self.replica_lag);
                Some(SourceEvent::Swept {
                    ask,
                    result: Ok(swath),
                })
            }
            SourceRequest::Resolve {
                ask,
                partition,
                start,
            } => {
                let result = Ok(self.messages.resolve(&partition, start));
                Some(SourceEvent::Resolved { ask, result })
            }
            SourceRequest::InspectConsumer { ask, partitions } => {
                let result = Ok(self.inspect(durable, &partitions));
                Some(SourceEvent::Consumer { ask, result })
            }
            SourceRequest::EvictConsumer {
                ask,
                worker,
                partition,
            } => {
                let result = Ok(self.evict(worker.as_str(), &partition));
                Some(SourceEvent::Consumer { ask, result })
            }
            SourceRequest::Pull { ask, batch } => {
                let expires = now.saturating_add(self.config.pull_expiry);
                let most = self.config.max_waiting;
                let durable = self.durables.get_mut(durable);
                let open = |durable: &mut Durable| durable.pull(client, ask, batch, expires, most);
                (!durable.is_some_and(open)).then_some(SourceEvent::PullEnded { ask })
            }
            SourceRequest::StopPull { ask } => {
                let durable = self.durables.get_mut(durable);
                let stopped = durable.is_some_and(|durable| durable.stop_pull(client, ask));
                stopped.then_some(SourceEvent::PullEnded { ask })
            }
            SourceRequest::Ack { deliveries } => {
                let messages = self.messages_of(durable, &deliveries);
                self.ack(durable, &messages);
                None
            }
            SourceRequest::Extend { deliveries } => {
                let messages = self.messages_of(durable, &deliveries);
                self.extend(now, durable, &messages);
                None
            }
            SourceRequest::DeadLetter { ask, job, error } => {
                Some(self.letters.publish(self.identity, ask, job, error))
            }
            SourceRequest::External { ask, .. } => Some(SourceEvent::External {
                ask,
                result: Err(SourceError::Rejected("nobody consumes here himself".into())),
            }),
        }
    }

    /// What open pulls get now, redeliveries included, and which pulls ended. Ask after every
    /// publish and request, and at `next_deadline`.
    pub fn deliveries(&mut self, now: u64) -> Vec<(ClientId, SourceEvent)> {
        let mut out = std::mem::take(&mut self.outbox);
        for durable in self.durables.values_mut() {
            durable.deliver(now, &self.config, &mut self.messages, &mut out);
        }
        out
    }

    /// When `deliveries` may have something although nothing else happened until then.
    pub fn next_deadline(&self, now: u64) -> Option<u64> {
        let earliest = self
            .durables
            .values()
            .filter_map(Durable::next_deadline)
            .min()?;
        Some(earliest.max(now))
    }

    /// The durable takes these messages for handled, whoever says so.
    pub fn ack(&mut self, durable: &str, messages: &[Offset]) {
        if let Some(durable) = self.durables.get_mut(durable) {
            for message in messages {
                durable.ack(message.0, &self.config, &mut self.messages);
            }
        }
    }

    /// The durable learns that these messages are still worked on.
    pub fn extend(&mut self, now: u64, durable: &str, messages: &[Offset]) {
        if let Some(durable) = self.durables.get_mut(durable) {
            for message in messages {
                durable.extend(message.0, now + self.config.ack_wait);
            }
        }
    }

    /// The client's connection is gone, and its pulls with it; answers which those were, for the
    /// client to find out in its own time. A frozen client's pulls stay.
    pub fn disconnect(&mut self, client: ClientId) -> Vec<Ask> {
        self.outbox.retain(|(to, _)| *to != client);
        self.durables
            .values_mut()
            .flat_map(|durable| durable.disconnect(client))
            .collect()
    }

    /// The durable gets another leader: its last deliveries are undone, or its next ones lost;
    /// pulls end, and a work queue drops what it takes for acked.
    pub fn leader_change(&mut self, now: u64, durable: &str, rng: &mut Rng) {
        if let Some(durable) = self.durables.get_mut(durable) {
            let (messages, outbox) = (&mut self.messages, &mut self.outbox);
            durable.leader_change(now, &self.config, messages, rng, outbox);
        }
    }

    /// Deletes a durable: by its owner, by an operator, or for a dead worker.
    pub fn delete(&mut self, durable: &str) {
        if let Some(mut gone) = self.durables.remove(durable) {
            gone.end_all_pulls(&mut self.outbox);
        }
    }

    /// The names of all durables, sorted.
    pub fn durables(&self) -> impl Iterator<Item = &str> {
        self.durables.keys().map(String::as_str)
    }

    /// What the durable's info shows.
    pub fn info(&self, durable: &str) -> Option<ConsumerInfo> {
        let durable = self.durables.get(durable)?;
        let mut filters: Vec<PartitionId> = match &durable.filter {
            Filter::Everything => Vec::new(),
            Filter::Only(list) => list
                .iter()
                .map(|s| self.messages.name(*s).clone())
                .collect(),
        };
        filters.sort_unstable();
        let (delivered, sequence, floor, pending) = durable.shown();
        Some(ConsumerInfo {
            identity: durable.identity,
            filters,
            delivered: Offset(delivered),
            sequence,
            ack_floor: Offset(floor),
            pending,
        })
    }

    /// From now on `Read` is answered by a replica that has not got the last so many messages.
    pub fn set_replica_lag(&mut self, messages: u64) {
        self.replica_lag = messages;
    }

    /// The newest sequence, as the stream's leader knows it; 0 if nothing was ever published.
    pub fn head(&self) -> Offset {
        Offset(self.messages.last())
    }

    /// The oldest sequence still there.
    pub fn first(&self) -> Offset {
        Offset(self.messages.first())
    }

    /// One past the newest message of the partition; 1 if it has none.
    pub fn end(&self, partition: &PartitionId) -> Offset {
        self.messages.end(partition)
    }

    /// Retention: removes whatever is below `first`. Answers whose consumers pass over what of it.
    pub fn trim(&mut self, first: Offset) -> Vec<(Offset, WorkerId)> {
        let mut passed = Vec::new();
        for message in self.messages.first()..first.0 {
            let Some(entry) = self.messages.get(message) else {
                continue;
            };
            for (worker, durable) in &self.durables {
                if durable.passes_over(message, entry.subject) {
                    passed.push((Offset(message), WorkerId::new(worker)));
                }
            }
        }
        self.messages.trim(first.0);
        for durable in self.durables.values_mut() {
            durable.trimmed(first.0);
        }
        passed
    }

    /// Goes back: the stream ends at `last` again, and later sequences are given anew.
    pub fn roll_back(&mut self, last: Offset) {
        self.vanished
            .extend(self.messages.roll_back(self.identity, last.0));
        for durable in self.durables.values_mut() {
            durable.rolled_back(last.0);
        }
    }

    /// Vanishes, with all consumers: another, empty stream with another identity.
    pub fn recreate(&mut self) {
        let durables = std::mem::take(&mut self.durables);
        for mut durable in durables.into_values() {
            durable.end_all_pulls(&mut self.outbox);
        }
        let messages = std::mem::take(&mut self.messages);
        self.vanished.extend(messages.vanished(self.identity));
        self.identity += 1;
    }

    /// Every message ever published, also by former lives of the stream.
    pub fn published(&self) -> Vec<Published> {
        let mut all = self.vanished.clone();
        all.extend(self.messages.published(self.identity));
        all
    }

    /// The dead letters, in the order of their first publication.
    pub fn dead_letters(&self) -> &[DeadLetter] {
        self.letters.all()
    }

    fn filter(&mut self, partitions: &[PartitionId]) -> Filter {
        if partitions.is_empty() {
            return Filter::Everything;
        }
        let subjects = partitions
            .iter()
            .map(|partition| self.messages.subject(partition));
        let mut subjects: Vec<_> = subjects.collect();
        subjects.sort_unstable();
        subjects.dedup();
        Filter::Only(subjects)
    }

    /// Stamps are times, and no two are the same.
    fn next_stamp(&mut self, now: u64) -> u64 {
        self.newest_stamp = now.max(self.newest_stamp + 1);
        self.newest_stamp
    }

    fn update(
        &mut self,
        now: u64,
        name: &str,
        partitions: &[PartitionId],
    ) -> Result<ConsumerState, SourceError> {
        let filter = self.filter(partitions);
        if self.config.retention == Retention::WorkQueue {
            let mut others = self
                .durables
                .iter()
                .filter(|(other, _)| other.as_str() != name);
            if let Some((other, its)) = others.find(|(_, durable)| durable.filter.overlaps(&filter))
            {
                return Err(self.occupied(other, &its.filter, &filter));
            }
        }
        if let Some(durable) = self.durables.get_mut(name) {
            durable.filter = filter;
            return Ok(durable.state(true));
        }
        let durable = Durable::new(self.next_stamp(now), filter, self.messages.first());
        let state = durable.state(true);
        self.durables.insert(name.to_owned(), durable);
        Ok(state)
    }

    /// The server's error 10100, and who has what, as its client then finds out.
    fn occupied(&self, other: &str, its: &Filter, wanted: &Filter) -> SourceError {
        let shared = match wanted {
            Filter::Only(subjects) => subjects.iter().find(|subject| its.wants(**subject)),
            Filter::Everything => None,
        };
        match shared {
            Some(subject) => SourceError::Occupied {
                by: WorkerId::new(other),
                partition: self.messages.name(*subject).clone(),
            },
            None => SourceError::Unavailable("10100: consumers overlap on a work queue".into()),
        }
    }

    fn reset(&mut self, now: u64, name: &str) -> Result<ConsumerState, SourceError> {
        let identity = self.next_stamp(now);
        let Some(durable) = self.durables.get_mut(name) else {
            return Err(SourceError::Rejected("10014: consumer not found".into()));
        };
        let start = match self.config.retention {
            Retention::WorkQueue => 1,
            Retention::Limits => self.messages.last() + 1,
        };
        durable.reset(identity, start);
        Ok(durable.state(true))
    }

    fn inspect(&mut self, name: &str, partitions: &[PartitionId]) -> ConsumerState {
        let wanted = self.filter(partitions);
        let durable = self.durables.get(name);
        durable.map_or(ABSENT, |durable| durable.state(durable.filter == wanted))
    }

    fn evict(&mut self, name: &str, partition: &PartitionId) -> ConsumerState {
        let subject = self.messages.subject(partition);
        match self.durables.get(name) {
            Some(durable) if !durable.filter.wants(subject) => durable.state(true),
            Some(_) | None => {
                self.delete(name);
                ABSENT
            }
        }
    }

    fn messages_of(&self, durable: &str, sequences: &[u64]) -> Vec<Offset> {
        let Some(durable) = self.durables.get(durable) else {
            return Vec::new();
        };
        sequences
            .iter()
            .filter_map(|sequence| durable.message_of(*sequence))
            .map(Offset)
            .collect()
    }
}

/// The reply addresses that a client has got with its deliveries: which message each consumer
/// sequence of the durable's present identity stands for, as this client saw it last.
#[derive(Clone, Debug, Default)]
pub struct Replies {
    consumer: u64,
    by_sequence: BTreeMap<u64, Offset>,
}

impl Replies {
    /// The client received this.
    pub fn note(&mut self, event: &SourceEvent) {
        match event {
            SourceEvent::Delivered {
                consumer,
                sequence,
                message,
                ..
            } => {
                self.begin_life(*consumer);
                if *consumer == self.consumer {
                    self.by_sequence.insert(*sequence, message.offset);
                }
            }
            SourceEvent::Consumer {
                result: Ok(state), ..
            } => self.begin_life(state.identity),
            _ => {}
        }
    }

    /// The messages that the client means by these consumer sequences.
    pub fn messages(&self, sequences: &[u64]) -> Vec<Offset> {
        sequences
            .iter()
            .filter_map(|sequence| self.by_sequence.get(sequence).copied())
            .collect()
    }

    fn begin_life(&mut self, consumer: u64) {
        if consumer > self.consumer {
            self.consumer = consumer;
            self.by_sequence.clear();
        }
    }
}
