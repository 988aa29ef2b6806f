//! Kafka-style consumer groups for any log.
//!
//! A [`Worker`] takes its share of a group's partitions from a [`store`] and their messages from a
//! [`source`], and hands them to a [`Handler`]. A [`Manager`] is for those who read and handle
//! messages themselves: it only says which partitions are theirs, and keeps their progress. The
//! decisions are in [`core`]; this crate carries them out.

pub use parti_core as core;

mod builder;
mod call;
mod clock;
mod driver;
mod election;
mod handler;
mod hooks;
pub mod inspect;
mod manager;
mod member;
mod message;
pub mod metrics;
#[cfg(feature = "nats")]
mod nats;
pub mod operate;
mod partitions;
pub mod source;
#[cfg(feature = "sqlite")]
mod sqlite;
pub mod store;
mod trace;
mod worker;

pub use async_trait::async_trait;
pub use builder::{Builder, IntoStore};
pub use call::CallError;
pub use driver::Observer;
pub use election::ElectionAgent;
pub use handler::{Handler, HandlerError};
pub use hooks::{AssignmentChange, Failure, Hooks};
pub use manager::{ConsumerUpdate, ConsumerUpdater, Grant, Manager, ManagerBuilder, Own};
pub use member::{Assignment, Member, Readiness, WorkerError};
pub use message::Message;
pub use parti_core::config::{Config, StartPosition};
pub use parti_core::ids::{Epoch, Offset, PartitionId, SourceId, Term, Version, WorkerId};
pub use parti_core::io::CommitRefused;
pub use parti_core::worker::{Fatal, Report, State, Trouble};
pub use partitions::{
    FilePartitions, Partition, PartitionSource, StaticPartitions, StoredPartitions,
};
pub use trace::TraceParent;
pub use worker::{AnySource, FromSource, IntoSource, Worker, WorkerBuilder};

/// The README's examples compile.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
