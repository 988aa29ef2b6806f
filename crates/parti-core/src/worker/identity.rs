//! Is the store still the one we know, and the stream?
//!
//! The `group` record holds a random identity. It is read at the start, after every restart of a
//! watch, and compared. A missing record is believed only from a write: if it can be created, the
//! store really has none.

use std::sync::Arc;
use std::time::Duration;

use crate::ids::Nonce;
use crate::io::{Expect, StoreError, StoreOp, StoreReply, WriteOutcome};
use crate::key::Key;
use crate::record::{GroupRecord, Record};
use crate::time::Time;
use crate::worker::Fatal;
use crate::worker::outbox::{Outbox, Purpose};

/// How long to wait after store trouble.
const PAUSE: Duration = Duration::from_millis(500);

#[derive(Clone, Debug)]
enum Check {
    Idle,
    Asked,
    Again(Time),
}

/// The check of the group's identity.
#[derive(Clone, Debug)]
pub struct Identity {
    stream: u64,
    timeout: Duration,
    known: Option<Nonce>,
    check: Check,
}

impl Identity {
    /// Nothing known yet.
    pub fn new(stream: u64, timeout: Duration) -> Self {
        Self {
            stream,
            timeout,
            known: None,
            check: Check::Idle,
        }
    }

    /// Whether the identity is known: nothing starts before.
    pub fn is_known(&self) -> bool {
        self.known.is_some()
    }

    /// Checks now.
    pub fn check(&mut self, out: &mut Outbox) {
        if planted!(SkipIdentityCheck) && self.known.is_some() {
            return;
        }
        if !matches!(self.check, Check::Asked) {
            self.check = Check::Asked;
            out.ask(Purpose::Identity, StoreOp::Read(Key::Group), self.timeout);
        }
    }

    /// When to check again.
    pub fn next_deadline(&self) -> Time {
        match self.check {
            Check::Again(at) => at,
            _ => Time::NEVER,
        }
    }

    /// A deadline may have come.
    pub fn tick(&mut self, out: &mut Outbox) {
        if let Check::Again(at) = self.check
            && out.now() >= at
        {
            self.check(out);
        }
    }

    /// The answer to a read or a creation.
    pub fn answered(&mut self, reply: StoreReply, out: &mut Outbox) -> Result<(), Fatal> {
        self.check = Check::Idle;
        match reply {
            StoreReply::Read(Ok(Some(stored))) => self.compare(&stored.record),
            StoreReply::Read(Ok(None)) => {
                self.create(out);
                Ok(())
            }
            StoreReply::Write(outcomes) => match outcomes.into_iter().next() {
                Some(WriteOutcome::Conflict(Some(stored))) => self.compare(&stored.record),
                // There was none although we knew one: the store was recreated.
                Some(WriteOutcome::Done(_)) if self.known.is_some() => Err(Fatal::StoreReplaced),
                Some(WriteOutcome::Failed(StoreError::Rejected(why))) if self.known.is_none() => {
                    Err(Fatal::Rejected(why.to_string()))
                }
                // Created or not: read it back, so that everybody goes by the record itself.
                _ => {
                    self.check(out);
                    Ok(())
                }
            },
            StoreReply::Read(Err(StoreError::Rejected(why))) if self.known.is_none() => {
                Err(Fatal::Rejected(why.to_string()))
            }
            _ => {
                self.check = Check::Again(out.now() + PAUSE);
                Ok(())
            }
        }
    }

    fn create(&mut self, out: &mut Outbox) {
        let nonce = out.nonce();
        let record = GroupRecord {
            store: nonce,
            stream: self.stream,
            nonce,
        };
        self.check = Check::Asked;
        let value = Record::Group(Arc::new(record));
        out.write(
            Purpose::Identity,
            Key::Group,
            Expect::Absent,
            value,
            self.timeout,
        );
    }

    fn compare(&mut self, record: &Record) -> Result<(), Fatal> {
        let Record::Group(record) = record else {
            return Err(Fatal::Rejected("the group record cannot be read".into()));
        };
        match self.known {
            Some(known) if known != record.store => Err(Fatal::StoreReplaced),
            _ if record.stream != self.stream => Err(Fatal::StreamReplaced),
            _ => {
                self.known = Some(record.store);
                Ok(())
            }
        }
    }
}
