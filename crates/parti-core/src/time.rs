//! Time as data: microseconds on one process's own clock. Two clocks are never compared.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A moment on the process's own monotone clock (one that runs through suspend).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub u64);

impl Time {
    /// The clock's origin.
    pub const ZERO: Time = Time(0);
    /// A deadline that never comes.
    pub const NEVER: Time = Time(u64::MAX);

    /// How long ago `earlier` was; zero if it is not in the past.
    #[must_use]
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// This deadline if it lies after `now`; otherwise never.
    #[must_use]
    pub fn after(self, now: Time) -> Time {
        if self > now { self } else { Time::NEVER }
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, by: Duration) -> Time {
        Time(
            self.0
                .saturating_add(u64::try_from(by.as_micros()).unwrap_or(u64::MAX)),
        )
    }
}

impl Sub<Duration> for Time {
    type Output = Time;
    fn sub(self, by: Duration) -> Time {
        Time(
            self.0
                .saturating_sub(u64::try_from(by.as_micros()).unwrap_or(u64::MAX)),
        )
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Time::NEVER {
            return f.write_str("never");
        }
        write!(f, "{}.{:06}s", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}
