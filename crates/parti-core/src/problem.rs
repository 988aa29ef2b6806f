//! What a person gave that cannot be accepted: which field, which value, why, and what to do.

use std::fmt;

use crate::text::is_unseen;

/// The most characters of a value that a message repeats.
const SHOWN: usize = 60;

/// One thing that is wrong with something a person gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where, as a path such as `assignment.rebalance_cooldown`.
    pub field: String,
    /// The value, shortened, with what nobody sees escaped.
    pub value: String,
    /// What is wrong with it.
    pub what: String,
    /// What to do about it.
    pub remedy: String,
}

impl Problem {
    /// A problem with the value at `field`; the value is made safe to print.
    pub fn new(
        field: impl Into<String>,
        value: impl AsRef<str>,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            field: field.into(),
            value: shown(value.as_ref()),
            what: what.into(),
            remedy: remedy.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            field,
            value,
            what,
            remedy,
        } = self;
        write!(f, "{field}: {value} {what}; {remedy}")
    }
}

impl std::error::Error for Problem {}

/// Everything that is wrong, at once: at least one problem, in the order they were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// `Ok` when there is no problem.
    pub fn none_of(problems: Vec<Problem>) -> Result<(), Self> {
        if problems.is_empty() {
            Ok(())
        } else {
            Err(Self(problems))
        }
    }

    /// The problems.
    pub fn iter(&self) -> std::slice::Iter<'_, Problem> {
        self.0.iter()
    }

    /// How many there are.
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}

impl<'a> IntoIterator for &'a Problems {
    type Item = &'a Problem;
    type IntoIter = std::slice::Iter<'a, Problem>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// A value as messages show it: one line, shortened, nothing that could upset a terminal.
pub fn shown(value: &str) -> String {
    shown_up_to(value, SHOWN)
}

/// As [`shown`], with room for so many characters.
pub(crate) fn shown_up_to(value: &str, most: usize) -> String {
    let mut out = String::new();
    for (i, c) in value.chars().enumerate() {
        if i == most {
            out.push('…');
            break;
        }
        match c {
            '"' | '\'' | '\\' => out.push(c),
            // Some of these are letters, and count as what prints.
            c if is_unseen(c) && !c.is_control() => out.extend(c.escape_unicode()),
            // `escape_debug` leaves what prints alone, and escapes the rest.
            c => out.extend(c.escape_debug()),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_reads_as_one_line() {
        let problem = Problem::new("a.b", "x\ny\u{1b}[31m", "has a line break", "remove it");
        assert_eq!(
            problem.to_string(),
            "a.b: x\\ny\\u{1b}[31m has a line break; remove it"
        );
        assert_eq!(
            shown("a\u{3164}\u{fe0f}\u{ad}é"),
            "a\\u{3164}\\u{fe0f}\\u{ad}é"
        );
    }

    #[test]
    fn long_values_are_shortened() {
        let text = shown(&"ü".repeat(500));
        assert_eq!(text.chars().count(), SHOWN + 1);
        assert!(text.ends_with('…'));
    }
}
