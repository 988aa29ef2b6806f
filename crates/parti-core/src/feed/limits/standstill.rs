//! Whether retention overtook the durable while it was asked for nothing.
//!
//! ```text
//!   window full ──▶ Since ──room again──▶ a short while: pull on
//!                                  └────▶ long: Asked, where does the stream begin?
//!                                           ├─ not after the next offset: pull on
//!                                           └─ after it, or no answer: a gap, for every lane
//! ```
//!
//! A server passes over what it removed without a word. So whoever stood still looks whether what
//! comes next can have gone meanwhile; the lanes then find what is gone, and name it. What goes while
//! the durable is asked for more all the time is not looked for, and not named.

use std::time::Duration;

use crate::ids::Offset;
use crate::io::Ask;
use crate::time::Time;

/// What is gone after a shorter time was never meant to be kept.
const LONG: Duration = Duration::from_secs(1);

/// Watches for it.
#[derive(Debug, Default)]
pub(super) struct Standstill {
    state: State,
    /// The durable, and the highest offset that it brought.
    brought: Option<(u64, Offset)>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Pulling,
    Since(Time),
    Asked {
        ask: Ask,
        next: Offset,
    },
}

impl Standstill {
    /// A delivery came.
    pub(super) fn delivered(&mut self, consumer: u64, offset: Offset) {
        self.brought = match self.brought {
            Some((same, highest)) if same == consumer => Some((same, highest.max(offset))),
            _ => Some((consumer, offset)),
        };
    }

    /// The window is full: nothing is asked for.
    pub(super) fn begins(&mut self, now: Time) {
        if let State::Pulling = self.state {
            self.state = State::Since(now);
        }
    }

    /// There is room again. The offset that comes next, if it has to be seen whether it still can.
    pub(super) fn ends(&mut self, now: Time) -> Option<Offset> {
        let State::Since(since) = self.state else {
            return None;
        };
        self.state = State::Pulling;
        let (_, highest) = self.brought?;
        (now.since(since) >= LONG && !planted!(StandstillForgotten)).then(|| highest.next())
    }

    /// It is asked whether this offset can still come: nothing is pulled until that is known.
    pub(super) fn asks(&mut self, ask: Ask, next: Offset) {
        self.state = State::Asked { ask, next };
    }

    /// Whether an answer is awaited.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, State::Asked { .. })
    }

    /// Where the stream begins; none: not known. True: what comes next may have gone. No answer:
    /// nobody asked for this.
    pub(super) fn answered(&mut self, ask: Ask, first: Option<Offset>) -> Option<bool> {
        match self.state {
            State::Asked { ask: asked, next } if asked == ask => {
                self.state = State::Pulling;
                Some(first.is_none_or(|first| first > next))
            }
            _ => None,
        }
    }
}
