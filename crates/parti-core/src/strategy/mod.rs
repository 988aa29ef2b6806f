//! Strategies: who should serve what. Pure, total, deterministic.

use std::fmt;

use crate::ids::WorkerId;
use crate::partition::Partition;

/// What a strategy works on. Indices are used instead of names, so that a million partitions fit.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The workers, sorted, without duplicates.
    pub workers: &'a [WorkerId],
    /// The partitions, sorted by id, without duplicates.
    pub partitions: &'a [Partition],
    /// Who serves each partition now, as an index into `workers`, parallel to `partitions`;
    /// empty when nobody serves anything.
    pub previous: &'a [Option<u32>],
    /// The most partitions one worker can serve.
    pub capacity: Option<u32>,
}

/// Who should serve what, and how good that is.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// An index into the workers for each partition; `None` only where capacity ran out or there
    /// is no worker.
    pub owners: Vec<Option<u32>>,
}

/// Decides who should serve what.
pub trait Strategy: fmt::Debug + Send + Sync {
    /// Name and parameters, as the group's fingerprint shows them.
    fn name(&self) -> String;

    /// Decides. Total: every input has an answer, and the same input has the same answer.
    fn assign(&self, input: Input<'_>) -> Answer;
}
