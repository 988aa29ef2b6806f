//! What is too old or too much is removed, oldest first.

use std::ops::ControlFlow;
use std::time::Duration;

use rusqlite::{Connection, params};

use super::TopicSettings;
use super::rows::{self, Part, row};
use crate::sqlite::Database;

/// How often an appender looks.
pub(super) const EVERY: Duration = Duration::from_secs(10);

/// A transaction removes up to so many blocks, so that nobody waits long for the lock.
const CHUNK: usize = 1_000;

/// Removes what no longer has to be kept. What fails is tried again the next time.
pub(super) fn sweep(database: &mut Database, settings: &TopicSettings, now_ms: u64) {
    if settings.retention_age.is_none() && settings.retention_bytes.is_none() {
        return;
    }
    for number in 0..settings.partitions {
        loop {
            let removed = database.write(|connection| {
                let Some(part) = rows::part(connection, number)? else {
                    return Ok(0);
                };
                remove(connection, settings, number, part, now_ms)
            });
            match removed {
                Ok(0) => break,
                Ok(_) => {}
                Err(fault) => {
                    tracing::warn!(?fault, partition = number, "retention removed nothing");
                    return;
                }
            }
        }
    }
}

/// Removes the oldest messages of a partition, up to a chunk; says how many.
///
/// Messages go one by one: a block goes when its last message does, and until then its first ones
/// are below the partition's first offset, where nobody reads.
fn remove(
    connection: &Connection,
    settings: &TopicSettings,
    number: u32,
    mut part: Part,
    now_ms: u64,
) -> rusqlite::Result<u64> {
    let oldest_ms = settings.retention_age.map_or(0, |age| {
        now_ms.saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
    });
    let most = settings.retention_bytes.unwrap_or(u64::MAX);
    let (before, mut looked) = (part.first, 0);
    let mut kept = row(number, part.first);
    rows::blocks(connection, number, part.first, |block| {
        let too_old = block.at_ms < oldest_ms;
        looked += 1;
        if (!too_old && part.bytes <= most) || looked > CHUNK {
            return Ok(ControlFlow::Break(()));
        }
        // What a damaged block held cannot be told apart: it goes as a whole, or stays.
        let mut messages = block.messages();
        if let Some(messages) = &mut messages {
            messages.skip_to(part.first);
            while let Some(size) = (too_old || part.bytes > most)
                .then(|| messages.skip())
                .flatten()
            {
                part.bytes = part.bytes.saturating_sub(size);
                part.first = messages.offset();
            }
        } else {
            part.bytes = part.bytes.saturating_sub(block.bytes);
            part.first = block.last() + 1;
        }
        if part.first > block.last() {
            kept = row(number, part.first);
            Ok(ControlFlow::Continue(()))
        } else {
            Ok(ControlFlow::Break(()))
        }
    })?;
    if part.first > before {
        connection
            .prepare_cached("DELETE FROM blocks WHERE row >= ?1 AND row < ?2")?
            .execute(params![row(number, 0), kept])?;
        rows::save_part(connection, number, part)?;
    }
    Ok(part.first - before)
}
