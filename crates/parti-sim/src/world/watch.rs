//! Watches: a snapshot, then changes in order, and a fresh snapshot after any gap. They can be
//! late, come twice, or break.

use parti_core::ids::Revision;
use parti_core::io::{Scope, WatchEvent};
use parti_core::key::Key;
use parti_core::worker::Event;

use super::link::short_latency;
use super::{Happening, World};
use crate::facts::Proc;
use crate::model::store::covers;
use crate::setup::{MILLI, Micros, SECOND};

/// One watch of a process.
pub(super) struct Watch {
    pub scope: Scope,
    /// Tells this watch from an earlier one on the same scope.
    serial: u64,
    /// Up to where its news were told; `None` while it is not connected.
    told: Option<Revision>,
    /// A poll is on its way.
    polling: bool,
}

impl World {
    pub(super) fn open_watch(&mut self, proc: Proc, scope: Scope) {
        self.serial += 1;
        let serial = self.serial;
        let watches = &mut self.procs[proc].watches;
        watches.retain(|watch| watch.scope != scope);
        watches.push(Watch {
            scope,
            serial,
            told: None,
            polling: false,
        });
        let at = self.now + self.on_its_way(proc);
        self.queue.push(at, Happening::WatchOpens { proc, serial });
    }

    fn watch_mut(&mut self, proc: Proc, serial: u64) -> Option<&mut Watch> {
        self.procs[proc]
            .watches
            .iter_mut()
            .find(|watch| watch.serial == serial)
    }

    pub(super) fn watch_opens(&mut self, proc: Proc, serial: u64) {
        let machine = self.procs[proc].machine;
        if let Some(until) = self.store_away(machine) {
            let at = until + self.net.below(SECOND);
            self.queue.push(at, Happening::WatchOpens { proc, serial });
            return;
        }
        let stale = self.links[machine].stale.now(self.now);
        let revision = stale.unwrap_or_else(|| self.store.revision());
        let Some(scope) = self
            .watch_mut(proc, serial)
            .map(|watch| watch.scope.clone())
        else {
            return;
        };
        let (records, told) = self.store.snapshot_as_of(&scope, revision);
        if let Some(watch) = self.watch_mut(proc, serial) {
            watch.told = Some(told);
            watch.polling = false;
        }
        self.deliver(proc, Event::Watch(scope, WatchEvent::Snapshot(records)));
        self.poll_soon(proc, serial);
    }

    /// A record changed: whoever watches it will hear of it.
    pub(super) fn tell_watchers(&mut self, key: &Key) {
        for machine in 0..self.links.len() {
            let Some(proc) = self.links[machine].running else {
                continue;
            };
            let mut due: [Option<u64>; 8] = [None; 8];
            let concerned = self.procs[proc].watches.iter_mut().filter(|watch| {
                watch.told.is_some() && !watch.polling && covers(&watch.scope, key)
            });
            for (slot, watch) in due.iter_mut().zip(concerned) {
                watch.polling = true;
                *slot = Some(watch.serial);
            }
            for serial in due.into_iter().flatten() {
                let mut delay = short_latency(&mut self.net);
                if let Some(most) = self.links[machine].lagging.now(self.now) {
                    delay += self.net.below(most);
                } else if self.net.below(500) == 0 {
                    delay += self.net.below(SECOND);
                }
                self.slows(proc, delay);
                self.queue
                    .push(self.now + delay, Happening::WatchPolls { proc, serial });
            }
        }
    }

    /// What was written between the snapshot and now must not be missed.
    fn poll_soon(&mut self, proc: Proc, serial: u64) {
        if let Some(watch) = self.watch_mut(proc, serial) {
            watch.polling = true;
            self.queue
                .push(self.now + MILLI, Happening::WatchPolls { proc, serial });
        }
    }

    pub(super) fn watch_polls(&mut self, proc: Proc, serial: u64) {
        if !self.is_running(proc) {
            return;
        }
        let machine = self.procs[proc].machine;
        let Some(watch) = self.watch_mut(proc, serial) else {
            return;
        };
        if watch.told.is_none() {
            return;
        }
        if let Some(until) = self.store_away(machine) {
            // The connection hangs until the way is open again, or breaks.
            let breaks = self.net.chance(0.5);
            let at = until + self.net.below(SECOND);
            if breaks {
                if let Some(watch) = self.watch_mut(proc, serial) {
                    watch.told = None;
                }
                self.queue.push(at, Happening::WatchOpens { proc, serial });
            } else {
                self.queue.push(at, Happening::WatchPolls { proc, serial });
            }
            return;
        }
        if let Some(until) = self.links[machine].stale.ends(self.now) {
            self.queue
                .push(until, Happening::WatchPolls { proc, serial });
            return;
        }
        let revision = self.store.revision();
        let Some(watch) = self.watch_mut(proc, serial) else {
            return;
        };
        watch.polling = false;
        let Some(told) = watch.told.replace(revision) else {
            return;
        };
        let scope = watch.scope.clone();
        let twice = self.links[machine].twice.now(self.now).is_some();
        for event in self.store.changes(&scope, told) {
            if twice && self.net.chance(0.5) {
                let at = self.now + self.net.below(2 * SECOND);
                self.queue.push(
                    at,
                    Happening::WatchNews {
                        proc,
                        serial,
                        event: event.clone(),
                    },
                );
            }
            self.deliver(proc, Event::Watch(scope.clone(), event));
        }
    }

    /// A copy of old news.
    pub(super) fn watch_news(&mut self, proc: Proc, serial: u64, event: WatchEvent) {
        if let Some(scope) = self
            .watch_mut(proc, serial)
            .map(|watch| watch.scope.clone())
        {
            self.deliver(proc, Event::Watch(scope, event));
        }
    }

    /// All watches of a machine break, and come back after the gap.
    pub(super) fn break_watches(&mut self, machine: usize, gap: Micros) {
        let Some(proc) = self.links[machine].running else {
            return;
        };
        let mut serials = Vec::new();
        for watch in &mut self.procs[proc].watches {
            watch.told = None;
            serials.push(watch.serial);
        }
        for serial in serials {
            let at = self.now + gap + self.net.below(100 * MILLI);
            self.queue.push(at, Happening::WatchOpens { proc, serial });
        }
    }
}
