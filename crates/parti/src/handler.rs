//! What a user does with messages.

use std::error::Error;
use std::future::Future;

use async_trait::async_trait;

use crate::message::Message;

/// Any error that a handler may return. Its text goes to the logs and into the dead letter.
pub type HandlerError = Box<dyn Error + Send + Sync>;

/// Handles messages, one call for each.
///
/// Messages of a partition come in order and one at a time (see `processing.ordering`); several
/// partitions are handled at once. `Ok` counts as done. An error, or a panic, is retried after a
/// wait, up to `max_deliver` times; then the message goes to the dead letters.
///
/// Every async closure from [`Message`] to a result is a handler.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Handles one message.
    async fn handle(&self, message: Message) -> Result<(), HandlerError>;
}

#[async_trait]
impl<F, R, E> Handler for F
where
    F: Fn(Message) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), E>> + Send,
    E: Into<HandlerError>,
{
    async fn handle(&self, message: Message) -> Result<(), HandlerError> {
        self(message).await.map_err(Into::into)
    }
}
