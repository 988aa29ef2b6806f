//! Runs that share a task, and what is known of those that ended.
//!
//! ```text
//!   Runs ──▶ Queue ──next──▶ the task: one run after the other ──note──▶ news, told at the end
//!              │ a call waits, or it all takes long (the task itself sees it)
//!              │ a call blocks its thread (the event loop sees it, a moment later)
//!              └──part──▶ each run that is left: a task of its own; the news: told at once
//! ```

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parti_core::io::Run;
use parti_core::worker::Event;
use tokio::sync::mpsc;

/// A run that waits for its turn, with its mark: set, it begins no further message. A run of one
/// message has none, because nothing could be left of it to halt.
pub(super) struct Queued {
    pub(super) run: Run,
    pub(super) halted: Option<Arc<AtomicBool>>,
}

/// Runs that share a task. Clones are one and the same.
#[derive(Clone)]
pub(super) struct Queue(Arc<Mutex<Held>>);

struct Held {
    runs: VecDeque<Queued>,
    news: Vec<Event>,
}

impl Queue {
    pub(super) fn new(runs: VecDeque<Queued>) -> Self {
        let news = Vec::with_capacity(runs.len());
        Self(Arc::new(Mutex::new(Held { runs, news })))
    }

    /// Never held while a handler is called.
    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The run whose turn it is.
    pub(super) fn next(&self) -> Option<Queued> {
        self.held().runs.pop_front()
    }

    /// Keeps news of a run, to be told with others.
    pub(super) fn note(&self, event: Event) {
        self.held().news.push(event);
    }

    /// Tells what is known by now. Whoever else tells of the same runs waits meanwhile: what is
    /// said of a run keeps its order.
    pub(super) fn tell(&self, events: &mpsc::WeakUnboundedSender<Event>) {
        let mut held = self.held();
        if let Some(events) = events.upgrade() {
            for event in held.news.drain(..) {
                // The worker may have ended meanwhile.
                let _ = events.send(event);
            }
        }
    }

    /// The runs whose turn has not come: they are no more in it.
    pub(super) fn part(&self) -> VecDeque<Queued> {
        std::mem::take(&mut self.held().runs)
    }
}
