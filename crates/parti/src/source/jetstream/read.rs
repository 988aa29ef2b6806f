//! Reads past the durable: for the splice, and to turn a start position into an offset.
//!
//! ```text
//!   read (from, upto] ─▶ a few messages one by one, from the stream's leader ─▶ enough? answer
//!                   └─ many ─▶ a short-lived consumer of the one subject, kept for the next read
//! ```
//!
//! How far a read got is only ever said by the leader: a replica that lags behind has nothing, and
//! does not know that it should.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::jetstream::message::StreamMessage;
use async_nats::{Client, Message, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use parti_core::codec::Template;
use parti_core::io::ReadBatch;
use serde_json::json;
use tokio::time::Instant;

use super::api::{Action, Api, StreamState, error, unavailable};
use super::delivery::{place, record};
use super::subjects::{give_key, subject};
use crate::source::transport::message;
use crate::source::{Offset, PartitionId, Record, SourceError, StartPosition};

/// So many messages are read one by one before a consumer is worth its making.
const SINGLE: usize = 4;
/// The most bytes of one read, unless a single message is larger.
const READ_BYTES: usize = 8 * 1024 * 1024;
/// A reader that nobody used for this long is dropped, here and on the server.
const IDLE: Duration = Duration::from_secs(20);
/// How long a reader's fetch may take.
const FETCH: Duration = Duration::from_secs(2);

/// Reads partitions of one stream.
#[derive(Debug)]
pub(super) struct Reads {
    api: Api,
    template: Template,
    /// Readers between two reads.
    readers: Mutex<BTreeMap<PartitionId, Reader>>,
}

/// A consumer of one subject, behind which nothing is kept.
struct Reader {
    name: String,
    inbox: String,
    messages: Subscriber,
    /// The next offset that it will look at.
    next: u64,
    /// The next consumer sequence: anything else means that something was lost.
    sequence: u64,
    used: Instant,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {}", self.name, self.next)
    }
}

/// What a read has found so far.
#[derive(Default)]
struct Found {
    records: Vec<Record>,
    bytes: usize,
    /// Everything below this was looked at.
    next: u64,
}

impl Found {
    fn push(&mut self, record: Record) {
        self.bytes += record.payload.len();
        self.next = record.offset.0 + 1;
        self.records.push(record);
    }

    fn is_enough(&self, limit: usize) -> bool {
        self.records.len() >= limit || self.bytes >= READ_BYTES
    }
}

impl Reads {
    /// No reader yet.
    pub fn new(api: Api, template: Template) -> Self {
        Self {
            api,
            template,
            readers: Mutex::default(),
        }
    }

    /// The stream's end, as its leader knows it.
    pub async fn head(&self) -> Result<Offset, SourceError> {
        Ok(Offset(self.api.stream_info().await?.state.last_seq))
    }

    /// Messages of a partition from `from` up to and with `upto`.
    pub async fn read(
        &self,
        partition: &PartitionId,
        from: Offset,
        upto: Option<Offset>,
        limit: u32,
    ) -> Result<ReadBatch, SourceError> {
        let subject = subject(&self.template, partition)?;
        let upto = match upto {
            Some(upto) => upto.0,
            None => self.api.stream_info().await?.state.last_seq,
        };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut found = Found {
            next: from.0,
            ..Found::default()
        };
        let mut reader = self.reader_at(partition, from.0);
        if reader.is_none() {
            self.one_by_one(&subject, upto, limit.min(SINGLE), &mut found)
                .await?;
            if found.next <= upto && found.records.len() >= SINGLE && !found.is_enough(limit) {
                reader = Some(Reader::open(&self.api, &subject, found.next).await?);
            }
        }
        if let Some(mut reader) = reader {
            let sound = reader.fetch(&self.api, upto, limit, &mut found).await;
            if sound && found.next <= upto {
                self.keep(partition, reader);
            } else {
                reader.end(&self.api);
            }
            if found.next <= upto && !found.is_enough(limit) {
                // The reader has no more; only the leader knows whether there is no more.
                self.one_by_one(&subject, upto, 1, &mut found).await?;
            }
        }
        for record in &mut found.records {
            give_key(&self.template, record);
        }
        let state = self.api.stream_info().await?.state;
        Ok(answer(from, found, &state))
    }

    /// Reads up to so many messages from the leader.
    async fn one_by_one(
        &self,
        subject: &str,
        upto: u64,
        limit: usize,
        found: &mut Found,
    ) -> Result<(), SourceError> {
        for _ in 0..limit {
            if found.next > upto {
                return Ok(());
            }
            match self.api.next_message(subject, found.next).await? {
                Some(message) if message.sequence <= upto => found.push(stored(message)),
                _ => found.next = upto + 1,
            }
        }
        Ok(())
    }

    /// Turns a start position into an offset, neither before the beginning nor past the end.
    pub async fn resolve(
        &self,
        partition: &PartitionId,
        start: StartPosition,
    ) -> Result<Offset, SourceError> {
        let state = self.api.stream_info().await?.state;
        Ok(Offset(match start {
            StartPosition::Latest => state.end(),
            StartPosition::Earliest => state.first().min(state.end()),
            StartPosition::Offset(offset) => offset.min(state.end()).max(state.first()),
            StartPosition::Time(since) => {
                let subject = subject(&self.template, partition)?;
                self.first_since(&subject, &state, since).await?
            }
        }))
    }

    /// The first message of a subject that is not older, by halving: times grow along a stream.
    async fn first_since(
        &self,
        subject: &str,
        state: &StreamState,
        since_ms: u64,
    ) -> Result<u64, SourceError> {
        let (mut low, mut high) = (state.first(), state.end());
        let mut found = state.end();
        while low < high {
            let middle = low + (high - low) / 2;
            match self.api.next_message(subject, middle).await? {
                Some(message) if message.sequence < state.end() => {
                    if time_ms(&message) >= since_ms {
                        found = message.sequence;
                        high = middle;
                    } else {
                        low = message.sequence + 1;
                    }
                }
                _ => high = middle,
            }
        }
        Ok(found)
    }

    fn readers(&self) -> MutexGuard<'_, BTreeMap<PartitionId, Reader>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kept reader of a partition, if it stands at this offset.
    fn reader_at(&self, partition: &PartitionId, from: u64) -> Option<Reader> {
        let now = Instant::now();
        let mut readers = self.readers();
        let idle = readers.extract_if(.., |_, reader| now - reader.used > IDLE);
        let idle: Vec<Reader> = idle.map(|(_, reader)| reader).collect();
        let found = readers.remove(partition);
        drop(readers);
        for reader in idle {
            reader.end(&self.api);
        }
        match found {
            Some(reader) if reader.next == from => Some(reader),
            Some(reader) => {
                reader.end(&self.api);
                None
            }
            None => None,
        }
    }

    fn keep(&self, partition: &PartitionId, mut reader: Reader) {
        reader.used = Instant::now();
        let before = self.readers().insert(partition.clone(), reader);
        if let Some(before) = before {
            before.end(&self.api);
        }
    }
}

impl Reader {
    async fn open(api: &Api, subject: &str, from: u64) -> Result<Self, SourceError> {
        let client: &Client = &api.link.client;
        let inbox = client.new_inbox();
        let name = format!("parti-read-{}", inbox.rsplit('.').next().unwrap_or("x"));
        let messages = client.subscribe(inbox.clone()).await;
        let messages = messages.map_err(|error| unavailable(error.to_string()))?;
        let config = json!({
            "name": name,
            "description": "reads a backlog, then goes away",
            "ack_policy": "none",
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": from,
            "replay_policy": "instant",
            "filter_subject": subject,
            "inactive_threshold": (IDLE * 2).as_nanos() as u64,
            "mem_storage": true,
            "num_replicas": 1,
        });
        api.put_consumer(&name, config, Action::Create)
            .await
            .map_err(error)?;
        Ok(Self {
            name,
            inbox,
            messages,
            next: from,
            sequence: 1,
            used: Instant::now(),
        })
    }

    /// Fetches what there is, up to the limit. False: something is wrong with this reader, and it
    /// must not be used again; what it found is good all the same.
    async fn fetch(&mut self, api: &Api, upto: u64, limit: usize, found: &mut Found) -> bool {
        let before = found.records.len();
        let wanted = limit.saturating_sub(before);
        let request = json!({ "batch": wanted, "no_wait": true, "max_bytes": READ_BYTES });
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{}.{}", api.stream, self.name);
        let client = &api.link.client;
        let payload = Bytes::from(request.to_string());
        let sent = client.publish_with_reply(subject, self.inbox.clone(), payload);
        if sent.await.is_err() {
            return false;
        }
        let deadline = Instant::now() + FETCH;
        for _ in 0..wanted {
            let came = tokio::time::timeout_at(deadline, self.messages.next()).await;
            let Ok(Some(delivery)) = came else {
                return false;
            };
            if let Some(status) = delivery.status {
                // 404 and 408: no more; 409: not in these bytes. Anything else is trouble.
                let why = delivery.description.as_deref().unwrap_or_default();
                return match status.as_u16() {
                    404 | 408 => true,
                    409 => why == "Message Size Exceeds MaxBytes" && found.records.len() > before,
                    _ => false,
                };
            }
            if !self.take(delivery, upto, found) {
                return false;
            }
        }
        true
    }

    /// Takes in one delivery. False: it is not the next one, or beyond what was asked for.
    fn take(&mut self, delivery: Message, upto: u64, found: &mut Found) -> bool {
        let reply = delivery.reply.as_ref().map_or("", |reply| reply.as_str());
        let Some(place) = place(reply).filter(|place| place.sequence == self.sequence) else {
            return false;
        };
        self.sequence += 1;
        self.next = place.offset + 1;
        if place.offset > upto {
            found.next = upto + 1;
            return false;
        }
        found.push(record(
            place.offset,
            &delivery.subject,
            delivery.headers.as_ref(),
            delivery.payload,
            place.timestamp_ms,
        ));
        true
    }

    /// The server would drop it, too, only later.
    fn end(self, api: &Api) {
        let api = api.clone();
        tokio::spawn(async move {
            let _ = api.delete_consumer(&self.name).await;
        });
    }
}

fn time_ms(message: &StreamMessage) -> u64 {
    u64::try_from(message.time.unix_timestamp_nanos() / 1_000_000).unwrap_or(0)
}

fn stored(message: StreamMessage) -> Record {
    let time = time_ms(&message);
    record(
        message.sequence,
        &message.subject,
        Some(&message.headers),
        message.payload,
        time,
    )
}

/// What a read tells the core. `state` was asked after it: what retention removed meanwhile is
/// named, and never guessed.
fn answer(from: Offset, mut found: Found, state: &StreamState) -> ReadBatch {
    let oldest = found.records.first().map(|record| record.offset.0);
    if let Some(oldest) = oldest
        && state.first() > oldest + 1
    {
        // Retention went past this message while others were read: there may be holes between
        // them. The next read says so.
        found.records.truncate(1);
        found.next = oldest + 1;
    }
    let seen = oldest.unwrap_or(found.next).max(from.0);
    ReadBatch {
        messages: found.records.into_iter().map(message).collect(),
        next: Offset(found.next),
        // Whatever was read is there, wherever the stream begins by now.
        first: Offset(state.first().min(seen)),
        end: Offset(state.end()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(offsets: &[u64], next: u64) -> Found {
        let mut found = Found::default();
        for offset in offsets {
            found.push(Record {
                offset: Offset(*offset),
                ..Record::default()
            });
        }
        found.next = next;
        found
    }

    fn answered(offsets: &[u64], next: u64, first: u64) -> (Vec<u64>, u64, u64) {
        let state = StreamState {
            first_seq: first,
            last_seq: 99,
        };
        let batch = answer(Offset(10), found(offsets, next), &state);
        let offsets = batch.messages.iter().map(|m| m.offset.0).collect();
        (offsets, batch.next.0, batch.first.0)
    }

    #[test]
    fn what_retention_removed_is_named_and_what_was_read_is_kept() {
        assert_eq!(answered(&[12, 15], 20, 1), (vec![12, 15], 20, 1));
        assert_eq!(answered(&[12, 15], 20, 11), (vec![12, 15], 20, 11));
        assert_eq!(answered(&[12, 15], 20, 13), (vec![12, 15], 20, 12));
        // 13 and 14 may have been ours, and are gone: the next read tells.
        assert_eq!(answered(&[12, 15], 20, 15), (vec![12], 13, 12));
        assert_eq!(answered(&[], 20, 15), (vec![], 20, 15));
        assert_eq!(answered(&[], 20, 50), (vec![], 20, 20));
    }
}
