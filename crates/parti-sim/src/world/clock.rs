//! A machine's own clock: it has an offset, and runs a little fast or slow. It runs through pauses
//! and suspends, as CLOCK_BOOTTIME does.

use std::time::Duration;

use parti_core::time::Time;

use crate::setup::{Machine, Micros, micros};

/// One machine's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    offset: u64,
    ppm: i64,
}

const MILLION: i64 = 1_000_000;

impl Clock {
    pub fn of(machine: &Machine) -> Self {
        Self {
            offset: machine.offset,
            ppm: machine.ppm,
        }
    }

    /// Puts the clock forward, or back.
    pub fn jump(&mut self, by: i64) {
        self.offset = self.offset.saturating_add_signed(by);
    }

    /// What the clock shows when the world's time is `now`.
    pub fn local(&self, now: Micros) -> Time {
        let run = now as i64 + now as i64 * self.ppm / MILLION;
        Time(self.offset + run as u64)
    }

    /// The first moment of the world at which the clock shows at least `local`.
    pub fn global(&self, local: Time) -> Micros {
        if local == Time::NEVER {
            return Micros::MAX;
        }
        let run = local.0.saturating_sub(self.offset) as i128;
        let mut now = (run * i128::from(MILLION) / i128::from(MILLION + self.ppm)) as u64;
        while self.local(now) < local {
            now += 1;
        }
        now
    }

    /// How long the world takes until this clock has moved on by so much.
    pub fn span(&self, duration: Duration) -> Micros {
        (i128::from(micros(duration)) * i128::from(MILLION) / i128::from(MILLION + self.ppm)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_reached_at_the_first_moment_that_shows_it() {
        for ppm in [-20_000, -7, 0, 13, 20_000] {
            let clock = Clock {
                offset: 123_456,
                ppm,
            };
            for local in [123_456, 123_457, 5_000_000, 61_000_003] {
                let at = clock.global(Time(local));
                assert!(clock.local(at) >= Time(local), "ppm {ppm}");
                assert!(at == 0 || clock.local(at - 1) < Time(local), "ppm {ppm}");
            }
        }
    }

    #[test]
    fn a_fast_clock_is_ahead_by_its_rate() {
        let clock = Clock {
            offset: 0,
            ppm: 20_000,
        };
        assert_eq!(clock.local(1_000_000), Time(1_020_000));
        assert_eq!(clock.span(Duration::from_micros(1_020_000)), 1_000_000);
    }
}
