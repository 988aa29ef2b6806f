//! The pure core of Parti: every decision of a consumer group, and nothing else.
//!
//! Nothing here does I/O, reads a clock or draws randomness: time and entropy come in as
//! arguments, effects go out as values. The same code therefore runs in production, in the
//! simulator and in unit tests.
//!
//! ```text
//!            Event                     worker::Worker                     Action
//!  store reply ─────┐   ┌──────────────────────────────────────────┐   ┌──▶ store request
//!  watch change ────┤   │ session   id claim, heartbeat, lease     │   ├──▶ source request
//!  deadline ────────┼──▶│ election  who leads, under which term    │──▶├──▶ handle a message
//!  source message ──┤   │ leader    who should serve what          │   ├──▶ report
//!  handler result ──┘   │ holding   take, commit, release          │   └──▶ …
//!                       │ lane/feed order, retry, splice, progress │
//!                       └──────────────────────────────────────────┘
//! ```

#[macro_use]
pub mod planted;

pub mod codec;
pub mod config;
pub mod feed;
pub mod ids;
pub mod io;
pub mod key;
pub mod lane;
pub mod leader;
pub mod partition;
pub mod problem;
pub mod record;
pub mod rng;
pub mod session;
pub mod strategy;
pub mod time;
pub mod worker;
