//! SIGTERM and SIGINT.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

use crate::exit::Failure;

/// What follows so soon is the same wish: `timeout` tells the program, then its whole group, and a
/// shell and a supervisor may both do so. Who means it once more has read what the first one did.
const ECHO: Duration = Duration::from_secs(1);

/// Why the program is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// SIGTERM
    Terminated,
    /// SIGINT: Ctrl-C
    Interrupted,
}

/// Both signals that ask the program to end.
pub struct Endings {
    terminate: Signal,
    interrupt: Signal,
    wishes: Wishes,
}

/// Tells wishes from their echoes.
#[derive(Default)]
struct Wishes {
    last: Option<Instant>,
}

impl Wishes {
    /// Whether a signal that came now is another wish.
    fn is_another(&mut self, now: Instant) -> bool {
        let another = self.last.is_none_or(|last| now - last >= ECHO);
        if another {
            self.last = Some(now);
        }
        another
    }
}

impl Endings {
    /// From now on they are caught.
    pub fn catch() -> Result<Self, Failure> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            wishes: Wishes::default(),
        })
    }

    /// Waits for the next one that is not an echo.
    pub async fn next(&mut self) -> Ending {
        loop {
            let ending = tokio::select! {
                _ = self.terminate.recv() => Ending::Terminated,
                _ = self.interrupt.recv() => Ending::Interrupted,
            };
            if self.wishes.is_another(Instant::now()) {
                return ending;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_right_after_another_is_the_same_wish() {
        let mut wishes = Wishes::default();
        let began = Instant::now();
        let mut at = |ms: u64| wishes.is_another(began + Duration::from_millis(ms));
        assert_eq!([at(0), at(1), at(999)], [true, false, false]);
        assert_eq!([at(1_000), at(1_500), at(2_000)], [true, false, true]);
    }
}
