//! Partitions: hierarchical keys and a weight.

use serde::{Deserialize, Serialize};

use crate::ids::PartitionId;

/// One unit of work: hierarchical keys such as `["tool001", "chamber1"]`, and how heavy it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Partition {
    /// The keys, outermost first.
    pub keys: Vec<String>,
    /// Its share of load; 1 where none was given.
    pub weight: u64,
    /// The canonical id made of the keys.
    pub id: PartitionId,
}
