//! `cargo xtask verify`: everything that a reviewer would complain about. Never writes to the
//! sources or to `Cargo.lock`; the target directory is all it touches.

use crate::needs::{self, CARGO_DENY, CLIPPY, RUSTFMT};
use crate::steps::{self, Step};
use crate::{purity, style};

/// Runs all checks; true when all passed.
pub fn run() -> bool {
    if !needs::all_met(&[RUSTFMT, CLIPPY]) {
        return false;
    }
    // The release profile here too: procedural macros and build scripts are then already built.
    let mut steps =
        vec![
        Step::cargo("format", "fmt --all --check"),
        Step::cargo(
            "lints",
            "clippy --locked --workspace --all-targets --release -- --deny warnings",
        ),
        Step::cargo(
            "lints with planted bugs",
            "clippy --locked -p parti-core -p parti-sim --all-targets --release -- --deny warnings",
        )
        .env("RUSTFLAGS", planted_flags()),
        Step::cargo("documentation", "doc --locked --workspace --no-deps --release")
            .env("RUSTDOCFLAGS", "--deny warnings"),
    ];
    steps.extend(purity::steps());
    steps.extend(style::steps());

    let mut warnings = Vec::new();
    if CARGO_DENY.is_met() {
        steps.push(Step::cargo(
            "dependencies",
            "deny --locked check bans licenses sources",
        ));
    } else {
        warnings.push(format!(
            "NOT CHECKED: dependencies. {}",
            CARGO_DENY.complaint()
        ));
    }
    steps::run("verify", steps, warnings)
}

/// The caller's own flags, and the one that compiles planted bugs in.
fn planted_flags() -> String {
    let own = std::env::var("RUSTFLAGS").unwrap_or_default();
    format!("{own} --cfg parti_planted").trim().to_owned()
}
