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
//!
//! Workers are the real ones of `parti-core`; only time, the store, the source and the handlers are
//! simulated. Everything follows from the seed: the same seed gives the same trace hash.
//!
//! ```
//! use parti_sim::campaign;
//!
//! let outcome = campaign::run_seed(1);
//! assert!(outcome.violation.is_none());
//! assert_eq!(outcome.hash, campaign::run_seed(1).hash);
//! ```
//!
//! A failing seed is replayed step by step (`replay`), made smaller ([`shrink`]), and kept for good
//! ([`regressions`]). [`invariants`] says what must hold, [`fault`] what can go wrong.

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
