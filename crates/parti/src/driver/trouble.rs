//! What the store says when it fails, told to observers: once, and again while it lasts.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use parti_core::worker::{Report, Trouble};

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
