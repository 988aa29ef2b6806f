//! Waits between tries that spread out: decorrelated jitter, so that workers that failed together
//! do not come back together.

use std::time::Duration;

use crate::rng::Rng;

/// Each wait lies between the shortest and three times the last one, up to the longest.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    shortest: Duration,
    longest: Duration,
    last: Duration,
    failing: bool,
}

impl Backoff {
    pub(crate) fn new(shortest: Duration, longest: Duration) -> Self {
        Self {
            shortest,
            longest: longest.max(shortest),
            last: shortest,
            failing: false,
        }
    }

    /// How long to wait before the next try.
    pub(crate) fn next(&mut self, rng: &mut Rng) -> Duration {
        let low = self.shortest.as_micros() as u64;
        let high = (self.last.as_micros() as u64).saturating_mul(3).max(low);
        let wait = Duration::from_micros(rng.between(low, high)).min(self.longest);
        self.last = wait;
        self.failing = true;
        wait
    }

    /// Whether nothing failed since the last success.
    pub(crate) fn is_fresh(&self) -> bool {
        !self.failing
    }

    /// A try succeeded: begin from the shortest again.
    pub(crate) fn reset(&mut self) {
        self.last = self.shortest;
        self.failing = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_stay_in_bounds_and_start_over() {
        let (low, high) = (Duration::from_millis(100), Duration::from_secs(5));
        let mut backoff = Backoff::new(low, high);
        let mut rng = Rng::new(7);
        let waits: Vec<_> = (0..200).map(|_| backoff.next(&mut rng)).collect();
        assert!(waits.iter().all(|w| (low..=high).contains(w)));
        assert!(waits.iter().any(|w| *w > low * 10), "never grew");
        backoff.reset();
        assert!(backoff.next(&mut rng) <= low * 3);
    }
}
