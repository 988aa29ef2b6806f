//! Whether the durable keeps up, by what it brought lately and what it says is left.
//!
//! ```text
//!   a delivery ──▶ sample: how many, over how many offsets, since when ──▶ time for what is pending
//!                  handlers idle at its end? ──▶ longer than `after`, and much longer than to read it?
//!   the window is full ──▶ no sample: until now, it was the handlers' pace
//! ```
//!
//! On file storage a consumer with several filters pays for each message a walk over all subjects,
//! unless it is at the stream's end: who has fallen behind falls further. Reads past it have no such
//! cliff. How fast the durable is shows only while handlers wait for it.

use std::time::Duration;

use crate::ids::Offset;
use crate::time::Time;

/// What it costs to read one offset for one lane, in tenths of a microsecond.
const READ: u64 = 3;
/// So much faster reading must be.
const WORTH: u64 = 2;
/// Between two catch-ups, as a multiple of `after`.
const REST: u32 = 10;

/// How fast the durable is.
#[derive(Debug)]
pub(crate) struct Pace {
    after: Duration,
    /// So many lanes cost as much as one read of the whole stream.
    sweep: u64,
    sample: Option<Sample>,
    pending: u64,
    not_before: Time,
}

#[derive(Debug)]
struct Sample {
    since: Time,
    first: Offset,
    last: Offset,
    /// Deliveries after the first.
    count: u64,
}

impl Pace {
    pub(crate) fn new(after: Duration, sweep: u32) -> Self {
        Self {
            after,
            sweep: u64::from(sweep),
            sample: None,
            pending: 0,
            not_before: Time::ZERO,
        }
    }

    /// A delivery came, with so many still to come.
    pub(crate) fn delivered(&mut self, now: Time, offset: Offset, pending: u64) {
        self.pending = pending;
        match &mut self.sample {
            Some(sample) if now.since(sample.since) < self.after => {
                sample.last = sample.last.max(offset);
                sample.count += 1;
            }
            // What is older may have been the handlers' pace.
            sample => {
                *sample = (pending > 0).then_some(Sample {
                    since: now,
                    first: offset,
                    last: offset,
                    count: 0,
                });
            }
        }
    }

    /// Nothing more is asked for at present: what came so far says nothing of the durable.
    pub(crate) fn held_back(&mut self) {
        self.sample = None;
    }

    /// Handlers are idle: whether it is worth it to read what is pending past the durable, for so
    /// many lanes.
    pub(crate) fn lags(&self, now: Time, lanes: usize) -> bool {
        let Some(sample) = self.ripe(now) else {
            return false;
        };
        let count = sample.count.max(1);
        let elapsed = now.since(sample.since).as_micros() as u64;
        let needs = self.pending.saturating_mul(elapsed) / count;
        let span = (sample.last.0 - sample.first.0 + 1).max(count);
        let offsets = u128::from(self.pending) * u128::from(span) / u128::from(count);
        let lanes = (lanes as u64).min(self.sweep);
        let reading = offsets * u128::from(lanes * READ) / 10;
        needs > self.after.as_micros() as u64
            && u128::from(needs) > reading * u128::from(WORTH)
            && self.not_before <= now
    }

    fn ripe(&self, now: Time) -> Option<&Sample> {
        let long = |sample: &&Sample| now.since(sample.since) >= self.after / 3;
        self.sample
            .as_ref()
            .filter(long)
            .filter(|_| self.pending > 0)
    }

    /// It is put at the end of the stream: nothing is pending any more.
    pub(crate) fn caught_up(&mut self, now: Time) {
        (self.sample, self.pending) = (None, 0);
        self.not_before = now + self.after * REST;
    }

    /// When to look, at the latest.
    pub(crate) fn next_deadline(&self) -> Time {
        match &self.sample {
            Some(sample) if self.pending > 0 => sample.since + self.after / 3,
            _ => Time::NEVER,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A second in which `count` of one in `every` offsets came, with so many left.
    fn after_a_second(count: u64, every: u64, pending: u64, lanes: usize) -> bool {
        let mut pace = Pace::new(SECOND * 3, 16);
        let start = Time(1_000_000);
        for n in 0..count {
            let at = start + SECOND * n as u32 / count as u32;
            pace.delivered(at, Offset(n * every), pending + count - n - 1);
        }
        assert!(!pace.lags(start, lanes), "too early to tell");
        pace.lags(start + SECOND, lanes)
    }

    #[test]
    fn a_slow_durable_with_much_left_lags() {
        // 80 of 2000 subjects, as measured: 2,600 a second, with 8,000 to go.
        assert!(after_a_second(2_600, 25, 8_000, 80));
        assert!(!after_a_second(2_600, 25, 7_000, 80), "soon done");
        // 2 of 64 subjects, 4,000 a second.
        assert!(after_a_second(4_000, 32, 50_000, 2));
    }

    #[test]
    fn a_fast_one_does_not_however_much_is_left() {
        // Memory storage: one of 25 messages is ours, and still 40,000 come in a second.
        assert!(!after_a_second(40_000, 25, 10_000_000, 80));
        assert!(!after_a_second(100, 1, 0, 80), "nothing is left");
    }

    #[test]
    fn the_time_in_which_handlers_stood_still_is_not_the_durables() {
        let mut pace = Pace::new(SECOND * 3, 16);
        for n in 0..800 {
            pace.delivered(Time(n), Offset(n), 200_000 - n);
        }
        pace.held_back();
        assert_eq!(pace.next_deadline(), Time::NEVER);
        let now = Time(0) + SECOND * 30;
        assert!(!pace.lags(now, 64), "nobody asked it for more meanwhile");
        for n in 800..2_000 {
            pace.delivered(now + SECOND * (n - 800) / 1_000, Offset(n.into()), 100_000);
        }
        assert!(
            pace.lags(now + SECOND * 2, 64),
            "now it has to answer for it"
        );
    }

    #[test]
    fn what_waits_behind_a_stuck_one_is_read_too_but_not_again_and_again() {
        let mut pace = Pace::new(SECOND * 3, 16);
        pace.delivered(Time(0), Offset(7), 50);
        assert_eq!(pace.next_deadline(), Time(0) + SECOND);
        let now = Time(0) + SECOND;
        assert!(pace.lags(now, 80));
        pace.caught_up(now);
        assert!(!pace.lags(now, 80));
        pace.delivered(now, Offset(8), 50);
        assert!(!pace.lags(now + SECOND * 3, 80), "just done");
        assert!(pace.lags(now + SECOND * 30, 80));
    }
}
