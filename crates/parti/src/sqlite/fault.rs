//! What SQLite's errors mean, by what to do next.
//!
//! An error before COMMIT is always "not done": without a commit frame in the WAL nobody will ever
//! see what the transaction wrote. An error of COMMIT itself needs a closer look ([`at_commit`]):
//!
//! | error of COMMIT | what happened | so |
//! |---|---|---|
//! | BUSY, LOCKED, PROTOCOL | the lock was refused before anything was written, the transaction is still open; it is rolled back | not done |
//! | FULL | the WAL could not take the frames. The commit frame is the last one, and a frame that is cut short fails its checksum | not done |
//! | READONLY, CANTOPEN, PERM, AUTH | refused before anything was written | not done |
//! | IOERR | the commit frame may be in the file although its fsync (or the shared index after it) failed: no living process sees it, but a recovery after a crash may | open |
//! | CORRUPT, NOMEM and all others | no telling where it stopped | open |

use std::path::Path;

use rusqlite::{Error, ErrorCode, ffi};

/// Why something was not done, by what to do next.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fault {
    /// Another process holds the lock. Try again.
    Busy(String),
    /// The machine had a problem. Try again.
    Trouble(String),
    /// It will be refused again, until a person mends what the text says.
    Refused(String),
    /// The file does not hold what Parti wrote.
    Damaged(String),
}

/// Why a transaction that writes did not end well.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum WriteFault {
    /// It certainly did not happen.
    NotDone(Fault),
    /// It may come to light after the next crash.
    Open(String),
}

impl From<Fault> for WriteFault {
    fn from(fault: Fault) -> Self {
        WriteFault::NotDone(fault)
    }
}

impl Fault {
    /// What an error on this file means, wherever it came from but COMMIT.
    pub(crate) fn of(error: &Error, file: &Path) -> Self {
        let file = file.display();
        let Error::SqliteFailure(failure, _) = error else {
            // What remains is a value of another type, text that is not UTF-8, or a missing row.
            return Fault::Damaged(format!("{file} does not hold what Parti wrote: {error}"));
        };
        match failure.code {
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::FileLockingProtocolFailed => Fault::Busy(format!(
                "{file} is locked by another process for too long: {error}"
            )),
            ErrorCode::DiskFull => Fault::Refused(format!(
                "no space is left on the disk of {file}; make some, then go on: {error}"
            )),
            ErrorCode::ReadOnly | ErrorCode::PermissionDenied => Fault::Refused(format!(
                "{file} cannot be written; give this user the right to write the file and its folder, \
                 on a file system that is not read-only: {error}"
            )),
            ErrorCode::CannotOpen => Fault::Refused(format!(
                "{file} or its companions (-wal, -shm) cannot be opened; give this user the right to \
                 write the file and its folder, on a file system that is not read-only, and see that \
                 not too many files are open: {error}"
            )),
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => Fault::Damaged(format!(
                "{file} is damaged; restore it from a backup: {error}"
            )),
            // A missing table or column, or a row that a person has put there.
            ErrorCode::Unknown | ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch => {
                Fault::Damaged(format!("{file} does not hold what Parti wrote: {error}"))
            }
            ErrorCode::SystemIoFailure if failure.extended_code == ffi::SQLITE_IOERR_CORRUPTFS => {
                Fault::Damaged(format!("the file system of {file} is damaged: {error}"))
            }
            _ => Fault::Trouble(format!("{file}: {error}")),
        }
    }
}

/// What an error of COMMIT means; see the table above.
pub(super) fn at_commit(error: &Error, file: &Path) -> WriteFault {
    match (error.sqlite_error_code(), Fault::of(error, file)) {
        (Some(ErrorCode::DiskFull), fault) | (_, fault @ Fault::Busy(_)) => {
            WriteFault::NotDone(fault)
        }
        (
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen),
            fault,
        ) => WriteFault::NotDone(fault),
        (_, Fault::Trouble(why) | Fault::Refused(why) | Fault::Damaged(why)) => {
            WriteFault::Open(why)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: i32) -> Error {
        Error::SqliteFailure(ffi::Error::new(code), None)
    }

    #[test]
    fn only_what_certainly_did_not_happen_is_called_not_done() {
        let file = Path::new("/x");
        for code in [
            ffi::SQLITE_BUSY,
            ffi::SQLITE_BUSY_SNAPSHOT,
            ffi::SQLITE_FULL,
            ffi::SQLITE_READONLY_DBMOVED,
            ffi::SQLITE_CANTOPEN,
        ] {
            let fault = at_commit(&failure(code), file);
            assert!(matches!(fault, WriteFault::NotDone(_)), "{code}: {fault:?}");
        }
        for code in [
            ffi::SQLITE_IOERR_FSYNC,
            ffi::SQLITE_IOERR_WRITE,
            ffi::SQLITE_IOERR_SHMSIZE,
            ffi::SQLITE_NOMEM,
            ffi::SQLITE_CORRUPT,
            ffi::SQLITE_ERROR,
            ffi::SQLITE_MISUSE,
        ] {
            let fault = at_commit(&failure(code), file);
            assert!(matches!(fault, WriteFault::Open(_)), "{code}: {fault:?}");
        }
    }

    #[test]
    fn each_error_says_the_next_move() {
        let of = |code| Fault::of(&failure(code), Path::new("/x"));
        assert!(matches!(of(ffi::SQLITE_BUSY_RECOVERY), Fault::Busy(_)));
        assert!(matches!(of(ffi::SQLITE_FULL), Fault::Refused(_)));
        assert!(matches!(of(ffi::SQLITE_IOERR_READ), Fault::Trouble(_)));
        assert!(matches!(of(ffi::SQLITE_IOERR_CORRUPTFS), Fault::Damaged(_)));
        assert!(matches!(of(ffi::SQLITE_NOTADB), Fault::Damaged(_)));
        assert!(matches!(
            Fault::of(&Error::QueryReturnedNoRows, Path::new("/x")),
            Fault::Damaged(_)
        ));
    }
}
