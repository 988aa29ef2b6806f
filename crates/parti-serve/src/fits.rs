//! Whether the log here is the one that a group began with: from another one, a group's consumers
//! would handle messages that are not the group's, and commit them.
//!
//! ```text
//!   fetch of a group ──▶ known for a moment ──▶ its own, or 503 replaced, or 409
//!                          └ else one looks: the group's record, its topic, the topic's identity
//! ```
//!
//! Only of a group that is recorded to be about this topic is it known that the log was made anew.
//! Any other may be about another source, and whoever fetches for it named the wrong one.
//!
//! Fetches are many, and groups change their log hardly ever: one look serves all fetches of a group
//! within a second, and while one looks again, the others go by what was found last.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use parti::source::Source as _;
use parti::{Fatal, SourceId};
use tokio::time::Instant;

use crate::failure::{Failure, no_group, other_topic};
use crate::places::Places;

/// A look serves those who fetch within this time.
const FRESH: Duration = Duration::from_secs(1);
/// A store that does not answer within this time cannot be reached.
const PATIENCE: Duration = Duration::from_secs(5);
/// So many are remembered; whoever comes then has those forgotten that are not fresh.
const REMEMBERED: usize = 10_000;

/// A group and a topic.
type Pair = (String, String);

/// What a topic here is to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    /// The very one that its record names.
    Own,
    /// One of the same name.
    Replaced,
    /// Nothing that this service knows of.
    Foreign,
    /// Only of the same name: the group was made without a log.
    Namesake,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    at: Instant,
    fit: Fit,
}

/// What was found of groups and topics.
#[derive(Debug, Default)]
pub struct Fits(Mutex<BTreeMap<Pair, Known>>);

impl Fits {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Pair, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known, if nobody needs to look; else whoever asked does, and the others do not.
    fn known(&self, pair: &Pair) -> Option<Fit> {
        let mut all = self.lock();
        let known = all.get_mut(pair)?;
        if known.at.elapsed() < FRESH {
            return Some(known.fit);
        }
        known.at = Instant::now();
        None
    }

    fn remember(&self, pair: Pair, fit: Fit) {
        let mut all = self.lock();
        if all.len() >= REMEMBERED {
            all.retain(|_, known| known.at.elapsed() < FRESH);
        }
        let at = Instant::now();
        all.insert(pair, Known { at, fit });
    }

    /// Refuses a fetch for a group that is about another topic, or began with another log.
    pub async fn check(&self, places: &Places, group: &str, topic: &str) -> Result<(), Failure> {
        let pair = (group.to_owned(), topic.to_owned());
        let fit = match self.known(&pair) {
            Some(fit) => fit,
            None => {
                let looked = tokio::time::timeout(PATIENCE, look(places, group, topic)).await;
                let silent = || Failure::unavailable("the store does not answer");
                let looked = looked.unwrap_or_else(|_| Err(silent()));
                match looked {
                    Ok(fit) => {
                        self.remember(pair, fit);
                        fit
                    }
                    // A store that is away for a while changes nothing of what was found.
                    Err(failure) if failure.is_trouble() => {
                        let last = self.lock().get(&pair).map(|known| known.fit);
                        last.ok_or(failure)?
                    }
                    Err(failure) => {
                        self.lock().remove(&pair);
                        return Err(failure);
                    }
                }
            }
        };
        let standing = &places.standing;
        match fit {
            Fit::Own => {
                standing.group_has_its_log(group, true);
                Ok(())
            }
            Fit::Replaced => {
                standing.group_has_its_log(group, false);
                Err(Fatal::StreamReplaced.into())
            }
            Fit::Namesake => Err(Failure::conflict(
                format!("group: {group:?} was made without a log: its messages are not here"),
                "fetch them where they are, or leave `group` out to only read",
            )),
            Fit::Foreign => Err(Failure::conflict(
                format!("group: {group:?} is about another source than topic {topic:?}"),
                "give the group's own topic, or leave `group` out to only read",
            )),
        }
    }
}

/// What the topic here is to the group, by its record.
async fn look(places: &Places, group: &str, topic: &str) -> Result<Fit, Failure> {
    let records = places.records(group)?;
    let Some(made) = places.made_with(&records).await? else {
        return Err(no_group(format!("there is no group {group:?}")));
    };
    let (opened, other) = match places.recorded(&records).await? {
        Some((name, _)) if *name != *topic => return Err(other_topic(group, &name, topic)),
        Some(_) if made.stream == SourceId::NoLog => return Ok(Fit::Namesake),
        Some((name, _)) => (places.topic_of_group(&name).await?, Fit::Replaced),
        None => (places.topic(topic).await?, Fit::Foreign),
    };
    Ok(
        match SourceId::from(opened.topic.identity().await?) == made.stream {
            true => Fit::Own,
            false => other,
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_looks_and_the_others_go_by_what_was_found() {
        let (fits, pair) = (Fits::default(), ("g".to_owned(), "t".to_owned()));
        assert_eq!(fits.known(&pair), None, "nobody has looked");
        fits.remember(pair.clone(), Fit::Foreign);
        assert_eq!(fits.known(&pair), Some(Fit::Foreign));
        tokio::time::advance(FRESH).await;
        assert_eq!(fits.known(&pair), None, "this one looks");
        assert_eq!(fits.known(&pair), Some(Fit::Foreign), "the others do not");
        fits.remember(pair.clone(), Fit::Own);
        assert_eq!(fits.known(&pair), Some(Fit::Own));
    }
}
