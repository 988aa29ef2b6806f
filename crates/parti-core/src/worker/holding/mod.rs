//! Holdings: taking, committing and releasing partitions. The only code that writes their records.
//!
//! ```text
//!            read      resolve start, look at the owner's session      compare-and-set, epoch + 1
//!  Out ───────────▶ found ───────────────────────────────────────▶ take ───────────▶ Held
//!   ▲                 ▲ blocked: look again later                    │ conflict        │ commit …
//!   │                 └──────────────────────────────────────────────┘                 │
//!   │  release: final offset, owner none                       close lane, drain       │
//!   └──────────────────────────────────────────────────────────────────────────────────┘
//!   ◀── fenced: a conflict that shows another epoch or owner ──────────────────────────┘
//! ```
//!
//! Level, not edge: each partition has a wish (serve, prepare, drop), a last known record and at
//! most one operation in flight; whenever something changes, the next operation is derived anew. A
//! write whose fate is open is settled by a further write on the same revision before anything is
//! said about it.
//!
//! A lease that lapsed and came back proves nothing about what was held: an operator may have changed
//! a record meanwhile, over an owner that did not answer. So every partition that is served is
//! confirmed by a write, which commits what is to be committed anyway; whoever is refused is fenced.
//! Until all are through, nothing is handled.
//!
//! A subscription that is not reliable takes and releases in the same way, and commits nothing:
//! `kept` has its progress.

mod asks;
mod kept;
mod lives;
mod one;
#[cfg(test)]
mod tests;
mod writes;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::config::{Config, StartPosition};
use crate::ids::{Epoch, Incarnation, Offset, PartitionId, Revision, WorkerId};
use crate::io::{Ask, Retention, SourceKind, StoreError, StoreOp, StoreReply, Write, WriteOutcome};
use crate::key::Key;
use crate::lane::Lanes;
use crate::record::{Begun, Blocked, Record, WorkerRecord};
use crate::time::Time;
use crate::worker::Report;
use crate::worker::numbers::TakeNumbers;
use crate::worker::outbox::{Outbox, Purpose};

use asks::Asks;
use kept::{Keeping, Kept};
use lives::Lives;
use one::{Context, Found, Holding, LanePhase, Next, Op, Phase};

/// How many writes one request carries at the most.
const BATCH: usize = 512;
/// The wait after store trouble.
const PAUSE: Duration = Duration::from_millis(250);
/// The first wait of a taker that was refused; doubles up to `BLOCKED_MAX`.
const BLOCKED_MIN: Duration = Duration::from_millis(50);
const BLOCKED_MAX: Duration = Duration::from_secs(1);
/// So many refused takes are told at once, so that a session's record stays small; the others'
/// turn comes when these are through.
const BLOCKED_TOLD: usize = 512;

/// What should become of a partition here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Take it and handle its messages.
    Serve,
    /// Feed its lane, handle nothing.
    Prepare,
    /// Let go of it.
    Drop,
}

fn keeping(reliable: bool, kept: &mut BTreeMap<PartitionId, Kept>, id: &PartitionId) -> Keeping {
    if reliable {
        Keeping::InRecord
    } else {
        Keeping::InMemory(kept.remove(id))
    }
}

/// All partitions this worker has to do with.
#[derive(Clone, Debug)]
pub struct Holdings {
    map: BTreeMap<PartitionId, Holding>,
    lives: Lives,
    asked: BTreeMap<WorkerId, Time>,
    /// Whether progress is written. If not, it is kept here: of partitions that are not in `map`.
    reliable: bool,
    kept: BTreeMap<PartitionId, Kept>,
    /// How many releases have landed: peers without a leader look for it.
    releases: u64,
    takes: TakeNumbers,
    start: StartPosition,
    flush_interval: Duration,
    next_flush: Time,
    /// When the lease came back last: what was written before is to be confirmed.
    regained_at: Time,
    /// Whether something of that is left to confirm.
    in_doubt: bool,
    asks: Asks,
    timeout: Duration,
}

impl Holdings {
    /// Holds nothing.
    pub fn new(config: &Config, source: SourceKind) -> Self {
        // The acks of a work queue are progress that is kept, whatever anybody asks for.
        let acks = source == SourceKind::Stream(Retention::WorkQueue);
        Self {
            map: BTreeMap::new(),
            lives: Lives::default(),
            asked: BTreeMap::new(),
            reliable: config.processing.reliable || acks,
            kept: BTreeMap::new(),
            releases: 0,
            takes: TakeNumbers::default(),
            start: config.processing.start,
            flush_interval: config.checkpoint_flush_interval,
            next_flush: Time::NEVER,
            regained_at: Time::ZERO,
            in_doubt: false,
            asks: Asks::default(),
            timeout: config.operation_timeout,
        }
    }

    /// From now on, no request may take longer than this.
    pub fn hurry(&mut self, timeout: Duration) {
        self.timeout = self.timeout.min(timeout);
    }

    /// The lease is alive again, after it had lapsed.
    pub fn lease_regained(&mut self, now: Time) {
        self.regained_at = now;
        let mut holdings = self.map.values();
        self.in_doubt = holdings.any(|holding| holding.in_doubt(now));
    }

    /// Whether it is open if all that is served here is still owned: then nothing may be handled.
    pub fn in_doubt(&self) -> bool {
        self.in_doubt && !planted!(HandleInDoubt)
    }

    /// Says what should become of every partition: what is not named is dropped.
    pub fn want(
        &mut self,
        serve: impl IntoIterator<Item = PartitionId>,
        prepare: impl IntoIterator<Item = PartitionId>,
        added: &[PartitionId],
        lanes: &mut Lanes,
        out: &mut Outbox,
    ) {
        let mut wishes: BTreeMap<PartitionId, Wish> = BTreeMap::new();
        wishes.extend(prepare.into_iter().map(|id| (id, Wish::Prepare)));
        wishes.extend(serve.into_iter().map(|id| (id, Wish::Serve)));
        for (id, holding) in &mut self.map {
            if !wishes.contains_key(id) {
                holding.wish = Wish::Drop;
            }
        }
        for (id, wish) in wishes {
            let holding = self.map.entry(id.clone()).or_insert_with(|| Holding {
                keeping: keeping(self.reliable, &mut self.kept, &id),
                ..Holding::new(wish)
            });
            if holding.wish != wish {
                holding.not_before = Time::ZERO;
            }
            holding.wish = wish;
            holding.added = added.contains(&id);
            if matches!(holding.phase, Phase::Out) {
                lanes.attach(out.now(), &id);
            }
        }
    }

    /// A record is said to name this worker though it is not to serve it: look, and release.
    pub fn check(&mut self, id: &PartitionId) {
        self.map.entry(id.clone()).or_insert_with(|| Holding {
            open_fate: true,
            keeping: keeping(self.reliable, &mut self.kept, id),
            ..Holding::new(Wish::Drop)
        });
    }

    /// Whether nothing outside the wishes to serve is owned, for certain.
    pub fn all_released(&self) -> bool {
        self.map
            .values()
            .all(|holding| holding.wish == Wish::Serve || holding.is_out())
    }

    /// Whether all that should be served is owned.
    pub fn all_taken(&self) -> bool {
        self.map
            .values()
            .all(|holding| holding.wish != Wish::Serve || matches!(holding.phase, Phase::Held(_)))
    }

    /// Whether nothing is owned at all, for certain.
    pub fn is_empty(&self) -> bool {
        self.map.values().all(Holding::is_out)
    }

    /// How many partitions may still be owned.
    pub fn not_released(&self) -> usize {
        self.map
            .values()
            .filter(|holding| !holding.is_out())
            .count()
    }

    /// How many releases have landed so far.
    pub fn releases(&self) -> u64 {
        self.releases
    }

    /// Takes that came to nothing, for metrics.
    pub fn take_numbers(&self) -> TakeNumbers {
        self.takes
    }

    /// How many partitions are owned.
    pub fn load(&self) -> u64 {
        self.map
            .values()
            .filter(|holding| matches!(holding.phase, Phase::Held(_)))
            .count() as u64
    }

    /// What is owned.
    pub fn held(&self) -> impl Iterator<Item = &PartitionId> {
        self.map
            .iter()
            .filter(|(_, holding)| matches!(holding.phase, Phase::Held(_)))
            .map(|(id, _)| id)
    }

    /// Whether this life of a worker is over, for certain.
    pub fn is_over(&self, owner: &WorkerId, life: Incarnation) -> bool {
        self.lives.is_over(owner, life)
    }

    /// Whether this partition is owned.
    pub fn holds(&self, id: &PartitionId) -> bool {
        self.map
            .get(id)
            .is_some_and(|holding| matches!(holding.phase, Phase::Held(_)))
    }

    /// Takes that are being refused.
    pub fn blocked(&self) -> Vec<Blocked> {
        self.map
            .values()
            .filter(|holding| holding.wish == Wish::Serve)
            .filter_map(|holding| holding.blocked.clone())
            .take(BLOCKED_TOLD)
            .collect()
    }

    /// Prepared partitions that are ready.
    pub fn ready(&self, lanes: &Lanes) -> Vec<PartitionId> {
        self.map
            .iter()
            .filter(|(id, holding)| holding.wish == Wish::Prepare && lanes.ready(id))
            .map(|(id, _)| id.clone())
            .collect()
    }

    /// A session was seen: whether it is over is believed for ever.
    pub fn learn_session(&mut self, id: &WorkerId, revision: Revision, record: &WorkerRecord) {
        self.lives.learn(id, revision, record);
    }

    /// Refused takes are tried again now: something changed that may have freed them.
    pub fn nudge(&mut self, now: Time) {
        for holding in self.map.values_mut() {
            if holding.blocked.is_some() && holding.op.is_none() {
                holding.not_before = holding.not_before.min(now);
            }
        }
    }

    /// The session is lost: everything stops at once, nothing is written.
    pub fn abandon(&mut self, lanes: &mut Lanes, out: &mut Outbox) {
        for (id, mut holding) in std::mem::take(&mut self.map) {
            holding.keep(&id, lanes);
            if let Phase::Held(held) = &holding.phase {
                out.report(Report::Fenced {
                    partition: id.clone(),
                    epoch: held.epoch,
                });
            }
            self.kept.extend(holding.keeping.into_kept(&id));
            lanes.abandon(out.now(), &id);
            lanes.detach(out.now(), &id);
        }
        self.asked.clear();
        self.asks.settle(&mut self.map, out);
        self.next_flush = Time::NEVER;
        self.in_doubt = false;
    }

    /// The time for a graceful stop is over: whatever still runs is given up, and everything is
    /// released with the progress it has. What was given up half way.
    pub fn force_release(
        &mut self,
        lanes: &mut Lanes,
        out: &mut Outbox,
    ) -> Vec<(PartitionId, Offset)> {
        let mut cut_off = Vec::new();
        for (id, holding) in &mut self.map {
            if let Phase::Held(held) = &mut holding.phase
                && matches!(held.lane, LanePhase::Open | LanePhase::Closing)
            {
                held.last = lanes
                    .progress(id)
                    .map(|progress| (progress, lanes.suspicious(id)));
                held.lane = LanePhase::Drained;
                cut_off.extend(lanes.in_flight(id).map(|offset| (id.clone(), offset)));
                lanes.abandon(out.now(), id);
            }
        }
        cut_off
    }

    /// A lane has ended its last handler call.
    pub fn drained(&mut self, id: &PartitionId) {
        if let Some(Holding {
            phase: Phase::Held(held),
            ..
        }) = self.map.get_mut(id)
            && held.lane == LanePhase::Closing
        {
            held.lane = LanePhase::Drained;
        }
    }

    /// A lane in suspicion wants to begin a message.
    pub fn begin(&mut self, id: &PartitionId, epoch: Epoch, begun: Begun) {
        if let Some(Holding {
            phase: Phase::Held(held),
            ..
        }) = self.map.get_mut(id)
            && held.epoch == epoch
        {
            held.begin = Some(begun);
        }
    }

    /// A lane wants its progress committed now.
    pub fn commit_now(&mut self, id: &PartitionId) {
        if let Some(Holding {
            phase: Phase::Held(held),
            ..
        }) = self.map.get_mut(id)
        {
            held.commit_now = true;
        }
    }

    /// Somebody waits until everything up to and with this offset is stored.
    pub fn tell_when_stored(&mut self, id: &PartitionId, epoch: Epoch, offset: Offset, ask: Ask) {
        self.asks.add(id, epoch, offset, ask);
    }

    /// All progress is to be committed now.
    pub fn flush(&mut self, now: Time) {
        self.next_flush = self.next_flush.min(now);
    }

    /// Where a partition without a record starts.
    pub fn resolved(&mut self, id: &PartitionId, next: Offset) {
        if let Some(holding) = self.map.get_mut(id) {
            holding.start = Some(next);
            holding.resolving = false;
        }
    }

    /// When to act next.
    pub fn next_deadline(&self) -> Time {
        let mut next = self.next_flush;
        for holding in self.map.values() {
            if holding.op.is_none() && holding.not_before > Time::ZERO {
                next = next.min(holding.not_before);
            }
        }
        next
    }

    /// Derives and sends whatever is to be done next, in few requests.
    pub fn step(
        &mut self,
        me: &WorkerId,
        life: Incarnation,
        lease: bool,
        lanes: &mut Lanes,
        out: &mut Outbox,
    ) {
        let now = out.now();
        self.asks.settle(&mut self.map, out);
        let flush = now >= self.next_flush;
        if flush {
            self.next_flush = now + self.flush_interval;
        }
        let mut batch: Vec<(PartitionId, Write)> = Vec::new();
        let mut gone = Vec::new();
        let mut owners = Vec::new();
        let (mut flushed, mut age) = (0, Duration::ZERO);
        self.in_doubt = false;
        let ctx = Context {
            me,
            life,
            lease,
            flush,
            regained_at: self.regained_at,
            start: self.start,
            lives: &self.lives,
        };
        for (id, holding) in &mut self.map {
            match holding.next(id, &ctx, lanes, out) {
                Next::Nothing => {}
                Next::Forget => gone.push(id.clone()),
                Next::Read => {
                    holding.op = Some(Op::Read);
                    let op = StoreOp::Read(Key::Partition(id.clone()));
                    out.ask(Purpose::ReadPartition(id.clone()), op, self.timeout);
                }
                Next::AskOwner(owner) => {
                    self.takes.blocked += 1;
                    owners.push(owner);
                }
                Next::Write(op) => {
                    if let Op::Commit { .. } = op {
                        flushed += 1;
                        age = age.max(now.since(holding.flushed_at));
                    }
                    let write = Write {
                        key: Key::Partition(id.clone()),
                        expect: holding.found.expect(),
                        value: op.value(),
                    };
                    batch.push((id.clone(), write));
                    holding.op = Some(op);
                    holding.asked_at = now;
                }
            }
            self.in_doubt |= holding.in_doubt(self.regained_at);
        }
        for id in gone {
            let keeping = self.map.remove(&id).map(|holding| holding.keeping);
            self.kept
                .extend(keeping.and_then(|keeping| keeping.into_kept(&id)));
            lanes.detach(now, &id);
        }
        for owner in owners {
            self.ask_owner(owner, out);
        }
        if flushed > 0 {
            let partitions = flushed;
            out.report(Report::Flushed { partitions, age });
        }
        for chunk in batch.chunks(BATCH) {
            let (ids, writes) = chunk.iter().cloned().unzip();
            out.ask(
                Purpose::Partitions(ids),
                StoreOp::Write(writes),
                self.timeout,
            );
        }
        if self.next_flush == Time::NEVER && self.load() > 0 {
            self.next_flush = now + self.flush_interval;
        }
    }

    fn ask_owner(&mut self, owner: WorkerId, out: &mut Outbox) {
        let due = self.asked.get(&owner).is_none_or(|at| out.now() >= *at);
        if due {
            self.asked.insert(owner.clone(), Time::NEVER);
            let op = StoreOp::Read(Key::Worker(owner.clone()));
            out.ask(Purpose::ReadOwner(owner), op, self.timeout);
        }
    }

    /// The answer to reading an owner's session.
    pub fn owner_answered(&mut self, owner: WorkerId, reply: StoreReply, out: &mut Outbox) {
        self.asked.insert(owner.clone(), out.now() + BLOCKED_MIN);
        if let StoreReply::Read(Ok(Some(stored))) = &reply
            && let Record::Worker(record) = &stored.record
        {
            self.learn_session(&owner, stored.revision, record);
            for holding in self.map.values_mut() {
                if let Some(blocked) = &holding.blocked
                    && self.lives.is_over(&blocked.owner, blocked.incarnation)
                {
                    holding.not_before = Time::ZERO;
                }
            }
        }
    }

    /// The answer to reading a partition's record.
    pub fn read_answered(&mut self, id: &PartitionId, reply: StoreReply, out: &mut Outbox) {
        let Some(holding) = self.map.get_mut(id) else {
            return;
        };
        holding.op = None;
        holding.only_read = true;
        match reply {
            StoreReply::Read(Ok(None)) => holding.found = Found::Absent,
            StoreReply::Read(Ok(Some(stored))) => match &stored.record {
                Record::Partition(record) => {
                    holding.found = Found::At(stored.revision, record.clone());
                }
                other => {
                    one::unreadable(&stored, other, out);
                    holding.not_before = out.now() + BLOCKED_MAX * 10;
                }
            },
            _ => holding.not_before = out.now() + PAUSE,
        }
    }

    /// What became of takes, commits and releases.
    pub fn answered(
        &mut self,
        ids: Vec<PartitionId>,
        reply: StoreReply,
        me: &WorkerId,
        life: Incarnation,
        lanes: &mut Lanes,
        out: &mut Outbox,
    ) {
        let StoreReply::Write(outcomes) = reply else {
            return;
        };
        let ctx = Context {
            me,
            life,
            lease: true,
            flush: false,
            regained_at: self.regained_at,
            start: self.start,
            lives: &self.lives,
        };
        for (id, outcome) in ids.into_iter().zip(outcomes) {
            let Some(holding) = self.map.get_mut(&id) else {
                continue;
            };
            let Some(op) = holding.op.take() else {
                continue;
            };
            if let WriteOutcome::Done(_) | WriteOutcome::Conflict(_) = outcome {
                holding.known_at = holding.asked_at;
            }
            if let Op::Take { .. } = op {
                match outcome {
                    WriteOutcome::Done(_) => {}
                    WriteOutcome::Conflict(_) => self.takes.conflicts += 1,
                    WriteOutcome::Failed(_) => self.takes.failures += 1,
                }
            }
            match outcome {
                WriteOutcome::Done(revision) => {
                    self.releases += u64::from(matches!(op, Op::Release { .. }));
                    holding.landed(&id, op, revision, lanes, out);
                }
                WriteOutcome::Conflict(found) => {
                    holding.conflicted(&id, op, found, &ctx, lanes, out);
                }
                WriteOutcome::Failed(StoreError::Unknown) => {
                    holding.open_fate = true;
                    holding.commit_again(&op);
                    if planted!(UnknownTakeServes)
                        && let Op::Take { record, seized } = op
                    {
                        holding.become_held(&id, record, seized, lanes, out);
                    }
                }
                WriteOutcome::Failed(_) => {
                    holding.commit_again(&op);
                    holding.not_before = out.now() + PAUSE;
                }
            }
        }
    }
}
