//! What the source refuses, told once.
//!
//! ```text
//!   refused ──▶ does one like it stand, or one for the same reason? ── no ──▶ told
//!      └──▶ stands ──answered well, or nobody asks any more──▶ forgotten: the next one is told again
//! ```
//!
//! Whoever is refused asks again and again, until a person has mended something. What merely fails
//! passes by itself: it neither begins a refusal nor ends one.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ids::{PartitionId, WorkerId};
use crate::io::SourceError;

/// What was asked of the source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Asked {
    /// Where the stream begins and ends.
    Bounds,
    /// What the durable is like.
    Look,
    /// To put out the durable of this worker, whose session is over.
    Eviction(WorkerId),
    /// What lies before the durable, for one lane.
    Read(PartitionId),
    /// The same for many lanes at once.
    Sweep,
    /// Where a partition starts that has no checkpoint yet.
    Start(PartitionId),
}

impl Asked {
    /// Whether one is as good as the other to whoever is told.
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Asked::Read(_) | Asked::Sweep, Asked::Read(_) | Asked::Sweep)
            | (Asked::Start(_), Asked::Start(_)) => true,
            _ => self == other,
        }
    }

    fn consequence(&self) -> String {
        match self {
            Asked::Bounds => "where the stream ends cannot be asked".into(),
            Asked::Look => "the consumer cannot be looked at".into(),
            Asked::Eviction(worker) => {
                format!("what {worker} had waits until its consumer is gone")
            }
            Asked::Read(_) | Asked::Sweep => "what lies before the consumer cannot be read".into(),
            Asked::Start(_) => "where a new partition starts cannot be asked".into(),
        }
    }
}

/// What is refused at the moment, and why.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    standing: BTreeMap<Asked, Arc<str>>,
}

impl Refusals {
    /// Takes note of an answer. What is to be told, if anything is.
    pub(crate) fn answered(&mut self, asked: Asked, error: Option<&SourceError>) -> Option<String> {
        let Some(error) = error else {
            self.forget(&asked);
            return None;
        };
        let SourceError::Rejected(reason) = error else {
            return None;
        };
        let mut standing = self.standing.iter();
        let known = standing.any(|(other, why)| other.is_like(&asked) || why == reason);
        let told = (!known).then(|| format!("{}: {error}", asked.consequence()));
        self.standing.insert(asked, reason.clone());
        told
    }

    /// Nobody asks for that any more.
    pub(crate) fn forget(&mut self, asked: &Asked) {
        if !self.standing.is_empty() {
            self.standing.remove(asked);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(why: &str) -> Option<SourceError> {
        Some(SourceError::Rejected(why.into()))
    }

    fn read(partition: &str) -> Asked {
        Asked::Read(PartitionId::new(partition))
    }

    #[test]
    fn a_refusal_is_told_once_and_again_after_a_good_answer() {
        let mut refusals = Refusals::default();
        let told = Some("the consumer cannot be looked at: the source refuses: no".into());
        let no = refused("no");
        assert_eq!(refusals.answered(Asked::Look, no.as_ref()), told);
        assert_eq!(refusals.answered(Asked::Look, no.as_ref()), None);
        let other = refused("another reason");
        assert_eq!(refusals.answered(Asked::Look, other.as_ref()), None);
        let down = SourceError::Unavailable("down".into());
        assert_eq!(refusals.answered(Asked::Look, Some(&down)), None);
        assert_eq!(
            refusals.answered(Asked::Look, no.as_ref()),
            None,
            "what fails is no good answer"
        );
        assert_eq!(refusals.answered(Asked::Look, None), None);
        assert_eq!(refusals.answered(Asked::Look, no.as_ref()), told);
    }

    #[test]
    fn one_reason_is_told_once_whatever_it_refuses() {
        let mut refusals = Refusals::default();
        let gone = refused("the stream is gone");
        let told = |refusals: &mut Refusals, asked| refusals.answered(asked, gone.as_ref());
        assert!(told(&mut refusals, Asked::Bounds).is_some());
        for asked in [Asked::Look, read("a"), Asked::Sweep] {
            assert_eq!(told(&mut refusals, asked), None);
        }
        for asked in [Asked::Look, read("a"), Asked::Sweep, Asked::Bounds] {
            refusals.answered(asked, None);
        }
        assert!(told(&mut refusals, Asked::Look).is_some());
    }

    #[test]
    fn what_is_alike_is_told_once_and_what_is_not_each_for_itself() {
        let mut refusals = Refusals::default();
        let worker = |id: &str| Asked::Eviction(WorkerId::new(id));
        let mut tells = |asked, why: &str| {
            let error = refused(why);
            refusals.answered(asked, error.as_ref()).is_some()
        };
        assert!(tells(worker("w-1"), "its name is taken"));
        assert!(tells(worker("w-2"), "its name is taken, too"));
        assert!(tells(read("a"), "no right to a"));
        assert!(!tells(read("b"), "no right to b"));
        assert!(!tells(Asked::Sweep, "no right to the stream"));
    }

    #[test]
    fn what_nobody_asks_for_any_more_stands_in_nobodys_way() {
        let mut refusals = Refusals::default();
        let no = refused("no");
        assert!(refusals.answered(read("a"), no.as_ref()).is_some());
        refusals.forget(&read("a"));
        assert!(refusals.answered(read("b"), no.as_ref()).is_some());
    }
}
