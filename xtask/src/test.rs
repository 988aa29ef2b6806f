//! `cargo xtask test`: every test there is, once.
//!
//! ```text
//! NEEDS, servers ──▶ cargo test: unit, integration and documentation tests, in release
//!             └─ crates/parti-sim/tests/seeds.rs: the standing 2,000 seeds, and the regressions
//! ```
//!
//! The simulation is one of the tests, so it is not run a second time here.
//!
//! A test that needs a server starts it through the crate `parti-servers`, which fetches what is
//! missing. That is done here once beforehand, so that it fails early and says what to do.

use crate::needs::{self, Need};
use crate::steps::{self, Step};

/// Programs without which tests cannot run, apart from servers.
const NEEDS: &[Need] = &[];

/// Runs all tests; true when all passed.
pub fn run() -> bool {
    needs::all_met(NEEDS)
        && needs::servers_met()
        && steps::run(
            "test",
            vec![Step::cargo(
                "tests",
                "test --locked --workspace --release --no-fail-fast",
            )],
            Vec::new(),
        )
}
