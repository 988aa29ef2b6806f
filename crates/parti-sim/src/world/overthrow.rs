//! A leader that falls silent while it writes: what it had sent arrives when another one leads.
//!
//! ```text
//!  nth write of an assignment ──▶ held back; its writer stands still, or is cut off
//!                                     │
//!               a higher term is written, or the time is over
//!                                     ▼
//!                          the write arrives, late by a hair
//! ```

use parti_core::io::{StoreOp, Stored, WatchEvent};
use parti_core::key::Key;
use parti_core::record::Record;
use parti_core::worker::Event;

use super::link::Until;
use super::{Happening, StoreRequest, World};
use crate::facts::{Proc, Seen};
use crate::setup::{MILLI, Micros, SECOND};

/// A silence that waits for its write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ambush {
    pub left: u32,
    pub frozen: bool,
    pub length: Micros,
}

impl World {
    /// Holds the request back if its writer is to be overthrown.
    pub(super) fn ambushed(
        &mut self,
        proc: Proc,
        request: Box<StoreRequest>,
    ) -> Option<Box<StoreRequest>> {
        let assigns = |op: &StoreOp| match op {
            StoreOp::Write(writes) => writes
                .iter()
                .any(|write| matches!(write.key, Key::Assignment(_))),
            _ => false,
        };
        if self.ambushes.is_empty() || !self.is_running(proc) || !assigns(&request.op) {
            return Some(request);
        }
        let due = self.ambushes.iter_mut().position(|ambush| {
            ambush.left = ambush.left.saturating_sub(1);
            ambush.left == 0
        });
        let Some(due) = due else {
            return Some(request);
        };
        let Ambush { frozen, length, .. } = self.ambushes.swap_remove(due);
        let machine = self.procs[proc].machine;
        if frozen {
            self.pause(proc, length);
        } else {
            self.links[machine].cut = Until::new(self.now + length, ());
        }
        let until = self.now + length;
        let trouble = Seen::StoreTrouble {
            machine: Some(machine),
            until: until + SECOND,
            harmless: false,
        };
        self.jury.see(self.now, trouble);
        self.queue.push(until, Happening::HeldGoOn);
        self.held.push((proc, request));
        None
    }

    /// A write was accepted: if it made another leader, what was held back arrives soon.
    pub(super) fn perhaps_overthrown(&mut self, old: Option<&Stored>, new: Option<&Record>) {
        if self.held.is_empty() {
            return;
        }
        let term = |record: &Record| match record {
            Record::Leader(record) => Some(record.term),
            _ => None,
        };
        let before = old.and_then(|stored| term(&stored.record));
        if let Some(after) = new.and_then(term)
            && before.is_some_and(|before| before < after)
        {
            let at = self.now + self.net.below(40 * MILLI);
            self.queue.push(at, Happening::HeldGoOn);
        }
    }

    pub(super) fn held_go_on(&mut self) {
        for (proc, request) in std::mem::take(&mut self.held) {
            // It is on the far side of whatever cut its writer off.
            self.store_takes(proc, *request);
        }
    }

    /// Notes which leaders' terms an event shows.
    pub(super) fn note_terms(&mut self, proc: Proc, event: &Event) {
        let records: &[Stored] = match event {
            Event::Watch(_, WatchEvent::Snapshot(records)) => records,
            Event::Watch(_, WatchEvent::Changed(record)) => std::slice::from_ref(record),
            _ => return,
        };
        let term = records.iter().filter_map(|stored| match &stored.record {
            Record::Leader(record) => Some(record.term),
            Record::Plan(record) => Some(record.term),
            _ => None,
        });
        if let Some(term) = term.max() {
            self.jury.see(self.now, Seen::TermShown { proc, term });
        }
    }
}
