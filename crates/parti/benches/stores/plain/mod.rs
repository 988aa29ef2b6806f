//! The plain clients: each backend's own, without Parti, doing the same conditional job.
//!
//! Every write replaces the value that the one before it left, and only that; all of them at once,
//! pipelined or in one message, as fast as they can be made durable. Who loses must be told.

#[cfg(feature = "etcd")]
pub mod etcd;
pub mod memory;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;

use async_trait::async_trait;
use parti::store::Bytes;

/// A backend's own client.
#[async_trait]
pub trait Plain: Send {
    /// Writes these keys and values, the same keys every time, and returns when all are
    /// acknowledged.
    async fn write(&mut self, writes: &[(String, Bytes)]);
}
