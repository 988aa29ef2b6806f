//! Reads past the durable: for the splice, and to turn a start position into an offset.
//!
//! ```text
//!   read (from, upto] ─▶ a few messages one by one, from the stream's leader ─▶ enough? answer
//!                   └─ many ─▶ a reader of the one subject, kept for the next read
//!   sweep (from, upto] ──────▶ a reader of the whole stream, kept too; what nobody wants is dropped
//! ```
//!
//! How far a read got is only ever said by the leader: a replica that lags behind has nothing, and
//! does not know that it should.

use std::sync::Arc;
use std::time::SystemTime;

use async_nats::jetstream::message::StreamMessage;
use parti_core::codec::Template;
use parti_core::io::{Bounds, ReadBatch, Swath};

use super::api::{Api, StreamState};
use super::delivery::record;
use super::reader::{Ended, Found, Kept, Reader, Wanted};
use super::subjects::{give_key, subject};
use crate::source::transport::message;
use crate::source::{Offset, PartitionId, Record, SourceError, StartPosition};

/// Up to so many messages are read one by one: a consumer is not worth its making.
const SINGLE: usize = 4;
/// What a reader of the whole stream asks for at once.
const SWEEP_BATCH: u64 = 8_192;
/// Every subject.
const ALL: &str = ">";

/// Reads partitions of one stream.
#[derive(Debug)]
pub(super) struct Reads {
    api: Api,
    template: Template,
    kept: Arc<Kept>,
}

impl Reads {
    /// No reader yet.
    pub fn new(api: Api, template: Template) -> Self {
        Self {
            kept: Kept::new(api.clone()),
            api,
            template,
        }
    }

    /// Where the stream begins and ends, as its leader knows it.
    pub async fn bounds(&self) -> Result<Bounds, SourceError> {
        let state = self.api.stream_info().await?.state;
        Ok(Bounds {
            first: Offset(state.first()),
            last: Offset(state.last_seq),
        })
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
        let mut found = Found::from(from.0);
        let reader = self.kept.take(Some(partition), from.0);
        if limit <= SINGLE && reader.is_none() {
            self.one_by_one(partition, &subject, upto, limit, &mut found)
                .await?;
        } else {
            let mut reader = match reader {
                Some(reader) => reader,
                None => Reader::open(&self.api, &self.template, Some(&subject), from.0).await?,
            };
            let mut wanted = Wanted {
                partitions: [(partition.clone(), 0)].into(),
                upto,
                limit,
                batch: limit as u64,
            };
            let ended = reader.fetch(&self.api, &mut wanted, &mut found).await;
            if ended == Ended::Enough && found.next <= upto {
                self.kept.keep(Some(partition), reader);
            } else {
                reader.end(&self.api);
            }
            if found.next <= upto && !found.is_enough(limit) {
                // The reader has no more; only the leader knows whether there is no more.
                self.one_by_one(partition, &subject, upto, 1, &mut found)
                    .await?;
            }
        }
        let state = self.api.stream_info().await?.state;
        Ok(answer(from, self.with_keys(found), &state))
    }

    /// Messages of all these partitions, by one read of the whole stream.
    pub async fn sweep(
        &self,
        partitions: &[PartitionId],
        from: Offset,
        upto: Offset,
        limit: u32,
    ) -> Result<Swath, SourceError> {
        let mut found = Found::from(from.0);
        let mut reader = match self.kept.take(None, from.0) {
            Some(reader) => reader,
            None => Reader::open(&self.api, &self.template, None, from.0).await?,
        };
        let mut wanted = Wanted {
            partitions: partitions.iter().map(|p| (p.clone(), 0)).collect(),
            upto: upto.0,
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            batch: SWEEP_BATCH,
        };
        let ended = reader.fetch(&self.api, &mut wanted, &mut found).await;
        if ended == Ended::Enough {
            // The next one goes on here.
            self.kept.keep(None, reader);
        } else {
            reader.end(&self.api);
        }
        if ended == Ended::Dry {
            let next = self.api.next_message(ALL, found.next).await?;
            if next.is_none_or(|message| message.sequence > upto.0) {
                found.next = upto.0 + 1;
            }
        }
        let state = self.api.stream_info().await?.state;
        Ok(swath(from, self.with_keys(found), &state))
    }

    /// Reads up to so many messages from the leader.
    async fn one_by_one(
        &self,
        partition: &PartitionId,
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
                Some(message) if message.sequence <= upto => {
                    found.push(partition, stored(message));
                }
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

    /// Gives messages without a key the one that their subject holds.
    fn with_keys(&self, mut found: Found) -> Found {
        for (_, record) in &mut found.records {
            give_key(&self.template, record);
        }
        found
    }
}

fn time_ms(message: &StreamMessage) -> u64 {
    u64::try_from(message.time.unix_timestamp_nanos() / 1_000_000).unwrap_or(0)
}

fn stored(message: StreamMessage) -> Record {
    let time = time_ms(&message);
    record(
        message.sequence,
        message.subject.as_str(),
        Some(message.headers),
        message.payload,
        time,
    )
}

/// What a read tells the core. `state` was asked after it: what retention removed meanwhile is named,
/// and never guessed.
fn answer(from: Offset, mut found: Found, state: &StreamState) -> ReadBatch {
    let oldest = found.records.first().map(|(_, record)| record.offset.0);
    if let Some(oldest) = oldest
        && state.first() > oldest + 1
    {
        // Retention went past this message while others were read: there may be holes between
        // them. The next read says so.
        found.records.truncate(1);
        found.next = oldest + 1;
    }
    let seen = oldest.unwrap_or(found.next).max(from.0);
    let (records, now) = (found.records.into_iter(), SystemTime::now());
    ReadBatch {
        messages: records.map(|(_, record)| message(record, now)).collect(),
        next: Offset(found.next),
        // Whatever was read is there, wherever the stream begins by now.
        first: Offset(state.first().min(seen)),
        end: Offset(state.end()),
    }
}

/// The same for a sweep, which sees every hole: it ends where retention may have made one.
fn swath(from: Offset, mut found: Found, state: &StreamState) -> Swath {
    if let Some(hole) = found.hole
        && state.first() > hole
    {
        found.next = hole;
        found.records.retain(|(_, record)| record.offset.0 < hole);
    }
    let seen = found.oldest.unwrap_or(found.next).max(from.0);
    let (records, now) = (found.records.into_iter(), SystemTime::now());
    Swath {
        messages: records
            .map(|(of, record)| (of, message(record, now)))
            .collect(),
        next: Offset(found.next),
        first: Offset(state.first().min(seen)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(offsets: &[u64], next: u64) -> Found {
        let mut found = Found::from(10);
        for offset in offsets {
            let record = Record {
                offset: Offset(*offset),
                ..Record::default()
            };
            found.push(&PartitionId::new("a"), record);
        }
        found.next = next;
        found
    }

    fn state(first: u64) -> StreamState {
        StreamState {
            first_seq: first,
            last_seq: 99,
            ..StreamState::default()
        }
    }

    fn answered(offsets: &[u64], next: u64, first: u64) -> (Vec<u64>, u64, u64) {
        let batch = answer(Offset(10), found(offsets, next), &state(first));
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

    fn swept(offsets: &[u64], next: u64, first: u64) -> (Vec<u64>, u64, u64) {
        let swath = swath(Offset(10), found(offsets, next), &state(first));
        let offsets = swath.messages.iter().map(|(_, m)| m.offset.0).collect();
        (offsets, swath.next.0, swath.first.0)
    }

    #[test]
    fn a_sweep_ends_where_retention_may_have_made_a_hole() {
        assert_eq!(swept(&[10, 11, 14], 20, 1), (vec![10, 11, 14], 20, 1));
        assert_eq!(swept(&[10, 11, 14], 20, 12), (vec![10, 11, 14], 20, 10));
        assert_eq!(swept(&[10, 11, 14], 20, 13), (vec![10, 11], 12, 10));
        assert_eq!(swept(&[14, 15], 16, 14), (vec![14, 15], 16, 14));
        assert_eq!(swept(&[14, 15], 16, 30), (vec![14, 15], 16, 14));
        assert_eq!(swept(&[], 20, 15), (vec![], 20, 15));
    }
}
