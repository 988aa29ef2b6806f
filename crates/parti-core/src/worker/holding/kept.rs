//! Where a partition's progress lives: in its record, or, if the subscription is not reliable, in this
//! process alone.
//!
//! ```text
//!  taken ── kept under the epoch before? ──yes──▶ goes on where it was
//!    ▲            │ no: somebody else owned it since, or nobody here ever did
//!    │            └──▶ the start position, resolved anew
//!    └── released, fenced, session lost: what the lane reached is kept
//! ```

use super::one::{Held, Holding, LanePhase, Phase};
use crate::ids::{Epoch, Offset, PartitionId, WorkerId};
use crate::lane::Lanes;
use crate::record::{Begun, PartitionRecord};

/// Where progress lives.
#[derive(Clone, Debug)]
pub(super) enum Keeping {
    /// In the partition's record.
    InRecord,
    /// Here; nothing of it is ever written.
    InMemory(Option<Kept>),
}

/// What this process has reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    /// The last epoch that was this process's own.
    epoch: Epoch,
    offset: Option<Offset>,
    next: Offset,
    done_above: Vec<Offset>,
}

/// Where a lane opens.
pub(super) struct Origin {
    pub(super) offset: Option<Offset>,
    pub(super) next: Offset,
    pub(super) done_above: Vec<Offset>,
    pub(super) begun: Option<Begun>,
}

impl Keeping {
    /// Whether nothing of it is ever written.
    pub(super) fn in_memory(&self) -> bool {
        matches!(self, Keeping::InMemory(_))
    }

    /// What outlives the wish for the partition.
    pub(super) fn into_kept(self, id: &PartitionId) -> Option<(PartitionId, Kept)> {
        match self {
            Keeping::InRecord => None,
            Keeping::InMemory(kept) => kept.map(|kept| (id.clone(), kept)),
        }
    }

    /// Whether its messages are to be begun one by one, each announced. What is not written cannot
    /// be announced either.
    pub(super) fn suspects(&self, seized: Option<&WorkerId>, record: &PartitionRecord) -> bool {
        !self.in_memory() && (seized.is_some() || record.begun.is_some())
    }

    /// How far the partition is: the last done offset, and the one to go on with.
    pub(super) fn reached(&self, record: &PartitionRecord) -> (Option<Offset>, Offset) {
        match self {
            Keeping::InMemory(Some(kept)) => (kept.offset, kept.next),
            _ => (record.offset, record.next_offset()),
        }
    }
}

impl Holding {
    /// Where a lane opens under this epoch; `None` if the start position must be resolved first.
    pub(super) fn origin(&self, record: &PartitionRecord, epoch: Epoch) -> Option<Origin> {
        match &self.keeping {
            Keeping::InRecord => Some(Origin {
                offset: record.offset,
                next: record.next_offset(),
                done_above: record.done_above.clone(),
                begun: record.begun,
            }),
            // Whoever else owned it since went on alone: what is kept here is old.
            Keeping::InMemory(Some(kept)) if kept.epoch.next() == epoch => Some(Origin {
                offset: kept.offset,
                next: kept.next,
                done_above: kept.done_above.clone(),
                begun: None,
            }),
            Keeping::InMemory(_) => self.start.map(|next| Origin {
                offset: None,
                next,
                done_above: Vec::new(),
                begun: None,
            }),
        }
    }

    /// Keeps what the lane has reached, before the lane goes.
    pub(super) fn keep(&mut self, id: &PartitionId, lanes: &Lanes) {
        let (Keeping::InMemory(kept), Phase::Held(held)) = (&mut self.keeping, &self.phase) else {
            return;
        };
        // A start position holds for one take: the log grows.
        self.start = None;
        match held.lane {
            // It passed through here unopened: nobody else has read anything meanwhile.
            LanePhase::Never => {
                if let Some(kept) = kept
                    && kept.epoch.next() == held.epoch
                {
                    kept.epoch = held.epoch;
                }
            }
            _ => *kept = Some(reached(id, held, lanes)),
        }
    }
}

fn reached(id: &PartitionId, held: &Held, lanes: &Lanes) -> Kept {
    let progress = match &held.last {
        Some((progress, _)) => Some(progress.clone()),
        None => lanes.progress(id),
    };
    let (offset, done_above) = match progress {
        Some(progress) => (progress.offset, progress.done_above),
        None => (None, Vec::new()),
    };
    Kept {
        epoch: held.epoch,
        offset,
        next: offset.map_or(held.opened_at, Offset::next),
        done_above,
    }
}
