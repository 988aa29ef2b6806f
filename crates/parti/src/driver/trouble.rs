//! What the store says when it fails, told to observers: once, and again while it lasts.
//!
//! ```text
//!   new, or not told for a while ──▶ told       told lately, or too many others were ──▶ nothing
//! ```
//!
//! Several things fail at once where a store is gone, and take turns: what counts is when each was
//! told, not which was told last.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use parti_core::worker::{Report, Trouble};
use tokio::time::Instant;

use super::Observer;
use crate::store::Error;

/// The same trouble is told again after this time.
const AGAIN: Duration = Duration::from_secs(30);

/// So many different ones are told in that time, at the most: some name what they are about.
const DIFFERENT: usize = 8;

/// What was told lately.
#[derive(Debug, Default)]
struct Told(BTreeMap<String, Instant>);

impl Told {
    /// Whether this is to be told now. If so, it counts as told.
    fn is_due(&mut self, why: &str, now: Instant) -> bool {
        self.0
            .retain(|_, at| now.saturating_duration_since(*at) < AGAIN);
        let due = self.0.len() < DIFFERENT && !self.0.contains_key(why);
        if due {
            self.0.insert(why.to_owned(), now);
        }
        due
    }
}

/// Tells observers of trouble with the store.
pub(super) struct StoreTrouble {
    observers: Vec<Arc<dyn Observer>>,
    told: Mutex<Told>,
}

impl StoreTrouble {
    /// Nothing was told yet.
    pub(super) fn new(observers: Vec<Arc<dyn Observer>>) -> Self {
        Self {
            observers,
            told: Mutex::default(),
        }
    }

    /// The store failed.
    pub(super) fn note(&self, error: &Error) {
        let why = error.to_string();
        let told = self.told.lock();
        let mut told = told.unwrap_or_else(PoisonError::into_inner);
        if !told.is_due(&why, Instant::now()) {
            return;
        }
        drop(told);
        let report = Report::Trouble(Trouble::Store(why));
        for observer in &self.observers {
            observer.observe(&report);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Trouble that collects what it tells.
    fn told() -> (StoreTrouble, Arc<Mutex<Vec<String>>>) {
        let told = Arc::new(Mutex::new(Vec::new()));
        let hears = told.clone();
        let observer = move |report: &Report| {
            let Report::Trouble(Trouble::Store(why)) = report else {
                panic!("nothing but trouble with the store, not {report:?}");
            };
            hears.lock().expect("no panic").push(why.clone());
        };
        (StoreTrouble::new(vec![Arc::new(observer)]), told)
    }

    fn down(why: &str) -> Error {
        Error::unavailable(why)
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_trouble_is_told_once_and_again_while_it_lasts() {
        let (trouble, told) = told();
        for _ in 0..5 {
            trouble.note(&down("refused"));
        }
        assert_eq!(told.lock().expect("no panic").len(), 1);
        assert!(told.lock().expect("no panic")[0].contains("refused"));
        tokio::time::advance(AGAIN - Duration::from_millis(1)).await;
        trouble.note(&down("refused"));
        assert_eq!(told.lock().expect("no panic").len(), 1);
        tokio::time::advance(Duration::from_millis(1)).await;
        trouble.note(&down("refused"));
        assert_eq!(told.lock().expect("no panic").len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn other_trouble_is_told_at_once() {
        let (trouble, told) = told();
        trouble.note(&down("refused"));
        trouble.note(&down("no route"));
        let told = told.lock().expect("no panic");
        let heard: Vec<bool> = told.iter().map(|why| why.contains("refused")).collect();
        assert_eq!(heard, [true, false]);
    }

    /// What of these is told, if one comes every so often, in turn.
    fn told_of(texts: &[&str], every: Duration, times: u32) -> Vec<String> {
        let (mut told, began) = (Told::default(), Instant::now());
        let turns = texts.iter().cycle().zip(0..times);
        let due = turns.filter(|(why, n)| told.is_due(why, began + every * *n));
        due.map(|(why, _)| (*why).to_owned()).collect()
    }

    #[test]
    fn two_that_take_turns_are_told_once_each_and_again_while_they_last() {
        let both = ["the bucket a is gone", "the bucket b is gone"];
        let every = Duration::from_millis(100);
        assert_eq!(told_of(&both, every, 300), both);
        assert_eq!(told_of(&both, every, 302), [both, both].concat());
    }

    #[test]
    fn however_many_differ_only_some_are_told_in_a_while() {
        let many: Vec<String> = (0..100).map(|n| format!("record {n} is damaged")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let told = told_of(&many, Duration::from_millis(10), 3000);
        assert_eq!(told, many[..DIFFERENT], "30 s are over only after these");
        let told = told_of(&many, Duration::from_millis(10), 6000);
        assert_eq!(told.len(), 2 * DIFFERENT);
    }
}
