//! The NATS store against real servers: what the conformance suite cannot know.
#![cfg(feature = "nats")]

mod cluster;
mod mirror;
mod opening;
mod single;
