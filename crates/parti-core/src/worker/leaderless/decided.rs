//! What operators decided, as a worker without a leader knows it.
//!
//! A watch may show what was long ago: a replica that lags tells a worker that joins of no pause
//! at all, and it would take what everybody else left alone. Who joined before a pause says that
//! it heeds it before the pause counts as done; who joins after it must not go by a mere read. So
//! each life begins by a write that expects nothing to be there. It makes an empty record in a
//! group where nobody ever decided anything; everywhere else it is refused, and whoever refuses it
//! says what is there now.
//!
//! ```text
//!  joined ──▶ write, expecting none ──┬─ done: nothing was decided ──┐
//!                 ▲                   ├─ refused: this is there ─────┴──▶ certain; then the watch
//!                 └── after a pause ──┴─ its fate is open
//! ```

use std::sync::Arc;
use std::time::Duration;

use crate::ids::Revision;
use crate::io::{Expect, StoreReply, Stored, WatchEvent, WriteOutcome};
use crate::key::Key;
use crate::record::{OverridesRecord, Record};
use crate::time::Time;
use crate::worker::outbox::{Outbox, Purpose};

/// How long it waits before it asks again.
const PAUSE: Duration = Duration::from_millis(250);

/// The overrides, and whether they are certain to be no older than this life.
#[derive(Debug)]
pub(super) struct Decided {
    newest: Option<(Revision, Arc<OverridesRecord>)>,
    proof: Proof,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    /// To be asked for, then.
    Due(Time),
    Asked,
    Given,
}

impl Decided {
    pub fn new() -> Self {
        Self {
            newest: None,
            proof: Proof::Due(Time::ZERO),
        }
    }

    /// The overrides to go by; none while they may be older than this life.
    pub fn certain(&self) -> Option<(Revision, Arc<OverridesRecord>)> {
        self.newest.clone().filter(|_| self.proof == Proof::Given)
    }

    /// When to act next.
    pub fn next_deadline(&self) -> Time {
        match self.proof {
            Proof::Due(at) => at,
            Proof::Asked | Proof::Given => Time::NEVER,
        }
    }

    /// Asks for the proof, if that is due.
    pub fn step(&mut self, timeout: Duration, out: &mut Outbox) {
        if out.now() < self.next_deadline() {
            return;
        }
        self.proof = Proof::Asked;
        let nothing = OverridesRecord {
            nonce: out.nonce(),
            ..OverridesRecord::default()
        };
        let value = Record::Overrides(Arc::new(nothing));
        let (purpose, key) = (Purpose::WriteOverrides, Key::Overrides);
        out.write(purpose, key, Expect::Absent, value, timeout);
    }

    /// What became of it. Whether there is news.
    pub fn proved(&mut self, reply: StoreReply, out: &mut Outbox) -> bool {
        let StoreReply::Write(outcomes) = reply else {
            return false;
        };
        match outcomes.into_iter().next() {
            Some(WriteOutcome::Done(revision)) => {
                if self.is_news(revision) {
                    self.newest = Some((revision, Arc::default()));
                }
            }
            Some(WriteOutcome::Conflict(Some(found))) => self.found(&found, out),
            // Refused, though nothing is there: it was being deleted.
            Some(WriteOutcome::Conflict(None) | WriteOutcome::Failed(_)) | None => {
                self.proof = Proof::Due(out.now() + PAUSE);
                return false;
            }
        }
        self.proof = Proof::Given;
        true
    }

    /// News of the overrides. Whether there is any.
    pub fn watched(&mut self, event: &WatchEvent, out: &mut Outbox) -> bool {
        let before = self.newest.as_ref().map(|(revision, _)| *revision);
        match event {
            WatchEvent::Snapshot(records) => records.iter().for_each(|s| self.found(s, out)),
            WatchEvent::Changed(stored) => self.found(stored, out),
            // Nobody deletes it.
            WatchEvent::Removed(..) => {}
        }
        before != self.newest.as_ref().map(|(revision, _)| *revision)
    }

    fn found(&mut self, stored: &Stored, out: &mut Outbox) {
        if !self.is_news(stored.revision) {
            return;
        }
        let record = match &stored.record {
            Record::Overrides(record) => record.clone(),
            // Left alone, and as if there were none: it may be of a newer program.
            other => {
                out.unreadable(&Key::Overrides, other);
                Arc::default()
            }
        };
        self.newest = Some((stored.revision, record));
    }

    fn is_news(&self, revision: Revision) -> bool {
        let known = self.newest.as_ref();
        known.is_none_or(|(known, _)| *known < revision)
    }
}
