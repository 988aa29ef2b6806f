//! What PostgreSQL and the way to it can answer, named by the caller's next move.
//!
//! A refusal (severity ERROR) means that the statement, which is a transaction of its own, was
//! undone. Anything else that happens to a write once it is sent leaves its fate open.

use std::error::Error as _;
use std::io;

use tokio_postgres::Error as Failure;
use tokio_postgres::error::{DbError, Severity, SqlState};

use super::super::Error;

/// What was going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum During {
    /// Nothing that could change anything: connecting, preparing, reading.
    Asking,
    /// A write was handed to the connection.
    Writing,
}

/// Why connecting failed. When the store is opened, no server that can be written to means that
/// the URL is wrong; later it is more likely that servers are changing roles.
#[derive(Debug)]
pub(super) enum NoSession {
    ReadOnly,
    Failed(Error),
}

impl From<Error> for NoSession {
    fn from(error: Error) -> Self {
        NoSession::Failed(error)
    }
}

impl NoSession {
    /// The same, of a server with a name: whoever has several wants to know which.
    pub(super) fn of(self, name: &str) -> Self {
        match self {
            NoSession::Failed(Error::Unavailable { why }) => {
                Error::unavailable(format!("{name} cannot be reached: {why}")).into()
            }
            NoSession::Failed(Error::Rejected { why }) => {
                Error::rejected(format!("{name} cannot be used: {why}")).into()
            }
            other => other,
        }
    }
}

const READ_ONLY: &str = "no server of the URL can be written to, all are read-only: name the primary, \
                         or see whether default_transaction_read_only is set for this user or database";

/// As an error of opening.
pub(super) fn at_open(cause: NoSession) -> Error {
    match cause {
        NoSession::ReadOnly => Error::rejected(READ_ONLY),
        NoSession::Failed(error) => error,
    }
}

/// As an error of a store that was open before.
pub(super) fn at_reconnect(cause: NoSession) -> Error {
    match cause {
        NoSession::ReadOnly => Error::unavailable(READ_ONLY),
        NoSession::Failed(error) => error,
    }
}

/// Why a connection could not be made.
pub(super) fn connecting(failure: &Failure) -> NoSession {
    let io = failure
        .source()
        .and_then(|cause| cause.downcast_ref::<io::Error>());
    if io.is_some_and(|io| io.kind() == io::ErrorKind::PermissionDenied)
        && failure.to_string() == "error connecting to server"
    {
        return NoSession::ReadOnly;
    }
    let certificate = io
        .and_then(io::Error::get_ref)
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    if let Some(error) = certificate {
        return NoSession::Failed(Error::rejected(format!(
            "the server and we do not agree on TLS: {error}; see the parameters sslmode and ca"
        )));
    }
    // These have no type of their own; the words are tokio-postgres' own.
    let words = full(failure);
    if words.contains("server does not support TLS") {
        return NoSession::Failed(Error::rejected(
            "the server offers no TLS, which sslmode=require asks for; turn it on there (ssl = on)",
        ));
    }
    if words.contains("password missing") {
        return NoSession::Failed(Error::rejected(
            "the server wants a password and the URL has none, as in postgres://user:password@host",
        ));
    }
    NoSession::Failed(of(failure, During::Asking))
}

/// What a failure means.
pub(super) fn of(failure: &Failure, during: During) -> Error {
    match (failure.as_db_error(), during) {
        (Some(refusal), _) => refused(refusal, during),
        (None, During::Asking) => Error::unavailable(full(failure)),
        (None, During::Writing) => Error::unknown(full(failure)),
    }
}

fn refused(refusal: &DbError, during: During) -> Error {
    // Only the message: details can repeat what a row holds.
    let said = format!("{} ({})", refusal.message(), refusal.code().code());
    let code = refusal.code();
    let mend = match code.code() {
        "25006" => {
            "the server or this user may only read; name the primary, or see default_transaction_read_only"
        }
        "28P01" | "28000" => "user or password are not what the server wants",
        "3D000" => "create the database, or name another one in the URL",
        "42501" => "grant this user what it needs on the schema of Parti and everything in it",
        "42P01" | "3F000" | "42883" | "42703" => {
            "the tables of Parti are gone or changed; open the store again to create what is missing"
        }
        "53100" => "the server's disk is full; free some space",
        "54000" => "the server has reached one of its limits",
        _ => "",
    };
    if !mend.is_empty() {
        return Error::rejected(format!("{said}: {mend}"));
    }
    let undone = !matches!(
        refusal.parsed_severity(),
        Some(Severity::Fatal | Severity::Panic)
    );
    match (during, undone) {
        // A session that ends can have committed just before: PostgreSQL does not say.
        (During::Writing, false) => Error::unknown(said),
        (During::Writing, true) if code.code().starts_with("57P") => Error::unknown(said),
        _ => Error::unavailable(said),
    }
}

/// Whether a write was undone for a reason that lies in what else was going on just then.
pub(super) fn is_worth_repeating(failure: &Failure) -> bool {
    failure.code().is_some_and(|code| {
        *code == SqlState::T_R_DEADLOCK_DETECTED
            || *code == SqlState::T_R_SERIALIZATION_FAILURE
            // Our own guard: the row that was to be updated has just been removed altogether.
            || *code == SqlState::DIVISION_BY_ZERO
    })
}

/// Whether the session is of no use any more.
pub(super) fn ends_session(failure: &Failure) -> bool {
    match failure.as_db_error() {
        None => true,
        // Read-only: another server may have become the primary. Tables that are gone may come
        // back, and then statements have to be prepared anew.
        Some(refusal) => {
            refusal.parsed_severity() != Some(Severity::Error)
                || matches!(refusal.code().code(), "25006" | "42P01" | "3F000" | "XX000")
        }
    }
}

/// A failure with its causes.
fn full(failure: &Failure) -> String {
    let mut words = failure.to_string();
    let mut cause = failure.source();
    while let Some(error) = cause {
        words = format!("{words}: {error}");
        cause = error.source();
    }
    words
}
