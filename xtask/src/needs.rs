//! What must be on the machine beside cargo, and what to say when it is not.
//!
//! Something that is *required* fails the run before it starts. Something *optional* is left out,
//! and the run says so, loudly, at its end: a check that did not run must not look like one that
//! passed.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::steps::{self, shout};

/// What a cold run of the tests puts on the disk, in gigabytes.
const COLD_RUN: u64 = 6;

/// One program that some step needs.
pub struct Need {
    /// What it is called.
    pub name: &'static str,
    /// A command that succeeds where the program is there.
    pub probe: &'static [&'static str],
    /// What it is for.
    pub purpose: &'static str,
    /// How to get it.
    pub remedy: &'static str,
}

/// For formatting.
pub const RUSTFMT: Need = Need {
    name: "rustfmt",
    probe: &["cargo", "fmt", "--version"],
    purpose: "formatting",
    remedy: "rustup component add rustfmt",
};

/// For lints.
pub const CLIPPY: Need = Need {
    name: "clippy",
    probe: &["cargo", "clippy", "--version"],
    purpose: "lints, and the ban on clocks and randomness in parti-core",
    remedy: "rustup component add clippy",
};

/// For licences, bans and sources of dependencies.
pub const CARGO_DENY: Need = Need {
    name: "cargo-deny",
    probe: &["cargo", "deny", "--version"],
    purpose: "the check of dependencies against deny.toml",
    remedy: "cargo install cargo-deny --locked",
};

impl Need {
    /// Whether the program is there.
    pub fn is_met(&self) -> bool {
        let [program, arguments @ ..] = self.probe else {
            return true;
        };
        Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    }

    /// What to say when it is not.
    pub fn complaint(&self) -> String {
        format!(
            "{} is missing: it is needed for {}.\nget it with: {}",
            self.name, self.purpose, self.remedy
        )
    }
}

/// Whether all of these are there; names every one that is not.
pub fn all_met(needs: &[Need]) -> bool {
    let mut met = true;
    for need in needs.iter().filter(|need| !need.is_met()) {
        shout(&need.complaint());
        met = false;
    }
    met
}

/// Whether the servers that tests talk to are there: nats-server, etcd, PostgreSQL. Those that are
/// not are fetched; what cannot be is named, with the command that gets it.
pub fn servers_met() -> bool {
    println!("==> servers");
    // In release, as the tests are built: it is compiled once for both.
    let words = "run --locked --quiet --release --package parti-servers -- install";
    steps::cargo()
        .args(words.split_whitespace())
        .stdin(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Says so where the disk has less than a cold run of the tests takes: a disk that is full half way
/// shows as anything but that. A warm run needs less, so it goes on.
pub fn look_at_disk(folder: &Path) {
    let asked = Command::new("df")
        .args(["--output=avail", "--block-size=1G"])
        .arg(nearest(folder))
        .stdin(Stdio::null())
        .output();
    // No such command, no such look.
    let Ok(answer) = asked else { return };
    if let Some(free) = gigabytes(&String::from_utf8_lossy(&answer.stdout))
        && free < COLD_RUN
    {
        shout(&format!(
            "{free} GB are free where cargo builds ({}); a run from cold takes about {COLD_RUN} GB.\n\
             if anything fails below, look at the disk first; CARGO_TARGET_DIR chooses another one",
            folder.display()
        ));
    }
}

/// The folder itself is made by the first build.
fn nearest(folder: &Path) -> &Path {
    let mut there = folder.ancestors().filter(|above| above.is_dir());
    there.next().unwrap_or(folder)
}

/// Of a heading and one number.
fn gigabytes(answer: &str) -> Option<u64> {
    answer.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABSENT: Need = Need {
        name: "a-program-nobody-has",
        probe: &["a-program-nobody-has", "--version"],
        purpose: "this test",
        remedy: "nothing",
    };
    const PRESENT: Need = Need {
        name: "cargo",
        probe: &["cargo", "--version"],
        purpose: "this test",
        remedy: "rustup",
    };

    #[test]
    fn one_missing_program_is_enough_to_fail() {
        assert!(all_met(&[PRESENT]));
        assert!(!all_met(&[PRESENT, ABSENT]));
    }

    #[test]
    fn free_space_is_read_off_what_df_prints() {
        assert_eq!(gigabytes("Avail\n   34\n"), Some(34));
        assert_eq!(gigabytes("df: no such file\n"), None);
        assert_eq!(nearest(Path::new("/no/such/folder")), Path::new("/"));
    }

    #[test]
    fn a_complaint_names_program_purpose_and_remedy() {
        let complaint = ABSENT.complaint();
        for part in [ABSENT.name, ABSENT.purpose, ABSENT.remedy] {
            assert!(complaint.contains(part), "{complaint}");
        }
    }
}
