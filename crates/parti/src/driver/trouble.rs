//! What the store says when it fails, told to observers: once, and again while it lasts.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use parti_core::worker::{Report, Trouble};
use tokio::time::Instant;

use super::Observer;
use crate::store::Error;

/// The same trouble is told again after this time.
const AGAIN: Duration = Duration::from_secs(30);

/// Tells observers of trouble with the store.
pub(super) struct StoreTrouble {
    observers: Vec<Arc<dyn Observer>>,
    told: Mutex<Option<(String, Instant)>>,
}

impl StoreTrouble {
    /// Nothing was told yet.
    pub(super) fn new(observers: Vec<Arc<dyn Observer>>) -> Self {
        Self {
            observers,
            told: Mutex::new(None),
        }
    }

    /// The store failed.
    pub(super) fn note(&self, error: &Error) {
        let why = error.to_string();
        {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            let known = |(text, at): &(String, Instant)| *text == why && at.elapsed() < AGAIN;
            if told.as_ref().is_some_and(known) {
                return;
            }
            *told = Some((why.clone(), Instant::now()));
        }
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
        trouble.note(&down("refused"));
        let told = told.lock().expect("no panic");
        let heard: Vec<bool> = told.iter().map(|why| why.contains("refused")).collect();
        assert_eq!(heard, [true, false, true]);
    }
}
