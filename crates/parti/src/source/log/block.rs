//! A block: neighbours of one partition that were appended at once, as one value.
//!
//! ```text
//!   ┌ message ─────────────────────────────────────────────────────────┐
//!   │ key length + 1 │ headers length │ payload length │ key │ headers │ payload │ ...
//!   └ 4 bytes each, 0 for no key ─────────────────────────────────────────────────┘
//! ```
//!
//! SQLite takes some microseconds for a row, whatever is in it: a row for each message would cost
//! more than the messages. One checksum covers a block and its place.

use bytes::Bytes;
use parti_core::ids::Offset;
use std::sync::Arc;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::NewRecord;
use crate::source::{Headers, Record};

/// A block that has reached this size takes no more messages. It is what a message that somebody
/// keeps may hold in memory beside itself, and what a read of one message costs.
const FULL: usize = 32 * 1024;

/// Lengths before each message.
const LENGTHS: usize = 12;

/// A block that is being filled.
#[derive(Debug, Default)]
pub(super) struct Filling {
    body: Vec<u8>,
    count: u32,
    bytes: u64,
}

impl Filling {
    pub(super) fn push(&mut self, record: &NewRecord) {
        let headers: usize = record.headers.iter().map(header_size).sum();
        let key = record.key.as_ref();
        // What is too large for these lengths was refused before: see `MAX_MESSAGE`.
        let lengths = [
            key.map_or(0, |key| key.len() + 1),
            headers,
            record.payload.len(),
        ];
        let before = self.body.len();
        self.body.reserve(LENGTHS + lengths.iter().sum::<usize>());
        for length in lengths {
            self.put_length(length);
        }
        self.body.extend_from_slice(key.map_or(&[], |key| key));
        for (name, value) in &record.headers {
            for part in [name.as_bytes(), value] {
                self.put_length(part.len());
                self.body.extend_from_slice(part);
            }
        }
        self.body.extend_from_slice(&record.payload);
        self.count += 1;
        self.bytes += (self.body.len() - before - LENGTHS) as u64;
    }

    fn put_length(&mut self, length: usize) {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        self.body.extend_from_slice(&length.to_be_bytes());
    }

    pub(super) fn is_full(&self) -> bool {
        self.body.len() >= FULL
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn body(&self) -> &[u8] {
        &self.body
    }

    /// Empty again, with its memory.
    pub(super) fn clear(&mut self) {
        self.body.clear();
        self.count = 0;
        self.bytes = 0;
    }
}

fn header_size((name, value): &(String, Bytes)) -> usize {
    8 + name.len() + value.len()
}

/// What a message takes of a partition's size: its key, headers and payload.
pub(super) fn size(record: &NewRecord) -> u64 {
    let headers: usize = record.headers.iter().map(header_size).sum();
    (record.key.as_ref().map_or(0, Bytes::len) + headers + record.payload.len()) as u64
}

/// The checksum of a block in its place.
pub(super) fn checksum(row: i64, count: u32, at_ms: u64, body: &[u8]) -> i64 {
    let mut place = [0; 20];
    place[..8].copy_from_slice(&row.to_be_bytes());
    place[8..12].copy_from_slice(&count.to_be_bytes());
    place[12..].copy_from_slice(&at_ms.to_be_bytes());
    xxh3_64_with_seed(body, xxh3_64(&place)).cast_signed()
}

/// A sound block's messages, taken out of it one by one.
pub(super) struct Messages {
    body: Bytes,
    at: usize,
    offset: u64,
    left: u32,
}

/// Where a message's parts are in its block.
struct Parts {
    key: Option<(usize, usize)>,
    headers: (usize, usize),
    payload: (usize, usize),
}

impl Messages {
    pub(super) fn new(body: Bytes, first: u64, count: u32) -> Self {
        Self {
            body,
            at: 0,
            offset: first,
            left: count,
        }
    }

    fn length(&self, at: usize) -> Option<usize> {
        let bytes = self.body.get(at..at + 4)?;
        usize::try_from(u32::from_be_bytes(bytes.try_into().ok()?)).ok()
    }

    /// Steps over the next message; none if the block does not hold what it should.
    fn step(&mut self) -> Option<Parts> {
        let lengths = [0, 4, 8].map(|more| self.length(self.at + more));
        let [Some(key), Some(headers), Some(payload)] = lengths else {
            return None;
        };
        let begin = self.at + LENGTHS;
        let after_key = begin + key.saturating_sub(1);
        let after_headers = after_key.checked_add(headers)?;
        let end = after_headers.checked_add(payload)?;
        if end > self.body.len() {
            return None;
        }
        self.at = end;
        self.offset += 1;
        self.left = self.left.checked_sub(1)?;
        Some(Parts {
            key: (key > 0).then_some((begin, after_key)),
            headers: (after_key, after_headers),
            payload: (after_headers, end),
        })
    }

    /// Steps over messages below an offset; says how many bytes they take of the partition's size.
    pub(super) fn skip_to(&mut self, offset: u64) -> Option<u64> {
        let mut bytes = 0;
        while self.offset < offset && self.left > 0 {
            bytes += self.skip()?;
        }
        Some(bytes)
    }

    /// Steps over one message; says how many bytes it takes of the partition's size.
    pub(super) fn skip(&mut self) -> Option<u64> {
        let parts = self.step()?;
        let begin = parts.key.map_or(parts.headers.0, |key| key.0);
        Some((parts.payload.1 - begin) as u64)
    }

    /// The offset of the message that comes next.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    pub(super) fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// The next message.
    pub(super) fn take(&mut self, topic: &Arc<str>, at_ms: u64) -> Option<Record> {
        let offset = self.offset;
        let parts = self.step()?;
        let headers = self.body.slice(parts.headers.0..parts.headers.1);
        Some(Record {
            offset: Offset(offset),
            subject: topic.clone(),
            key: parts.key.map(|(begin, end)| self.body.slice(begin..end)),
            headers: if headers.is_empty() {
                Headers::default()
            } else {
                decode(&headers)?.into()
            },
            payload: self.body.slice(parts.payload.0..parts.payload.1),
            timestamp_ms: at_ms,
        })
    }
}

/// Headers out of their bytes: each name and value after its length.
fn decode(bytes: &Bytes) -> Option<Vec<(String, Bytes)>> {
    let mut at = 0;
    let mut take = || -> Option<Bytes> {
        let length = bytes.get(at..at + 4)?;
        let length = usize::try_from(u32::from_be_bytes(length.try_into().ok()?)).ok()?;
        let (begin, end) = (at + 4, (at + 4).checked_add(length)?);
        bytes.get(begin..end)?;
        at = end;
        Some(bytes.slice(begin..end))
    };
    let mut headers = Vec::new();
    let mut read = 0;
    while read < bytes.len() {
        let (name, value) = (take()?, take()?);
        read += 8 + name.len() + value.len();
        headers.push((String::from_utf8(name.to_vec()).ok()?, value));
    }
    Some(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Vec<NewRecord> {
        let headers = vec![
            ("a".to_owned(), Bytes::from_static(b"1")),
            (String::new(), Bytes::new()),
            ("ä".to_owned(), Bytes::from_static(&[0, 255])),
        ];
        vec![
            NewRecord::new("plain"),
            NewRecord::new("").with_key(""),
            NewRecord {
                headers,
                ..NewRecord::new("all").with_key("k")
            },
            NewRecord::default(),
        ]
    }

    fn filled(records: &[NewRecord]) -> Filling {
        let mut filling = Filling::default();
        for record in records {
            filling.push(record);
        }
        filling
    }

    #[test]
    fn messages_come_back_as_they_went() {
        let (records, topic) = (records(), Arc::from("t"));
        let filling = filled(&records);
        let sizes: u64 = records.iter().map(size).sum();
        assert_eq!((filling.count(), filling.bytes()), (4, sizes));
        let body = Bytes::copy_from_slice(filling.body());
        let mut messages = Messages::new(body, 7, filling.count());
        for (offset, record) in (7..).zip(&records) {
            assert_eq!(messages.offset(), offset);
            let got = messages.take(&topic, 5).expect("there");
            assert_eq!((got.offset, got.timestamp_ms), (Offset(offset), 5));
            assert_eq!(got.key, record.key);
            assert_eq!(*got.headers, record.headers);
            assert_eq!(got.payload, record.payload);
        }
        assert!(messages.is_empty());
        assert!(messages.take(&topic, 5).is_none());
    }

    #[test]
    fn messages_are_skipped_with_their_sizes() {
        let records = records();
        let filling = filled(&records);
        let mut messages = Messages::new(Bytes::copy_from_slice(filling.body()), 7, 4);
        let first: u64 = records.iter().take(3).map(size).sum();
        assert_eq!(messages.skip_to(10), Some(first));
        assert_eq!(messages.offset(), 10);
        assert_eq!(messages.skip(), Some(0));
        assert_eq!(messages.skip_to(99), Some(0));
    }

    #[test]
    fn a_body_that_was_cut_is_noticed_and_nothing_panics() {
        let (filling, topic) = (filled(&records()), Arc::from("t"));
        for cut in 0..filling.body().len() {
            let body = Bytes::copy_from_slice(&filling.body()[..cut]);
            let mut messages = Messages::new(body, 0, 4);
            let whole = std::iter::from_fn(|| messages.take(&topic, 0)).count();
            assert!(whole < 4, "{cut}");
        }
        for length in [12, 13, 40] {
            let mut messages = Messages::new(Bytes::from(vec![255; length]), 0, 1);
            assert!(messages.take(&topic, 0).is_none());
        }
        assert_eq!(decode(&Bytes::from_static(&[0, 0, 0, 9])), None);
    }

    #[test]
    fn a_checksum_covers_everything_and_is_the_same_for_good() {
        let whole = checksum(1, 2, 3, b"body");
        for other in [
            checksum(2, 2, 3, b"body"),
            checksum(1, 3, 3, b"body"),
            checksum(1, 2, 4, b"body"),
            checksum(1, 2, 3, b"bodY"),
            checksum(1, 2, 3, b"bod"),
        ] {
            assert_ne!(whole, other);
        }
        assert_eq!(whole, KNOWN);
    }

    /// What was written once must stay readable.
    const KNOWN: i64 = 208_053_902_780_730_495;
}
