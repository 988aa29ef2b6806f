//! What a source has of a partition.

use std::collections::BTreeMap;

use parti_core::ids::{Offset, PartitionId};
use serde::Serialize;

#[cfg(feature = "sqlite")]
use crate::source::log::{LogError, Topic};
#[cfg(feature = "nats")]
use crate::source::{JetStream, SourceError};

/// Where a partition begins and ends in its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bounds {
    /// The oldest offset that is still there.
    pub first: Offset,
    /// One past the newest offset: a checkpoint can go on here at the latest.
    pub end: Offset,
    /// One past the partition's own newest message. Partitions of a stream share its offsets, so
    /// this may be less than `end`; 0 if the partition has none.
    pub head: Offset,
}

impl Bounds {
    /// Whether reading can go on at this offset.
    pub fn hold(&self, next: Offset) -> bool {
        (self.first..=self.end).contains(&next)
    }
}

#[cfg(feature = "sqlite")]
impl Topic {
    /// Where each of its partitions begins and ends.
    pub async fn bounds(&self) -> Result<BTreeMap<PartitionId, Bounds>, LogError> {
        let info = self.describe().await?;
        let bounds = info.partitions.into_iter().map(|partition| {
            let bounds = Bounds {
                first: partition.first,
                end: partition.end,
                head: partition.end,
            };
            (partition.id, bounds)
        });
        Ok(bounds.collect())
    }
}

#[cfg(feature = "nats")]
impl JetStream {
    /// Where each of these partitions begins and ends.
    pub async fn bounds(
        &self,
        partitions: &[PartitionId],
    ) -> Result<BTreeMap<PartitionId, Bounds>, SourceError> {
        // The heads first: what is published meanwhile can only make the stream longer.
        let heads = self.ends(partitions).await?;
        let (first, end) = self.range().await?;
        let bounds = heads
            .into_iter()
            .map(|(partition, head)| (partition, Bounds { first, end, head }));
        Ok(bounds.collect())
    }
}
