//! What is too old or too much is removed, oldest first.

use std::time::Duration;

use rusqlite::{Connection, params};

use super::TopicSettings;
use super::rows::{self, Part, row, unsigned};
use crate::sqlite::Database;

/// How often an appender looks.
pub(super) const EVERY: Duration = Duration::from_secs(10);

/// A transaction removes up to so many messages, so that nobody waits long for the lock.
const CHUNK: i64 = 5_000;

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
    let mut statement = connection.prepare_cached(
        "SELECT row, at_ms, length(payload) + length(headers) + coalesce(length(key), 0)
         FROM messages WHERE row >= ?1 AND row < ?2 ORDER BY row LIMIT ?3",
    )?;
    let range = (row(number, part.first), row(number + 1, 0));
    let mut found = statement.query(params![range.0, range.1, CHUNK])?;
    let before = part.first;
    while let Some(message) = found.next()? {
        let too_old = unsigned(message, 1)? < oldest_ms;
        if !too_old && part.bytes <= most {
            break;
        }
        part.bytes = part.bytes.saturating_sub(unsigned(message, 2)?);
        part.first = (message.get::<_, i64>(0)? - row(number, 0)).cast_unsigned() + 1;
    }
    drop(found);
    if part.first > before {
        connection
            .prepare_cached("DELETE FROM messages WHERE row >= ?1 AND row < ?2")?
            .execute(params![range.0, row(number, part.first)])?;
        rows::save_part(connection, number, part)?;
    }
    Ok(part.first - before)
}
