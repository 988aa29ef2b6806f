//! What a worker writes about a partition that it has to do with.

use std::sync::Arc;

use crate::ids::PartitionId;
use crate::lane::Lanes;
use crate::record::{Begun, PartitionRecord};
use crate::worker::outbox::Outbox;

use super::one::{Context, Found, Held, Holding, LanePhase, Next, Op, Phase};

/// Changes nothing but the mark.
pub(super) fn settle(holding: &Holding, out: &mut Outbox) -> Next {
    let record = match &holding.found {
        Found::At(_, record) => (**record).clone(),
        _ => PartitionRecord {
            start: holding.start.unwrap_or_default(),
            ..PartitionRecord::default()
        },
    };
    let record = PartitionRecord {
        nonce: out.nonce(),
        ..record
    };
    Next::Write(Op::Settle {
        record: Arc::new(record),
    })
}

/// The record with the lane's progress.
fn with_progress(
    id: &PartitionId,
    record: &PartitionRecord,
    held: &Held,
    lanes: &Lanes,
) -> PartitionRecord {
    let progress = match (&held.last, held.lane) {
        (Some((progress, _)), _) => Some(progress.clone()),
        (None, LanePhase::Never) => None,
        (None, _) => lanes.progress(id),
    };
    let mut record = record.clone();
    if let Some(progress) = progress {
        record.offset = progress.offset.max(record.offset);
        record.done_above = progress.done_above;
    }
    if record
        .begun
        .is_some_and(|begun| record.offset >= Some(begun.offset))
    {
        record.begun = None;
    }
    record
}

/// The progress, if there is any to write, or if it is in doubt who owns the partition.
pub(super) fn commit(
    id: &PartitionId,
    holding: &mut Holding,
    begun: Option<Begun>,
    ctx: &Context<'_>,
    lanes: &Lanes,
    out: &mut Outbox,
) -> Next {
    let in_doubt = holding.in_doubt(ctx.regained_at);
    if holding.keeping.in_memory() && in_doubt {
        return settle(holding, out);
    }
    let (Phase::Held(held), Found::At(_, known)) = (&mut holding.phase, &holding.found) else {
        return Next::Nothing;
    };
    held.commit_now = false;
    if holding.keeping.in_memory() {
        return Next::Nothing;
    }
    let mut record = with_progress(id, known, held, lanes);
    if begun.is_some() {
        record.begun = begun;
    }
    let same = record.offset == known.offset
        && record.done_above == known.done_above
        && record.begun == known.begun;
    if same && begun.is_none() && !holding.open_fate && !in_doubt {
        holding.flushed_at = out.now();
        return Next::Nothing;
    }
    record.nonce = out.nonce();
    record.updated_at = out.wall_ms();
    Next::Write(Op::Commit {
        record: Arc::new(record),
        begun,
        at: out.now(),
    })
}

/// The final progress, and no owner.
pub(super) fn release(
    id: &PartitionId,
    holding: &mut Holding,
    lanes: &Lanes,
    out: &mut Outbox,
) -> Next {
    let (Phase::Held(held), Found::At(_, known)) = (&holding.phase, &holding.found) else {
        return Next::Nothing;
    };
    let mut record = if planted!(ReleaseWithoutFinalCommit) {
        (**known).clone()
    } else {
        with_progress(id, known, held, lanes)
    };
    let in_memory = holding.keeping.in_memory();
    if in_memory {
        record = (**known).clone();
    }
    record.owner = None;
    if held.suspicious(id, lanes) && record.begun.is_none() && !in_memory {
        // The next owner goes on in suspicion: nothing was begun, but something has killed.
        record.begun = Some(Begun {
            offset: record.next_offset(),
            times: 0,
        });
    }
    record.nonce = out.nonce();
    record.updated_at = out.wall_ms();
    Next::Write(Op::Release {
        record: Arc::new(record),
    })
}
