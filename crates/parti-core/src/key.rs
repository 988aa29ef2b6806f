//! The one place that knows where records live.
//!
//! ```text
//! workers/<worker>       leader       plan       group       overrides
//! assignments/<worker>   requests/<id>   events/<n>   topics/<name>   partitions/<id>
//! ```
//!
//! A [`Key`] becomes text and comes back ([`fmt::Display`], [`Key::parse`]). Names go through
//! [`crate::codec`], so the text holds nothing but `[A-Za-z0-9_=.-]` and the one slash, whatever a
//! name is made of; and two keys never have the same text.

use std::fmt;
use std::sync::Arc;

use crate::codec;
use crate::ids::{PartitionId, WorkerId};

/// Where one record lives, within a group's namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// The identity of the store and of the stream.
    Group,
    /// Who leads.
    Leader,
    /// What the leader is doing.
    Plan,
    /// A stable id's claim and session.
    Worker(WorkerId),
    /// What one worker should serve and prepare.
    Assignment(WorkerId),
    /// A partition's owner and progress.
    Partition(PartitionId),
    /// What operators decided against the strategy.
    Overrides,
    /// An operator's request, by the id that its writer gave it.
    Request(Arc<str>),
    /// One line of the group's history.
    Event(u64),
    /// A topic's partition count and layout, by the topic's own name.
    Topic(Arc<str>),
}

/// A set of keys that can be listed or watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Prefix {
    /// All sessions.
    Workers,
    /// All assignments.
    Assignments,
    /// All partition records.
    Partitions,
    /// All operators' requests.
    Requests,
    /// The whole history.
    Events,
    /// All topics.
    Topics,
}

impl Prefix {
    /// Every prefix.
    pub const ALL: [Prefix; 6] = [
        Prefix::Workers,
        Prefix::Assignments,
        Prefix::Partitions,
        Prefix::Requests,
        Prefix::Events,
        Prefix::Topics,
    ];

    /// The text that every key under this prefix starts with, with its slash.
    pub fn as_str(self) -> &'static str {
        match self {
            Prefix::Workers => "workers/",
            Prefix::Assignments => "assignments/",
            Prefix::Partitions => "partitions/",
            Prefix::Requests => "requests/",
            Prefix::Events => "events/",
            Prefix::Topics => "topics/",
        }
    }

    /// Whether the key lies under this prefix.
    pub fn holds(self, key: &Key) -> bool {
        key.prefix() == Some(self)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Key {
    /// The prefix it lies under, if it is one of many.
    pub fn prefix(&self) -> Option<Prefix> {
        match self {
            Key::Group | Key::Leader | Key::Plan | Key::Overrides => None,
            Key::Worker(_) => Some(Prefix::Workers),
            Key::Assignment(_) => Some(Prefix::Assignments),
            Key::Partition(_) => Some(Prefix::Partitions),
            Key::Request(_) => Some(Prefix::Requests),
            Key::Event(_) => Some(Prefix::Events),
            Key::Topic(_) => Some(Prefix::Topics),
        }
    }

    /// The key with this text; `None` for anything that [`Key`]'s `Display` does not yield.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, name) = match text {
            "group" => return Some(Key::Group),
            "leader" => return Some(Key::Leader),
            "plan" => return Some(Key::Plan),
            "overrides" => return Some(Key::Overrides),
            _ => text.split_once('/')?,
        };
        Some(match kind {
            "workers" => Key::Worker(WorkerId::new(codec::name_of_segment(name)?)),
            "assignments" => Key::Assignment(WorkerId::new(codec::name_of_segment(name)?)),
            "partitions" => Key::Partition(PartitionId::new(codec::name_of_segment(name)?)),
            "requests" => Key::Request(parse_token(name)?),
            "topics" => Key::Topic(parse_token(name)?),
            // Exactly twenty digits: `parse` alone would let a sign or fewer digits through.
            "events" if name.len() == 20 && name.bytes().all(|b| b.is_ascii_digit()) => {
                Key::Event(name.parse().ok()?)
            }
            _ => return None,
        })
    }
}

/// A name in its own right (no list of keys): escaped whole, dots too.
fn token(name: &str) -> String {
    // The empty name has no token; its marked form keeps the mapping total.
    if name.is_empty() {
        codec::segment(name)
    } else {
        codec::escape(name)
    }
}

fn parse_token(text: &str) -> Option<Arc<str>> {
    let name = if text == token("") {
        String::new()
    } else {
        codec::unescape(text)?
    };
    (token(&name) == text).then(|| name.into())
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(prefix) = self.prefix() {
            f.write_str(prefix.as_str())?;
        }
        match self {
            Key::Group => f.write_str("group"),
            Key::Leader => f.write_str("leader"),
            Key::Plan => f.write_str("plan"),
            Key::Overrides => f.write_str("overrides"),
            Key::Worker(id) | Key::Assignment(id) => f.write_str(&codec::segment(id.as_str())),
            Key::Partition(id) => f.write_str(&codec::segment(id.as_str())),
            Key::Request(name) | Key::Topic(name) => f.write_str(&token(name)),
            // As wide as the largest number, so that a list sorted by text is sorted by number.
            Key::Event(number) => write!(f, "{number:020}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::tests::HOSTILE;
    use std::collections::BTreeMap;

    #[test]
    fn the_table_of_keys() {
        for (key, text) in [
            (Key::Group, "group"),
            (Key::Leader, "leader"),
            (Key::Plan, "plan"),
            (Key::Overrides, "overrides"),
            (Key::Worker(WorkerId::new("worker-7")), "workers/worker-7"),
            (
                Key::Assignment(WorkerId::new("worker-7")),
                "assignments/worker-7",
            ),
            (
                Key::Partition(PartitionId::new("tool001.a=2Eb")),
                "partitions/tool001.a=2Eb",
            ),
            (Key::Request("drain-1".into()), "requests/drain-1"),
            (Key::Event(42), "events/00000000000000000042"),
            (Key::Event(u64::MAX), "events/18446744073709551615"),
            (Key::Topic("orders.eu".into()), "topics/orders=2Eeu"),
        ] {
            assert_eq!(key.to_string(), text);
            assert_eq!(Key::parse(text), Some(key));
        }
    }

    #[test]
    fn hostile_names_come_back_and_never_collide_or_escape() {
        let mut seen = BTreeMap::new();
        for name in HOSTILE.iter().copied().chain(["a".repeat(500).as_str()]) {
            for key in [
                Key::Worker(WorkerId::new(name)),
                Key::Assignment(WorkerId::new(name)),
                Key::Partition(PartitionId::new(name)),
                Key::Request(name.into()),
                Key::Topic(name.into()),
            ] {
                let text = key.to_string();
                let (_, rest) = text.split_once('/').expect("under a prefix");
                let safe = |b: u8| b.is_ascii_alphanumeric() || b"_=.-".contains(&b);
                assert!(!rest.is_empty() && rest.bytes().all(safe), "{text}");
                assert!(
                    !rest.starts_with('.') && !rest.ends_with('.') && !rest.contains(".."),
                    "{text}"
                );
                assert_eq!(Key::parse(&text).as_ref(), Some(&key), "{text}");
                assert_eq!(Prefix::ALL.iter().filter(|p| p.holds(&key)).count(), 1);
                assert!(text.starts_with(key.prefix().expect("has one").as_str()));
                assert_eq!(seen.insert(text, key), None);
            }
        }
    }

    #[test]
    fn only_what_a_key_writes_is_a_key() {
        for text in [
            "",
            "/",
            "workers",
            "workers/",
            "workers/a/b",
            "workers/a b",
            "workers/=61",
            "Workers/a",
            "partitions/a..b",
            "partitions/.",
            "events/42",
            "events/+0000000000000000042",
            "events/99999999999999999999",
            "events/000000000000000000042",
            "topics/a.b",
            "topics/",
            "leader/",
            "group/x",
            "other/a",
            " leader",
            "topics/=-a",
        ] {
            assert_eq!(Key::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn events_sort_by_number() {
        let texts: Vec<String> = [9, 10, 100, 1_000_000]
            .map(|n| Key::Event(n).to_string())
            .to_vec();
        assert!(texts.is_sorted());
    }
}
