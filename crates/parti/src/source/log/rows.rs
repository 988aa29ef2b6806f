//! A topic's tables, and what a message is in them.
//!
//! A message's row is `partition << 40 | offset`: a partition's messages lie side by side, in
//! order, and are found without an index.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use parti_core::ids::Offset;
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, params};
use xxhash_rust::xxh3::xxh3_64;

use super::NewRecord;
use crate::source::Record;
use crate::sqlite::Layout;

/// Bits of a row that are the offset.
const OFFSET_BITS: u32 = 40;

pub(super) const LAYOUT: Layout = Layout {
    what: "topic",
    // "PaLo"
    application_id: 0x5061_4c6f,
    format: 1,
    schema: "
        CREATE TABLE topic (
            name TEXT NOT NULL, partitions INTEGER NOT NULL, identity INTEGER NOT NULL,
            created_ms INTEGER NOT NULL, retention_age_ms INTEGER, retention_bytes INTEGER
        );
        CREATE TABLE partitions (
            number INTEGER PRIMARY KEY, first INTEGER NOT NULL, next INTEGER NOT NULL,
            bytes INTEGER NOT NULL, last_ms INTEGER NOT NULL
        );
        CREATE TABLE messages (
            row INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, key BLOB, headers BLOB NOT NULL,
            payload BLOB NOT NULL, checksum INTEGER NOT NULL
        );
        CREATE TABLE origins (
            partition TEXT NOT NULL, offset INTEGER NOT NULL, PRIMARY KEY (partition, offset)
        ) WITHOUT ROWID;
    ",
};

/// The row of an offset.
pub(super) fn row(partition: u32, offset: u64) -> i64 {
    // Both bounds are kept by whoever makes topics and offsets.
    i64::from(partition) << OFFSET_BITS | i64::try_from(offset).unwrap_or(i64::MAX)
}

/// Offsets stay below this.
pub(super) const MAX_OFFSET: u64 = 1 << OFFSET_BITS;

/// How a partition is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) first: u64,
    pub(super) next: u64,
    pub(super) bytes: u64,
    pub(super) last_ms: u64,
}

/// Numbers of ours fit into SQLite's signed ones, and come back as they went.
pub(super) fn unsigned(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    Ok(row.get::<_, i64>(column)?.cast_unsigned())
}

pub(super) fn part(connection: &Connection, number: u32) -> rusqlite::Result<Option<Part>> {
    connection
        .prepare_cached("SELECT first, next, bytes, last_ms FROM partitions WHERE number = ?1")?
        .query_row([number], |row| {
            Ok(Part {
                first: unsigned(row, 0)?,
                next: unsigned(row, 1)?,
                bytes: unsigned(row, 2)?,
                last_ms: unsigned(row, 3)?,
            })
        })
        .optional()
}

pub(super) fn save_part(connection: &Connection, number: u32, part: Part) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "UPDATE partitions SET first = ?2, next = ?3, bytes = ?4, last_ms = ?5 WHERE number = ?1",
        )?
        .execute(params![
            number,
            part.first.cast_signed(),
            part.next.cast_signed(),
            part.bytes.cast_signed(),
            part.last_ms.cast_signed()
        ])?;
    Ok(())
}

/// One past the newest offset of every partition.
pub(super) fn ends(connection: &Connection) -> rusqlite::Result<Vec<u64>> {
    let mut statement = connection.prepare_cached("SELECT next FROM partitions ORDER BY number")?;
    statement
        .query_map([], |row| unsigned(row, 0))?
        .collect::<rusqlite::Result<Vec<u64>>>()
}

/// What a message takes of a partition's size: the bytes of its row's columns.
pub(super) fn size(record: &NewRecord) -> u64 {
    let header = |(name, value): &(String, Bytes)| 8 + name.len() + value.len();
    let headers: usize = record.headers.iter().map(header).sum();
    (record.key.as_ref().map_or(0, Bytes::len) + headers + record.payload.len()) as u64
}

/// Headers as bytes: each name and value after its length.
fn encode(headers: &[(String, Bytes)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in headers {
        for part in [name.as_bytes(), value] {
            bytes.extend(u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
            bytes.extend(part);
        }
    }
    bytes
}

fn decode(mut bytes: &[u8]) -> Option<Vec<(String, Bytes)>> {
    let mut take = || -> Option<Option<Bytes>> {
        if bytes.is_empty() {
            return Some(None);
        }
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (part, rest) = rest.split_at_checked(length)?;
        bytes = rest;
        Some(Some(Bytes::copy_from_slice(part)))
    };
    let mut headers = Vec::new();
    while let Some(name) = take()? {
        headers.push((String::from_utf8(name.to_vec()).ok()?, take()??));
    }
    Some(headers)
}

/// The checksum of a message: one hash over its parts, each after its length. `buffer` is where
/// they are put together, and kept from message to message.
fn checksum(
    buffer: &mut Vec<u8>,
    row: i64,
    at_ms: u64,
    key: Option<&[u8]>,
    headers: &[u8],
    payload: &[u8],
) -> i64 {
    buffer.clear();
    buffer.extend_from_slice(&row.to_be_bytes());
    buffer.extend_from_slice(&at_ms.to_be_bytes());
    for part in [key.unwrap_or_default(), headers, payload] {
        buffer.extend_from_slice(&(part.len() as u64).to_be_bytes());
        buffer.extend_from_slice(part);
    }
    buffer.push(u8::from(key.is_some()));
    xxh3_64(buffer).cast_signed()
}

/// The statement that [`insert`] takes: prepared once for a whole batch.
pub(super) fn inserting(connection: &Connection) -> rusqlite::Result<CachedStatement<'_>> {
    connection.prepare_cached(
        "INSERT INTO messages (row, at_ms, key, headers, payload, checksum)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )
}

pub(super) fn insert(
    statement: &mut CachedStatement<'_>,
    row: i64,
    at_ms: u64,
    record: &NewRecord,
    buffer: &mut Vec<u8>,
) -> rusqlite::Result<()> {
    let (key, headers) = (record.key.as_deref(), encode(&record.headers));
    let checksum = checksum(buffer, row, at_ms, key, &headers, &record.payload);
    let payload = record.payload.as_ref();
    statement.execute(params![
        row,
        at_ms.cast_signed(),
        key,
        headers,
        payload,
        checksum
    ])?;
    Ok(())
}

/// What a read found.
#[derive(Default)]
pub(super) struct Found {
    /// The messages, in order.
    pub(super) records: Vec<Record>,
    /// The offset after them, if what is there is not what was written.
    pub(super) damaged: Option<u64>,
}

/// A partition's messages from an offset on, up to so many and so many bytes.
pub(super) fn messages(
    connection: &Connection,
    topic: &Arc<str>,
    partition: u32,
    from: u64,
    limit: usize,
    bytes: usize,
) -> rusqlite::Result<Found> {
    let mut statement = connection.prepare_cached(
        "SELECT row, at_ms, key, headers, payload, checksum FROM messages
         WHERE row >= ?1 AND row < ?2 ORDER BY row LIMIT ?3",
    )?;
    let most = i64::try_from(limit).unwrap_or(i64::MAX);
    let range = (row(partition, from), row(partition + 1, 0));
    let mut rows = statement.query(params![range.0, range.1, most])?;
    let mut found = Found::default();
    let (mut total, mut buffer, mut chunk) = (0, Vec::new(), Chunk::default());
    while let Some(got) = rows.next()? {
        let place: i64 = got.get(0)?;
        let at_ms = unsigned(got, 1)?;
        let key = got.get_ref(2)?.as_blob_or_null()?;
        let headers = got.get_ref(3)?.as_blob()?;
        let payload = got.get_ref(4)?.as_blob()?;
        let offset = (place - row(partition, 0)).cast_unsigned();
        let written: i64 = got.get(5)?;
        let sound = checksum(&mut buffer, place, at_ms, key, headers, payload) == written;
        let decoded = decode(headers).filter(|_| sound);
        total += payload.len() + headers.len() + key.map_or(0, <[u8]>::len);
        let Some(headers) = decoded else {
            found.damaged = Some(offset);
            break;
        };
        found.records.push(Record {
            offset: Offset(offset),
            subject: topic.clone(),
            key: key.map(|key| chunk.copy(key)),
            headers,
            payload: chunk.copy(payload),
            timestamp_ms: at_ms,
        });
        if total >= bytes {
            break;
        }
    }
    Ok(found)
}

/// Small values share an allocation: not so many that one that is kept would hold much else.
#[derive(Default)]
struct Chunk(BytesMut);

impl Chunk {
    const SIZE: usize = 16 * 1024;

    fn copy(&mut self, value: &[u8]) -> Bytes {
        if value.len() > Self::SIZE / 8 {
            return Bytes::copy_from_slice(value);
        }
        if self.0.capacity() < value.len() {
            self.0 = BytesMut::with_capacity(Self::SIZE);
        }
        self.0.extend_from_slice(value);
        self.0.split().freeze()
    }
}

/// When a message was appended.
pub(super) fn time_of(connection: &Connection, row: i64) -> rusqlite::Result<Option<u64>> {
    connection
        .prepare_cached("SELECT at_ms FROM messages WHERE row = ?1")?
        .query_row([row], |row| unsigned(row, 0))
        .optional()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back() {
        let headers = vec![
            ("a".to_owned(), Bytes::from_static(b"1")),
            (String::new(), Bytes::new()),
            ("ä".to_owned(), Bytes::from_static(&[0, 255])),
        ];
        assert_eq!(decode(&encode(&headers)), Some(headers.clone()));
        assert_eq!(decode(&[]), Some(Vec::new()));
        let bytes = encode(&headers);
        for cut in 1..bytes.len() {
            let whole = decode(&bytes[..cut]);
            assert!(whole.is_none_or(|some| some.len() < headers.len()), "{cut}");
        }
    }

    #[test]
    fn a_checksum_covers_everything() {
        let checksum = |row, at_ms, key: Option<&[u8]>, headers: &[u8], payload: &[u8]| {
            checksum(&mut vec![7; 3], row, at_ms, key, headers, payload)
        };
        let whole = checksum(1, 2, Some(b"k"), b"h", b"p");
        for other in [
            checksum(2, 2, Some(b"k"), b"h", b"p"),
            checksum(1, 3, Some(b"k"), b"h", b"p"),
            checksum(1, 2, None, b"kh", b"p"),
            checksum(1, 2, Some(b""), b"kh", b"p"),
            checksum(1, 2, Some(b"k"), b"hp", b""),
        ] {
            assert_ne!(whole, other);
        }
        assert_ne!(
            checksum(1, 2, None, b"", b""),
            checksum(1, 2, Some(b""), b"", b"")
        );
    }

    #[test]
    fn a_checksum_is_the_same_for_good() {
        let mut buffer = Vec::new();
        let hash = checksum(&mut buffer, 1, 2, Some(b"k"), b"h", b"p");
        let mut streamed = xxhash_rust::xxh3::Xxh3::new();
        for part in [
            &1_i64.to_be_bytes()[..],
            &2_u64.to_be_bytes(),
            &1_u64.to_be_bytes(),
            b"k",
            &1_u64.to_be_bytes(),
            b"h",
            &1_u64.to_be_bytes(),
            b"p",
            &[1],
        ] {
            streamed.update(part);
        }
        assert_eq!(hash, streamed.digest().cast_signed());
    }

    #[test]
    fn values_come_whole_out_of_a_chunk() {
        let mut chunk = Chunk::default();
        let long = vec![9; Chunk::SIZE];
        let values: Vec<Vec<u8>> = (0..200).map(|n| vec![n; usize::from(n) * 11]).collect();
        let copies: Vec<Bytes> = values.iter().map(|value| chunk.copy(value)).collect();
        assert_eq!(copies, values);
        assert_eq!(chunk.copy(&long), long);
    }
}
