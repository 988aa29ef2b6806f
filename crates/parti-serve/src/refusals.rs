//! Refusals in the log: the first of a kind at once, those that follow by their number.
//!
//! ```text
//!   first ──▶ a line        alike ──▶ counted ──▶ a line with their number, once the while is over
//! ```
//!
//! Whoever is refused can ask again as often as it likes, and would otherwise fill a disk with
//! lines that say the same. Kinds come from this program alone, never from a request: so there are
//! few.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

/// What is held back is looked at so often, or less.
const SOONEST: Duration = Duration::from_millis(100);

/// What makes refusals alike: status and code of the answer.
pub type Kind = (u16, &'static str);

/// Those alike that were held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct More {
    number: u64,
    span: Duration,
}

impl More {
    /// What follows a line, if there were any.
    pub fn told(&self) -> String {
        match self.number {
            0 => String::new(),
            _ => format!(", and {self}"),
        }
    }
}

impl std::fmt::Display for More {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { number, span } = self;
        write!(f, "{number} more like it in the last {span:.0?}")
    }
}

/// What was told last of a kind, and how many were held back since.
#[derive(Debug)]
struct Last {
    at: Instant,
    held: u64,
}

impl Last {
    /// Begins a new while, and answers what the old one held back.
    fn renew(&mut self, now: Instant) -> More {
        let span = now.saturating_duration_since(self.at);
        self.at = now;
        More {
            number: std::mem::take(&mut self.held),
            span,
        }
    }
}

#[derive(Debug, Default)]
struct Held(BTreeMap<Kind, Last>);

impl Held {
    /// One was refused. If that is to be told: how many like it were not.
    fn refused(&mut self, kind: Kind, now: Instant, span: Duration) -> Option<More> {
        let Some(last) = self.0.get_mut(&kind) else {
            self.0.insert(kind, Last { at: now, held: 0 });
            return Some(More {
                number: 0,
                span: Duration::ZERO,
            });
        };
        if now.saturating_duration_since(last.at) < span {
            last.held += 1;
            return None;
        }
        Some(last.renew(now))
    }

    /// What was held back for so long. Kinds of which nothing was are forgotten by then.
    fn due(&mut self, now: Instant, span: Duration) -> Vec<(Kind, More)> {
        let is_due = |last: &Last| now.saturating_duration_since(last.at) >= span;
        self.0.retain(|_, last| last.held > 0 || !is_due(last));
        let due = self.0.iter_mut().filter(|(_, last)| is_due(last));
        let due = due.map(|(kind, last)| (*kind, last.renew(now)));
        due.filter(|(_, more)| more.number > 0).collect()
    }
}

/// All refusals of one instance.
#[derive(Debug)]
pub struct Refusals {
    span: Duration,
    held: Mutex<Held>,
}

impl Refusals {
    /// At most one line of a kind in such a time.
    pub fn new(span: Duration) -> Self {
        Self {
            span,
            held: Mutex::default(),
        }
    }

    /// One was refused. If that is to be told: how many like it were not.
    pub fn refused(&self, kind: Kind) -> Option<More> {
        self.lock().refused(kind, Instant::now(), self.span)
    }

    /// Tells what was held back when its while is over, until the stop.
    pub async fn tell(&self, stop: CancellationToken) {
        let tick = (self.span / 10).max(SOONEST);
        let next = || stop.run_until_cancelled(tokio::time::sleep(tick));
        while next().await.is_some() {
            self.tell_due(self.span);
        }
    }

    /// Tells all that is held back: nobody does so later.
    pub fn end(&self) {
        self.tell_due(Duration::ZERO);
    }

    fn tell_due(&self, span: Duration) {
        let due = self.lock().due(Instant::now(), span);
        for ((status, code), more) in due {
            tracing::warn!(status, code, "refused: {more}");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_secs(10);
    const TOKEN: Kind = (401, "unauthorized");
    const STORE: Kind = (503, "store_refuses");

    fn at(began: Instant, seconds: u64) -> Instant {
        began + Duration::from_secs(seconds)
    }

    #[test]
    fn the_first_of_a_kind_is_told_and_those_alike_are_counted() {
        let (mut held, began) = (Held::default(), Instant::now());
        let mut refused = |kind, seconds| {
            let told = held.refused(kind, at(began, seconds), SPAN);
            told.map(|more| more.told())
        };
        assert_eq!(refused(TOKEN, 0).as_deref(), Some(""));
        for second in 1..10 {
            assert_eq!(refused(TOKEN, second), None);
        }
        assert_eq!(refused(STORE, 9).as_deref(), Some(""), "another kind");
        let more = ", and 9 more like it in the last 10s";
        assert_eq!(refused(TOKEN, 10).as_deref(), Some(more));
        assert_eq!(refused(TOKEN, 11), None, "a while of its own");
    }

    #[test]
    fn what_was_held_back_is_told_once_and_then_forgotten() {
        let (mut held, began) = (Held::default(), Instant::now());
        for (kind, second) in [(TOKEN, 0), (STORE, 0), (TOKEN, 1), (TOKEN, 2)] {
            held.refused(kind, at(began, second), SPAN);
        }
        assert_eq!(held.due(at(began, 9), SPAN), [], "not yet");
        let due = held.due(at(began, 11), SPAN);
        let told = |(kind, more): &(Kind, More)| (*kind, more.to_string());
        let told: Vec<(Kind, String)> = due.iter().map(told).collect();
        assert_eq!(told, [(TOKEN, "2 more like it in the last 11s".into())]);
        assert_eq!(held.refused(TOKEN, at(began, 12), SPAN), None, "one line");
        assert!(held.refused(STORE, at(began, 12), SPAN).is_some());
        assert_eq!(held.due(at(began, 13), Duration::ZERO).len(), 1, "the end");
        held.due(at(began, 40), SPAN);
        assert!(held.0.is_empty(), "{held:?}");
    }
}
