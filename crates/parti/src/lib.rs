//! Kafka-style consumer groups for any log.
//!
//! A [`Worker`] takes its share of a group's partitions from a [`store`] and their messages from a
//! [`source`], and hands them to a [`Handler`]. The decisions are in [`core`]; this crate carries
//! them out.

pub use parti_core as core;

mod clock;
mod driver;
mod handler;
pub mod inspect;
mod message;
mod partitions;
pub mod source;
#[cfg(feature = "sqlite")]
mod sqlite;
pub mod store;
mod worker;

pub use async_trait::async_trait;
pub use driver::Observer;
pub use handler::{Handler, HandlerError};
pub use message::Message;
pub use parti_core::config::Config;
pub use parti_core::ids::{Epoch, Offset, PartitionId, WorkerId};
pub use parti_core::worker::{Fatal, Report, State, Trouble};
pub use partitions::{
    FilePartitions, Partition, PartitionSource, StaticPartitions, StoredPartitions,
};
pub use worker::{Assignment, IntoSource, IntoStore, Worker, WorkerBuilder, WorkerError};

/// The README's examples compile.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
