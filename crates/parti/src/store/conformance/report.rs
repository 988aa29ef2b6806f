//! What a run of the suite found.

use std::fmt;
use std::time::Duration;

/// How one case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As the contract says.
    Passed,
    /// This store cannot be in that situation, for this reason.
    NotApplicable(&'static str),
    /// Against the contract.
    Failed(String),
}

/// One case of a report.
#[derive(Clone, Debug)]
pub struct Line {
    /// Which.
    pub case: String,
    /// How it ended.
    pub outcome: Outcome,
    /// How long it took: for people, nothing depends on it.
    pub took: Duration,
}

/// What a run found. `Display` prints one line per case, with the store's name.
#[derive(Clone, Debug)]
#[must_use = "call assert() to fail on what it found"]
pub struct Report {
    name: String,
    lines: Vec<Line>,
}

impl Report {
    pub(super) fn new(name: &str, lines: Vec<Line>) -> Self {
        Self {
            name: name.to_owned(),
            lines,
        }
    }

    /// Every case.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// The cases that failed, with the reason.
    pub fn failures(&self) -> Vec<(&str, &str)> {
        let failed = self.lines.iter().filter_map(|line| match &line.outcome {
            Outcome::Failed(why) => Some((line.case.as_str(), why.as_str())),
            Outcome::Passed | Outcome::NotApplicable(_) => None,
        });
        failed.collect()
    }

    /// Panics if a case failed, naming all that did; and if no case was run at all.
    pub fn assert(&self) {
        let failures = self.failures();
        assert!(!self.lines.is_empty(), "{}: no case was run", self.name);
        let list: String = failures
            .iter()
            .map(|(case, why)| format!("\n  {case}: {why}"))
            .collect();
        assert!(
            failures.is_empty(),
            "{} breaks the contract in {} of {} cases:{list}",
            self.name,
            failures.len(),
            self.lines.len(),
        );
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut passed, mut skipped) = (0, 0);
        for Line {
            case,
            outcome,
            took,
        } in &self.lines
        {
            write!(f, "{:<9} {case:<70} ", self.name)?;
            match outcome {
                Outcome::Passed => {
                    passed += 1;
                    writeln!(f, "ok {:>8.3} s", took.as_secs_f64())?;
                }
                Outcome::NotApplicable(why) => {
                    skipped += 1;
                    writeln!(f, "not applicable: {why}")?;
                }
                Outcome::Failed(why) => writeln!(f, "FAILED: {why}")?,
            }
        }
        let failed = self.lines.len() - passed - skipped;
        write!(
            f,
            "{}: {passed} passed, {failed} failed, {skipped} not applicable",
            self.name
        )
    }
}
