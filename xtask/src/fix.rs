//! `cargo xtask fix`: repairs what a machine can repair. Look at the difference afterwards.

use crate::needs::{self, CLIPPY, RUSTFMT};
use crate::steps::{self, Step};

/// Applies clippy's own suggestions, then formats; true when both worked.
pub fn run() -> bool {
    needs::all_met(&[RUSTFMT, CLIPPY])
        && steps::run(
            "fix",
            vec![
                Step::cargo(
                    "clippy",
                    "clippy --fix --allow-dirty --allow-staged --workspace --all-targets --release",
                ),
                Step::cargo("format", "fmt --all"),
            ],
            Vec::new(),
        )
}
