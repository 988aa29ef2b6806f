//! The thread that notices changes: one look at shared memory every few milliseconds, and only
//! while somebody watches.
//!
//! ```text
//!   own writes ── wake ──▶ ┌──────────────┐
//!                          │ data_version │── changed ──▶ beat ──▶ every watch reads what is new
//!   every 40 ms ─────────▶ └──────────────┘
//! ```
//!
//! Other processes are noticed by the look alone: SQLite has no message for them.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use tokio::sync::watch;

use super::Database;

/// How often to look for changes by other processes.
const EVERY: Duration = Duration::from_millis(40);

/// How often to look while looking fails.
const WHILE_FAILING: Duration = Duration::from_millis(500);

/// The way to the thread, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Pulse {
    wake: SyncSender<()>,
    beat: Arc<watch::Sender<u64>>,
}

impl Pulse {
    /// Starts the thread.
    pub(crate) fn start(database: Database) -> std::io::Result<Self> {
        // One waiting wake-up stands for any number of them.
        let (wake, woken) = sync_channel(1);
        let beat = Arc::new(watch::Sender::new(0));
        let beats = beat.clone();
        std::thread::Builder::new()
            .name("parti-sqlite-watch".into())
            .spawn(move || run(&database, &woken, &beats))?;
        Ok(Self { wake, beat })
    }

    /// Something may have changed.
    pub(crate) fn wake(&self) {
        if self.beat.receiver_count() > 0 {
            let _ = self.wake.try_send(());
        }
    }

    /// Follows the beats. A change that is committed from now on is followed by one.
    pub(crate) fn follow(&self) -> watch::Receiver<u64> {
        let beats = self.beat.subscribe();
        self.wake();
        beats
    }
}

fn run(database: &Database, woken: &Receiver<()>, beats: &watch::Sender<u64>) {
    let mut seen = None;
    let mut every = EVERY;
    loop {
        if beats.receiver_count() == 0 {
            if woken.recv().is_err() {
                return;
            }
        } else if woken.recv_timeout(every) == Err(RecvTimeoutError::Disconnected) {
            return;
        }
        let version = database.guard().check().and_then(|()| database.version());
        every = match version {
            Ok(_) => EVERY,
            Err(_) => WHILE_FAILING,
        };
        // A failure is a beat too: the watches read, and find out for themselves.
        if version.is_err() || seen != version.as_ref().ok().copied() {
            beats.send_modify(|beat| *beat = beat.wrapping_add(1));
        }
        seen = version.ok();
    }
}
