//! One partition as this worker sees it: a wish, the last known record, at most one operation.

use std::sync::Arc;
use std::time::Duration;

use crate::config::StartPosition;
use crate::ids::{Epoch, Incarnation, Offset, PartitionId, Revision, WorkerId};
use crate::io::{Expect, Stored};
use crate::lane::{Lanes, Opening, Progress};
use crate::record::{Begun, Blocked, PartitionRecord, Record};
use crate::time::Time;
use crate::worker::outbox::Outbox;
use crate::worker::{Report, Trouble};

use super::kept::Keeping;
use super::lives::Lives;
use super::writes::{commit, release, settle};
use super::{BLOCKED_MAX, BLOCKED_MIN, Wish};

/// What all partitions of a step have in common.
pub(super) struct Context<'a> {
    pub(super) me: &'a WorkerId,
    pub(super) life: Incarnation,
    /// Whether the own lease is alive.
    pub(super) lease: bool,
    /// Whether progress is to be flushed now.
    pub(super) flush: bool,
    /// When the lease came back last.
    pub(super) regained_at: Time,
    pub(super) start: StartPosition,
    pub(super) lives: &'a Lives,
}

impl Context<'_> {
    fn is_me(&self, owner: &WorkerId, life: Incarnation) -> bool {
        owner == self.me && life == self.life
    }
}

#[derive(Clone, Debug)]
pub(super) enum Found {
    Unread,
    Absent,
    At(Revision, Arc<PartitionRecord>),
}

impl Found {
    pub(super) fn expect(&self) -> Expect {
        match self {
            Found::At(revision, _) => Expect::At(*revision),
            _ => Expect::Absent,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LanePhase {
    /// Owned without ever having been opened (a take that landed late and is not wanted).
    Never,
    Open,
    Closing,
    Drained,
}

#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) epoch: Epoch,
    pub(super) lane: LanePhase,
    /// Progress, and whether in suspicion, at the moment a lane was given up by force.
    pub(super) last: Option<(Progress, bool)>,
    pub(super) begin: Option<Begun>,
    pub(super) commit_now: bool,
    /// Taken from a dead owner.
    pub(super) seized: bool,
    /// Where its lane opened.
    pub(super) opened_at: Offset,
}

impl Held {
    pub(super) fn suspicious(&self, id: &PartitionId, lanes: &Lanes) -> bool {
        match &self.last {
            Some((_, suspicious)) => *suspicious,
            // Nobody has looked at its messages since the owner died.
            None if self.lane == LanePhase::Never => self.seized,
            None => lanes.suspicious(id),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Phase {
    Out,
    Held(Held),
}

#[derive(Clone, Debug)]
pub(super) enum Op {
    Read,
    /// `seized`: the dead owner it is taken from.
    Take {
        seized: Option<WorkerId>,
        record: Arc<PartitionRecord>,
    },
    /// `at`: when its progress was looked up.
    Commit {
        record: Arc<PartitionRecord>,
        begun: Option<Begun>,
        at: Time,
    },
    Release {
        record: Arc<PartitionRecord>,
    },
    /// Changes nothing but the revision, so that an earlier write can no longer land.
    Settle {
        record: Arc<PartitionRecord>,
    },
}

impl Op {
    /// What the operation puts into the store.
    pub(super) fn value(&self) -> Option<Record> {
        let record = match self {
            Op::Read => return None,
            Op::Release { .. } if planted!(ReleaseByDelete) => return None,
            Op::Take { record, .. }
            | Op::Commit { record, .. }
            | Op::Release { record }
            | Op::Settle { record } => record,
        };
        Some(Record::Partition(record.clone()))
    }
}

#[derive(Clone, Debug)]
pub(super) struct Holding {
    pub(super) wish: Wish,
    /// Added to an existing group: starts at the oldest message.
    pub(super) added: bool,
    pub(super) phase: Phase,
    pub(super) found: Found,
    /// What was found comes from a read, which may be stale.
    pub(super) only_read: bool,
    pub(super) op: Option<Op>,
    /// When the last write was sent.
    pub(super) asked_at: Time,
    /// When the last write was sent that was accepted or refused: what was found is no older.
    pub(super) known_at: Time,
    /// An earlier write of ours may still land.
    pub(super) open_fate: bool,
    /// The dead owner that the last take sent was to seize from: that take may land late.
    pub(super) seizing: Option<WorkerId>,
    /// Where to start when nothing is known of earlier progress.
    pub(super) start: Option<Offset>,
    pub(super) keeping: Keeping,
    pub(super) resolving: bool,
    pub(super) blocked: Option<Blocked>,
    pub(super) blocked_wait: Duration,
    pub(super) not_before: Time,
    /// Everything that was done by then is written.
    pub(super) flushed_at: Time,
}

impl Holding {
    pub(super) fn new(wish: Wish) -> Self {
        Self {
            wish,
            added: false,
            phase: Phase::Out,
            found: Found::Unread,
            only_read: true,
            op: None,
            asked_at: Time::ZERO,
            known_at: Time::ZERO,
            open_fate: false,
            seizing: None,
            start: None,
            keeping: Keeping::InRecord,
            resolving: false,
            blocked: None,
            blocked_wait: BLOCKED_MIN,
            not_before: Time::ZERO,
            flushed_at: Time::ZERO,
        }
    }

    /// Whether it is served, and nothing has shown since then that it is still owned.
    pub(super) fn in_doubt(&self, regained_at: Time) -> bool {
        let is_served = matches!(&self.phase, Phase::Held(held) if held.lane == LanePhase::Open);
        is_served && self.known_at < regained_at && !planted!(LapseForgotten)
    }

    /// Whether it is certain that nothing here is owned.
    pub(super) fn is_out(&self) -> bool {
        if planted!(TimeoutIsFailure) {
            return matches!(self.phase, Phase::Out);
        }
        matches!(self.phase, Phase::Out)
            && !self.open_fate
            && !matches!(
                self.op,
                Some(Op::Take { .. } | Op::Release { .. } | Op::Settle { .. })
            )
    }
}

/// What to do next about a partition.
pub(super) enum Next {
    Nothing,
    Forget,
    Read,
    /// Look at this owner's session.
    AskOwner(WorkerId),
    Write(Op),
}

/// A take must wait: remember who stands in the way, look again soon.
fn refused(holding: &mut Holding, blocked: Blocked, out: &mut Outbox) -> Next {
    let owner = blocked.owner.clone();
    if holding.blocked.as_ref() == Some(&blocked) {
        holding.blocked_wait = (holding.blocked_wait * 2).min(BLOCKED_MAX);
    } else {
        holding.blocked_wait = BLOCKED_MIN;
    }
    holding.blocked = Some(blocked);
    holding.not_before = out.now() + holding.blocked_wait;
    // What was read may be outdated by then.
    holding.found = Found::Unread;
    Next::AskOwner(owner)
}

/// Reports a record that cannot be read.
pub(super) fn unreadable(stored: &Stored, record: &Record, out: &mut Outbox) {
    let why = match record {
        Record::Unreadable(why) => why.to_string(),
        _ => "another kind of record is stored there".to_owned(),
    };
    out.trouble(Trouble::Unreadable {
        key: format!("{:?}", stored.key),
        why,
    });
}

impl Holding {
    /// Derives the next operation from wish, phase and what was found.
    pub(super) fn next(
        &mut self,
        id: &PartitionId,
        ctx: &Context<'_>,
        lanes: &mut Lanes,
        out: &mut Outbox,
    ) -> Next {
        if self.op.is_some() || out.now() < self.not_before {
            return Next::Nothing;
        }
        self.not_before = Time::ZERO;
        let in_doubt = self.in_doubt(ctx.regained_at);
        // A record that names this very life is ours, however that came about. But a read may be
        // stale and show what was released since, so only a write can tell.
        if matches!(self.phase, Phase::Out)
            && let Found::At(_, record) = &self.found
            && let Some((owner, life)) = &record.owner
            && ctx.is_me(owner, *life)
        {
            if self.only_read && !planted!(TrustReadOfOwnRecord) {
                return settle(self, out);
            }
            let (record, seized) = (record.clone(), self.seizing.clone());
            self.become_held(id, record, seized, lanes, out);
        }
        match (&mut self.phase, self.wish) {
            (Phase::Out, Wish::Serve) => {
                if ctx.lease || planted!(TakeWithoutLease) {
                    self.next_take(id, ctx, lanes, out)
                } else {
                    Next::Nothing
                }
            }
            (Phase::Out, Wish::Prepare | Wish::Drop) => {
                self.blocked = None;
                if self.open_fate && !planted!(TimeoutIsFailure) {
                    return match self.found {
                        Found::Unread => Next::Read,
                        _ => settle(self, out),
                    };
                }
                if self.wish == Wish::Drop {
                    Next::Forget
                } else {
                    Next::Nothing
                }
            }
            (Phase::Held(held), Wish::Serve) if held.lane == LanePhase::Open => {
                if let Some(begun) = held.begin {
                    return commit(id, self, Some(begun), ctx, lanes, out);
                }
                if ctx.flush || held.commit_now || in_doubt {
                    return commit(id, self, None, ctx, lanes, out);
                }
                Next::Nothing
            }
            (Phase::Held(held), _) => match held.lane {
                LanePhase::Open => {
                    held.lane = LanePhase::Closing;
                    lanes.close(out.now(), id);
                    Next::Nothing
                }
                LanePhase::Closing if ctx.flush || held.commit_now => {
                    commit(id, self, None, ctx, lanes, out)
                }
                LanePhase::Closing => Next::Nothing,
                LanePhase::Never | LanePhase::Drained => release(id, self, lanes, out),
            },
        }
    }

    fn next_take(
        &mut self,
        id: &PartitionId,
        ctx: &Context<'_>,
        lanes: &mut Lanes,
        out: &mut Outbox,
    ) -> Next {
        let (record, seized) = match &self.found {
            Found::Unread => return Next::Read,
            Found::Absent => {
                let Some(start) = self.start else {
                    return self.resolve_start(id, ctx, lanes, out);
                };
                (
                    PartitionRecord {
                        start,
                        ..PartitionRecord::default()
                    },
                    None,
                )
            }
            Found::At(_, record) => {
                let seized = match &record.owner {
                    None => None,
                    // An older life of mine cannot hold anything any more.
                    Some((owner, older)) if owner == ctx.me && *older < ctx.life => {
                        Some(owner.clone())
                    }
                    Some((owner, its)) if ctx.lives.is_over(owner, *its) => Some(owner.clone()),
                    Some((owner, its)) => {
                        let blocked = Blocked {
                            partition: id.clone(),
                            owner: owner.clone(),
                            incarnation: *its,
                        };
                        return refused(self, blocked, out);
                    }
                };
                ((**record).clone(), seized)
            }
        };
        if self.origin(&record, record.epoch.next()).is_none() {
            return self.resolve_start(id, ctx, lanes, out);
        }
        self.blocked = None;
        self.seizing = seized.clone();
        let record = PartitionRecord {
            epoch: record.epoch.next(),
            owner: Some((ctx.me.clone(), ctx.life)),
            nonce: out.nonce(),
            claimed_at: out.wall_ms(),
            updated_at: out.wall_ms(),
            ..record
        };
        let record = Arc::new(record);
        if planted!(ServeFromRead) {
            self.become_held(id, record.clone(), seized.clone(), lanes, out);
        }
        Next::Write(Op::Take { seized, record })
    }

    fn resolve_start(
        &mut self,
        id: &PartitionId,
        ctx: &Context<'_>,
        lanes: &mut Lanes,
        out: &Outbox,
    ) -> Next {
        if !self.resolving {
            self.resolving = true;
            let start = if self.added {
                StartPosition::Earliest
            } else {
                ctx.start
            };
            lanes.resolve(out.now(), id, start);
        }
        Next::Nothing
    }

    pub(super) fn become_held(
        &mut self,
        id: &PartitionId,
        record: Arc<PartitionRecord>,
        seized: Option<WorkerId>,
        lanes: &mut Lanes,
        out: &mut Outbox,
    ) {
        let epoch = record.epoch;
        let mut lane = LanePhase::Never;
        let mut opened_at = Offset(0);
        // Without an origin it is released, and taken again once there is one.
        if self.wish == Wish::Serve
            && let Some(origin) = self.origin(&record, epoch)
        {
            lane = LanePhase::Open;
            opened_at = origin.next;
            let opening = Opening {
                epoch,
                next: origin.next,
                done_above: origin.done_above,
                begun: origin.begun,
                suspicious: self.keeping.suspects(seized.as_ref(), &record),
                seized_from: seized.clone(),
            };
            lanes.open(out.now(), id, opening);
            if let Some(owner) = &seized {
                out.seized(owner, id);
            }
            out.report(Report::Taken {
                partition: id.clone(),
                epoch,
                offset: origin.offset,
                next_offset: origin.next,
                seized: seized.is_some(),
            });
        }
        self.blocked = None;
        self.blocked_wait = BLOCKED_MIN;
        self.flushed_at = out.now();
        self.phase = Phase::Held(Held {
            epoch,
            lane,
            last: None,
            begin: None,
            commit_now: false,
            seized: seized.is_some(),
            opened_at,
        });
    }

    pub(super) fn landed(
        &mut self,
        id: &PartitionId,
        op: Op,
        revision: Revision,
        lanes: &mut Lanes,
        out: &mut Outbox,
    ) {
        self.open_fate = false;
        self.only_read = false;
        match op {
            Op::Read => {}
            Op::Take { seized, record } => {
                self.found = Found::At(revision, record.clone());
                if !planted!(ServeFromRead) {
                    self.become_held(id, record, seized, lanes, out);
                }
            }
            Op::Commit { record, begun, at } => {
                self.flushed_at = at;
                self.found = Found::At(revision, record);
                if let (Some(begun), Phase::Held(held)) = (begun, &mut self.phase) {
                    if held.begin == Some(begun) {
                        held.begin = None;
                    }
                    lanes.begun_written(out.now(), id, held.epoch, begun.offset);
                }
            }
            Op::Release { record } => self.released(id, revision, record, lanes, out),
            Op::Settle { record } => self.found = Found::At(revision, record),
        }
    }

    fn released(
        &mut self,
        id: &PartitionId,
        revision: Revision,
        record: Arc<PartitionRecord>,
        lanes: &mut Lanes,
        out: &mut Outbox,
    ) {
        let opened = matches!(&self.phase, Phase::Held(held) if held.lane != LanePhase::Never);
        self.keep(id, lanes);
        if opened {
            let (offset, next_offset) = self.keeping.reached(&record);
            out.report(Report::Released {
                partition: id.clone(),
                epoch: record.epoch,
                offset,
                next_offset,
            });
            lanes.detach(out.now(), id);
        }
        self.found = Found::At(revision, record);
        self.phase = Phase::Out;
        if self.wish != Wish::Drop {
            lanes.attach(out.now(), id);
        }
    }

    /// A commit that failed is not put off to the next flush: its progress is late already.
    pub(super) fn commit_again(&mut self, op: &Op) {
        if let (Op::Commit { .. }, Phase::Held(held)) = (op, &mut self.phase) {
            held.commit_now = true;
        }
    }

    pub(super) fn conflicted(
        &mut self,
        id: &PartitionId,
        op: Op,
        found: Option<Stored>,
        ctx: &Context<'_>,
        lanes: &mut Lanes,
        out: &mut Outbox,
    ) {
        let record = match &found {
            Some(Stored {
                revision,
                record: Record::Partition(record),
                ..
            }) => {
                self.found = Found::At(*revision, record.clone());
                Some((*revision, record.clone()))
            }
            Some(stored) => {
                unreadable(stored, &stored.record, out);
                self.not_before = out.now() + BLOCKED_MAX * 10;
                None
            }
            None => {
                self.found = Found::Absent;
                None
            }
        };
        self.only_read = false;
        // The record moved on, so nothing that expected the old revision can land any more.
        let was_open = std::mem::take(&mut self.open_fate);
        let Phase::Held(held) = &mut self.phase else {
            // A take that was refused, or a settling write: what was found decides anew. If it
            // names this very life, an earlier take landed after all.
            if let Some((_, record)) = record
                && let Some((owner, life)) = &record.owner
                && ctx.is_me(owner, *life)
            {
                let seized = self.seizing.clone();
                self.become_held(id, record, seized, lanes, out);
            }
            return;
        };
        let epoch = held.epoch;
        let mine = record.as_ref().is_some_and(|(_, record)| {
            record.epoch == epoch
                && record
                    .owner
                    .as_ref()
                    .is_some_and(|(owner, life)| ctx.is_me(owner, *life))
        });
        if mine || (planted!(SkipEpochCheck) && record.is_some()) {
            // An earlier write of ours landed late. Go on from there.
            if let Op::Commit { begun: None, .. } = op {
                held.commit_now = true;
            }
            return;
        }
        if was_open
            && let (Op::Release { .. }, Some((revision, record))) = (&op, &record)
            && record.epoch == epoch
            && record.owner.is_none()
        {
            // An earlier try of this release landed.
            let (revision, record) = (*revision, record.clone());
            self.released(id, revision, record, lanes, out);
            return;
        }
        self.fence(id, epoch, lanes, out);
    }

    /// Somebody else owns it: stop at once, drop what was buffered.
    fn fence(&mut self, id: &PartitionId, epoch: Epoch, lanes: &mut Lanes, out: &mut Outbox) {
        self.keep(id, lanes);
        lanes.abandon(out.now(), id);
        lanes.detach(out.now(), id);
        out.report(Report::Fenced {
            partition: id.clone(),
            epoch,
        });
        self.phase = Phase::Out;
        self.not_before = out.now() + BLOCKED_MIN;
        if self.wish != Wish::Drop {
            lanes.attach(out.now(), id);
        }
    }
}
