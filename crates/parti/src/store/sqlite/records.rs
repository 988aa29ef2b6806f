//! The table: what is asked of it, in SQL.
//!
//! ```text
//!   records  key │ revision │ value          a deleted key stays a while as a row without value
//!   counter  revision │ floor                the last revision given; up to which tombstones are gone
//! ```
//!
//! What is new is found by an index of revisions. The checkpoints, everything below `partitions/`,
//! are not in it: they are written all the time, thousands at once, and hardly ever watched. Who
//! does watch them looks through all of them that are in its scope.
//!
//! Transactions that write come one after the other, and the counter is part of them: revisions
//! have the order of the commits. So whoever has seen everything up to a revision misses nothing by
//! asking for what is above it, as long as that revision is not below the floor.

use rusqlite::{CachedStatement, Connection, OptionalExtension, Result, Row, params};

use crate::sqlite::Layout;
use crate::store::{Bytes, Change, Entry, Expect, Revision, Scope, Write};

/// The store's files.
pub(super) const LAYOUT: Layout = Layout {
    what: "store",
    application_id: 0x5074_6953,
    format: 1,
    may_return: false,
    schema: "
        CREATE TABLE counter (
            one      INTEGER PRIMARY KEY CHECK (one = 1),
            revision INTEGER NOT NULL,
            floor    INTEGER NOT NULL
        ) STRICT;
        INSERT INTO counter VALUES (1, 0, 0);
        CREATE TABLE records (
            key      TEXT PRIMARY KEY,
            revision INTEGER NOT NULL,
            value    BLOB
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX records_by_revision ON records (revision)
            WHERE key < 'partitions/' OR key >= 'partitions0';
        CREATE INDEX tombstones ON records (revision) WHERE value IS NULL;",
};

/// A tombstone is kept for this many revisions. A watch that has fallen further behind starts anew.
const KEEP: i64 = 50_000;

/// A transaction purges at most this many tombstones, to stay short.
const PURGE: i64 = 1_000;

/// A watch is told of at most this many changes at a time.
const CHANGES: usize = 500;

/// The last revision given, and the one up to which tombstones may be gone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Counter {
    pub revision: i64,
    pub floor: i64,
}

/// What became of a scope.
#[derive(Debug, PartialEq)]
pub(super) enum News {
    /// These changes, which lead up to a revision. There are more if it is not `complete`.
    Changes {
        changes: Vec<Change>,
        revision: i64,
        complete: bool,
    },
    /// There is no telling: deletes are forgotten, or the file went back.
    Gap,
}

pub(super) fn counter(connection: &Connection) -> Result<Counter> {
    connection
        .prepare_cached("SELECT revision, floor FROM counter WHERE one = 1")?
        .query_row([], |row| {
            Ok(Counter {
                revision: row.get(0)?,
                floor: row.get(1)?,
            })
        })
}

/// What is at a key.
pub(super) fn read(connection: &Connection, key: &str) -> Result<Option<Entry>> {
    connection
        .prepare_cached(
            "SELECT key, revision, value FROM records WHERE key = ?1 AND value IS NOT NULL",
        )?
        .query_row([key], entry)
        .optional()
}

/// Everything in a scope, sorted by key.
pub(super) fn list(connection: &Connection, scope: &Scope) -> Result<Vec<Entry>> {
    let (first, end) = match scope {
        Scope::Key(key) => return Ok(read(connection, key)?.into_iter().collect()),
        Scope::Under(prefix) => bounds(prefix),
    };
    connection
        .prepare_cached(
            "SELECT key, revision, value FROM records
             WHERE key >= ?1 AND (?2 IS NULL OR key < ?2) AND value IS NOT NULL ORDER BY key",
        )?
        .query_map(params![first, end], entry)?
        .collect()
}

/// What became of a scope since a revision.
pub(super) fn news(connection: &Connection, scope: &Scope, since: i64) -> Result<News> {
    let counter = counter(connection)?;
    if since < counter.floor || since > counter.revision {
        return Ok(News::Gap);
    }
    let (first, end) = match scope {
        Scope::Key(key) => {
            let change = connection
                .prepare_cached(
                    "SELECT key, revision, value FROM records WHERE key = ?1 AND revision > ?2",
                )?
                .query_row(params![key, since], change)
                .optional()?;
            return Ok(News::Changes {
                changes: change.into_iter().collect(),
                revision: counter.revision,
                complete: true,
            });
        }
        Scope::Under(prefix) => bounds(prefix),
    };
    // By the index, for what is in it: what is new is little, what is in the scope may be much. The
    // condition must be the index's own, word by word.
    let changes = connection
        .prepare_cached(
            "SELECT key, revision, value FROM records INDEXED BY records_by_revision
             WHERE revision > ?1 AND key >= ?2 AND (?3 IS NULL OR key < ?3)
               AND (key < 'partitions/' OR key >= 'partitions0')
             UNION ALL
             SELECT key, revision, value FROM records
             WHERE revision > ?1 AND key >= max(?2, 'partitions/')
               AND key < min(ifnull(?3, 'partitions0'), 'partitions0')
             ORDER BY revision LIMIT ?4",
        )?
        .query_map(
            params![since, first, end, i64::try_from(CHANGES).unwrap_or(1)],
            change,
        )?
        .collect::<Result<Vec<_>>>()?;
    Ok(up_to(changes, &counter))
}

/// Whether a scope holds, or could hold, records of partitions.
pub(super) fn may_be_of_partitions(scope: &Scope) -> bool {
    let partitions = "partitions/";
    match scope {
        Scope::Key(key) => key.starts_with(partitions),
        Scope::Under(prefix) => prefix.is_empty() || prefix.starts_with(partitions),
    }
}

/// What became of everything but partitions since a revision: by the index alone.
pub(super) fn beside_partitions(connection: &Connection, since: i64) -> Result<News> {
    let counter = counter(connection)?;
    if since < counter.floor || since > counter.revision {
        return Ok(News::Gap);
    }
    let changes = connection
        .prepare_cached(
            "SELECT key, revision, value FROM records INDEXED BY records_by_revision
             WHERE revision > ?1 AND (key < 'partitions/' OR key >= 'partitions0')
             ORDER BY revision LIMIT ?2",
        )?
        .query_map(params![since, i64::try_from(CHANGES).unwrap_or(1)], change)?
        .collect::<Result<Vec<_>>>()?;
    Ok(up_to(changes, &counter))
}

fn up_to(changes: Vec<Change>, counter: &Counter) -> News {
    let complete = changes.len() < CHANGES;
    let revision = match changes.last() {
        Some(Change::Put(Entry { revision, .. }) | Change::Deleted { revision, .. })
            if !complete =>
        {
            number(*revision)
        }
        _ => counter.revision,
    };
    News::Changes {
        changes,
        revision,
        complete,
    }
}

/// Carries out writes, many of them in one transaction: its statements are looked up once.
pub(super) struct Writing<'a> {
    connection: &'a Connection,
    create: CachedStatement<'a>,
    replace: CachedStatement<'a>,
}

impl<'a> Writing<'a> {
    pub(super) fn new(connection: &'a Connection) -> Result<Self> {
        Ok(Self {
            connection,
            create: connection.prepare_cached(
                "INSERT INTO records (key, revision, value) VALUES (?1, ?2, ?3)
                 ON CONFLICT (key) DO UPDATE SET revision = ?2, value = ?3 WHERE value IS NULL",
            )?,
            replace: connection.prepare_cached(
                "UPDATE records SET revision = ?2, value = ?3
                 WHERE key = ?1 AND revision = ?4 AND value IS NOT NULL",
            )?,
        })
    }

    /// Carries out a write under a new revision, if its expectation holds. If not, the answer is
    /// what is there instead.
    pub(super) fn apply(
        &mut self,
        write: &Write,
        revision: i64,
    ) -> Result<std::result::Result<(), Option<Entry>>> {
        let (key, value) = (&write.key, write.value.as_deref());
        let changed = match write.expect {
            Expect::Absent => self.create.execute(params![key, revision, value])?,
            Expect::At(expected) => {
                self.replace
                    .execute(params![key, revision, value, number(expected)])?
            }
        };
        if changed == 1 {
            return Ok(Ok(()));
        }
        Ok(Err(read(self.connection, key)?))
    }
}

/// Keeps how far a transaction has come, and purges what nobody needs any more.
pub(super) fn advance(connection: &Connection, counter: Counter) -> Result<()> {
    let old = counter.revision.saturating_sub(KEEP);
    let mut floor = counter.floor;
    if old > floor {
        let purged = connection
            .prepare_cached(
                "DELETE FROM records WHERE key IN (
                     SELECT key FROM records INDEXED BY tombstones
                     WHERE value IS NULL AND revision <= ?1 ORDER BY revision LIMIT ?2)",
            )?
            .execute([old, PURGE])?;
        if purged > 0 {
            floor = old;
        }
    }
    connection
        .prepare_cached("UPDATE counter SET revision = ?1, floor = ?2 WHERE one = 1")?
        .execute([counter.revision, floor])?;
    Ok(())
}

/// From where to where the keys with a prefix lie: from the prefix itself up to, and without, the
/// prefix whose last slash is replaced by the next character. `None`: to the end.
fn bounds(prefix: &str) -> (&str, Option<String>) {
    (
        prefix,
        prefix.strip_suffix('/').map(|start| format!("{start}0")),
    )
}

/// A revision as SQLite keeps it. One that is too large for it was never given, nor was -1.
pub(super) fn number(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(-1)
}

fn revision(row: &Row<'_>) -> Result<Revision> {
    let number: i64 = row.get(1)?;
    u64::try_from(number)
        .map(Revision)
        .map_err(|_| rusqlite::Error::IntegralValueOutOfRange(1, number))
}

fn entry(row: &Row<'_>) -> Result<Entry> {
    Ok(Entry {
        key: row.get(0)?,
        revision: revision(row)?,
        value: Bytes::copy_from_slice(row.get_ref(2)?.as_blob()?),
    })
}

fn change(row: &Row<'_>) -> Result<Change> {
    if row.get_ref(2)? == rusqlite::types::ValueRef::Null {
        return Ok(Change::Deleted {
            key: row.get(0)?,
            revision: revision(row)?,
        });
    }
    entry(row).map(Change::Put)
}
