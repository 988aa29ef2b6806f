//! A machine's ways to the store and to the source, and what is wrong with them at the moment.

use parti_core::ids::Revision;
use parti_core::rng::Rng;

use super::World;
use crate::facts::{Proc, Seen};
use crate::setup::{MILLI, Micros, SECOND};

/// A message that takes longer than this is slow.
const LONG: Micros = 200 * MILLI;

/// Something that is wrong until a given time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Until<T> {
    until: Micros,
    what: T,
}

impl<T: Copy> Until<T> {
    pub fn new(until: Micros, what: T) -> Self {
        Self { until, what }
    }

    pub fn now(&self, now: Micros) -> Option<T> {
        (now < self.until).then_some(self.what)
    }

    /// Until when it is wrong, if it is.
    pub fn ends(&self, now: Micros) -> Option<Micros> {
        (now < self.until).then_some(self.until)
    }
}

/// One machine: who runs there, and how it reaches the others.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Link {
    /// The process that runs there.
    pub running: Option<Proc>,
    /// A process will be started there.
    pub starting: bool,
    /// The store cannot be reached.
    pub cut: Until<()>,
    /// Requests take this much longer at the most.
    pub slow: Until<Micros>,
    /// So many of a hundred requests, and replies, are lost.
    pub lossy: Until<u8>,
    /// So many of a hundred writes land this long after their timeout at the most.
    pub late: Until<(u8, Micros)>,
    /// Reads are answered as of this revision.
    pub stale: Until<Revision>,
    /// News of watches come twice.
    pub twice: Until<()>,
    /// News of watches come this much later at the most.
    pub lagging: Until<Micros>,
    /// The source cannot be reached.
    pub source_cut: Until<()>,
    /// So many of a hundred deliveries are lost.
    pub losing: Until<u8>,
    /// Handlers take this much longer at the most.
    pub slow_handlers: Until<Micros>,
}

impl Link {
    /// Everything is well again.
    pub fn heal(&mut self) {
        *self = Link {
            running: self.running,
            starting: self.starting,
            ..Link::default()
        };
    }
}

/// How long a message takes over a network in good health: nearly always a few milliseconds,
/// sometimes much longer.
pub(super) fn latency(rng: &mut Rng) -> Micros {
    let draw = rng.next_u64();
    let within = |low: Micros, high: Micros| low + (draw >> 16) % (high - low);
    match draw & 0xff {
        0..=229 => within(200, 3 * MILLI),
        230..=253 => within(3 * MILLI, 20 * MILLI),
        254 => within(20 * MILLI, 200 * MILLI),
        _ => within(100 * MILLI, 2 * SECOND),
    }
}

impl World {
    /// How long a message of this process takes; the jury hears of it when that is long.
    pub(super) fn on_its_way(&mut self, proc: Proc) -> Micros {
        let delay = latency(&mut self.net);
        self.slows(proc, delay);
        delay
    }

    /// Tells the jury of a message that takes long.
    pub(super) fn slows(&mut self, proc: Proc, delay: Micros) {
        if delay > LONG {
            let until = self.now + delay;
            self.jury.see(self.now, Seen::Slow { proc, until });
        }
    }
}

/// A latency inside a data centre, for what is only transport.
pub(super) fn short_latency(rng: &mut Rng) -> Micros {
    200 + rng.below(3 * MILLI)
}

/// Whether one of a hundred-sided dice falls below `percent`.
pub(super) fn hit(rng: &mut Rng, percent: u8) -> bool {
    rng.below(100) < u64::from(percent)
}
