//! When the leader waits, and for how long: each rule a small pure function.
//!
//! ```text
//! first member ──▶ cold start ──┬── window over ────────┐
//! many lost at once ──▶ ────────┤── quiet for settle ───┼──▶ plan for everybody
//!                               └── expected are here ──┘
//! a worker joins ──▶ planned scale ─┬── window over ────┬──▶ the joiner's share moves
//!                                   └── quiet for settle┘
//! a worker leaves, crashes, or the list changes ──▶ no window: at once
//! ```

use std::time::Duration;

use crate::config::Config;
use crate::time::Time;

/// The longest time that a worker which never gets ready is left alone.
const LONGEST_SUSPENSION: Duration = Duration::from_secs(300);

/// When a window was opened, and since when membership has not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its beginning.
    pub opened: Time,
    /// The last change of membership.
    pub quiet_since: Time,
}

impl Span {
    /// A window that opens with a change of membership.
    pub fn at(now: Time) -> Self {
        Self {
            opened: now,
            quiet_since: now,
        }
    }
}

/// What the leader waits for before it moves partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// Nothing.
    Closed,
    /// The workers of a new or restarted group.
    ColdStart(Span),
    /// Further workers, after one joined.
    PlannedScale(Span),
}

impl Window {
    /// Whether the leader waits.
    pub fn is_open(self) -> bool {
        self != Self::Closed
    }

    /// Whether it waits for a whole group, so that even lost partitions stay where they were.
    pub fn is_cold_start(self) -> bool {
        matches!(self, Self::ColdStart(_))
    }

    /// Membership changed: the quiet starts anew.
    pub fn disturb(&mut self, at: Time) {
        if let Self::ColdStart(span) | Self::PlannedScale(span) = self {
            span.quiet_since = at;
        }
    }

    /// When it closes, as things stand with this many workers present.
    pub fn ends(self, config: &Config, present: u64) -> Time {
        match self {
            Self::Closed => Time::NEVER,
            Self::ColdStart(span) => cold_start_ends(config, span, present),
            Self::PlannedScale(span) => planned_scale_ends(config, span),
        }
    }
}

/// A cold start ends with its window, after a quiet settle time, or once all expected are present.
pub fn cold_start_ends(config: &Config, span: Span, present: u64) -> Time {
    if config
        .expected_workers
        .is_some_and(|expected| present >= expected)
    {
        return span.opened;
    }
    (span.opened + config.cold_start_window).min(span.quiet_since + config.settle_time())
}

/// A planned scale ends with its window, or after a quiet settle time.
pub fn planned_scale_ends(config: &Config, span: Span) -> Time {
    (span.opened + config.planned_scale_window).min(span.quiet_since + config.settle_time())
}

/// Whether so many losses, out of so many planned workers, are a restart of the group.
///
/// At least two: the loss of one of two workers is a crash at the default ratio of a half, and its
/// partitions must not wait for a cold start.
pub fn is_restart(config: &Config, lost: usize, planned: usize) -> bool {
    // The tolerance keeps a ratio such as 0.3 of 10 from being missed by a rounding error.
    lost >= 2 && lost as f64 + 1e-9 >= config.restart_detection_ratio * planned as f64
}

/// Whether a loss then still counts as the same event as one now.
pub fn is_recent(config: &Config, then: Time, now: Time) -> bool {
    now.since(then) <= config.session_ttl()
}

/// Whether a gain in balance (max/mean by weight, before and after) is worth moving partitions.
pub fn is_worth_moving(config: &Config, before: f64, after: f64) -> bool {
    let gain = before - after;
    gain > 1e-9 && gain + 1e-9 >= config.assignment.min_rebalance_threshold
}

/// When partitions may next move merely for balance.
pub fn cooldown_ends(config: &Config, last: Option<Time>) -> Time {
    last.map_or(Time::ZERO, |at| at + config.assignment.rebalance_cooldown)
}

/// How long a worker that did not get ready, this many times in a row, gets nothing new.
pub fn suspension(config: &Config, failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    (config.handoff.prepare_timeout * (1 << doublings)).min(LONGEST_SUSPENSION)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(s: u64) -> Time {
        Time(s * 1_000_000)
    }

    #[test]
    fn a_cold_start_ends_by_quiet_by_its_limit_or_when_all_are_here() {
        let mut config = Config::default();
        let span = |quiet| Span {
            opened: secs(100),
            quiet_since: secs(quiet),
        };
        assert_eq!(
            cold_start_ends(&config, span(100), 1),
            secs(104),
            "two heartbeats of quiet"
        );
        assert_eq!(cold_start_ends(&config, span(120), 1), secs(124));
        assert_eq!(
            cold_start_ends(&config, span(129), 1),
            secs(130),
            "the limit"
        );
        config.expected_workers = Some(3);
        assert_eq!(cold_start_ends(&config, span(120), 2), secs(124));
        assert_eq!(
            cold_start_ends(&config, span(120), 3),
            secs(100),
            "all are here"
        );
    }

    #[test]
    fn a_planned_scale_does_not_look_at_expected_workers() {
        let config = Config {
            expected_workers: Some(1),
            ..Config::default()
        };
        let window = Window::PlannedScale(Span {
            opened: secs(0),
            quiet_since: secs(3),
        });
        assert_eq!(window.ends(&config, 5), secs(7));
        assert_eq!(Window::Closed.ends(&config, 5), Time::NEVER);
    }

    #[test]
    fn zero_windows_end_at_once() {
        let config = Config {
            cold_start_window: Duration::ZERO,
            planned_scale_window: Duration::ZERO,
            ..Config::default()
        };
        assert_eq!(
            Window::ColdStart(Span::at(secs(7))).ends(&config, 1),
            secs(7)
        );
        assert_eq!(
            Window::PlannedScale(Span::at(secs(7))).ends(&config, 1),
            secs(7)
        );
    }

    #[test]
    fn a_restart_needs_two_losses_and_the_ratio() {
        let mut config = Config::default();
        assert!(!is_restart(&config, 1, 2), "one crash is a crash");
        assert!(!is_restart(&config, 1, 1));
        assert!(is_restart(&config, 2, 4));
        assert!(!is_restart(&config, 2, 5));
        config.restart_detection_ratio = 0.3;
        assert!(is_restart(&config, 3, 10));
    }

    #[test]
    fn balance_must_gain_something_even_without_a_threshold() {
        let mut config = Config::default();
        assert!(is_worth_moving(&config, 1.25, 1.10));
        assert!(!is_worth_moving(&config, 1.24, 1.10));
        config.assignment.min_rebalance_threshold = 0.0;
        assert!(!is_worth_moving(&config, 1.1, 1.1));
    }

    #[test]
    fn suspensions_double_up_to_a_limit() {
        let config = Config::default();
        let waits: Vec<u64> = [1, 2, 3, 6, 99]
            .iter()
            .map(|&n| suspension(&config, n).as_secs())
            .collect();
        assert_eq!(waits, [10, 20, 40, 300, 300]);
    }
}
