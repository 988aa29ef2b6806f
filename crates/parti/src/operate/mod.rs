//! What an operator changes by hand, through the same fenced records as everybody else.
//!
//! ```text
//!   checkpoint: plan ──▶ changes, before and after ──▶ apply: compare-and-set, epoch + 1, no owner
//!               by force: pause ──▶ its owner lets go, or time is up ──▶ apply ──▶ resume
//!   delete:     silence ──▶ close ──▶ everything, by compare-and-set ──▶ the group's own record
//!   request:    the leader carries it out; without one, overrides by compare-and-set ──▶ its effect
//! ```
//!
//! Nothing here writes unconditionally, and nothing decides from a read: what changed meanwhile is
//! a conflict, and is looked at again.

mod checkpoint;
mod delete;
mod evict;
mod evidence;
mod force;
mod history;
mod marks;
mod other_source;
mod pauses;
mod request;
#[cfg(test)]
mod tests;

use std::time::{SystemTime, UNIX_EPOCH};

use parti_core::ids::{Nonce, PartitionId};
use parti_core::io::StoreError;

use crate::store;

pub use checkpoint::{Applied, Change, Checkpoints, Place, Rules, Verdict, Wanted};
pub use delete::{Deleted, Reached, delete_group, delete_group_noting};
pub use other_source::TakeOver;
pub use request::{CarriedOut, Patience, Reason, request};

/// A line of the group's history names so many partitions.
const NAMED: usize = 5;

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// The store does not do it.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// There is no such group.
    #[error("there is no group {0:?}")]
    NoGroup(String),
    /// It would do harm now; the message says what to do first.
    #[error("{0}")]
    Refused(String),
    /// Something else came between; the message says what, and what is so now.
    #[error("{0}")]
    Overtaken(String),
    /// It was begun and is not finished; doing it again goes on.
    #[error("{0}")]
    Unfinished(String),
    /// It failed half way, and what was paused for it may still be.
    #[error(
        "{cause}; partition {} may be left paused: resume it (`parti partition resume`)",
        named(&partitions.iter().map(ToString::to_string).collect::<Vec<_>>())
    )]
    LeftPaused {
        /// Why it failed.
        cause: Box<Error>,
        /// What may be left paused.
        partitions: Vec<PartitionId>,
    },
}

/// The first few of these, and how many more there are.
fn named(all: &[String]) -> String {
    let first = &all[..all.len().min(NAMED)];
    match all.len() - first.len() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// Marks one write, so that it is known again when its fate was open.
fn nonce() -> Result<Nonce, store::Error> {
    getrandom::u64()
        .map(Nonce)
        .map_err(|error| store::Error::unavailable(format!("no random number: {error}")))
}

/// Milliseconds of wall-clock time, for records that people read.
fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(0))
}

fn of_core(error: &StoreError) -> store::Error {
    match error {
        StoreError::Unavailable => store::Error::unavailable("it does not answer"),
        StoreError::Unknown => store::Error::unknown("no answer came"),
        StoreError::Rejected(why) => store::Error::rejected(why),
    }
}
