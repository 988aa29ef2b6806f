//! Where messages come from.
//!
//! ```text
//!   core ──SourceRequest──▶ Transport ──┬─ LogTransport ──▶ dyn Source   (embedded log, yours)
//!        ◀──SourceEvent────             └─ StreamTransport ──▶ JetStream
//! ```
//!
//! A [`Source`] is anything that is read by partition and offset: implement it for a log of your
//! own. What is behind one durable consumer for many partitions has a transport of its own.

mod headers;
#[cfg(feature = "nats")]
pub mod jetstream;
#[cfg(feature = "sqlite")]
pub mod log;
mod memory;
#[cfg(all(feature = "nats", feature = "sqlite"))]
pub mod place;
mod transport;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;

pub use headers::Headers;
#[cfg(feature = "nats")]
pub use jetstream::JetStream;
pub use memory::MemoryLog;
pub use parti_core::config::StartPosition;
pub use parti_core::ids::{Offset, PartitionId};
pub use parti_core::io::SourceError;
pub(crate) use transport::{Ends, LogTransport, Received, Transport, Wire, refused};

/// A log that is read by partition and offset.
#[async_trait]
pub trait Source: fmt::Debug + Send + Sync + 'static {
    /// What to call it in messages, without secrets.
    fn name(&self) -> &str;

    /// Which log this is: another number once it was deleted and made anew, so that nobody goes on
    /// at an offset of the old one. Give one from the beginning: 0 stands for a log that tells none,
    /// and a group that began with such a one goes on with no other.
    async fn identity(&self) -> Result<u64, SourceError>;

    /// How many partitions it was made with, for good: `0` to one less. A worker that lists others,
    /// or not all of them, is refused. `None`: whatever is listed counts.
    fn partitions(&self) -> Option<u32> {
        None
    }

    /// The messages of a partition from `from` on, in order, `limit` at the most. An empty answer
    /// is fine at the end of the log.
    async fn read(
        &self,
        partition: &PartitionId,
        from: Offset,
        limit: usize,
    ) -> Result<Batch, SourceError>;

    /// The offset that a start position stands for, never past the partition's end.
    async fn resolve(
        &self,
        partition: &PartitionId,
        start: StartPosition,
    ) -> Result<Offset, SourceError>;

    /// Tells of partitions that may have grown. May tell too often. What it misses is found by a
    /// slow poll.
    fn growth(&self) -> BoxStream<'static, Growth>;

    /// Keeps a message that could not be handled, once per partition and offset: the same letter
    /// may come again after a crash. The message counts as done once this says so.
    async fn dead_letter(&self, letter: DeadLetter) -> Result<(), SourceError>;
}

/// What may have grown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Growth {
    /// This partition.
    Partition(PartitionId),
    /// Any of them.
    Any,
}

/// A message as a log holds it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Its place in its partition.
    pub offset: Offset,
    /// The subject or topic that it was published to.
    pub subject: Arc<str>,
    /// Its key, if it has one.
    pub key: Option<Bytes>,
    /// Its headers, in order.
    pub headers: Headers,
    /// What it carries.
    pub payload: Bytes,
    /// When it was appended, in milliseconds since the Unix epoch.
    pub timestamp_ms: u64,
}

/// An answer to a read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The messages, in order.
    pub records: Vec<Record>,
    /// How far this read got: between what was asked for and this offset there is nothing else.
    pub next: Offset,
    /// The oldest offset that retention has kept.
    pub first: Offset,
    /// One past the newest offset, as of this read.
    pub end: Offset,
}

/// A message that could not be handled, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// Where it came from.
    pub partition: PartitionId,
    /// The message.
    pub record: Record,
    /// How often it was tried.
    pub attempts: u32,
    /// What the last try said.
    pub error: String,
}
