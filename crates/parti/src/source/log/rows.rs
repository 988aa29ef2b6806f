//! A topic's tables.
//!
//! Messages lie in blocks, side by side and in order. A block's row is `partition << 40 | offset` of
//! its last message: the first row from an offset's on holds that offset, found without an index.

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::block::{self, Filling, Messages};
use crate::source::Record;
use crate::sqlite::Layout;

/// Bits of a row that are the offset.
const OFFSET_BITS: u32 = 40;

pub(super) const LAYOUT: Layout = Layout {
    what: "topic",
    // "PaLo"
    application_id: 0x5061_4c6f,
    format: 2,
    may_return: true,
    schema: "
        CREATE TABLE topic (
            name TEXT NOT NULL, partitions INTEGER NOT NULL, identity INTEGER NOT NULL,
            created_ms INTEGER NOT NULL, retention_age_ms INTEGER, retention_bytes INTEGER
        );
        CREATE TABLE partitions (
            number INTEGER PRIMARY KEY, first INTEGER NOT NULL, next INTEGER NOT NULL,
            bytes INTEGER NOT NULL, last_ms INTEGER NOT NULL
        );
        CREATE TABLE blocks (
            row INTEGER PRIMARY KEY, count INTEGER NOT NULL, at_ms INTEGER NOT NULL,
            bytes INTEGER NOT NULL, checksum INTEGER NOT NULL, body BLOB NOT NULL
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

/// Writes a block whose last message is at this row.
pub(super) fn insert(
    connection: &Connection,
    row: i64,
    at_ms: u64,
    block: &Filling,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO blocks (row, count, at_ms, bytes, checksum, body)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![
            row,
            block.count(),
            at_ms.cast_signed(),
            block.bytes().cast_signed(),
            block::checksum(row, block.count(), at_ms, block.body()),
            block.body()
        ])?;
    Ok(())
}

/// Whatever a reader of blocks wants to know of one before it looks inside.
pub(super) struct Block<'a> {
    row: i64,
    count: u32,
    /// When its messages were appended.
    pub(super) at_ms: u64,
    /// What they take of their partition's size.
    pub(super) bytes: u64,
    checksum: i64,
    body: &'a [u8],
}

impl<'a> Block<'a> {
    fn of(row: &'a Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            row: row.get(0)?,
            count: row.get(1)?,
            at_ms: unsigned(row, 2)?,
            bytes: unsigned(row, 3)?,
            checksum: row.get(4)?,
            body: row.get_ref(5)?.as_blob()?,
        })
    }

    /// The offset of its last message.
    pub(super) fn last(&self) -> u64 {
        self.row.cast_unsigned() & (MAX_OFFSET - 1)
    }

    /// The offset of its first message.
    pub(super) fn first(&self) -> u64 {
        (self.last() + 1).saturating_sub(u64::from(self.count))
    }

    /// Its messages, if they are what was written.
    pub(super) fn messages(&self) -> Option<Messages> {
        let sound = block::checksum(self.row, self.count, self.at_ms, self.body) == self.checksum;
        sound.then(|| Messages::new(Bytes::copy_from_slice(self.body), self.first(), self.count))
    }
}

/// Looks at a partition's blocks in order, from the one that holds an offset on, until told to stop.
pub(super) fn blocks(
    connection: &Connection,
    partition: u32,
    from: u64,
    mut look: impl FnMut(&Block<'_>) -> rusqlite::Result<ControlFlow<()>>,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "SELECT row, count, at_ms, bytes, checksum, body FROM blocks
         WHERE row >= ?1 AND row < ?2 ORDER BY row",
    )?;
    let range = (row(partition, from), row(partition + 1, 0));
    let mut rows = statement.query(params![range.0, range.1])?;
    while let Some(row) = rows.next()? {
        if look(&Block::of(row)?)?.is_break() {
            break;
        }
    }
    Ok(())
}

/// What a read found.
#[derive(Default)]
pub(super) struct Found {
    /// The messages, in order and without a hole.
    pub(super) records: Vec<Record>,
    /// After them is something else than what was written: the next offset that may be sound.
    pub(super) damaged_until: Option<u64>,
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
    let mut found = Found::default();
    let (mut next, mut total) = (from, 0);
    blocks(connection, partition, from, |block| {
        // A hole in the offsets is as bad as a changed message.
        if block.first() > next {
            found.damaged_until = Some(block.first());
            return Ok(ControlFlow::Break(()));
        }
        let mut messages = block.messages();
        if let Some(messages) = &mut messages
            && messages.skip_to(next).is_some()
        {
            while found.records.len() < limit && total < bytes && !messages.is_empty() {
                let Some(record) = messages.take(topic, block.at_ms) else {
                    break;
                };
                total += record.payload.len() + record.key.as_ref().map_or(0, Bytes::len);
                found.records.push(record);
                next += 1;
            }
            if found.records.len() >= limit || total >= bytes {
                return Ok(ControlFlow::Break(()));
            }
        }
        if next <= block.last() {
            found.damaged_until = Some(block.last() + 1);
            return Ok(ControlFlow::Break(()));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

/// The first message of a partition that was appended at this time or later.
pub(super) fn first_since(
    connection: &Connection,
    partition: u32,
    part: Part,
    ms: u64,
) -> rusqlite::Result<u64> {
    // Times never go back within a partition.
    let (mut low, mut high) = (part.first, part.next);
    while low < high {
        let middle = low + (high - low) / 2;
        let mut older = None;
        blocks(connection, partition, middle, |block| {
            older = (block.at_ms < ms).then(|| block.last());
            Ok(ControlFlow::Break(()))
        })?;
        match older {
            Some(last) => low = last + 1,
            None => high = middle,
        }
    }
    Ok(low)
}
