//! Kafka-style consumer groups for any log.
//!
//! So far this crate holds the stores: [`store`] has the contract, the backends and the public
//! conformance suite. The decisions are in [`parti_core`].

pub use parti_core as core;

#[cfg(feature = "sqlite")]
mod sqlite;
pub mod store;
