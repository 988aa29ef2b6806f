//! How soon a write that failed is tried again: as `retry` says, with jitter, and never given up.
//!
//! ```text
//!  renewed     due      failed   tried again, each after at most a quarter of a heartbeat   lease ends
//!  ├───────────┼────────┼───┼────┼───┼────┼──────────────────────────────────────────────────┤
//!  0       1 beat    ≤ 2 beats (the write's own limit)                               2.7 beats
//! ```
//!
//! A lease is at least three heartbeats long. So even after a renewal that used up all its time,
//! there is room for another one.

use std::time::Duration;

use crate::config::RetryConfig;
use crate::rng::Rng;
use crate::time::Time;
use crate::worker::outbox::Outbox;

/// While a lease is at stake, no wait is longer than a heartbeat divided by this.
const TRIES_PER_HEARTBEAT: u32 = 4;

/// The pace of writes that keep something alive.
#[derive(Clone, Debug)]
pub struct Pace {
    retry: RetryConfig,
    heartbeat: Duration,
    /// In a row.
    failures: u32,
    not_before: Time,
}

impl Pace {
    /// Nothing has failed yet.
    pub fn new(retry: &RetryConfig, heartbeat: Duration) -> Self {
        Self {
            retry: retry.clone(),
            heartbeat,
            failures: 0,
            not_before: Time::ZERO,
        }
    }

    /// Nothing is to be tried before then.
    pub fn not_before(&self) -> Time {
        self.not_before
    }

    /// A try failed, or its fate is open. `at_stake` tells whether a lease is still to be kept; if
    /// not, one try per heartbeat is enough to notice that the store is back.
    pub fn failed(&mut self, at_stake: bool, out: &mut Outbox) {
        self.failures = self.failures.saturating_add(1);
        let longest = if at_stake {
            self.heartbeat / TRIES_PER_HEARTBEAT
        } else {
            self.heartbeat
        };
        let wait = backoff(&self.retry, self.failures).min(longest);
        self.not_before = out.now() + jittered(wait, out.rng());
    }

    /// The store answered.
    pub fn succeeded(&mut self) {
        self.failures = 0;
        self.not_before = Time::ZERO;
    }
}

/// The wait before retry number `failures` (from 1).
pub fn backoff(retry: &RetryConfig, failures: u32) -> Duration {
    let exponent = failures.saturating_sub(1).min(32);
    let factor = retry
        .backoff
        .max(1.0)
        .powi(i32::try_from(exponent).unwrap_or(32));
    let wait = retry.initial_delay.as_secs_f64() * factor;
    Duration::from_secs_f64(wait.min(retry.max_delay.as_secs_f64()))
}

/// Between half of it and all of it, so that workers that failed together do not come back
/// together.
pub fn jittered(wait: Duration, rng: &mut Rng) -> Duration {
    let micros = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(rng.between(micros / 2, micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEARTBEAT: Duration = Duration::from_secs(2);

    fn waits(retry: &RetryConfig, at_stake: bool) -> Vec<Duration> {
        let mut out = Outbox::new(Rng::new(3));
        let mut pace = Pace::new(retry, HEARTBEAT);
        let tries = (0..100).map(|_| {
            pace.failed(at_stake, &mut out);
            let wait = pace.not_before().since(out.now());
            out.set_now(pace.not_before());
            wait
        });
        tries.collect()
    }

    #[test]
    fn a_lease_is_never_lost_by_waiting() {
        let retry = RetryConfig {
            initial_delay: Duration::from_secs(20),
            max_delay: Duration::from_secs(600),
            ..RetryConfig::default()
        };
        let longest = |waits: Vec<Duration>| waits.into_iter().max().unwrap_or_default();
        assert!(longest(waits(&retry, true)) <= HEARTBEAT / 4);
        assert!(longest(waits(&retry, false)) <= HEARTBEAT);
    }

    #[test]
    fn waits_grow_from_the_configured_one_with_jitter() {
        let retry = RetryConfig {
            initial_delay: Duration::from_millis(40),
            ..RetryConfig::default()
        };
        let waits = waits(&retry, true);
        assert!((20..=40).contains(&waits[0].as_millis()), "{:?}", waits[0]);
        assert!((40..=80).contains(&waits[1].as_millis()), "{:?}", waits[1]);
        assert!(waits.iter().all(|wait| *wait > Duration::ZERO));
        let last: std::collections::BTreeSet<_> = waits[50..].iter().collect();
        assert!(last.len() > 10, "no jitter: {last:?}");
    }

    #[test]
    fn a_success_starts_over() {
        let mut out = Outbox::new(Rng::new(3));
        let mut pace = Pace::new(&RetryConfig::default(), HEARTBEAT);
        pace.failed(true, &mut out);
        assert!(pace.not_before() > out.now());
        pace.succeeded();
        assert!(pace.not_before() <= out.now());
    }
}
