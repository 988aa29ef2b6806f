//! Strategies: who should serve what. Pure, total, deterministic.
//!
//! ```text
//!   workers ─────┐
//!   partitions ──┼──▶ Strategy::assign ──▶ Answer { owners } ──▶ balance(input), movement(input)
//!   previous ────┤
//!   capacity ────┘
//! ```
//!
//! | strategy | spreads by | moves |
//! |---|---|---|
//! | [`ConsistentHash`] (default) | weight, within about 1 % of the mean | nearly the least possible |
//! | [`FairShare`] | count, by the rule `base = P / W` | the fewest for these counts |
//! | [`RoundRobin`] | count, one after the other | many: it does not look at `previous` |
//!
//! All of them are pure functions of their [`Input`]; with an empty `previous` they are functions
//! of workers, partitions and capacity alone, which is what leaderless groups rely on.
//!
//! # A strategy of one's own
//!
//! ```
//! use parti_core::ids::{PartitionId, WorkerId};
//! use parti_core::partition::Partition;
//! use parti_core::strategy::{Answer, Input, Strategy};
//!
//! /// The first worker serves everything, the others stand by.
//! #[derive(Debug)]
//! struct ActiveStandby;
//!
//! impl Strategy for ActiveStandby {
//!     fn name(&self) -> String {
//!         "active_standby".into()
//!     }
//!
//!     fn assign(&self, input: Input<'_>) -> Answer {
//!         let limit = input.capacity_or_unlimited() as usize;
//!         let active = (!input.workers.is_empty()).then_some(0);
//!         let owners = (0..input.partitions.len())
//!             .map(|place| active.filter(|_| place < limit))
//!             .collect();
//!         Answer { owners }
//!     }
//! }
//!
//! let workers = [WorkerId::new("worker-0"), WorkerId::new("worker-1")];
//! let partitions = ["a", "b"].map(|id| Partition {
//!     keys: vec![id.into()],
//!     weight: 1,
//!     id: PartitionId::new(id),
//! });
//! let input = Input { workers: &workers, partitions: &partitions, previous: &[], capacity: None };
//! let answer = ActiveStandby.assign(input);
//! assert_eq!(answer.owners, [Some(0), Some(0)]);
//! assert_eq!(answer.balance(input).by_weight(), 2.0); // twice the mean: one serves all
//! ```

use std::fmt;
use std::sync::Arc;

use crate::config::StrategyChoice;
use crate::ids::WorkerId;
use crate::partition::Partition;

mod consistent_hash;
mod fair_share;
mod level;
mod question;
mod ring;
mod round_robin;
mod score;
mod settle;
mod shed;

#[cfg(test)]
mod tests;

pub use consistent_hash::{ConsistentHash, DEFAULT_VIRTUAL_NODES, MAX_VIRTUAL_NODES};
pub use fair_share::FairShare;
pub use question::{Question, put_pins};
pub use round_robin::RoundRobin;
pub use score::{Amount, Balance, Movement};

/// What a strategy works on. Indices are used instead of names, so that a million partitions fit.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The workers, sorted, without duplicates.
    pub workers: &'a [WorkerId],
    /// The partitions, sorted by id, without duplicates.
    pub partitions: &'a [Partition],
    /// Who serves each partition now, as an index into `workers`, parallel to `partitions`;
    /// empty when nobody serves anything. What is out of range counts as nobody.
    pub previous: &'a [Option<u32>],
    /// The most partitions one worker can serve.
    pub capacity: Option<u32>,
}

impl Input<'_> {
    /// Who serves this partition now, if it is one of the present workers.
    pub fn previous_owner(&self, partition: usize) -> Option<u32> {
        let owner = self.previous.get(partition).copied().flatten()?;
        ((owner as usize) < self.workers.len()).then_some(owner)
    }

    /// The capacity, where none means as many as can be counted.
    pub fn capacity_or_unlimited(&self) -> u32 {
        self.capacity.unwrap_or(u32::MAX)
    }
}

/// Who should serve what. How good that is, [`Answer::balance`] and [`Answer::movement`] work out
/// when asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// An index into the workers for each partition; `None` only where capacity ran out or there
    /// is no worker.
    pub owners: Vec<Option<u32>>,
}

impl Answer {
    /// The answer of who has no worker to choose from: nobody serves anything.
    pub fn nobody(input: Input<'_>) -> Self {
        Self {
            owners: vec![None; input.partitions.len()],
        }
    }

    /// How evenly this answer spreads the load. One pass over the partitions.
    pub fn balance(&self, input: Input<'_>) -> Balance {
        Balance::of(input, &self.owners)
    }

    /// How much this answer moves, and how little would have done. A few passes over the
    /// partitions.
    pub fn movement(&self, input: Input<'_>) -> Movement {
        Movement::of(input, &self.owners)
    }

    /// The partitions that nobody serves, as indices.
    pub fn unserved(&self) -> impl Iterator<Item = usize> + '_ {
        let all = self.owners.iter().enumerate();
        all.filter_map(|(partition, owner)| owner.is_none().then_some(partition))
    }
}

/// Decides who should serve what.
pub trait Strategy: fmt::Debug + Send + Sync {
    /// Name and parameters, as the group's fingerprint shows them. A change of what the strategy
    /// answers needs a change of its name, because workers of one group must agree.
    fn name(&self) -> String;

    /// Decides. Total: every input has an answer, and the same input has the same answer.
    fn assign(&self, input: Input<'_>) -> Answer;
}

/// The strategy that a configuration names.
pub fn from_choice(choice: &StrategyChoice) -> Arc<dyn Strategy> {
    match choice {
        StrategyChoice::ConsistentHash { virtual_nodes } => {
            Arc::new(ConsistentHash::new(*virtual_nodes))
        }
        StrategyChoice::RoundRobin => Arc::new(RoundRobin),
        StrategyChoice::FairShare => Arc::new(FairShare),
    }
}

/// The strategy that has this name, if it is one of these: what a group's fingerprint says.
pub fn from_name(name: &str) -> Option<StrategyChoice> {
    let parameter = name.strip_prefix("consistent_hash(virtual_nodes=");
    let number = parameter.and_then(|rest| rest.strip_suffix(')')?.parse().ok());
    let choice = match (name, number) {
        (_, Some(virtual_nodes)) => StrategyChoice::ConsistentHash { virtual_nodes },
        ("fair_share", None) => StrategyChoice::FairShare,
        ("round_robin", None) => StrategyChoice::RoundRobin,
        _ => return None,
    };
    (from_choice(&choice).name() == name).then_some(choice)
}
