//! The trace of a run: always a hash, and readable text when a run is replayed.

use crate::setup::Micros;

/// Grows with every step; two runs of a seed have the same hash.
pub(super) struct Trace {
    hash: u64,
    steps: u64,
    lines: Option<Vec<String>>,
}

impl Trace {
    pub fn new(readable: bool) -> Self {
        Self {
            hash: 0xcbf2_9ce4_8422_2325,
            steps: 0,
            lines: readable.then(Vec::new),
        }
    }

    /// Takes a step into the hash.
    pub fn step(&mut self, now: Micros, words: [u64; 3]) {
        self.steps += 1;
        for word in [now, words[0], words[1], words[2]] {
            self.hash = (self.hash.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }

    /// Adds a line, if anybody is going to read it.
    pub fn say(&mut self, now: Micros, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(format!(
                "{:>4}.{:06} {}",
                now / 1_000_000,
                now % 1_000_000,
                line()
            ));
        }
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }

    pub fn steps(&self) -> u64 {
        self.steps
    }

    pub fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }
}

/// A number for a text.
pub(super) fn number_of(text: &str) -> u64 {
    text.bytes().fold(0, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
