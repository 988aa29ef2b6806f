//! What must hold: one file per promise.
//!
//! A safety promise looks at every observation; a liveness promise says, once the faults are over,
//! whether the group is well again. Whoever adds a promise adds a file here, a line to [`all`], and
//! a test with an observation that breaks it.

mod ack_after_done;
mod assignment_order;
mod balance;
mod bounded;
mod checkpoint_done;
mod checkpoint_monotone;
mod commit_by_owner;
mod drain_empties;
mod drained;
mod epochs_grow;
mod evict_ends;
mod exact_start;
mod fewest_moves;
mod full_cover;
mod joins_told;
mod keeps_nothing;
mod lease_dispatch;
mod named_errors;
mod no_early_eviction;
mod no_loss;
mod no_thrash;
mod one_committer;
mod one_dispatcher;
mod order;
mod outage_moves_nothing;
mod pause_rests;
mod pin_stays;
mod plan_covers;
mod poison_ends;
mod repeats_bounded;
mod requests_answered;
mod retention_named;
mod revoke_needs_ready;
mod session_ends_by_write;
mod stop_is_prompt;
mod suspects_alone;
mod take_needs_evidence;
mod take_within_lease;
mod unique_id;
mod unique_leader;
mod zero_repeats;

#[cfg(test)]
pub(crate) mod bench;

use std::fmt;

use parti_core::record::{PartitionRecord, Record};

use crate::facts::{Facts, Seen};
use crate::setup::Micros;

/// Whether a promise is kept; if not, how it was broken.
pub type Verdict = Result<(), String>;

/// One promise.
pub trait Invariant {
    /// Its name.
    fn name(&self) -> &'static str;

    /// Looks at what just happened; the facts include it already.
    fn see(&mut self, _facts: &Facts, _seen: &Seen<'_>) -> Verdict {
        Ok(())
    }

    /// Whether the group is well, after the faults. In the end this must be so.
    fn settled(&self, _facts: &Facts) -> Verdict {
        Ok(())
    }

    /// Whether the promise is still given after the store was replaced or went back.
    fn outlives_the_store(&self) -> bool {
        false
    }

    /// Whether the promise is about progress that is written: groups that keep nothing do not
    /// give it.
    fn needs_checkpoints(&self) -> bool {
        false
    }
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which promise.
    pub invariant: &'static str,
    /// When.
    pub at: Micros,
    /// How.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, rest) = (self.at / 1_000_000, self.at % 1_000_000);
        write!(
            f,
            "{} broken at {seconds}.{rest:06}s: {}",
            self.invariant, self.message
        )
    }
}

/// All promises.
pub fn all() -> Vec<Box<dyn Invariant + Send>> {
    vec![
        Box::new(one_committer::OneCommitter::default()),
        Box::new(epochs_grow::EpochsGrow::default()),
        Box::new(commit_by_owner::CommitByOwner),
        Box::new(checkpoint_monotone::CheckpointMonotone),
        Box::new(checkpoint_done::CheckpointDone),
        Box::new(take_needs_evidence::TakeNeedsEvidence),
        Box::new(take_within_lease::TakeWithinLease),
        Box::new(session_ends_by_write::SessionEndsByWrite),
        Box::new(no_early_eviction::NoEarlyEviction),
        Box::new(unique_id::UniqueId),
        Box::new(lease_dispatch::LeaseDispatch),
        Box::new(one_dispatcher::OneDispatcher),
        Box::new(order::Order),
        Box::new(exact_start::ExactStart::default()),
        Box::new(keeps_nothing::KeepsNothing::default()),
        Box::new(zero_repeats::ZeroRepeats),
        Box::new(repeats_bounded::RepeatsBounded),
        Box::new(assignment_order::AssignmentOrder::default()),
        Box::new(plan_covers::PlanCovers::default()),
        Box::new(revoke_needs_ready::RevokeNeedsReady::default()),
        Box::new(ack_after_done::AckAfterDone::default()),
        Box::new(outage_moves_nothing::OutageMovesNothing::default()),
        Box::new(no_thrash::NoThrash::default()),
        Box::new(fewest_moves::FewestMoves::default()),
        Box::new(bounded::Bounded::default()),
        Box::new(poison_ends::PoisonEnds::default()),
        Box::new(suspects_alone::SuspectsAlone::default()),
        Box::new(unique_leader::UniqueLeader::default()),
        Box::new(stop_is_prompt::StopIsPrompt),
        Box::new(pause_rests::PauseRests::default()),
        Box::new(drain_empties::DrainEmpties::default()),
        Box::new(pin_stays::PinStays::default()),
        Box::new(evict_ends::EvictEnds::default()),
        Box::new(joins_told::JoinsTold::default()),
        Box::new(requests_answered::RequestsAnswered),
        Box::new(full_cover::FullCover),
        Box::new(balance::Balance),
        Box::new(drained::Drained),
        Box::new(no_loss::NoLoss),
        Box::new(retention_named::RetentionNamed::default()),
        Box::new(named_errors::NamedErrors::default()),
    ]
}

/// The facts and all promises about them.
pub struct Jury {
    /// What really happened.
    pub facts: Facts,
    invariants: Vec<Box<dyn Invariant + Send>>,
    /// The first promise that was broken.
    pub violation: Option<Violation>,
}

impl Jury {
    /// A jury over a world in which nothing happened yet.
    pub fn new(facts: Facts) -> Self {
        let mut invariants = all();
        if !facts.setup.config.processing.reliable {
            invariants.retain(|invariant| !invariant.needs_checkpoints());
        }
        Self {
            facts,
            invariants,
            violation: None,
        }
    }

    /// Looks at one observation.
    pub fn see(&mut self, now: Micros, seen: Seen<'_>) {
        self.facts.now = now;
        self.facts.take_in(&seen);
        if self.violation.is_some() {
            return;
        }
        let store_lost = self.facts.store_lost.is_some();
        for invariant in &mut self.invariants {
            if store_lost && !invariant.outlives_the_store() {
                continue;
            }
            if let Err(message) = invariant.see(&self.facts, &seen) {
                let invariant = invariant.name();
                self.violation = Some(Violation {
                    invariant,
                    at: now,
                    message,
                });
                return;
            }
        }
    }

    /// What is not yet well, if anything.
    pub fn unsettled(&self) -> Option<Violation> {
        let store_lost = self.facts.store_lost.is_some();
        let asked = self.invariants.iter();
        asked
            .filter(|invariant| !store_lost || invariant.outlives_the_store())
            .find_map(|invariant| {
                let message = invariant.settled(&self.facts).err()?;
                Some(Violation {
                    invariant: invariant.name(),
                    at: self.facts.now,
                    message,
                })
            })
    }
}

/// Whether a write changed nothing but its mark: that settles an earlier write of open fate, by
/// making sure that it can land no more, and commits nothing. Where there was no record yet, it
/// creates one that nobody owns.
fn only_settles(before: Option<&PartitionRecord>, after: &PartitionRecord) -> bool {
    let nobody = PartitionRecord {
        start: after.start,
        ..PartitionRecord::default()
    };
    let before = before.unwrap_or(&nobody);
    *before
        == PartitionRecord {
            nonce: before.nonce,
            updated_at: before.updated_at,
            ..after.clone()
        }
}

/// An accepted write to a partition's record, if that is what was seen: before and after.
fn partition_write<'a>(
    seen: &Seen<'a>,
) -> Option<(
    usize,
    &'a str,
    Option<&'a PartitionRecord>,
    &'a PartitionRecord,
)> {
    let Seen::Wrote {
        proc,
        key: parti_core::key::Key::Partition(id),
        old,
        new,
        ..
    } = seen
    else {
        return None;
    };
    let Some(Record::Partition(after)) = new else {
        return None;
    };
    let before = old.and_then(|stored| match &stored.record {
        Record::Partition(record) => Some(&**record),
        _ => None,
    });
    Some((*proc, id.as_str(), before, after))
}
