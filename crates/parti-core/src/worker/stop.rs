//! The graceful stop: be relieved by the leader, else let go alone, at the latest by force.
//!
//! ```text
//! Stop ──▶ Relief: the leader moves everything away ──▶ nothing held ──▶ goodbye ──▶ stopped
//!            │ no one else, leaderless, or 60 % of shutdown_timeout over        ▲
//!            ▼                                                                  │
//!          Alone: close lanes, release as they drain ───────────────────────────┤
//!            │ 90 % over                                                        │
//!            ▼                                                                  │
//!          Forced: give up running handler calls, release what is done ─────────┘
//! ```

use std::time::Duration;

use crate::time::Time;

/// How far a graceful stop is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Waiting to be relieved of everything.
    Relief,
    /// Letting go of everything by itself.
    Alone,
    /// Giving up what still runs.
    Forced,
    /// Out of time.
    Over,
}

/// A graceful stop under way.
#[derive(Clone, Copy, Debug)]
pub struct Stopping {
    since: Time,
    limit: Duration,
    alone: bool,
}

impl Stopping {
    /// Starts the stop.
    pub fn new(now: Time, limit: Duration) -> Self {
        Self {
            since: now,
            limit,
            alone: false,
        }
    }

    /// Nobody will relieve this worker: it lets go by itself.
    pub fn go_alone(&mut self) {
        self.alone = true;
    }

    /// How long a request for a partition may take from now on. One that went into a dead link must
    /// be noticed, sent again, and land within the stop, however long requests may take otherwise.
    pub fn patience(&self) -> Duration {
        self.limit / 8
    }

    fn deadlines(&self) -> [(Time, Step); 3] {
        [
            (self.since + self.limit * 6 / 10, Step::Alone),
            (self.since + self.limit * 9 / 10, Step::Forced),
            (self.since + self.limit, Step::Over),
        ]
    }

    /// How far the stop is now.
    pub fn step(&self, now: Time) -> Step {
        let due = self
            .deadlines()
            .into_iter()
            .rev()
            .find(|(at, _)| now >= *at);
        match due {
            Some((_, step)) => step,
            None if self.alone => Step::Alone,
            None => Step::Relief,
        }
    }

    /// When the next step is due.
    pub fn next_deadline(&self, now: Time) -> Time {
        let next = self.deadlines().into_iter().find(|(at, _)| now < *at);
        next.map_or(Time::NEVER, |(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_its_time() {
        let mut stopping = Stopping::new(Time(0), Duration::from_secs(10));
        let at = |s: u64| Time(s * 1_000_000);
        assert_eq!(stopping.step(at(5)), Step::Relief);
        assert_eq!(stopping.next_deadline(at(5)), at(6));
        assert_eq!(stopping.step(at(6)), Step::Alone);
        assert_eq!(stopping.step(at(9)), Step::Forced);
        assert_eq!(stopping.step(at(10)), Step::Over);
        stopping.go_alone();
        assert_eq!(stopping.step(at(1)), Step::Alone);
    }
}
