//! The JetStream source against real servers: workers come, go and are killed, servers and
//! connections fail, and every message is handled, in order.
#![cfg(feature = "nats")]

mod backlog;
mod business;
mod cluster;
mod faults;
mod handling;
mod ledger;
mod moves;
mod opening;
#[cfg(feature = "prometheus")]
mod readiness;
mod scene;
mod trial;
