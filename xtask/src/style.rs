//! Style: the rules about sources that neither rustfmt nor clippy knows.
//!
//! ```text
//! every text file     no path of somebody's machine
//! every .rs file      starts with a `//!` comment; at most 700 lines; nothing left undone;
//!                     no ignored test
//! core and simulator  no sleeping: time is data there
//! ```

use std::fs;
use std::path::Path;

use crate::steps::Step;

/// The most lines a source file may have. A longer one has more than one subject.
const MOST_LINES: usize = 700;

/// Files that are read; others (images, locks, archives) have no style.
const TEXT: &[&str] = &["rs", "md", "toml", "yaml", "yml", "json", "sh", "txt"];

/// Directories that hold what was made, not written.
const MADE: &[&str] = &["target", "node_modules", ".git"];

/// Macros that mark something left undone.
const UNDONE: &[&str] = &["todo", "unimplemented", "dbg"];

/// First directories of absolute paths that exist on one machine only.
const MACHINE: &[&str] = &["home", "root", "Users", "work", "mnt"];

/// Where nothing may sleep.
const TIMELESS: &[&str] = &["crates/parti-core/", "crates/parti-sim/"];

/// A file as this check sees it.
pub struct Source {
    /// Its path from the workspace's root, with forward slashes.
    pub path: String,
    /// Its content.
    pub text: String,
}

/// The steps of this check.
pub fn steps() -> Vec<Step> {
    vec![Step::check("style", || {
        match sources_under(Path::new(".")) {
            Ok(sources) => sources.iter().flat_map(problems).collect(),
            Err(error) => vec![error],
        }
    })]
}

/// All text files under a directory, sorted by path.
pub fn sources_under(directory: &Path) -> Result<Vec<Source>, String> {
    let mut sources = Vec::new();
    collect(directory, &mut sources)?;
    if sources.is_empty() {
        return Err(format!("no sources under {}", directory.display()));
    }
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(sources)
}

fn collect(directory: &Path, sources: &mut Vec<Source>) -> Result<(), String> {
    let failed = |error| format!("cannot read {}: {error}", directory.display());
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if path.is_dir() {
            if !MADE.contains(&name.as_str()) {
                collect(&path, sources)?;
            }
            continue;
        }
        let in_ci = path.components().any(|part| part.as_os_str() == ".ci");
        let extension = path
            .extension()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if in_ci || TEXT.contains(&extension.as_str()) {
            let text = fs::read_to_string(&path)
                .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
            let path = path.to_string_lossy().replace('\\', "/");
            sources.push(Source {
                path: path.trim_start_matches("./").to_owned(),
                text,
            });
        }
    }
    Ok(())
}

/// Everything that is wrong with one file.
fn problems(source: &Source) -> Vec<String> {
    let Source { path, text } = source;
    let mut problems = Vec::new();
    let is_rust = path.ends_with(".rs");

    let lines = text.lines().count();
    if is_rust && lines > MOST_LINES {
        problems.push(format!(
            "{path}: {lines} lines; split it, {MOST_LINES} are the most"
        ));
    }
    if is_rust && !text.starts_with("//!") {
        problems.push(format!(
            "{path}:1: must start with a `//!` comment that says what it is for"
        ));
    }
    for (number, line) in (1..).zip(text.lines()) {
        let mut found = |what: String| problems.push(format!("{path}:{number}: {what}"));
        if let Some(machine) = machine_path(line) {
            found(format!("`{machine}` is a path of one machine"));
        }
        if !is_rust {
            continue;
        }
        for undone in UNDONE {
            if line.contains(&format!("{undone}!(")) {
                found(format!("`{undone}!`: finish it"));
            }
        }
        if line.contains(&format!("#[{}", "ignore")) {
            found("an ignored test proves nothing: mend it or remove it".to_owned());
        }
        let timeless = TIMELESS.iter().any(|start| path.starts_with(start));
        if timeless && line.contains(&format!("{}(", "sleep")) {
            found("nothing sleeps here: time is an argument".to_owned());
        }
    }
    problems
}

/// The start of an absolute path that makes sense on one machine only.
fn machine_path(line: &str) -> Option<String> {
    MACHINE
        .iter()
        .map(|first| format!("/{first}/"))
        .find(|start| {
            line.match_indices(start.as_str()).any(|(at, _)| {
                // `a/home/b` is a relative path, `https://host/home/b` an address.
                let before = line[..at].chars().next_back();
                before.is_none_or(|c| !c.is_alphanumeric() && !"./_-~}>)*".contains(c))
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems_of(path: &str, text: &str) -> Vec<String> {
        problems(&Source {
            path: path.to_owned(),
            text: text.to_owned(),
        })
    }

    #[test]
    fn a_clean_file_has_no_problems() {
        assert!(
            problems_of("crates/a/src/lib.rs", "//! What it is.\n\npub fn f() {}\n").is_empty()
        );
    }

    #[test]
    fn each_rule_is_able_to_fail() {
        let long = format!("//! Long.\n{}", "\n".repeat(MOST_LINES));
        let cases = [
            ("a.rs", "fn f() {}\n".to_owned(), "must start"),
            ("a.rs", long, "split it"),
            ("a.rs", format!("//! A.\n{}!()\n", UNDONE[0]), "finish it"),
            ("a.rs", format!("//! A.\n#[{}]\n", "ignore"), "ignored test"),
            (
                "a.md",
                format!("see `/{}/me/x`\n", MACHINE[0]),
                "one machine",
            ),
            (
                "crates/parti-sim/src/a.rs",
                format!("//! A.\n{}(d)\n", "sleep"),
                "nothing sleeps",
            ),
        ];
        for (path, text, expected) in cases {
            let problems = problems_of(path, &text);
            assert_eq!(problems.len(), 1, "{expected}: {problems:?}");
            assert!(problems[0].contains(expected), "{problems:?}");
        }
    }

    #[test]
    fn the_longest_allowed_file_passes() {
        let text = format!("//! A.\n{}", "\n".repeat(MOST_LINES - 1));
        assert!(problems_of("a.rs", &text).is_empty());
    }

    #[test]
    fn relative_paths_and_addresses_are_no_machine_paths() {
        for first in MACHINE {
            assert_eq!(machine_path(&format!("see docs/{first}/a")), None);
            assert_eq!(
                machine_path(&format!("https://example.org/{first}/a")),
                None
            );
            assert!(machine_path(&format!("\"/{first}/a\"")).is_some());
        }
    }

    #[test]
    fn sleeping_is_allowed_where_time_is_real() {
        assert!(problems_of("crates/parti/src/a.rs", "//! A.\nsleep(d)\n").is_empty());
    }
}
