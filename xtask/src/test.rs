//! `cargo xtask test`: every test there is, once.
//!
//! ```text
//! NEEDS ──▶ cargo test: unit, integration and documentation tests, in release
//!             └─ crates/parti-sim/tests/seeds.rs: the standing 2,000 seeds, and the regressions
//! ```
//!
//! The simulation is one of the tests, so it is not run a second time here.
//!
//! A test that needs a server finds it through what is set up here: put the server into [`NEEDS`],
//! and its address into the environment of the step that uses it.

use crate::needs::{self, Need};
use crate::steps::{self, Step};

/// Programs without which tests cannot run. The core and the simulator need none; the servers
/// that store and source tests talk to belong here.
const NEEDS: &[Need] = &[];

/// Runs all tests; true when all passed.
pub fn run() -> bool {
    needs::all_met(NEEDS)
        && steps::run(
            "test",
            vec![Step::cargo(
                "tests",
                "test --locked --workspace --release --no-fail-fast",
            )],
            Vec::new(),
        )
}
