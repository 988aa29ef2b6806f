//! `cargo xtask test`: every test there is, once.
//!
//! ```text
//! NEEDS, servers, tools ──▶ cargo test: unit, integration and documentation tests, in release
//!     │                       └─ crates/parti-sim/tests/seeds.rs: the standing 2,000 seeds
//!     └─▶ with the program that was built: the dashboard's modules in Node, the dashboard in a
//!         browser, the API against its description, crowds, groups of several languages
//! ```
//!
//! The simulation is one of the tests, so it is not run a second time here.
//!
//! A test that needs a server starts it through the crate `parti-servers`, which fetches what is
//! missing. That is done here once beforehand, so that it fails early and says what to do.

use std::fs;
use std::process::Command;

use crate::needs::{self, Need};
use crate::steps::{self, Step};
use crate::tools::{self, Tools};

/// Programs without which tests cannot run, apart from servers and tools.
const NEEDS: &[Need] = &[];

/// The dashboard's modules, and their tests.
const MODULES: &str = "crates/parti-serve/ui/tests";

/// Tests of the whole program, by what they are about.
const OUTSIDE: &[(&str, &str)] = &[
    ("the dashboard in a browser", "test_dashboard"),
    ("tokens and roles in a browser", "test_login"),
    ("the API against its description", "test_api"),
    ("crowds and bad company", "test_crowd"),
    ("several languages in one group", "test_languages"),
];

/// Cases for each operation of the API in a campaign.
const CAMPAIGN: &str = "200";

/// Runs all tests; true when all passed.
pub fn run() -> bool {
    needs::look_at_disk(&tools::target());
    if !needs::all_met(NEEDS) || !needs::servers_met() {
        return false;
    }
    let Some(tools) = Tools::get() else {
        return false;
    };
    let mut steps = vec![
        Step::cargo(
            "tests",
            "test --locked --workspace --release --no-fail-fast",
        )
        .env("PATH", tools.path()),
    ];
    steps.extend(outside(&tools));
    steps::run("test", steps, Vec::new())
}

/// Runs only what is outside of cargo, with the program as it is now.
pub fn run_outside() -> bool {
    with_program("e2e", outside)
}

/// Runs many more cases against the API; another seed, other cases.
pub fn campaign(seed: &str) -> bool {
    with_program("campaign", |tools| {
        vec![
            python(tools, "the API against its description", "test_api")
                .env("CASES", CAMPAIGN)
                .env("SEED", seed),
        ]
    })
}

/// Measures the dashboard.
pub fn numbers() -> bool {
    with_program("numbers", |tools| {
        let mut command = Command::new(&tools.python);
        command.arg("numbers.py");
        vec![at_home(
            tools,
            Step::command("the dashboard's numbers", command),
        )]
    })
}

fn with_program(title: &str, steps: impl FnOnce(&Tools) -> Vec<Step>) -> bool {
    let Some(tools) = Tools::get() else {
        return false;
    };
    let build = "build --locked --release --package parti-cli --bin parti";
    let mut all = vec![Step::cargo("build", build)];
    all.extend(steps(&tools));
    steps::run(title, all, Vec::new())
}

fn outside(tools: &Tools) -> Vec<Step> {
    let mut steps = vec![modules(tools)];
    let about = OUTSIDE.iter();
    steps.extend(about.map(|(name, module)| python(tools, name, module)));
    steps
}

fn modules(tools: &Tools) -> Step {
    let mut command = Command::new(&tools.node);
    command.args(["--test", "--test-reporter", "dot"]);
    let files = fs::read_dir(MODULES).into_iter().flatten().flatten();
    let mut files: Vec<_> = files
        .map(|file| file.path())
        .filter(|path| path.to_string_lossy().ends_with(".test.js"))
        .collect();
    files.sort();
    command.args(&files);
    Step::command("the dashboard's modules", command)
}

fn python(tools: &Tools, name: &str, module: &str) -> Step {
    let mut command = Command::new(&tools.python);
    command.args(["-m", "unittest", "--verbose", module]);
    at_home(tools, Step::command(name, command))
}

/// Where the tests are, with what they need to know.
fn at_home(tools: &Tools, step: Step) -> Step {
    step.within("e2e")
        .env("PARTI", tools::target().join("release/parti"))
        .env("CHROMIUM", &tools.chromium)
        // The sources stay as they are.
        .env("PYTHONDONTWRITEBYTECODE", "1")
}
