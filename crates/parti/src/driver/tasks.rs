//! The tasks of one worker: all of them end with it.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Spawns tasks that are cancelled when the last owner's guard goes.
#[derive(Clone, Debug)]
pub(crate) struct Tasks {
    token: CancellationToken,
}

impl Tasks {
    /// No tasks yet; whatever is spawned ends when the guard is dropped.
    pub(crate) fn new() -> (Self, DropGuard) {
        let token = CancellationToken::new();
        let guard = token.clone().drop_guard();
        (Self { token }, guard)
    }

    /// A set of tasks of its own that ends with this one, or earlier when its guard is dropped.
    pub(crate) fn child(&self) -> (Self, DropGuard) {
        let token = self.token.child_token();
        let guard = token.clone().drop_guard();
        (Self { token }, guard)
    }

    /// Runs a future to its end, or to the end of everything.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        let token = self.token.clone();
        tokio::spawn(async move {
            token.run_until_cancelled(work).await;
        })
    }
}

/// Awaits code of somebody else's; a panic in it becomes its text.
pub(crate) async fn caught<T>(work: impl Future<Output = T>) -> Result<T, String> {
    AssertUnwindSafe(work)
        .catch_unwind()
        .await
        .map_err(|panic| text_of(panic.as_ref()))
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".into())
}
