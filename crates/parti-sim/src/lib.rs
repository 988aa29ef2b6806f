//! Deterministic simulation of Parti groups: seeded worlds that misbehave, and the invariants that
//! must survive them.
//!
//! ```text
//!  seed ──▶ setup     group, settings, machines, traffic      (all drawn before the run)
//!      └──▶ scenario  timed faults                             (data: can be shrunk)
//!                │
//!                ▼
//!              world ──▶ facts ──▶ invariants ──▶ outcome: a trace hash, perhaps a violation
//!                │
//!          process (one worker machine each)      model (store, stream, log)
//! ```

pub mod campaign;
pub mod commands;
pub mod facts;
pub mod fault;
pub mod invariants;
pub mod model;
pub mod process;
pub mod regressions;
pub mod scenario;
pub mod seen;
pub mod setup;
pub mod shrink;
pub mod strategies;
pub mod world;
