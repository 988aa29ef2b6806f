//! Calls of the user's own code: bounded, and no panic of theirs ends anything of ours.

use std::future::Future;
use std::time::Duration;

use crate::driver::tasks::caught;
use crate::handler::HandlerError;

/// Why a call of the user's code did not end well.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// It returned an error.
    #[error("{0}")]
    Failed(HandlerError),
    /// It took too long, and was given up.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// It panicked.
    #[error("it panicked: {0}")]
    Panicked(String),
}

/// Awaits the user's code, at the most for `limit`.
pub(crate) async fn within<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, HandlerError>>,
) -> Result<T, CallError> {
    tokio::time::timeout(limit, unbounded(work))
        .await
        .unwrap_or(Err(CallError::TimedOut(limit)))
}

/// Awaits the user's code for as long as it takes.
pub(crate) async fn unbounded<T>(
    work: impl Future<Output = Result<T, HandlerError>>,
) -> Result<T, CallError> {
    match caught(work).await {
        Ok(result) => result.map_err(CallError::Failed),
        Err(panic) => Err(CallError::Panicked(panic)),
    }
}
