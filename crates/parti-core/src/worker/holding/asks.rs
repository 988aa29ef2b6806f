//! Commits whose makers wait until they are in the store.
//!
//! ```text
//!   commit ──▶ Ask ──▶ the partition's record is written ──▶ it covers the offset: Ok
//!                  └──▶ released, fenced, lost before that ──▶ the record decides, else NotOwned
//! ```

use std::collections::BTreeMap;

use super::one::{Found, Holding, Phase};
use crate::ids::{Epoch, Offset, PartitionId};
use crate::io::{Ask, CommitRefused};
use crate::worker::Action;
use crate::worker::outbox::Outbox;

/// One of them.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    ask: Ask,
    epoch: Epoch,
    offset: Offset,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Asks(BTreeMap<PartitionId, Vec<Waiting>>);

impl Asks {
    /// Somebody waits for this.
    pub fn add(&mut self, id: &PartitionId, epoch: Epoch, offset: Offset, ask: Ask) {
        let waiting = Waiting { ask, epoch, offset };
        self.0.entry(id.clone()).or_default().push(waiting);
    }

    /// Answers whoever can be answered, and has the progress of the others written.
    pub fn settle(&mut self, map: &mut BTreeMap<PartitionId, Holding>, out: &mut Outbox) {
        self.0.retain(|id, waiting| {
            let mut holding = map.get_mut(id);
            waiting.retain(|one| match one.verdict(holding.as_deref()) {
                Some(result) => {
                    out.push(Action::Committed(one.ask, result));
                    false
                }
                None => true,
            });
            if let (false, Some(holding)) = (waiting.is_empty(), &mut holding)
                && let Phase::Held(held) = &mut holding.phase
            {
                held.commit_now = true;
            }
            !waiting.is_empty()
        });
    }
}

impl Waiting {
    /// What became of it, once that is known.
    fn verdict(&self, holding: Option<&Holding>) -> Option<Result<(), CommitRefused>> {
        let Some(holding) = holding else {
            return Some(Err(CommitRefused::NotOwned));
        };
        // What a read showed may be older than what was written, never newer.
        let stored = match &holding.found {
            Found::At(_, record) => {
                record.epoch == self.epoch && record.offset >= Some(self.offset)
            }
            Found::Unread | Found::Absent => false,
        };
        match &holding.phase {
            _ if stored => Some(Ok(())),
            Phase::Held(held) if held.epoch == self.epoch => {
                // It is not to be stored at all: progress is kept by the process.
                holding.keeping.in_memory().then_some(Ok(()))
            }
            Phase::Held(held) => Some(Err(CommitRefused::Fenced {
                current: held.epoch,
            })),
            Phase::Out => Some(Err(CommitRefused::NotOwned)),
        }
    }
}
