//! A log in memory: for tests and examples.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use tokio::sync::broadcast;

use super::{
    Batch, DeadLetter, Growth, Offset, PartitionId, Record, Source, SourceError, StartPosition,
};

/// A log in memory. Clones share their content.
#[derive(Clone, Debug)]
pub struct MemoryLog {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    content: Mutex<Content>,
    growth: broadcast::Sender<PartitionId>,
}

#[derive(Debug, Default)]
struct Content {
    partitions: BTreeMap<PartitionId, Vec<Record>>,
    letters: BTreeMap<(PartitionId, Offset), DeadLetter>,
}

impl Default for MemoryLog {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryLog {
    /// An empty log.
    pub fn new() -> Self {
        Self {
            shared: Arc::new(Shared {
                content: Mutex::default(),
                growth: broadcast::channel(1024).0,
            }),
        }
    }

    /// Appends a message to a partition.
    pub fn append(&self, partition: &PartitionId, payload: impl Into<Bytes>) -> Offset {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let mut content = self.content();
        let records = content.partitions.entry(partition.clone()).or_default();
        let offset = Offset(records.len() as u64);
        records.push(Record {
            offset,
            subject: partition.as_str().into(),
            payload: payload.into(),
            timestamp_ms: now.map_or(0, |now| now.as_millis() as u64),
            ..Record::default()
        });
        drop(content);
        // Nobody listens: nobody misses it.
        let _ = self.shared.growth.send(partition.clone());
        offset
    }

    /// What could not be handled, in the order of partition and offset.
    pub fn dead_letters(&self) -> Vec<DeadLetter> {
        self.content().letters.values().cloned().collect()
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.shared
            .content
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Source for MemoryLog {
    fn name(&self) -> &str {
        "memory"
    }

    async fn identity(&self) -> Result<u64, SourceError> {
        Ok(1)
    }

    async fn read(
        &self,
        partition: &PartitionId,
        from: Offset,
        limit: usize,
    ) -> Result<Batch, SourceError> {
        let content = self.content();
        let records = content.partitions.get(partition).map_or(&[][..], |r| r);
        let from_index = usize::try_from(from.0).unwrap_or(usize::MAX);
        let found: Vec<Record> = records
            .iter()
            .skip(from_index)
            .take(limit)
            .cloned()
            .collect();
        Ok(Batch {
            next: Offset(from.0 + found.len() as u64),
            records: found,
            first: Offset(0),
            end: Offset(records.len() as u64),
        })
    }

    async fn resolve(
        &self,
        partition: &PartitionId,
        start: StartPosition,
    ) -> Result<Offset, SourceError> {
        let content = self.content();
        let records = content.partitions.get(partition).map_or(&[][..], |r| r);
        let end = records.len() as u64;
        Ok(Offset(match start {
            StartPosition::Latest => end,
            StartPosition::Earliest => 0,
            StartPosition::Offset(offset) => offset.min(end),
            StartPosition::Time(ms) => {
                records.partition_point(|record| record.timestamp_ms < ms) as u64
            }
        }))
    }

    fn growth(&self) -> BoxStream<'static, Growth> {
        let receiver = self.shared.growth.subscribe();
        stream::unfold(receiver, |mut receiver| async move {
            let growth = match receiver.recv().await {
                Ok(partition) => Growth::Partition(partition),
                Err(broadcast::error::RecvError::Lagged(_)) => Growth::Any,
                Err(broadcast::error::RecvError::Closed) => return None,
            };
            Some((growth, receiver))
        })
        .boxed()
    }

    async fn dead_letter(&self, letter: DeadLetter) -> Result<(), SourceError> {
        let place = (letter.partition.clone(), letter.record.offset);
        self.content().letters.entry(place).or_insert(letter);
        Ok(())
    }
}
