//! Store requests of the core, carried out.

use std::time::Duration;

use parti_core::io::{StoreError, StoreOp, StoreReply, StoreRequest, WriteOutcome};

use super::tasks::caught;
use crate::store::{Error, GroupStore, for_core};

/// One reply for one request, at the latest when its time is over.
pub(super) async fn carry_out(store: &GroupStore, request: StoreRequest) -> StoreReply {
    let limit = request.timeout;
    match request.op {
        StoreOp::Read(key) => StoreReply::Read(read(limit, store.read(&key)).await),
        StoreOp::List(prefix) => StoreReply::List(read(limit, store.list(prefix)).await),
        StoreOp::Write(writes) => {
            let done = tokio::time::timeout(limit, caught(store.write(&writes))).await;
            // Neither a time-out nor a panic says what became of the writes.
            let mut outcomes = match done {
                Ok(Ok(outcomes)) => outcomes,
                Ok(Err(_)) | Err(_) => Vec::new(),
            };
            outcomes.resize(writes.len(), WriteOutcome::Failed(StoreError::Unknown));
            StoreReply::Write(outcomes)
        }
    }
}

async fn read<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, StoreError> {
    match tokio::time::timeout(limit, caught(work)).await {
        Ok(Ok(Ok(found))) => Ok(found),
        Ok(Ok(Err(error))) => Err(for_core(&error)),
        Ok(Err(_)) | Err(_) => Err(StoreError::Unavailable),
    }
}
