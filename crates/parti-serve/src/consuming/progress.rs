//! What clients say of their progress, and what becomes of it.

use std::fmt;

use parti::CommitRefused;
use serde::de::{self, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

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

/// A number that is whole, however it is written: languages without integers write `7.0`, which
/// JSON Schema calls an integer, too.
struct Whole(u64);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl Visitor<'_> for Reader {
            type Value = Whole;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number that is not negative")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Whole, E> {
                Ok(Whole(number))
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Whole, E> {
                // Below 2^64, every whole one is a number of this kind.
                if number.fract() == 0.0 && (0.0..18_446_744_073_709_551_616.0).contains(&number) {
                    return Ok(Whole(number as u64));
                }
                Err(E::invalid_value(Unexpected::Float(number), &self))
            }
        }

        deserializer.deserialize_u64(Reader)
    }
}

fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Whole::deserialize(deserializer).map(|Whole(number)| number)
}

fn maybe_whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let found = Option::<Whole>::deserialize(deserializer)?;
    Ok(found.map(|Whole(number)| number))
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
        Err(why @ CommitRefused::NoneFollows) => refused(why),
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
