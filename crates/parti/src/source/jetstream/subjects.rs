//! Partitions and the subjects that they have in the stream.

use std::collections::HashMap;
use std::sync::Arc;

use parti_core::codec::{self, Template};
use parti_core::partition::Partition;

use super::api::rejected;
use crate::source::{PartitionId, Record, SourceError};

/// The partition of a subject that no partition has. No canonical id is like it.
const NOBODYS: &str = "=-";

/// Remembers at the most so many subjects: a stream with many more would be an odd filter.
const REMEMBERED: usize = 100_000;

/// The subject of a partition.
pub(super) fn subject(template: &Template, partition: &PartitionId) -> Result<String, SourceError> {
    let refused = |problem: parti_core::problem::Problem| rejected(problem.to_string());
    let keys = codec::keys_of(partition.as_str())
        .ok_or_else(|| rejected(format!("{partition} is no partition's id")))?;
    let partition = Partition::new(keys, None).map_err(refused)?;
    template.subject(&partition).map_err(refused)
}

/// The partition of a subject; `None` if no partition has it.
pub(super) fn partition(template: &Template, subject: &str) -> Option<PartitionId> {
    codec::partition_id(&template.partition_of(subject)?).ok()
}

/// Gives a message without a key the one that its subject holds, if it does.
pub(super) fn give_key(template: &Template, record: &mut Record) {
    if record.key.is_none() {
        record.key = template.key_of(&record.subject).map(Into::into);
    }
}

/// Finds partitions by subject, thousands of times a second.
#[derive(Debug)]
pub(super) struct Partitions {
    template: Template,
    known: HashMap<Arc<str>, PartitionId>,
}

impl Partitions {
    /// Nothing known yet.
    pub fn new(template: Template) -> Self {
        Self {
            template,
            known: HashMap::new(),
        }
    }

    /// Gives a message without a key the one that its subject holds, if it does.
    pub fn give_key(&self, record: &mut Record) {
        give_key(&self.template, record);
    }

    /// The partition of a subject, or one that is nobody's; and the subject, to be kept.
    pub fn of(&mut self, subject: &str) -> (PartitionId, Arc<str>) {
        if let Some((subject, known)) = self.known.get_key_value(subject) {
            return (known.clone(), subject.clone());
        }
        let subject: Arc<str> = subject.into();
        let found =
            partition(&self.template, &subject).unwrap_or_else(|| PartitionId::new(NOBODYS));
        if self.known.len() < REMEMBERED {
            self.known.insert(subject.clone(), found.clone());
        }
        (found, subject)
    }
}

/// The subjects that a template can make, as a filter: `dc.{0}.x` is `dc.*.x`.
pub(super) fn pattern(template: &Template) -> Vec<&str> {
    let tokens = template.as_str().split('.');
    let wild = |token| match token {
        "{id}" => ">",
        token if str::contains(token, '{') => "*",
        token => token,
    };
    let mut tokens: Vec<&str> = tokens.map(wild).collect();
    // What follows a whole id is not looked at: it can stand anywhere.
    if let Some(whole) = tokens.iter().position(|token| *token == ">") {
        tokens.truncate(whole + 1);
    }
    tokens
}

/// Whether one subject can match both filters.
pub(super) fn overlap(a: &[&str], b: &[&str]) -> bool {
    match (a, b) {
        ([], []) => true,
        ([">", ..], [_, ..]) | ([_, ..], [">", ..]) => true,
        ([x, a @ ..], [y, b @ ..]) => (x == y || *x == "*" || *y == "*") && overlap(a, b),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(text: &str) -> Template {
        Template::parse(text).expect("valid")
    }

    #[test]
    fn there_and_back_through_a_template() {
        let business = template("dc.{0}.{1}.completion");
        let id = codec::partition_id(&["tool 1", "a.b"]).expect("valid");
        let made = subject(&business, &id).expect("fits");
        assert_eq!(made, "dc.tool=201.a=2Eb.completion");
        let mut partitions = Partitions::new(business.clone());
        assert_eq!(partitions.of(&made).0, id);
        let (again, remembered) = partitions.of(&made);
        assert_eq!((again, &*remembered), (id, made.as_str()), "remembered");
        let (other, _) = partitions.of("dc.tool1.completion");
        assert!(!codec::is_canonical(other.as_str()), "{other}");
        assert!(subject(&business, &PartitionId::new("7")).is_err());
        assert!(subject(&business, &PartitionId::new("a..b")).is_err());
    }

    #[test]
    fn filters_overlap_where_one_subject_fits_both() {
        let tokens = |text: &'static str| text.split('.').collect::<Vec<_>>();
        for (a, b, both) in [
            ("a.b", "a.b", true),
            ("a.b", "a.c", false),
            ("a.*", "*.b", true),
            ("a.>", "a.b.c", true),
            ("a.>", "a", false),
            ("a", "a.b", false),
            ("*.x", "a.>", true),
            (">", "a", true),
        ] {
            assert_eq!(overlap(&tokens(a), &tokens(b)), both, "{a} {b}");
            assert_eq!(overlap(&tokens(b), &tokens(a)), both, "{b} {a}");
        }
        assert_eq!(
            pattern(&template("dc.x{0}.{1}.end")),
            ["dc", "*", "*", "end"]
        );
        assert_eq!(pattern(&template("dc.{id}.end")), ["dc", ">"]);
    }
}
