//! What the source refuses, told once.
//!
//! ```text
//!   refused ──▶ does one like it stand, or one for the same reason? ── no ──▶ told
//!      └──▶ stands ──answered well, or nobody asks any more──▶ forgotten: the next one is told again
//! ```
//!
//! Whoever is refused asks again and again, until a person has mended something. So one that is not
//! refused again for longer than anybody waits is of nobody's concern any more. What merely fails
//! passes by itself: it neither begins a refusal nor ends one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::config::Config;
use crate::ids::{PartitionId, WorkerId};
use crate::io::SourceError;
use crate::time::Time;

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
    /// What a log's partition has.
    Partition(PartitionId),
    /// Where a partition starts that has no checkpoint yet.
    Start(PartitionId),
}

impl Asked {
    /// Whether one is as good as the other to whoever is told.
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Asked::Read(_) | Asked::Sweep, Asked::Read(_) | Asked::Sweep)
            | (Asked::Partition(_), Asked::Partition(_))
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
            Asked::Partition(partition) => format!("partition {partition} cannot be read"),
            Asked::Start(_) => "where a new partition starts cannot be asked".into(),
        }
    }
}

/// One that stands.
#[derive(Debug)]
struct Refusal {
    reason: Arc<str>,
    told: String,
    /// When it was refused last.
    at: Time,
}

/// What is refused at the moment, and why.
#[derive(Debug)]
pub(crate) struct Refusals {
    standing: BTreeMap<Asked, Refusal>,
    /// Whoever wants something asks again within this time.
    patience: Duration,
}

impl Refusals {
    pub(crate) fn new(config: &Config) -> Self {
        let longest = config
            .retry
            .max_delay
            .max(config.jetstream.reconcile_interval);
        Self {
            standing: BTreeMap::new(),
            patience: 3 * longest,
        }
    }

    /// Takes note of an answer. What is to be told, if anything is.
    pub(crate) fn answered(
        &mut self,
        now: Time,
        asked: Asked,
        error: Option<&SourceError>,
    ) -> Option<String> {
        let Some(error) = error else {
            self.forget(&asked);
            return None;
        };
        let SourceError::Rejected(reason) = error else {
            return None;
        };
        let mut standing = self.standing.iter();
        let known = standing.any(|(other, one)| other.is_like(&asked) || one.reason == *reason);
        let told = format!("{}: {error}", asked.consequence());
        let refusal = Refusal {
            reason: reason.clone(),
            told: told.clone(),
            at: now,
        };
        self.standing.insert(asked, refusal);
        (!known).then_some(told)
    }

    /// Nobody asks for that any more.
    pub(crate) fn forget(&mut self, asked: &Asked) {
        if !self.standing.is_empty() {
            self.standing.remove(asked);
        }
    }

    /// Forgets what nobody has asked for again. `asks`: whether anybody may ask at all now.
    pub(crate) fn pass(&mut self, now: Time, asks: bool) {
        if asks {
            let patience = self.patience;
            self.standing.retain(|_, one| now < one.at + patience);
        } else {
            for one in self.standing.values_mut() {
                one.at = now;
            }
        }
    }

    /// When to look again.
    pub(crate) fn next_deadline(&self) -> Time {
        let ends = self.standing.values().map(|one| one.at + self.patience);
        ends.min().unwrap_or(Time::NEVER)
    }

    /// What the source refuses, in words: one for all.
    pub(crate) fn first(&self) -> Option<&str> {
        self.standing.values().next().map(|one| one.told.as_str())
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

    /// Asked at a time that does not matter.
    impl Refusals {
        fn at_once(&mut self, asked: Asked, error: Option<&SourceError>) -> Option<String> {
            self.answered(Time::ZERO, asked, error)
        }
    }

    fn none() -> Refusals {
        Refusals::new(&Config::default())
    }

    #[test]
    fn a_refusal_is_told_once_and_again_after_a_good_answer() {
        let mut refusals = none();
        let told = Some("the consumer cannot be looked at: the source refuses: no".into());
        let no = refused("no");
        assert_eq!(refusals.at_once(Asked::Look, no.as_ref()), told);
        assert_eq!(refusals.at_once(Asked::Look, no.as_ref()), None);
        let other = refused("another reason");
        assert_eq!(refusals.at_once(Asked::Look, other.as_ref()), None);
        let down = SourceError::Unavailable("down".into());
        assert_eq!(refusals.at_once(Asked::Look, Some(&down)), None);
        assert_eq!(
            refusals.at_once(Asked::Look, no.as_ref()),
            None,
            "what fails is no good answer"
        );
        assert_eq!(refusals.at_once(Asked::Look, None), None);
        assert_eq!(refusals.at_once(Asked::Look, no.as_ref()), told);
    }

    #[test]
    fn one_reason_is_told_once_whatever_it_refuses() {
        let mut refusals = none();
        let gone = refused("the stream is gone");
        let told = |refusals: &mut Refusals, asked| refusals.at_once(asked, gone.as_ref());
        assert!(told(&mut refusals, Asked::Bounds).is_some());
        for asked in [Asked::Look, read("a"), Asked::Sweep] {
            assert_eq!(told(&mut refusals, asked), None);
        }
        for asked in [Asked::Look, read("a"), Asked::Sweep, Asked::Bounds] {
            refusals.at_once(asked, None);
        }
        assert!(told(&mut refusals, Asked::Look).is_some());
    }

    #[test]
    fn what_is_alike_is_told_once_and_what_is_not_each_for_itself() {
        let mut refusals = none();
        let worker = |id: &str| Asked::Eviction(WorkerId::new(id));
        let mut tells = |asked, why: &str| {
            let error = refused(why);
            refusals.at_once(asked, error.as_ref()).is_some()
        };
        assert!(tells(worker("w-1"), "its name is taken"));
        assert!(tells(worker("w-2"), "its name is taken, too"));
        assert!(tells(read("a"), "no right to a"));
        assert!(!tells(read("b"), "no right to b"));
        assert!(!tells(Asked::Sweep, "no right to the stream"));
    }

    #[test]
    fn what_is_not_refused_again_is_forgotten_unless_nobody_may_ask() {
        let (mut refusals, no) = (none(), refused("no"));
        let at = |seconds: u64| Time(seconds * 1_000_000);
        refusals.answered(at(0), Asked::Bounds, no.as_ref());
        assert_eq!(refusals.next_deadline(), at(90));
        // The durable is looked at, and refused, all the time.
        for seconds in [30, 60, 89] {
            refusals.answered(at(seconds), Asked::Look, no.as_ref());
            refusals.pass(at(seconds), true);
            let first = refusals.first().expect("refused");
            assert!(first.starts_with("where the stream ends"), "{first}");
        }
        refusals.pass(at(90), true);
        let first = refusals.first().expect("refused");
        assert!(first.starts_with("the consumer cannot"), "{first}");
        refusals.pass(at(1000), false);
        refusals.pass(at(1089), true);
        assert!(refusals.first().is_some(), "nobody could ask until 1000");
        refusals.pass(at(1090), true);
        assert_eq!(refusals.first(), None);
        assert_eq!(refusals.next_deadline(), Time::NEVER);
    }

    #[test]
    fn what_nobody_asks_for_any_more_stands_in_nobodys_way() {
        let mut refusals = none();
        let no = refused("no");
        assert!(refusals.at_once(read("a"), no.as_ref()).is_some());
        refusals.forget(&read("a"));
        assert!(refusals.at_once(read("b"), no.as_ref()).is_some());
    }
}
