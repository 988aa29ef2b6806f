//! Whether the log here is the one that a group began with: from another one, a group's consumers
//! would handle messages that are not the group's, and commit them.
//!
//! ```text
//!   fetch of a group ──▶ known for a moment ──▶ yes, or 503 replaced
//!                          └ else one looks: the group's record, its topic, the topic's identity
//! ```
//!
//! Fetches are many, and groups change their log hardly ever: one look serves all fetches of a group
//! within a second, and while one looks again, the others go by what was found last.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use parti::Fatal;
use parti::core::key::Key;
use parti::core::record::Record;
use parti::source::Source as _;
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

#[derive(Clone, Copy, Debug)]
struct Known {
    at: Instant,
    same: bool,
}

/// What was found of groups and topics.
#[derive(Debug, Default)]
pub struct Fits(Mutex<BTreeMap<Pair, Known>>);

impl Fits {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Pair, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known, if nobody needs to look; else whoever asked does, and the others do not.
    fn known(&self, pair: &Pair) -> Option<bool> {
        let mut all = self.lock();
        let known = all.get_mut(pair)?;
        if known.at.elapsed() < FRESH {
            return Some(known.same);
        }
        known.at = Instant::now();
        None
    }

    fn remember(&self, pair: Pair, same: bool) {
        let mut all = self.lock();
        if all.len() >= REMEMBERED {
            all.retain(|_, known| known.at.elapsed() < FRESH);
        }
        let at = Instant::now();
        all.insert(pair, Known { at, same });
    }

    /// Refuses a fetch for a group that is about another topic, or began with another log.
    pub async fn check(&self, places: &Places, group: &str, topic: &str) -> Result<(), Failure> {
        let pair = (group.to_owned(), topic.to_owned());
        let same = match self.known(&pair) {
            Some(same) => same,
            None => {
                let looked = tokio::time::timeout(PATIENCE, look(places, group, topic)).await;
                let silent = || Failure::unavailable("the store does not answer");
                let looked = looked.unwrap_or_else(|_| Err(silent()));
                match looked {
                    Ok(same) => {
                        self.remember(pair, same);
                        same
                    }
                    // A store that is away for a while changes nothing of what was found.
                    Err(failure) if failure.is_trouble() => {
                        let last = self.lock().get(&pair).map(|known| known.same);
                        last.ok_or(failure)?
                    }
                    Err(failure) => {
                        self.lock().remove(&pair);
                        return Err(failure);
                    }
                }
            }
        };
        places.standing.group_has_its_log(group, same);
        match same {
            true => Ok(()),
            false => Err(Fatal::StreamReplaced.into()),
        }
    }
}

/// Whether the topic here is the very one that the group's record names.
async fn look(places: &Places, group: &str, topic: &str) -> Result<bool, Failure> {
    let records = places.records(group)?;
    let found = records.read(&Key::Group).await?;
    let Some(Record::Group(record)) = found.map(|stored| stored.record) else {
        return Err(no_group(format!("there is no group {group:?}")));
    };
    let opened = match places.recorded(&records).await? {
        Some((name, _)) if *name != *topic => return Err(other_topic(group, &name, topic)),
        Some((name, _)) => places.topic_of_group(&name).await?,
        None => places.topic(topic).await?,
    };
    Ok(opened.topic.identity().await? == record.stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_looks_and_the_others_go_by_what_was_found() {
        let (fits, pair) = (Fits::default(), ("g".to_owned(), "t".to_owned()));
        assert_eq!(fits.known(&pair), None, "nobody has looked");
        fits.remember(pair.clone(), false);
        assert_eq!(fits.known(&pair), Some(false));
        tokio::time::advance(FRESH).await;
        assert_eq!(fits.known(&pair), None, "this one looks");
        assert_eq!(fits.known(&pair), Some(false), "the others do not");
        fits.remember(pair.clone(), true);
        assert_eq!(fits.known(&pair), Some(true));
    }
}
