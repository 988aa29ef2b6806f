//! How much to pull: a batch that follows the handlers' throughput, and a window.
//!
//! Pulling stops when so much waits for the handlers as the window says. What is on its way does
//! not wait yet: with it, there may be as much as the server would have out unacked anyway. Were
//! it counted like what waits, there would never be enough on its way for handlers that are fast.
//!
//! With acks the server counts, too. Without, the window is ours alone: it then follows fast
//! handlers up, because what is on its way to them must last until the next pull was answered, and
//! a server that has nothing to answer stands still meanwhile.

use std::time::Duration;

use crate::config::{AckMode, JetStreamConfig};
use crate::time::Time;

/// A batch holds about this much of the handlers' work.
const WORTH: Duration = Duration::from_secs(1);
/// Throughput is looked at this often.
const SAMPLE: Duration = Duration::from_millis(250);
/// A window that nobody else counts holds as much as handlers do in this time, if that is more
/// than it holds anyway. So it is their speed that bounds the memory: where messages are large or
/// slow, it is the window of the settings.
const IN_HAND: Duration = Duration::from_millis(20);
/// And at the most so many times as much.
const STRETCH: u32 = 4;

/// The adaptive batch and the window of unacked deliveries.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    size: u32,
    window: u32,
    /// Least and most of the window.
    bounds: (u32, u32),
    /// What is held and what is on its way may be this many together, or a window full.
    in_flight: u32,
    handled: u32,
    /// Start of the present sample; none while nothing is held, because idle is not slow.
    since: Option<Time>,
}

impl Batch {
    pub(crate) fn new(config: &JetStreamConfig) -> Self {
        let window =
            (f64::from(config.max_ack_pending) * config.backpressure.clamp(0.0, 1.0)) as u32;
        let window = window.max(1);
        let most = match config.ack {
            AckMode::Explicit => window,
            AckMode::None => window.saturating_mul(STRETCH),
        };
        Self {
            size: config.initial_batch.clamp(1, window),
            window,
            bounds: (window, most),
            in_flight: config.max_ack_pending,
            handled: 0,
            since: None,
        }
    }

    /// How many messages to ask for, with so many held here and so many asked for already. 0: stop.
    pub(crate) fn ask_for(&self, held: usize, outstanding: u32) -> u32 {
        if self.is_full(held) {
            return 0;
        }
        let used = u32::try_from(held)
            .unwrap_or(u32::MAX)
            .saturating_add(outstanding);
        let most = self.window.max(self.in_flight);
        self.size.min(most.saturating_sub(used))
    }

    /// Whether the window is used up.
    pub(crate) fn is_full(&self, held: usize) -> bool {
        held >= self.window as usize
    }

    /// A message was handled.
    pub(crate) fn handled(&mut self) {
        self.handled += 1;
    }

    /// Looks at the throughput: grows or shrinks by at most a factor of two per sample. A batch that
    /// is handled sooner than that is a sample, too: after a standstill the way up is short.
    pub(crate) fn sample(&mut self, now: Time, held: usize) {
        let Some(since) = self.since else {
            if held > 0 {
                (self.since, self.handled) = (Some(now), 0);
            }
            return;
        };
        let elapsed = now.since(since);
        if elapsed < SAMPLE && self.handled < self.size {
            return;
        }
        let rate = f64::from(self.handled) / elapsed.as_secs_f64();
        let worth = rate * WORTH.as_secs_f64();
        let (least, most) = self.bounds;
        let high = self.window.saturating_mul(2).min(most);
        self.window = ((rate * IN_HAND.as_secs_f64()) as u32).clamp(least, high);
        // A drained buffer says only that the handlers could have done at least this much.
        let low = if held == 0 { self.size } else { self.size / 2 };
        let high = self.size.saturating_mul(2).min(self.window);
        self.size = (worth as u32).clamp(low.min(high), high).max(1);
        self.handled = 0;
        self.since = (held > 0).then_some(now);
    }

    #[cfg(test)]
    pub(crate) fn size(&self) -> u32 {
        self.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn batch() -> Batch {
        Batch::new(&Config::default().jetstream)
    }

    /// Handles so many, in so many milliseconds.
    fn handle(batch: &mut Batch, now: &mut Time, count: u32, in_ms: u64) {
        (0..count).for_each(|_| batch.handled());
        *now = *now + Duration::from_millis(in_ms);
        batch.sample(*now, 50);
    }

    #[test]
    fn pulling_stops_at_the_share_of_the_window() {
        let batch = batch();
        assert_eq!(batch.ask_for(0, 0), 50);
        assert_eq!(batch.ask_for(399, 0), 50);
        assert_eq!(batch.ask_for(400, 0), 0);
        assert!(batch.is_full(400) && !batch.is_full(399));
    }

    #[test]
    fn what_is_on_its_way_may_fill_what_the_server_has_out_unacked() {
        let batch = batch();
        assert_eq!(batch.ask_for(340, 150), 10);
        assert_eq!(batch.ask_for(340, 160), 0);
        assert_eq!(batch.ask_for(0, 500), 0);
    }

    #[test]
    fn it_grows_with_fast_handlers_and_shrinks_with_slow_ones() {
        let mut batch = batch();
        let mut now = Time(0);
        batch.sample(now, 50);
        for _ in 0..5 {
            (0..1000).for_each(|_| batch.handled());
            now = now + SAMPLE;
            batch.sample(now, 50);
        }
        assert_eq!(batch.size(), 400, "up to the window");
        for _ in 0..20 {
            batch.handled();
            now = now + SAMPLE;
            batch.sample(now, 50);
        }
        assert_eq!(batch.size(), 4, "four a second are worth four");
    }

    #[test]
    fn after_a_standstill_it_grows_with_every_batch() {
        let mut batch = batch();
        for step in 0..20 {
            batch.sample(Time(0) + SAMPLE * step, 50);
        }
        assert_eq!(batch.size(), 1);
        let mut now = Time(0) + SAMPLE * 20;
        for _ in 0..9 {
            (0..batch.size()).for_each(|_| batch.handled());
            now = now + Duration::from_millis(1);
            batch.sample(now, 50);
        }
        assert_eq!(batch.size(), 400);
    }

    #[test]
    fn without_acks_the_window_follows_fast_handlers_and_goes_back_with_slow_ones() {
        let mut settings = Config::default().jetstream;
        let windows = |batch: &mut Batch| {
            let mut now = Time(0);
            batch.sample(now, 50);
            let mut seen = Vec::new();
            for (count, in_ms) in [(10_000, 100), (25_000, 250), (50_000, 500), (5_000, 500)] {
                handle(batch, &mut now, count, in_ms);
                seen.push(batch.window);
            }
            seen
        };
        let explicit = windows(&mut Batch::new(&settings));
        assert_eq!(explicit, [400; 4], "the server counts it");
        settings.ack = AckMode::None;
        let none = windows(&mut Batch::new(&settings));
        assert_eq!(none, [800, 1_600, 1_600, 400], "four times, and back");
    }

    #[test]
    fn idle_is_not_slow() {
        let mut batch = batch();
        for step in 0..20 {
            batch.sample(Time(0) + SAMPLE * step, 0);
        }
        assert_eq!(batch.size(), 50);
    }
}
