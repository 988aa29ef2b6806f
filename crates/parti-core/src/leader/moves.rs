//! Moves under way: each is judged by the rules of `slots.rs`, and its slot follows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::crew::Owed;
use super::planner::{Decision, Phase, Planner};
use super::slots::{self, Blame, Move, Reason, Slot, Verdict};
use super::windows;
use crate::ids::{PartitionId, Version, WorkerId};
use crate::partition::Partition;
use crate::record::{EventKind, Lifecycle};
use crate::text::count;
use crate::time::Time;
use crate::worker::{Report, Trouble};

/// A handoff that is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handoff {
    /// Which partition.
    pub partition: PartitionId,
    /// Who had it.
    pub from: WorkerId,
    /// Who has it.
    pub to: WorkerId,
    /// The whole of it.
    pub took: Duration,
    /// From the order to let go until the new owner said that it has it.
    pub pause: Duration,
    /// Why it began.
    pub reason: Arc<str>,
}

impl Handoff {
    /// What the worker that leads tells of it.
    pub(super) fn report(self) -> Report {
        Report::Moved {
            partition: self.partition,
            from: self.from,
            to: self.to,
            took: self.took,
            pause: self.pause,
        }
    }
}

/// A handoff whose new owner was told to serve.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granted {
    pub mv: Move,
    /// When the owner was told to let go, or was found dead.
    revoked: Time,
    /// The version that tells the new owner.
    version: Version,
}

impl Planner {
    /// Handoffs end when the new owner says that it has all it was told to serve, or is gone.
    pub(super) fn end_handoffs(&mut self, now: Time) {
        let (crew, reasons, notes) = (&self.crew, &self.reasons, &mut self.notes);
        self.granted.retain(|partition, granted| {
            let to = &crew[granted.mv.to];
            let Some(member) = to.alive().filter(|m| m.incarnation == granted.mv.to_life) else {
                return false;
            };
            let waits = member.applied < granted.version;
            if !waits {
                notes.push(Decision::Moved(Handoff {
                    partition: partition.clone(),
                    from: crew[granted.mv.from].id.clone(),
                    to: to.id.clone(),
                    took: now.since(granted.mv.began),
                    pause: now.since(granted.revoked),
                    reason: reasons.text(granted.mv.why),
                }));
            }
            waits
        });
    }

    /// Takes every move one step further, or back.
    pub(super) fn advance_moves(&mut self, now: Time, list: &[Partition]) {
        let coming = self.coming();
        let (mut ended, mut given) = (false, false);
        let mut late: BTreeMap<usize, usize> = BTreeMap::new();
        for i in self.moving.iter().copied().collect::<Vec<_>>() {
            let Some(mv) = self.slots[i].moving().copied() else {
                continue;
            };
            let verdict = slots::judge(
                &self.slots[i],
                &list[i].id,
                self.crew[mv.from].party(),
                self.crew[mv.to].party(),
                now,
                &self.config.handoff,
            );
            match verdict {
                Verdict::Wait => {}
                Verdict::WarnSlowRelease => {
                    self.slots[i] = Slot::Revoking { mv, warned: true };
                    let (partition, owner) = (list[i].id.clone(), self.crew[mv.from].id.clone());
                    self.notes
                        .push(Decision::Trouble(Trouble::SlowRelease { partition, owner }));
                }
                Verdict::Revoke => {
                    // It shows that it can: earlier failures are forgiven.
                    self.crew[mv.to].failures = 0;
                    let mv = Move {
                        since: now,
                        version: coming,
                        ..mv
                    };
                    self.slots[i] = Slot::Revoking { mv, warned: false };
                    self.tell_again(mv.from);
                }
                Verdict::Grant => {
                    let revoked = match self.slots[i] {
                        Slot::Revoking { mv, .. } => mv.since,
                        _ => now,
                    };
                    let granted = Granted {
                        mv,
                        revoked,
                        version: coming,
                    };
                    self.granted.insert(list[i].id.clone(), granted);
                    self.slots[i] = Slot::Serving { worker: mv.to };
                    (ended, given) = (true, true);
                }
                Verdict::RollBack(blame) => {
                    ended = true;
                    if matches!(self.slots[i], Slot::Revoking { .. }) {
                        // The owner may have let go already: it must hear that it serves again.
                        self.tell_again(mv.from);
                        given = true;
                    }
                    self.slots[i] = Slot::Serving { worker: mv.from };
                    if blame == Blame::NotReady {
                        *late.entry(mv.to).or_default() += 1;
                    }
                    let desk = &mut self.crew[mv.to];
                    if desk.is_staying() {
                        desk.owed.get_or_insert(Owed::PutOff);
                    }
                    self.due.relieve |= self.crew[mv.from].is_shedding();
                }
                Verdict::Orphan => {
                    ended = true;
                    let lives = self.crew[mv.from].life() == Some(mv.from_life);
                    let restarting = self.lifecycle == Lifecycle::ColdStart && !lives;
                    self.slots[i] = Slot::Unassigned(if restarting {
                        Reason::AwaitsOwner(mv.from)
                    } else {
                        Reason::OwnerGone
                    });
                    self.due.fill.again();
                    self.due.emergency = true;
                }
            }
        }
        for (seat, moves) in late {
            self.suspend(seat, moves, now);
        }
        if ended {
            self.touched = true;
            // The end of a move makes room: what was over the cap may fit now.
            self.due.fill.again();
            self.due.balance = true;
            if given {
                let emergency = self.phase.is_some_and(|phase| phase.emergency);
                self.phase = Some(Phase {
                    emergency,
                    version: coming,
                });
            }
            self.moving.retain(|&i| self.slots[i].moving().is_some());
            if let Some(why) = self.deferred.take() {
                self.due.full.want_all(why);
            }
        }
    }

    /// A worker that never gets ready gets nothing new for a while, longer each time.
    fn suspend(&mut self, seat: usize, moves: usize, now: Time) {
        let desk = &mut self.crew[seat];
        if desk.suspended_until.is_none() {
            desk.failures = desk.failures.saturating_add(1);
            desk.suspended_until = Some(now + windows::suspension(&self.config, desk.failures));
        }
        let id = desk.id.clone();
        self.history(
            EventKind::Handoff,
            format!(
                "{id} did not get ready in time: {} rolled back",
                count(moves as u64, "move")
            ),
        );
    }
}
