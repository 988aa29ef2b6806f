//! The graceful stop: be relieved by the leader, else let go alone, at the latest by force.
//!
//! ```text
//! Stop ──▶ Relief: the leader moves everything away ──▶ nothing held ──▶ goodbye ──▶ stopped
//!            │ no one else, leaderless, nobody leads for a heartbeat,           ▲
//!            │ everybody else stops too, or 60 % of shutdown_timeout over       │
//!            ▼                                                                  │
//!          Alone: close lanes, release as they drain ───────────────────────────┤
//!            │ 90 % over                                                        │
//!            ▼                                                                  │
//!          Forced: give up running handler calls, release what is done ─────────┘
//! ```
//!
//! Going alone is always safe. It costs the next owner a pause, because nobody prepares.

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
    /// How long a group may be without a leader before nobody is expected to come.
    heartbeat: Duration,
    /// Since when nobody leads, as far as this worker knows.
    unled_since: Option<Time>,
    /// Whether the other sessions are being watched, to see whether anybody stays.
    pub(super) looks_around: bool,
}

impl Stopping {
    /// Starts the stop.
    pub fn new(now: Time, limit: Duration, heartbeat: Duration) -> Self {
        Self {
            since: now,
            limit,
            alone: false,
            heartbeat,
            unled_since: None,
            looks_around: false,
        }
    }

    /// Nobody will relieve this worker: it lets go by itself.
    pub fn go_alone(&mut self) {
        self.alone = true;
    }

    /// Whether somebody leads now. Where nobody does for a whole heartbeat, nobody will: whoever
    /// stays stands for election as soon as it knows.
    pub fn is_led(&mut self, now: Time, led: bool) {
        self.unled_since = match (led, self.unled_since) {
            (true, _) => None,
            (false, since) => since.or(Some(now)),
        };
        self.alone |= self.unled_since.is_some() && now >= self.gives_up_waiting();
    }

    /// When nobody is expected to lead any more.
    fn gives_up_waiting(&self) -> Time {
        self.unled_since
            .map_or(Time::NEVER, |since| since + self.heartbeat)
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
        let next = next.map_or(Time::NEVER, |(at, _)| at);
        match self.step(now) {
            Step::Relief => next.min(self.gives_up_waiting()),
            _ => next,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEARTBEAT: Duration = Duration::from_secs(2);

    fn at(seconds: u64) -> Time {
        Time(seconds * 1_000_000)
    }

    #[test]
    fn every_step_has_its_time() {
        let mut stopping = Stopping::new(Time(0), Duration::from_secs(10), HEARTBEAT);
        assert_eq!(stopping.step(at(5)), Step::Relief);
        assert_eq!(stopping.next_deadline(at(5)), at(6));
        assert_eq!(stopping.step(at(6)), Step::Alone);
        assert_eq!(stopping.step(at(9)), Step::Forced);
        assert_eq!(stopping.step(at(10)), Step::Over);
        stopping.go_alone();
        assert_eq!(stopping.step(at(1)), Step::Alone);
    }

    #[test]
    fn a_group_without_a_leader_is_waited_for_one_heartbeat() {
        let mut stopping = Stopping::new(Time(0), Duration::from_secs(10), HEARTBEAT);
        stopping.is_led(at(0), true);
        assert_eq!(stopping.next_deadline(at(0)), at(6));
        stopping.is_led(at(1), false);
        assert_eq!(stopping.next_deadline(at(1)), at(3));
        stopping.is_led(at(2), true);
        assert_eq!(stopping.next_deadline(at(2)), at(6), "somebody came");
        stopping.is_led(at(3), false);
        stopping.is_led(at(4), false);
        assert_eq!(stopping.step(at(4)), Step::Relief);
        stopping.is_led(at(5), false);
        assert_eq!(stopping.step(at(5)), Step::Alone);
        stopping.is_led(at(5), true);
        assert_eq!(stopping.step(at(5)), Step::Alone, "there is no way back");
    }
}
