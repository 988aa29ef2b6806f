//! What clients say of their progress, and what becomes of it.

use parti::CommitRefused;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One commit.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Commit {
    /// Which partition.
    pub partition: String,
    /// The epoch that it was assigned under.
    pub epoch: u64,
    /// Everything up to and with this offset is done.
    pub offset: u64,
}

/// What became of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It counts.
    Ok,
    /// The partition is not this session's under this epoch: stop working on it.
    Fenced,
    /// It cannot be, for the reason given; the partition stays.
    Refused,
}

/// What became of one commit.
#[derive(Debug, Serialize, ToSchema)]
pub struct Committed {
    /// Which partition.
    pub partition: String,
    /// What became of it.
    pub result: Verdict,
    /// Why, if it does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A partition that was let go of.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Release {
    /// Which partition.
    pub partition: String,
    /// The epoch that it was assigned under.
    pub epoch: u64,
    /// Everything up to and with this offset is done, if more is done than was committed.
    pub offset: Option<u64>,
}

/// What became of a release.
#[derive(Debug, Serialize, ToSchema)]
pub struct Released {
    /// What became of it.
    pub result: Verdict,
    /// Why, if it does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Somebody else has it, or nobody.
pub fn not_held() -> (Verdict, Option<String>) {
    let why = "this session does not hold the partition under this epoch";
    (Verdict::Fenced, Some(why.to_owned()))
}

/// It cannot be, for this reason.
pub fn refused(why: impl ToString) -> (Verdict, Option<String>) {
    (Verdict::Refused, Some(why.to_string()))
}

/// What the group says of a commit.
pub fn verdict(committed: Result<(), CommitRefused>) -> (Verdict, Option<String>) {
    match committed {
        // Done already, under this very epoch: the same commit came twice, or late.
        Ok(()) | Err(CommitRefused::GoesBack { .. }) => (Verdict::Ok, None),
        Err(why @ (CommitRefused::NotOwned | CommitRefused::Fenced { .. })) => {
            (Verdict::Fenced, Some(why.to_string()))
        }
        Err(why @ CommitRefused::NoneFollows) => refused(why),
    }
}
