//! Purity: `parti-core` decides and does nothing else, and this keeps it so.
//!
//! ```text
//! crates it links     cargo tree ──▶ each on the list ALLOWED, or the check fails
//! paths it names      its sources ─▶ none of IMPURE
//! types it uses       crates/parti-core/clippy.toml, enforced by the lints of `verify`
//! ```
//!
//! To add a dependency, add a line to [`ALLOWED`] with the reason, after making sure that the
//! crate (with the features used) reads no clock, draws no randomness and does no I/O.

use std::collections::BTreeSet;
use std::path::Path;

use crate::steps::{Step, cargo};
use crate::style;

/// Every crate that `parti-core` may link, directly or not, and why it is harmless.
const ALLOWED: &[(&str, &str)] = &[
    ("parti-core", "itself"),
    // At run time.
    ("serde", "records and configuration as data"),
    ("serde_core", "part of serde"),
    (
        "serde_json",
        "records are JSON; used on strings and bytes only",
    ),
    ("itoa", "of serde_json: integers to text"),
    ("memchr", "of serde_json: search in bytes"),
    ("zmij", "of serde_json: floats to text"),
    ("thiserror", "error types"),
    (
        "xxhash-rust",
        "the one hash whose outputs are part of the format",
    ),
    // At compile time only.
    ("serde_derive", "macro of serde"),
    ("thiserror-impl", "macro of thiserror"),
    ("proc-macro2", "of the macros"),
    ("quote", "of the macros"),
    ("syn", "of the macros"),
    ("unicode-ident", "of the macros"),
];

/// What the sources of `parti-core` must not name, and what to use instead.
const IMPURE: &[(&str, &str)] = &[
    ("std::env", "take it as an argument"),
    (
        "std::fs",
        "return an action, or take the content as an argument",
    ),
    (
        "std::io",
        "return an action, or take the content as an argument",
    ),
    ("std::net", "return an action"),
    ("std::os", "take it as an argument"),
    ("std::process", "return an action"),
    ("std::thread", "return an action"),
    (
        "async fn",
        "return an action, and take its outcome as an event",
    ),
    (
        "async move",
        "return an action, and take its outcome as an event",
    ),
    (
        ".await",
        "return an action, and take its outcome as an event",
    ),
];

/// The steps of this check.
pub fn steps() -> Vec<Step> {
    vec![
        Step::check("purity: crates that parti-core links", linked_crates),
        Step::check("purity: what parti-core names", named_paths),
    ]
}

fn linked_crates() -> Vec<String> {
    // For all targets: a dependency that only another platform has counts as well.
    let output = cargo()
        .args("tree --locked -p parti-core --edges normal --target all".split(' '))
        .args(["--prefix", "none", "--format", "{p}"])
        .output();
    match output {
        Ok(output) if output.status.success() => {
            newcomers(&String::from_utf8_lossy(&output.stdout))
        }
        Ok(output) => {
            vec![format!(
                "cargo tree failed: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            )]
        }
        Err(error) => vec![format!("cargo tree cannot be started: {error}")],
    }
}

/// The crates of a dependency tree that are not on the list, each as a problem with its remedy.
fn newcomers(tree: &str) -> Vec<String> {
    let linked: BTreeSet<&str> = tree
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    if !linked.contains("parti-core") {
        return vec!["the dependency tree does not even hold parti-core".to_owned()];
    }
    linked
        .into_iter()
        .filter(|name| ALLOWED.iter().all(|(allowed, _)| allowed != name))
        .map(|name| {
            format!(
                "parti-core links `{name}`, which is not on the list (who brings it: cargo tree \
                 -p parti-core -e normal --target all -i {name}). Do without it, put it into \
                 another crate, or, if it is pure, add it to ALLOWED in xtask/src/purity.rs with \
                 the reason"
            )
        })
        .collect()
}

fn named_paths() -> Vec<String> {
    let sources = match style::sources_under(Path::new("crates/parti-core/src")) {
        Ok(sources) => sources,
        Err(error) => return vec![error],
    };
    sources
        .iter()
        .flat_map(|source| impurities(&source.path, &source.text))
        .collect()
}

/// What a source names that it must not. Comments may say what they like.
fn impurities(path: &str, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let code = line.split("//").next().unwrap_or_default();
        for (name, remedy) in IMPURE {
            if code.contains(name) {
                problems.push(format!(
                    "{path}:{number}: `{name}` in the pure core; {remedy}"
                ));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_that_is_not_listed_is_named_with_the_remedy() {
        let problems = newcomers("parti-core v0.1.0 (/somewhere)\nserde v1.0.0\nrand v0.9.0\n");
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(
            problems[0].contains("`rand`") && problems[0].contains("ALLOWED"),
            "{problems:?}"
        );
    }

    #[test]
    fn listed_crates_pass_however_often_they_come() {
        assert!(newcomers("parti-core v0.1.0\nserde v1.0.0\nserde v1.0.0 (*)\n\n").is_empty());
    }

    #[test]
    fn an_empty_tree_is_not_taken_for_a_pure_one() {
        assert_eq!(newcomers("").len(), 1);
    }

    #[test]
    fn no_crate_is_listed_twice_or_without_a_reason() {
        let names: BTreeSet<&str> = ALLOWED.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), ALLOWED.len());
        assert!(ALLOWED.iter().all(|(_, reason)| !reason.is_empty()));
    }

    #[test]
    fn an_impure_path_is_found_with_its_line_but_not_in_a_comment() {
        let text = "//! Not std::fs.\nuse std::fs;\nlet x = 1; // std::net\n";
        let problems = impurities("a.rs", text);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].starts_with("a.rs:2: `std::fs`"), "{problems:?}");
    }
}
