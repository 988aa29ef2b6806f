//! What operators wanted so far.

use parti_core::ids::Revision;
use parti_core::key::Key;
use parti_core::record::{OverridesRecord, Record, Request, SessionStatus};

use super::{Facts, Seen, Stored};

impl Facts {
    /// What operators decided.
    pub fn overrides(&self) -> Option<&OverridesRecord> {
        match &self.records.get(&Key::Overrides)?.record {
            Record::Overrides(record) => Some(record),
            _ => None,
        }
    }

    /// An operator wrote something.
    pub(super) fn take_in_wish(&mut self, seen: &Seen<'_>) {
        self.asked += 1;
        match seen {
            Seen::Revoked {
                id,
                revision,
                record,
            } => {
                let stays_away = record.status == SessionStatus::Dismissed;
                let life = record.incarnation_at(*revision);
                self.evictions.insert(((*id).clone(), life, stays_away));
                let record = Record::Worker((*record).clone());
                self.put(Key::Worker((*id).clone()), *revision, record);
            }
            Seen::Forced {
                proc,
                id,
                revision,
                record,
            } => {
                self.procs[*proc].ends.push(self.now);
                self.ownership_changed = self.now;
                let record = Record::Partition((*record).clone());
                self.put(Key::Partition((*id).clone()), *revision, record);
            }
            Seen::Decided { revision, record } => {
                let record = Record::Overrides((*record).clone());
                self.put(Key::Overrides, *revision, record);
            }
            Seen::Asked {
                key,
                revision,
                record,
            } => {
                self.take_in_request(&record.request);
                let record = Record::Request((*record).clone());
                self.put((*key).clone(), *revision, record);
            }
            _ => {}
        }
    }

    fn take_in_request(&mut self, request: &Request) {
        match request {
            Request::Move { .. } | Request::Pin { .. } => self.placed = true,
            Request::Drain { worker } => {
                self.drained.insert(worker.clone());
            }
            Request::Evict {
                worker,
                incarnation,
                stay_away,
            } => {
                let eviction = (worker.clone(), *incarnation, *stay_away);
                self.evictions.insert(eviction);
            }
            _ => {}
        }
    }

    fn put(&mut self, key: Key, revision: Revision, record: Record) {
        let stored = Stored {
            key: key.clone(),
            revision,
            record,
        };
        self.records.insert(key, stored);
    }
}
