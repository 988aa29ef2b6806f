//! The way to NATS servers, which stores and sources share.
//!
//! ```text
//!   URL ──▶ connect::Servers ──▶ connect ──▶ Client, Health ──▶ link::Link ──▶ request, volley, JetStream API
//! ```

pub(crate) mod connect;
pub(crate) mod link;
pub(crate) mod volley;
