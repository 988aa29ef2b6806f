//! The one clock of a worker: its own, monotone, and running through suspend.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parti_core::time::Time;

/// Where a worker's time comes from.
pub(crate) trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Now, since some origin of its own.
    fn now(&self) -> Time;

    /// The wall clock, in milliseconds since the Unix epoch: for people to read, never to decide.
    fn wall_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| {
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        })
    }
}

/// CLOCK_BOOTTIME where there is one: the standard library's clock stands still while a machine is
/// suspended, and a lease must not.
#[derive(Debug, Default)]
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Time {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let clock = rustix::time::ClockId::Boottime;
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        let clock = rustix::time::ClockId::Monotonic;
        let now = rustix::time::clock_gettime(clock);
        let seconds = Duration::from_secs(u64::try_from(now.tv_sec).unwrap_or(0));
        let nanos = Duration::from_nanos(u64::try_from(now.tv_nsec).unwrap_or(0));
        Time::ZERO + seconds + nanos
    }
}

/// Tokio's clock, which tests can stop and move.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct TestClock(tokio::time::Instant);

#[cfg(test)]
impl TestClock {
    /// A clock that starts now.
    pub(crate) fn new() -> Self {
        Self(tokio::time::Instant::now())
    }
}

#[cfg(test)]
impl Clock for TestClock {
    fn now(&self) -> Time {
        Time(1) + self.0.elapsed()
    }

    fn wall_ms(&self) -> u64 {
        self.now().0 / 1_000
    }
}
