//! A message as a handler gets it.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use parti_core::ids::{Epoch, Offset, PartitionId, WorkerId};

use crate::source::Received;

/// One message to handle.
#[derive(Clone, Debug)]
pub struct Message {
    /// Which partition it belongs to.
    pub partition: PartitionId,
    /// Its place in the log.
    pub offset: Offset,
    /// The fencing token: grows with every change of owner. Give it to your own sinks, and let
    /// them refuse a lower one than they have seen.
    pub epoch: Epoch,
    /// 1 for the first try.
    pub attempt: u32,
    /// Who handles it.
    pub worker: WorkerId,
    /// When this process got it from the source, by its own wall clock: the same at each try, and for
    /// messages that came together.
    pub received_at: SystemTime,
    pub(crate) received: Arc<Received>,
}

impl Message {
    /// What it carries.
    pub fn payload(&self) -> &Bytes {
        &self.received.record.payload
    }

    /// Its key, if it has one.
    pub fn key(&self) -> Option<&Bytes> {
        self.received.record.key.as_ref()
    }

    /// The subject or topic that it was published to.
    pub fn subject(&self) -> &str {
        &self.received.record.subject
    }

    /// Its headers, in order.
    pub fn headers(&self) -> &[(String, Bytes)] {
        &self.received.record.headers
    }

    /// The first header with this name.
    pub fn header(&self, name: &str) -> Option<&Bytes> {
        let mut headers = self.received.record.headers.iter();
        headers.find(|(own, _)| own == name).map(|(_, value)| value)
    }

    /// When it was appended, in milliseconds since the Unix epoch, by the log's clock.
    pub fn timestamp_ms(&self) -> u64 {
        self.received.record.timestamp_ms
    }
}
