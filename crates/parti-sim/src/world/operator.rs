//! An operator who asks for things. His requests reach the store; whether anybody can fulfil them is
//! another matter.

use std::sync::Arc;

use parti_core::config::Coordination;
use parti_core::ids::{Nonce, PartitionId, WorkerId};
use parti_core::io::{Expect, Stored, Write};
use parti_core::key::Key;
use parti_core::record::{
    Outcome, OverridesRecord, PartitionRecord, Pinned, Record, Request, RequestRecord,
    SessionStatus, WorkerRecord,
};

use super::{Happening, World};
use crate::facts::{Life, Proc, Seen};
use crate::fault::Wish;
use crate::setup::{Micros, SECOND};

impl World {
    /// Asks for something; the worker is whoever runs there, the partition is counted round.
    pub(super) fn ask(&mut self, wish: Wish, machine: usize, partition: usize) {
        let index = partition % self.setup.partitions.len();
        let partition = self.setup.partitions[index].id.clone();
        let running = self.running_on(machine);
        if let Wish::Evict | Wish::Dismiss = wish {
            if let Some(proc) = running {
                self.evict(proc, wish == Wish::Dismiss);
            }
            return;
        }
        let id = running.and_then(|proc| self.procs[proc].worker.as_ref()?.id().cloned());
        if self.setup.config.coordination == Coordination::Leaderless {
            self.decide(wish, id.as_ref(), &partition);
            return;
        }
        let worker = id.unwrap_or_else(|| WorkerId::new(format!("worker-{}", 90 + machine)));
        let request = match wish {
            Wish::Drain => Request::Drain { worker },
            Wish::Undrain => Request::Undrain { worker },
            Wish::Move => Request::Move { partition, worker },
            Wish::Pin => Request::Pin { partition, worker },
            Wish::Unpin => Request::Unpin { partition },
            Wish::Pause => Request::Pause { partition },
            Wish::Resume => Request::Resume { partition },
            Wish::Rebalance => Request::Rebalance,
            Wish::Evict | Wish::Dismiss => return,
        };
        self.write_request(request);
    }

    /// Ends the life of a process, as far as it has one. Without a leader, by the operator's own
    /// write.
    fn evict(&mut self, proc: Proc, stay_away: bool) {
        let session = self.jury.facts.procs[proc].session();
        let Some(session) = session.filter(|session| session.over.is_none()) else {
            return;
        };
        let (worker, incarnation) = (session.id.clone(), session.incarnation);
        if self.setup.config.coordination != Coordination::Leaderless {
            self.write_request(Request::Evict {
                worker,
                incarnation,
                stay_away,
            });
            return;
        }
        let key = Key::Worker(worker.clone());
        let Some(found) = self.store.read(&key) else {
            return;
        };
        let Record::Worker(before) = &found.record else {
            return;
        };
        let is_open = matches!(before.status, SessionStatus::Live | SessionStatus::Leaving);
        if !is_open || before.incarnation_at(found.revision) != incarnation {
            return;
        }
        self.requests += 1;
        let record = Arc::new(WorkerRecord {
            incarnation: Some(incarnation),
            status: if stay_away {
                SessionStatus::Dismissed
            } else {
                SessionStatus::Revoked
            },
            nonce: Nonce(self.requests),
            ..(**before).clone()
        });
        self.store.apply_one(&Write {
            key: key.clone(),
            expect: Expect::At(found.revision),
            value: Some(Record::Worker(record.clone())),
        });
        for accepted in self.store.drain_log() {
            let revision = accepted.revision;
            self.trace.say(self.now, || {
                format!("store: an operator revoked {worker} @{revision} {record:?}")
            });
            let seen = Seen::Revoked {
                id: &worker,
                revision,
                record: &record,
            };
            self.jury.see(self.now, seen);
        }
        self.tell_watchers(&key);
    }

    /// Everybody stands still while an operator waits for the owner of a partition to let go of it.
    pub(super) fn wait_in_vain(&mut self, partition: usize, length: Micros) -> bool {
        let partition = partition % self.setup.partitions.len();
        if self.owner_of(partition).is_none() {
            return false;
        }
        for proc in 0..self.procs.len() {
            self.pause(proc, length);
        }
        let at = self.now + length * 9 / 10;
        self.queue.push(at, Happening::Force { partition });
        true
    }

    /// Writes over the owner of a partition, if it has been still for longer than its lease lasts.
    /// The checkpoint stays where it is, so that all other promises still hold.
    pub(super) fn force(&mut self, partition: usize) {
        let Some((proc, found)) = self.owner_of(partition) else {
            return;
        };
        let Life::Paused(since) = self.jury.facts.procs[proc].life else {
            return;
        };
        let lease = self.setup.ttl() + SECOND;
        let (Record::Partition(before), true) = (&found.record, self.now >= since + lease) else {
            return;
        };
        self.requests += 1;
        let record = Arc::new(PartitionRecord {
            epoch: before.epoch.next(),
            owner: None,
            nonce: Nonce(self.requests),
            ..(**before).clone()
        });
        let key = found.key.clone();
        self.store.apply_one(&Write {
            key: key.clone(),
            expect: Expect::At(found.revision),
            value: Some(Record::Partition(record.clone())),
        });
        for accepted in self.store.drain_log() {
            let revision = accepted.revision;
            let id = &self.setup.partitions[partition].id;
            self.trace.say(self.now, || {
                format!("store: an operator wrote over the owner of {id} @{revision} {record:?}")
            });
            let seen = Seen::Forced {
                proc,
                id,
                revision,
                record: &record,
            };
            self.jury.see(self.now, seen);
        }
        self.tell_watchers(&key);
    }

    /// The process that owns a partition, and the partition's record.
    fn owner_of(&self, partition: usize) -> Option<(Proc, Stored)> {
        let key = Key::Partition(self.setup.partitions[partition].id.clone());
        let found = self.store.read(&key)?;
        let Record::Partition(record) = &found.record else {
            return None;
        };
        let (id, life) = record.owner.as_ref()?;
        let proc = self.jury.facts.holder(id, *life)?;
        Some((proc, found))
    }

    /// Without a leader, an operator writes the overrides by himself.
    fn decide(&mut self, wish: Wish, worker: Option<&WorkerId>, partition: &PartitionId) {
        let mut overrides = self.jury.facts.overrides().cloned().unwrap_or_default();
        let life = worker.and_then(|id| {
            let mut members = self.jury.facts.members();
            members.find_map(|(_, known)| (known.id == *id).then_some(known.incarnation))
        });
        match (wish, worker, life) {
            (Wish::Drain, Some(worker), Some(life)) => overrides.drain(worker, life),
            (Wish::Undrain, Some(worker), _) => overrides.undrain(worker),
            (Wish::Move | Wish::Pin, Some(worker), Some(life)) => overrides.pin(Pinned {
                partition: partition.clone(),
                worker: worker.clone(),
                incarnation: (wish == Wish::Move).then_some(life),
            }),
            (Wish::Unpin, ..) => overrides.unpin(partition),
            (Wish::Pause, ..) => overrides.pause(partition),
            (Wish::Resume, ..) => overrides.resume(partition),
            _ => return,
        }
        self.write_overrides(overrides);
    }

    fn write_overrides(&mut self, overrides: OverridesRecord) {
        self.requests += 1;
        let found = self.store.read(&Key::Overrides);
        let record = Record::Overrides(Arc::new(OverridesRecord {
            nonce: Nonce(self.requests),
            ..overrides
        }));
        self.store.apply_one(&Write {
            key: Key::Overrides,
            expect: found.map_or(Expect::Absent, |found| Expect::At(found.revision)),
            value: Some(record),
        });
        for accepted in self.store.drain_log() {
            let (revision, new) = (accepted.revision, accepted.new);
            self.trace.say(self.now, || {
                format!("store: an operator wrote overrides @{revision} {new:?}")
            });
            if let Some(Record::Overrides(record)) = &new {
                self.jury.see(self.now, Seen::Decided { revision, record });
            }
        }
        self.tell_watchers(&Key::Overrides);
    }

    /// Takes back whatever was asked for, so that the group can come to rest.
    pub(super) fn take_back_requests(&mut self) {
        if self.setup.config.coordination == Coordination::Leaderless
            && self.jury.facts.overrides().is_some()
        {
            self.write_overrides(OverridesRecord::default());
            return;
        }
        let mut undone = Vec::new();
        for stored in self.jury.facts.records.values() {
            let Record::Request(record) = &stored.record else {
                continue;
            };
            match &record.request {
                Request::Drain { worker } => undone.push(Request::Undrain {
                    worker: worker.clone(),
                }),
                Request::Move { partition, .. } | Request::Pin { partition, .. } => {
                    undone.push(Request::Unpin {
                        partition: partition.clone(),
                    });
                }
                Request::Pause { partition } => undone.push(Request::Resume {
                    partition: partition.clone(),
                }),
                _ => {}
            }
        }
        for request in undone {
            self.write_request(request);
        }
    }

    fn write_request(&mut self, request: Request) {
        self.requests += 1;
        let key = Key::Request(format!("r{:03}", self.requests).into());
        let record = Record::Request(Arc::new(RequestRecord {
            request,
            by: "an operator".into(),
            why: "to see what happens".into(),
            at: self.now / 1_000,
            outcome: Outcome::Open,
            nonce: Nonce(self.requests),
        }));
        self.store.apply_one(&Write {
            key: key.clone(),
            expect: Expect::Absent,
            value: Some(record),
        });
        for accepted in self.store.drain_log() {
            let (revision, new) = (accepted.revision, accepted.new);
            self.trace.say(self.now, || {
                format!("store: an operator wrote {key:?} @{revision} {new:?}")
            });
            if let Some(Record::Request(record)) = &new {
                let seen = Seen::Asked {
                    key: &key,
                    revision,
                    record,
                };
                self.jury.see(self.now, seen);
            }
        }
        self.tell_watchers(&key);
    }
}
