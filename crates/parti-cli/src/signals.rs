//! SIGTERM and SIGINT.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Failure;

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
}

impl Endings {
    /// From now on they are caught.
    pub fn catch() -> Result<Self, Failure> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) -> Ending {
        tokio::select! {
            _ = self.terminate.recv() => Ending::Terminated,
            _ = self.interrupt.recv() => Ending::Interrupted,
        }
    }
}
