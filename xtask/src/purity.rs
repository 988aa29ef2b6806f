//! Purity: `parti-core` decides and does nothing else, and this keeps it so.
//!
//! ```text
//! crates it links     cargo tree ──▶ each on the list of allowed-crates.txt, or the check fails
//! paths it names      its sources ─▶ none of IMPURE
//! types it uses       clippy.toml, enforced by the lints of `verify`
//! ```
//!
//! `allowed-crates.txt` and `clippy.toml` lie in `crates/parti-core`.

use std::collections::BTreeSet;
use std::path::Path;

use crate::steps::{Step, cargo};
use crate::style;

/// Every crate that `parti-core` may link, directly or not, each with a reason.
const ALLOWED: &str = "crates/parti-core/allowed-crates.txt";

/// What the sources of `parti-core` must not name, and what to do instead.
const IMPURE: &[(&str, &[&str])] = &[
    (
        "take it as an argument",
        &["std::env", "std::fs", "std::io", "std::os"],
    ),
    (
        "return an action, and take its outcome as an event",
        &["std::net", "std::process", "std::thread"],
    ),
    (
        "the core never waits: return a deadline or an action",
        &["async fn", "async move", ".await"],
    ),
    (
        "the bans of clippy.toml have no exceptions",
        &["clippy::disallowed"],
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
    let list = match std::fs::read_to_string(ALLOWED) {
        Ok(list) => list,
        Err(error) => return vec![format!("cannot read {ALLOWED}: {error}")],
    };
    // For all targets: a dependency that only another platform has counts as well.
    let output = cargo()
        .args("tree --locked -p parti-core --edges normal --target all".split(' '))
        .args(["--prefix", "none", "--format", "{p}"])
        .output();
    match output {
        Ok(output) if output.status.success() => {
            let tree = String::from_utf8_lossy(&output.stdout);
            allowed(&list).map_or_else(|problems| problems, |names| newcomers(&names, &tree))
        }
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr);
            vec![format!("cargo tree failed: {}", why.trim())]
        }
        Err(error) => vec![format!("cargo tree cannot be started: {error}")],
    }
}

/// The names on the list: one `name: reason` per line. Or what is wrong with the list.
fn allowed(list: &str) -> Result<BTreeSet<&str>, Vec<String>> {
    let mut names = BTreeSet::new();
    let mut problems = Vec::new();
    for (number, line) in (1..).zip(list.lines().map(str::trim)) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match line.split_once(':') {
            Some((name, reason)) if !reason.trim().is_empty() => {
                if !names.insert(name.trim()) {
                    problems.push(format!("{ALLOWED}:{number}: `{name}` is there twice"));
                }
            }
            _ => problems.push(format!("{ALLOWED}:{number}: not `name: reason`")),
        }
    }
    if problems.is_empty() {
        Ok(names)
    } else {
        Err(problems)
    }
}

/// The crates of a dependency tree that are not on the list, each as a problem with its remedy.
fn newcomers(allowed: &BTreeSet<&str>, tree: &str) -> Vec<String> {
    let mut linked: BTreeSet<&str> = tree
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    if !linked.remove("parti-core") {
        return vec!["the dependency tree does not even hold parti-core".to_owned()];
    }
    linked
        .difference(allowed)
        .map(|name| {
            format!(
                "parti-core links `{name}`, which is not on the list (who brings it: cargo tree \
                 -p parti-core -e normal --target all -i {name}). Do without it, put it into \
                 another crate, or, if it is pure, add it to {ALLOWED} with the reason"
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
        for (remedy, names) in IMPURE {
            for name in names.iter().filter(|name| code.contains(**name)) {
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

    const LIST: &str = "# Why.\n\nserde: data\nserde_json:   of serde: text\n";

    fn newcomers_of(tree: &str) -> Vec<String> {
        newcomers(&allowed(LIST).expect("a good list"), tree)
    }

    #[test]
    fn a_crate_that_is_not_listed_is_named_with_the_remedy() {
        let problems = newcomers_of("parti-core v0.1.0 (x)\nserde v1.0.0\nrand v0.9.0\n");
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains("`rand`"), "{problems:?}");
        assert!(problems[0].contains(ALLOWED), "{problems:?}");
    }

    #[test]
    fn listed_crates_pass_however_often_they_come() {
        let tree = "parti-core v0.1.0\nserde v1.0.0\nserde v1.0.0 (*)\n\nserde_json v1.0.0\n";
        assert_eq!(newcomers_of(tree), Vec::<String>::new());
    }

    #[test]
    fn an_empty_tree_is_not_taken_for_a_pure_one() {
        assert_eq!(newcomers_of("").len(), 1);
    }

    #[test]
    fn the_list_needs_a_reason_for_each_and_each_once() {
        let problems = allowed("serde: data\nrand:\nitoa\nserde: again\n").expect_err("bad");
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(problems[0].contains(":2:") && problems[2].contains("twice"));
    }

    #[test]
    fn an_impure_path_is_found_with_its_line_but_not_in_a_comment() {
        let text = "//! Not std::fs.\nuse std::fs;\nlet x = 1; // std::net\n";
        let problems = impurities("a.rs", text);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].starts_with("a.rs:2: `std::fs`"), "{problems:?}");
    }
}
