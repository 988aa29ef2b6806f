//! What clients say of their progress, and what becomes of it.

use parti::CommitRefused;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::whole::{maybe_whole, whole};

/// One commit.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Commit {
    /// Which partition.
    pub partition: String,
    /// The epoch that it was assigned under.
    #[serde(deserialize_with = "whole")]
    pub epoch: u64,
    /// Everything up to and with this offset is done.
    #[serde(deserialize_with = "whole")]
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
    #[serde(deserialize_with = "whole")]
    pub epoch: u64,
    /// Everything up to and with this offset is done, if more is done than was committed.
    #[serde(default, deserialize_with = "maybe_whole")]
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
        Err(why @ CommitRefused::TooLarge { .. }) => refused(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_whole_however_they_are_written() {
        let read = |epoch: &str, offset: &str| {
            let text = format!(r#"{{"partition":"0","epoch":{epoch},"offset":{offset}}}"#);
            let release: Result<Release, _> = serde_json::from_str(&text);
            let commit: Result<Commit, _> = serde_json::from_str(&text);
            if let (Ok(release), Ok(commit)) = (&release, &commit) {
                assert_eq!(release.offset, Some(commit.offset));
            }
            commit.map(|commit| (commit.epoch, commit.offset)).ok()
        };
        assert_eq!(read("7.0", "1e3"), Some((7, 1_000)));
        assert_eq!(read("0", "18446744073709551615"), Some((0, u64::MAX)));
        for wrong in [
            "7.5",
            "-1",
            "-1.0",
            "1e20",
            "18446744073709551616",
            "\"7\"",
            "true",
        ] {
            assert_eq!(read("1", wrong), None, "{wrong}");
        }
        let none: Release = serde_json::from_str(r#"{"partition":"0","epoch":1}"#).expect("fits");
        assert_eq!(none.offset, None);
    }
}
