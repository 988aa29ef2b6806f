//! `cargo xtask test`: every test there is.
//!
//! ```text
//! NEEDS ──▶ cargo test (unit, integration, documentation) ──▶ a short simulation
//! ```
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
            vec![
                Step::cargo("tests", "test --workspace --release"),
                Step::cargo(
                    "simulation",
                    "run --release --quiet -p parti-sim -- run --seeds 2000",
                ),
            ],
            Vec::new(),
        )
}
