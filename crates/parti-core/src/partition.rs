//! Partitions: hierarchical keys and a weight; and whole lists of them.
//!
//! The shared form of a list is `Arc<[Partition]>`, sorted by id and without duplicates, as
//! [`list`] and [`numbered`] make it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use crate::codec::{self, Template};
use crate::ids::PartitionId;
use crate::problem::{Problem, Problems};

/// The heaviest weight: with [`MAX_PARTITIONS`] of them the sum stays below 2^62.
pub const MAX_WEIGHT: u64 = 1 << 40;
/// The longest list.
pub const MAX_PARTITIONS: usize = 1 << 22;
/// So many duplicates are named; the rest is counted.
const NAMED: usize = 10;

/// One unit of work: hierarchical keys such as `["tool001", "chamber1"]`, and how heavy it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Given", into = "Given")]
pub struct Partition {
    /// The keys, outermost first.
    pub keys: Vec<String>,
    /// Its share of load; 1 where none was given.
    pub weight: u64,
    /// The canonical id made of the keys.
    pub id: PartitionId,
}

/// A partition as people write it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    keys: Vec<String>,
    #[serde(default)]
    weight: Option<i64>,
}

impl TryFrom<Given> for Partition {
    type Error = Problem;
    fn try_from(given: Given) -> Result<Self, Problem> {
        Self::new(given.keys, given.weight)
    }
}

impl From<Partition> for Given {
    fn from(partition: Partition) -> Self {
        let weight = i64::try_from(partition.weight).unwrap_or(i64::MAX);
        Self {
            keys: partition.keys,
            weight: Some(weight),
        }
    }
}

impl Partition {
    /// A partition with these keys. Absent or zero weight is 1, negative weight is refused.
    pub fn new<K: Into<String>>(
        keys: impl IntoIterator<Item = K>,
        weight: impl Into<Option<i64>>,
    ) -> Result<Self, Problem> {
        let keys: Vec<String> = keys.into_iter().map(Into::into).collect();
        let id = codec::partition_id(&keys)?;
        let given = weight.into().unwrap_or(1);
        let refuse = |what: &str, remedy: String| {
            Problem::new(format!("weight of {id}"), given.to_string(), what, remedy)
        };
        let weight = match u64::try_from(given) {
            Err(_) => {
                return Err(refuse(
                    "is negative",
                    "give it 1 or more, or leave it out".into(),
                ));
            }
            Ok(weight) if weight > MAX_WEIGHT => {
                return Err(refuse(
                    "is too heavy",
                    format!("scale weights to {MAX_WEIGHT} at most"),
                ));
            }
            Ok(weight) => weight.max(1),
        };
        Ok(Self { keys, weight, id })
    }

    /// The subject `<prefix>.<keys>.completed`: the common case of [`Template::subject`], which
    /// makes any other.
    pub fn subject(&self, prefix: &str) -> Result<String, Problem> {
        Template::parse(&format!("{prefix}.{{id}}.completed"))?.subject(self)
    }
}

/// Partitions as people write them: a YAML or JSON array of `{keys: [...], weight: n}`.
pub fn from_yaml(text: &str) -> Result<Vec<Partition>, Problem> {
    serde_saphyr::from_str(text).map_err(|error| {
        Problem::new(
            "partitions",
            crate::problem::shown_up_to(text, 40),
            format!("cannot be read: {error}"),
            "write a list such as [{keys: [tool001, chamber1], weight: 2}]",
        )
    })
}

/// A whole list in its shared form: sorted by id. Duplicates are refused, all of them at once;
/// an empty list is valid.
pub fn list(mut partitions: Vec<Partition>) -> Result<Arc<[Partition]>, Problems> {
    if partitions.len() > MAX_PARTITIONS {
        return Err(Problem::new(
            "partitions",
            partitions.len().to_string(),
            "are too many",
            format!("use {MAX_PARTITIONS} at most"),
        )
        .into());
    }
    partitions.sort_by(|a, b| a.id.cmp(&b.id));
    let mut problems = Vec::new();
    let mut unnamed = 0_usize;
    for same in partitions
        .chunk_by(|a, b| a.id == b.id)
        .filter(|same| same.len() > 1)
    {
        if problems.len() == NAMED {
            unnamed += 1;
            continue;
        }
        problems.push(Problem::new(
            "partitions",
            same[0].id.as_str(),
            format!("appears {} times", same.len()),
            "list each partition once",
        ));
    }
    if unnamed > 0 {
        problems.push(Problem::new(
            "partitions",
            unnamed.to_string(),
            "more partitions appear several times",
            "list each partition once",
        ));
    }
    Problems::none_of(problems)?;
    Ok(partitions.into())
}

/// The N partitions "0" to "n-1" of weight 1. Like every list they are sorted by id as text:
/// "0", "1", "10", "11", …, "2", ….
pub fn numbered(count: u32) -> Arc<[Partition]> {
    let mut partitions: Vec<Partition> = (0..count)
        .map(|number| {
            let key = number.to_string();
            Partition {
                id: PartitionId::new(&key),
                keys: vec![key],
                weight: 1,
            }
        })
        .collect();
    partitions.sort_by(|a, b| a.id.cmp(&b.id));
    partitions.into()
}

/// Whether this is one of the partitions `0` to `count - 1`.
pub fn is_numbered(partition: &PartitionId, count: u32) -> bool {
    let number: Option<u32> = partition.as_str().parse().ok();
    number.is_some_and(|number| number < count && number.to_string() == partition.as_str())
}

/// Refuses a list that is not exactly the partitions `0` to `count - 1` that a log was made with:
/// what is missing would be handled by nobody, and nobody would notice.
pub fn made_with(listed: &[Partition], log: &str, count: u32) -> Result<(), Problem> {
    let remedy = match count {
        1 => "list its one partition, \"0\"".to_owned(),
        count => format!("list its {count} partitions, \"0\" to \"{}\"", count - 1),
    };
    let is_unknown = |partition: &&Partition| !is_numbered(&partition.id, count);
    if let Some(unknown) = listed.iter().find(is_unknown) {
        let what = format!("is no partition of {log}");
        return Err(Problem::new(
            "partitions",
            unknown.id.as_str(),
            what,
            remedy,
        ));
    }
    if listed.len() == count as usize {
        return Ok(());
    }
    let what = format!("are not all of {log}; nobody would handle the others");
    let value = listed.len().to_string();
    Err(Problem::new("partitions", value, what, remedy))
}

/// The list's fingerprint: XXH3-64 over ids and weights. Part of the format: it never changes.
pub fn hash(sorted: &[Partition]) -> u64 {
    let mut hasher = Xxh3::new();
    for partition in sorted {
        let id = partition.id.as_str().as_bytes();
        // With its length before it, no id can run into the next one.
        hasher.update(&(id.len() as u64).to_le_bytes());
        hasher.update(id);
        hasher.update(&partition.weight.to_le_bytes());
    }
    hasher.digest()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(key: &str, weight: i64) -> Partition {
        Partition::new([key], weight).expect("valid")
    }

    #[test]
    fn absent_and_zero_weights_are_one_and_negative_ones_are_refused() {
        assert_eq!(Partition::new(["a"], None).expect("valid").weight, 1);
        assert_eq!(partition("a", 0).weight, 1);
        assert_eq!(partition("a", 150).weight, 150);
        assert_eq!(
            Partition::new(["a", "b"], -3)
                .expect_err("negative")
                .to_string(),
            "weight of a.b: -3 is negative; give it 1 or more, or leave it out"
        );
        assert!(Partition::new(["a"], i64::MIN).is_err());
        assert!(Partition::new(["a"], i64::MAX).is_err());
        assert_eq!(partition("a", 1 << 40).weight, MAX_WEIGHT);
    }

    #[test]
    fn a_log_that_was_made_with_so_many_has_these_and_no_others() {
        let refused = |listed: &[Partition]| {
            let problem = made_with(listed, "the stream S", 3).expect_err("refused");
            problem.to_string()
        };
        assert_eq!(made_with(&numbered(3), "the stream S", 3), Ok(()));
        assert_eq!(
            refused(&numbered(2)),
            "partitions: 2 are not all of the stream S; nobody would handle the others; list its \
             3 partitions, \"0\" to \"2\""
        );
        assert_eq!(
            refused(&numbered(4)),
            "partitions: 3 is no partition of the stream S; list its 3 partitions, \"0\" to \"2\""
        );
        assert!(refused(&[partition("01", 1)]).contains("01 is no partition"));
        assert!(refused(&[]).contains("0 are not all"));
    }

    #[test]
    fn reading_a_partition_checks_it() {
        let read = |json: &str| serde_json::from_str::<Partition>(json).map_err(|e| e.to_string());
        assert_eq!(
            read(r#"{"keys":["a.b"],"weight":2}"#),
            Ok(partition("a.b", 2))
        );
        assert_eq!(read(r#"{"keys":["a"]}"#), Ok(partition("a", 1)));
        assert!(read(r#"{"keys":[]}"#).is_err());
        assert!(
            read(r#"{"keys":["a"],"weight":-1}"#)
                .expect_err("negative")
                .contains("negative")
        );
        let written = serde_json::to_string(&partition("a.b", 2)).expect("writes");
        assert_eq!(read(&written), Ok(partition("a.b", 2)));
    }

    #[test]
    fn the_subject_of_the_library_specification() {
        let partition = Partition::new(["tool001", "chamber1"], None).expect("valid");
        assert_eq!(
            partition.subject("prefix"),
            Ok("prefix.tool001.chamber1.completed".into())
        );
        assert!(partition.subject("a.*").is_err());
        assert!(partition.subject("").is_err());
    }

    #[test]
    fn a_list_is_sorted_and_duplicates_are_all_named() {
        let sorted = list(vec![partition("b", 1), partition("a", 1)]).expect("no duplicates");
        assert_eq!(
            sorted.iter().map(|p| p.id.as_str()).collect::<Vec<_>>(),
            ["a", "b"]
        );
        assert_eq!(list(vec![]).expect("an empty list is valid").len(), 0);

        let twice = ["c", "a", "b", "a", "c", "c"]
            .map(|key| partition(key, 1))
            .to_vec();
        assert_eq!(
            list(twice).expect_err("duplicates").to_string(),
            "partitions: a appears 2 times; list each partition once\n\
             partitions: c appears 3 times; list each partition once"
        );
        let many = (0..50)
            .chain(0..50)
            .map(|n| partition(&n.to_string(), 1))
            .collect();
        let problems = list(many).expect_err("duplicates");
        assert_eq!(problems.len(), NAMED + 1);
        assert!(
            problems.to_string().contains("40 more partitions"),
            "{problems}"
        );
    }

    #[test]
    fn numbered_partitions_are_a_valid_list() {
        let twelve = numbered(12);
        let ids: Vec<&str> = twelve.iter().map(|p| p.id.as_str()).collect();
        assert_eq!(
            ids,
            ["0", "1", "10", "11", "2", "3", "4", "5", "6", "7", "8", "9"]
        );
        assert_eq!(list(twelve.to_vec()).expect("valid"), twelve);
        assert_eq!(numbered(0).len(), 0);
    }

    #[test]
    fn the_fingerprint_never_changes_and_sees_every_difference() {
        assert_eq!(hash(&[]), 0x2d06_8005_38d3_94c2);
        assert_eq!(hash(&numbered(3)), 0xfc18_a01b_86e9_3a6a);
        let base = hash(&list(vec![partition("a", 1), partition("b", 1)]).expect("valid"));
        for other in [
            vec![partition("a", 1), partition("b", 2)],
            vec![partition("a", 1)],
            vec![partition("a", 1), partition("c", 1)],
            vec![partition("ab", 1)],
        ] {
            assert_ne!(hash(&other), base);
        }
        let shuffled = list(vec![partition("b", 1), partition("a", 1)]).expect("valid");
        assert_eq!(hash(&shuffled), base);
    }
}
