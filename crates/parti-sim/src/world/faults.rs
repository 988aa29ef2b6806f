//! Carrying out the scenario.

use parti_core::ids::{Incarnation, Offset, WorkerId};
use parti_core::io::{Retention, SourceKind, StoreReply, Write};
use parti_core::key::Key;
use parti_core::partition::Partition;
use parti_core::planted;
use parti_core::record::Record;
use parti_core::rng::Rng;
use parti_core::worker::Event;
use std::sync::Arc;

use super::link::Until;
use super::overthrow::Ambush;
use super::{Happening, World};
use crate::facts::{Proc, Seen};
use crate::fault::{Fault, Victim, WriteKind};
use crate::model::Source;
use crate::setup::{Micros, SECOND};

/// A crash that waits for its write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trap {
    victim: Victim,
    kind: WriteKind,
    left: u32,
    before: bool,
    restart_after: Option<Micros>,
}

impl World {
    pub(super) fn fault(&mut self, number: usize) {
        let fault = self.scenario[number].fault;
        self.trace.say(self.now, || format!("fault: {fault:?}"));
        if self.inflict(fault) {
            self.faults[fault.kind()] += 1;
        }
    }

    /// Inflicts a fault; false if there was nothing to inflict it on.
    fn inflict(&mut self, fault: Fault) -> bool {
        match fault {
            Fault::Crash {
                machine,
                restart_after,
            } => {
                let Some(proc) = self.running_on(machine) else {
                    return false;
                };
                self.crash(proc, restart_after);
            }
            Fault::Pause { machine, length } => {
                let Some(proc) = self.running_on(machine) else {
                    return false;
                };
                self.pause(proc, length);
            }
            Fault::Suspend { machine, length } => {
                let Some(proc) = self.running_on(machine) else {
                    return false;
                };
                self.pause(proc, length);
                self.procs[proc].asleep.get_or_insert(self.now);
                self.break_watches(machine, length);
                self.cut_source(machine, length);
            }
            Fault::Stop {
                machine,
                restart_after,
            } => {
                let Some(proc) = self.running_on(machine) else {
                    return false;
                };
                self.ask_to_stop(proc, restart_after);
            }
            Fault::StopAll { restart_after } => return self.ask_all_to_stop(restart_after),
            Fault::Join { machine } => {
                if self.running_on(machine).is_some() || self.links[machine].starting {
                    return false;
                }
                let belongs = self.belonging();
                self.start(machine, None, belongs);
            }
            Fault::Twin { machine } => return self.start_twin(machine),
            Fault::Rehost {
                machine,
                host_lives,
                stolen,
            } => return self.rehost(machine, host_lives, stolen),
            Fault::CrashAtWrite {
                victim,
                kind,
                nth,
                before,
                restart_after,
            } => {
                self.traps.push(Trap {
                    victim,
                    kind,
                    left: nth,
                    before,
                    restart_after,
                });
            }
            Fault::Overthrow {
                nth,
                frozen,
                length,
            } => {
                self.ambushes.push(Ambush {
                    left: nth,
                    frozen,
                    length,
                });
            }
            Fault::SlowHandlers {
                machine,
                length,
                delay,
            } => {
                self.links[machine].slow_handlers = Until::new(self.now + length, delay);
            }
            Fault::ClockJump { machine } => {
                let Some(proc) = self.running_on(machine) else {
                    return false;
                };
                if planted!(WallClock) {
                    let by = self.lots.below(40 * SECOND) as i64 - 20 * SECOND as i64;
                    self.procs[proc].clock.jump(by);
                } else {
                    self.deliver(proc, Event::ClockJumped);
                }
            }
            Fault::Ask {
                wish,
                machine,
                partition,
            } => self.ask(wish, machine, partition),
            Fault::Force { partition, length } => return self.wait_in_vain(partition, length),
            Fault::Refresh { machine } => {
                let Some(proc) = self.running_on(machine) else {
                    return false;
                };
                self.deliver(proc, Event::RefreshPartitions);
            }
            Fault::ListChange { salt } => self.change_list(Some(salt)),
            Fault::Retention { keep } => return self.trim(keep),
            Fault::ReplaceStore => self.lose_store(None),
            Fault::RollBackStore { writes } => self.lose_store(Some(writes)),
            _ => return self.inflict_on_links(fault),
        }
        true
    }

    fn inflict_on_links(&mut self, fault: Fault) -> bool {
        let now = self.now;
        match fault {
            Fault::Outage { length } => {
                self.outage = Until::new(now + length, ());
                self.trouble(None, length, true);
            }
            Fault::Partition { machine, length } => {
                self.links[machine].cut = Until::new(now + length, ());
                // A lease leaves over what a renewal that was just missed does not need.
                let spare = self.setup.ttl().saturating_sub(2 * self.setup.heartbeat()) / 3;
                self.trouble(Some(machine), length, length <= spare);
            }
            Fault::SlowStore {
                machine,
                length,
                delay,
            } => {
                self.links[machine].slow = Until::new(now + length, delay);
                self.trouble(Some(machine), length + delay, false);
            }
            Fault::LossyStore {
                machine,
                length,
                percent,
            } => {
                self.links[machine].lossy = Until::new(now + length, percent);
                self.trouble(Some(machine), length, false);
            }
            Fault::LateWrites {
                machine,
                length,
                percent,
                by,
            } => {
                self.links[machine].late = Until::new(now + length, (percent, by));
                self.trouble(Some(machine), length + by, false);
            }
            Fault::StaleReads { machine, length } => {
                let revision = self.store.revision();
                self.links[machine].stale = Until::new(now + length, revision);
                self.trouble(Some(machine), length, false);
            }
            Fault::ConflictStorm { length, percent } => {
                self.storm = Until::new(now + length, percent);
                self.trouble(None, length, true);
            }
            Fault::BreakWatches { machine, gap } => {
                self.break_watches(machine, gap);
                self.trouble(Some(machine), gap, false);
            }
            Fault::DuplicateWatches { machine, length } => {
                self.links[machine].twice = Until::new(now + length, ());
                self.trouble(Some(machine), length, false);
            }
            Fault::DelayWatches {
                machine,
                length,
                delay,
            } => {
                self.links[machine].lagging = Until::new(now + length, delay);
                self.trouble(Some(machine), length + delay, false);
            }
            Fault::SourceDown { machine, length } => self.cut_source(machine, length),
            Fault::LostDeliveries {
                machine,
                length,
                percent,
            } => {
                self.links[machine].losing = Until::new(now + length, percent);
                if let Some(proc) = self.running_on(machine) {
                    self.slows(proc, length + SECOND);
                }
            }
            Fault::ConsumerLeaderChange { machine } => return self.change_consumer_leader(machine),
            Fault::LaggingReplica { behind, length } => {
                let Some(stream) = self.source.as_stream() else {
                    return false;
                };
                stream.set_replica_lag(behind);
                self.replica_lags = Until::new(now + length, ());
                self.queue.push(now + length, Happening::ReplicaCatchesUp);
            }
            _ => return false,
        }
        true
    }

    /// The partition list changes: some are gone, some are back, some weigh another amount. Each
    /// worker is told at another time. Without a salt, everything is as it was at first.
    pub(super) fn change_list(&mut self, salt: Option<u64>) {
        let whole = self.setup.partitions.clone();
        let list: Arc<[Partition]> = match salt {
            None => whole,
            Some(salt) => {
                let mut rng = Rng::new(salt);
                let mut kept = Vec::new();
                for (index, partition) in whole.iter().enumerate() {
                    if rng.chance(0.2) {
                        self.jury.see(self.now, Seen::Unlisted { partition: index });
                        continue;
                    }
                    let mut partition = partition.clone();
                    if rng.chance(0.1) {
                        partition.weight = rng.between(1, 5);
                    }
                    kept.push(partition);
                }
                kept.into()
            }
        };
        if list == self.list {
            return;
        }
        self.list = list;
        self.jury.see(self.now, Seen::ListChanged);
        for machine in 0..self.links.len() {
            if let Some(proc) = self.running_on(machine) {
                let at = self.now + self.lots.below(3 * SECOND);
                let event = Event::RefreshPartitions;
                self.queue.push(at, Happening::Deliver { proc, event });
            }
        }
    }

    pub(super) fn replica_catches_up(&mut self) {
        if self.replica_lags.now(self.now).is_none()
            && let Some(stream) = self.source.as_stream()
        {
            stream.set_replica_lag(0);
        }
    }

    /// Retention removes all but the newest messages, handled or not.
    fn trim(&mut self, keep: u64) -> bool {
        let limits = SourceKind::Stream(Retention::Limits);
        if self.setup.source == SourceKind::Stream(Retention::WorkQueue) {
            return false;
        }
        let mut passed = Vec::new();
        if self.setup.source == limits
            && let Some(stream) = self.source.as_stream()
        {
            let first = Offset(stream.head().0.saturating_sub(keep) + 1);
            passed = stream.trim(first);
        }
        for partition in 0..self.setup.partitions.len() {
            let id = &self.setup.partitions[partition].id;
            let first = match &mut self.source {
                Source::Stream(stream) => Offset(stream.head().0.saturating_sub(keep) + 1),
                Source::Log(log) => {
                    // A partition of its own has only a few of all messages.
                    let first = Offset(log.end(id).0.saturating_sub(keep / 8));
                    log.trim(id, first);
                    first
                }
            };
            let seen = Seen::Trimmed {
                partition,
                first,
                passed: &passed,
            };
            self.jury.see(self.now, seen);
        }
        true
    }

    /// Tells the jury; what was asked before may be hurt a little longer.
    fn trouble(&mut self, machine: Option<usize>, length: Micros, harmless: bool) {
        let until = self.now + length + SECOND;
        self.jury.see(
            self.now,
            Seen::StoreTrouble {
                machine,
                until,
                harmless,
            },
        );
    }

    fn change_consumer_leader(&mut self, machine: usize) -> bool {
        let Some(proc) = self.running_on(machine) else {
            return false;
        };
        let durable = self.procs[proc].durable.clone();
        let (now, lots) = (self.now, &mut self.lots);
        let Some(stream) = self.source.as_stream() else {
            return false;
        };
        stream.leader_change(now, &durable, lots);
        self.pump_source();
        true
    }

    fn start_twin(&mut self, machine: usize) -> bool {
        let Some(proc) = self.running_on(machine) else {
            return false;
        };
        let number = self.number_of(proc);
        let free = self
            .links
            .iter()
            .position(|link| link.running.is_none() && !link.starting);
        let (Some(number), Some(free)) = (number, free) else {
            return false;
        };
        let belongs = self.belonging();
        self.start(free, Some(number), belongs);
        true
    }

    /// Crashes whoever is in a trap for this write.
    pub(super) fn spring_traps(&mut self, writer: Proc, write: &Write, before: bool) {
        if self.traps.is_empty() {
            return;
        }
        let Some(kind) = WriteKind::of(&write.key) else {
            return;
        };
        for number in (0..self.traps.len()).rev() {
            let trap = &mut self.traps[number];
            if trap.kind != kind || trap.before != before {
                continue;
            }
            trap.left -= 1;
            if trap.left > 0 {
                continue;
            }
            let trap = self.traps.swap_remove(number);
            if let Some(victim) = self.victim(trap.victim, writer, write) {
                self.crash(victim, trap.restart_after);
            }
        }
    }

    fn victim(&self, who: Victim, writer: Proc, write: &Write) -> Option<Proc> {
        let facts = &self.jury.facts;
        let holder = |owner: &(WorkerId, Incarnation)| facts.holder(&owner.0, owner.1);
        let named = |id: &WorkerId| {
            facts
                .members()
                .find(|(_, session)| session.id == *id)
                .map(|(proc, _)| proc)
        };
        match who {
            Victim::Writer => Some(writer),
            Victim::Leader => match &facts.records.get(&Key::Leader)?.record {
                Record::Leader(record) => record.holder.as_ref().and_then(holder),
                _ => None,
            },
            Victim::Subject => match (&write.key, &write.value) {
                (Key::Worker(id) | Key::Assignment(id), _) => named(id),
                (_, Some(Record::Partition(record))) => record.owner.as_ref().and_then(holder),
                _ => Some(writer),
            },
            Victim::OldOwner => match (&write.key, &write.value) {
                (Key::Partition(id), _) => {
                    facts.partition_record(id)?.owner.as_ref().and_then(holder)
                }
                (_, Some(Record::Assignment(record))) => named(&record.prepare.first()?.1),
                _ => Some(writer),
            },
        }
    }
}

/// What an event is about, as a number for the trace.
pub(super) fn word_of(event: &Event) -> u64 {
    match event {
        Event::Start => 1,
        Event::Stop { .. } => 2,
        Event::Tick => 3,
        Event::Store(id, reply) => {
            let kind = match reply {
                StoreReply::Read(result) => 4 + u64::from(result.is_err()),
                StoreReply::List(result) => 6 + u64::from(result.is_err()),
                StoreReply::Write(outcomes) => 8 + outcomes.len() as u64,
            };
            id.0 << 16 | kind
        }
        Event::Watch(_, _) => 20,
        Event::Partitions(_) => 21,
        Event::RefreshPartitions => 22,
        Event::ClockJumped => 23,
        Event::Source(_) => 24,
        Event::Handled { ran, .. } => ran.first.0 << 16 | 25,
        _ => 26,
    }
}
