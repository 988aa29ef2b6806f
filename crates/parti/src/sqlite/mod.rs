//! SQLite files that several processes of one machine share: the ground of whatever is embedded.
//!
//! ```text
//!   Database::open ── place: can the path be used?        place.rs
//!        │            file:  ours, of a format we know?   (application_id, user_version)
//!        │            ways:  WAL, synchronous = FULL, our own patience when it is locked
//!        ▼
//!   read ──▶ one short transaction: a long one would keep the WAL from being reused
//!   write ─▶ BEGIN IMMEDIATE … COMMIT, done only once it is on the disk;
//!            an error says whether it may still come to be   fault.rs
//! ```
//!
//! Each checks first that the path still leads to the file that was opened ([`Guard`]).
//!
//! Locks are not fair in SQLite: a waiter must try again and again. Ours waits for random short
//! times that do not grow, so that nobody falls behind for having waited, and a process that sees
//! others write leaves them a gap before its next transaction.

mod fault;
mod place;
mod pulse;

use std::collections::hash_map::RandomState;
use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, FileControl, OpenFlags, Transaction, TransactionBehavior};

pub(crate) use fault::{Fault, WriteFault};
pub(crate) use place::Guard;
pub(crate) use pulse::Pulse;

/// How long to wait for other processes' locks.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a checkpoint may wait for readers, meanwhile nobody can write.
const PATIENCE_OF_CHECKPOINT: Duration = Duration::from_millis(100);

/// Between two attempts to get a lock: up to this.
const PAUSE: Duration = Duration::from_millis(5);

/// The gap that is left to others between two transactions: up to this.
const GAP: Duration = Duration::from_millis(4);

/// Others count as writing for this long after a sign of them.
const OTHERS_WRITE: Duration = Duration::from_secs(1);

/// A WAL beyond this size (in bytes) has had readers all the time: time to wait for a moment
/// without one.
const WAL_LIMIT: u64 = 64 * 1024 * 1024;

/// What a file of ours holds.
#[derive(Debug)]
pub(crate) struct Layout {
    /// What to call it in messages.
    pub what: &'static str,
    /// Marks the file as one of this kind.
    pub application_id: i32,
    /// The version of its format, which older programs refuse.
    pub format: i32,
    /// Makes its tables.
    pub schema: &'static str,
    /// Whether it is used again once it was away with its whole folder, and is back. Not what decides
    /// who owns what: while it was away others may have begun anew in its place, who do not know yet
    /// that this is over.
    pub may_return: bool,
}

/// One connection to a file, for one thread.
#[derive(Debug)]
pub(crate) struct Database {
    connection: Connection,
    guard: Arc<Guard>,
    patience: Arc<AtomicU64>,
    dice: Dice,
    others: Others,
    checkpointed: Option<Instant>,
}

/// What is known of other writers.
#[derive(Debug, Default)]
struct Others {
    version: Option<i64>,
    wrote: Option<Instant>,
}

impl Database {
    /// Opens a file, or creates it.
    pub(crate) fn open(path: &Path, layout: &Layout) -> Result<Self, Fault> {
        let path = place::usable(path)?;
        let connected = connect_patiently(&path, layout)?;
        // Only now: the WAL and its index are there as long as somebody is connected.
        Self::guarded(connected, Arc::new(Guard::new(path, layout.may_return)?))
    }

    /// A further connection to the same file.
    pub(crate) fn again(&self, layout: &Layout) -> Result<Self, Fault> {
        self.guard.check()?;
        let connected = connect_patiently(self.guard.path(), layout)?;
        Self::guarded(connected, self.guard.clone())
    }

    fn guarded(
        (connection, patience): (Connection, Arc<AtomicU64>),
        guard: Arc<Guard>,
    ) -> Result<Self, Fault> {
        let database = Self {
            connection,
            guard,
            patience,
            dice: Dice::new(),
            others: Others::default(),
            checkpointed: None,
        };
        database.is_still_there()?;
        Ok(database)
    }

    /// Watches over the file.
    pub(crate) fn guard(&self) -> &Arc<Guard> {
        &self.guard
    }

    /// Changes whenever somebody else has written: another connection of this process, or another
    /// process. Costs a look at shared memory, no reading.
    pub(crate) fn version(&self) -> Result<i64, Fault> {
        self.connection
            .prepare_cached("PRAGMA data_version")
            .and_then(|mut statement| statement.query_row([], |row| row.get(0)))
            .map_err(|error| self.fault(&error))
    }

    /// Reads in one transaction: everything seen is of one moment.
    pub(crate) fn read<T>(
        &mut self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, Fault> {
        self.guard.check()?;
        self.leave_transaction()?;
        let path = self.guard.path();
        let transaction = Transaction::new(&mut self.connection, TransactionBehavior::Deferred);
        transaction
            .and_then(|transaction| work(&transaction))
            .map_err(|error| Fault::of(&error, path))
    }

    /// Writes in one transaction. Once this returns, it is on the disk.
    pub(crate) fn write<T>(
        &mut self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, WriteFault> {
        self.leave_others_a_gap()?;
        self.guard.check()?;
        self.leave_transaction()?;
        let path = self.guard.path();
        let transaction = Transaction::new(&mut self.connection, TransactionBehavior::Immediate)
            .map_err(|error| Fault::of(&error, path))?;
        // Dropping the transaction, here or after a failed commit, rolls it back.
        let answer = work(&transaction).map_err(|error| Fault::of(&error, path))?;
        transaction
            .commit()
            .map_err(|error| fault::at_commit(&error, path))?;
        self.keep_wal_small();
        Ok(answer)
    }

    fn fault(&self, error: &rusqlite::Error) -> Fault {
        Fault::of(error, self.guard.path())
    }

    /// The connection must be on the very file that the guard remembers. SQLite compares what it
    /// has open with what the path leads to.
    fn is_still_there(&self) -> Result<(), Fault> {
        self.guard.check()?;
        #[cfg(unix)]
        {
            let mut moved = 0;
            self.connection
                .file_control(None::<&str>, FileControl::HasMoved(&mut moved))
                .map_err(|error| self.fault(&error))?;
            if moved != 0 {
                return Err(Fault::Trouble(format!(
                    "{} was replaced while it was being opened",
                    self.guard.path().display()
                )));
            }
        }
        self.guard.check()
    }

    /// A rollback that failed leaves its transaction behind.
    fn leave_transaction(&self) -> Result<(), Fault> {
        if self.connection.is_autocommit() {
            return Ok(());
        }
        self.connection
            .execute_batch("ROLLBACK")
            .map_err(|error| match self.fault(&error) {
                Fault::Damaged(why) => Fault::Damaged(why),
                Fault::Busy(why) | Fault::Trouble(why) | Fault::Refused(why) => Fault::Trouble(why),
            })
    }

    fn leave_others_a_gap(&mut self) -> Result<(), Fault> {
        let version = self.version()?;
        let before = self.others.version.replace(version);
        if before.is_some_and(|before| before != version) {
            self.others.wrote = Some(Instant::now());
        }
        if self
            .others
            .wrote
            .is_some_and(|at| at.elapsed() < OTHERS_WRITE)
        {
            thread::sleep(self.dice.up_to(GAP));
        }
        Ok(())
    }

    /// SQLite moves the WAL into the file by itself, but starts it anew only when it meets a moment
    /// without readers. If it has not for long, this waits for one.
    fn keep_wal_small(&mut self) {
        let lately = |at: Instant| at.elapsed() < OTHERS_WRITE;
        if self.guard.wal_size() < WAL_LIMIT || self.checkpointed.is_some_and(lately) {
            return;
        }
        self.checkpointed = Some(Instant::now());
        let set = |patience| self.patience.store(millis(patience), Ordering::Relaxed);
        set(PATIENCE_OF_CHECKPOINT);
        let outcome = self
            .connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| {
                row.get::<_, i64>(0)
            });
        set(PATIENCE);
        // Whether it worked does not matter to what was committed; the next commit tries again.
        tracing::debug!(path = %self.guard.path().display(), ?outcome, "large WAL checkpointed");
    }
}

/// SQLite does not always wait by itself, for example while another process changes the file to
/// WAL: who meets a creation looks again.
fn connect_patiently(path: &Path, layout: &Layout) -> Result<(Connection, Arc<AtomicU64>), Fault> {
    let mut dice = Dice::new();
    let began = Instant::now();
    loop {
        match connect(path, layout) {
            Err(Fault::Busy(_)) if began.elapsed() < PATIENCE => {
                thread::sleep(dice.up_to(PAUSE));
            }
            other => return other,
        }
    }
}

fn connect(path: &Path, layout: &Layout) -> Result<(Connection, Arc<AtomicU64>), Fault> {
    let fault = |error: rusqlite::Error| Fault::of(&error, path);
    // Not as a URI: the path is taken as it is, with whatever % and ? it has.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = match Connection::open_with_flags(path, flags) {
        Ok(connection) => connection,
        Err(rusqlite::Error::NulError(_) | rusqlite::Error::InvalidPath(_)) => {
            return Err(Fault::Refused(format!(
                "{}: this is no path of a file",
                path.display()
            )));
        }
        Err(error) => return Err(fault(error)),
    };
    let patience = be_patient(&mut connection).map_err(fault)?;
    // In one transaction, or a creation by another process could come between.
    let content = connection
        .transaction()
        .and_then(|transaction| content(&transaction))
        .map_err(|error| match error.sqlite_error_code() {
            // Damaged, or something else altogether: at the start the latter is the likelier.
            Some(ErrorCode::NotADatabase) => Fault::Refused(format!(
                "{} exists and is not a Parti {} (nor any SQLite file); name another path",
                path.display(),
                layout.what
            )),
            _ => fault(error),
        })?;
    content.accept(path, layout)?;
    if connection.is_readonly("main").map_err(fault)? {
        return Err(Fault::Refused(format!(
            "{} is read-only; give this user the right to write it, on a file system that is not \
             read-only",
            path.display()
        )));
    }
    let mode: String = connection
        .query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))
        .map_err(fault)?;
    if mode != "wal" {
        return Err(Fault::Refused(format!(
            "{} cannot be used in WAL mode (SQLite keeps to {mode}); put it on a disk of this \
             machine",
            path.display()
        )));
    }
    connection
        .execute_batch(
            "PRAGMA synchronous = FULL; PRAGMA trusted_schema = OFF; PRAGMA temp_store = MEMORY;
             PRAGMA journal_size_limit = 16777216; PRAGMA cell_size_check = ON;",
        )
        .map_err(fault)?;
    // Else a statement is prepared anew whenever another value is bound to its LIMIT.
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)
        .map_err(fault)?;
    match content {
        Content::Nothing => {
            create(&mut connection, layout)
                .map_err(fault)?
                .accept(path, layout)?;
            make_name_durable(path);
        }
        // A file that was not in WAL mode, such as a copy made by VACUUM INTO, gets its companions
        // with the first look after the change.
        Content::Marked { .. } => {
            connection
                .query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))
                .map_err(fault)?;
        }
    }
    Ok((connection, patience))
}

/// What an existing file holds.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Content {
    Nothing,
    Marked { application_id: i32, format: i32 },
}

impl Content {
    fn accept(self, path: &Path, layout: &Layout) -> Result<(), Fault> {
        let Content::Marked {
            application_id,
            format,
        } = self
        else {
            return Ok(());
        };
        let why = if application_id != layout.application_id {
            format!(
                "exists and is not a Parti {}, but another program's SQLite file; name another path",
                layout.what
            )
        } else if format > layout.format {
            format!(
                "was written by a newer Parti (format {format}, this one knows up to {}); upgrade \
                 this program",
                layout.format
            )
        } else if format < layout.format {
            format!("has the format {format}, which no release of Parti wrote; name another path")
        } else {
            return Ok(());
        };
        Err(Fault::Refused(format!("{} {why}", path.display())))
    }
}

fn content(connection: &Connection) -> rusqlite::Result<Content> {
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i32>(0));
    let application_id = number("PRAGMA application_id")?;
    let format = number("PRAGMA user_version")?;
    let tables = number("SELECT count(*) FROM sqlite_schema")?;
    if (application_id, format, tables) == (0, 0, 0) {
        return Ok(Content::Nothing);
    }
    Ok(Content::Marked {
        application_id,
        format,
    })
}

/// Makes the tables, unless another process was faster; the answer is what is there now.
fn create(connection: &mut Connection, layout: &Layout) -> rusqlite::Result<Content> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if content(&transaction)? == Content::Nothing {
        transaction.execute_batch(layout.schema)?;
        transaction.pragma_update(None, "application_id", layout.application_id)?;
        transaction.pragma_update(None, "user_version", layout.format)?;
    }
    let now = content(&transaction)?;
    transaction.commit()?;
    Ok(now)
}

/// A file whose name is lost in a power cut is lost whole. Not every system can do this, and
/// SQLite has done it for the WAL already: no error.
fn make_name_durable(path: &Path) {
    if let Some(folder) = path.parent().and_then(|folder| File::open(folder).ok()) {
        let _ = folder.sync_all();
    }
}

/// Waits for locks in our own way; the answer is the longest wait in milliseconds, adjustable.
fn be_patient(connection: &mut Connection) -> rusqlite::Result<Arc<AtomicU64>> {
    let patience = Arc::new(AtomicU64::new(millis(PATIENCE)));
    let limit = patience.clone();
    let mut dice = Dice::new();
    let mut began = Instant::now();
    connection.busy_handler(Some(move |attempts: i32| {
        if attempts == 0 {
            began = Instant::now();
        }
        let more = millis(began.elapsed()) < limit.load(Ordering::Relaxed);
        if more {
            thread::sleep(dice.up_to(PAUSE));
        }
        more
    }))?;
    Ok(patience)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Random enough to keep processes from walking in step.
#[derive(Debug)]
struct Dice(u64);

impl Dice {
    fn new() -> Self {
        Self(RandomState::new().build_hasher().finish() | 1)
    }

    fn up_to(&mut self, longest: Duration) -> Duration {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let share = (self.0 >> 40) as u32;
        longest / (1 << 12) * (share >> 12)
    }
}
