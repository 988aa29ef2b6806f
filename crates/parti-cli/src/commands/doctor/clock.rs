//! This machine's clock against a server's.

use jiff::Timestamp;

use super::Findings;
use crate::show::age;

/// Beyond this, times that people read mislead, and a start by time is off.
const MOST_MS: u64 = 1_000;

/// Compares a server's clock with ours, which showed these times before and after it was asked.
pub fn check(told: Option<&str>, before_ms: u64, after_ms: u64, findings: &mut Findings) {
    let Some(told) = told.and_then(|told| told.parse::<Timestamp>().ok()) else {
        findings.ok("clock", "the server tells no time, and none is needed");
        return;
    };
    let server = u64::try_from(told.as_millisecond()).unwrap_or(0);
    // Anything between before and after is as good as equal.
    let off = if server < before_ms {
        before_ms - server
    } else {
        server.saturating_sub(after_ms)
    };
    if off <= MOST_MS {
        findings.ok("clock", format!("within {}ms of the server's", off.max(1)));
    } else {
        findings.warn(
            "clock",
            format!(
                "{} off the server's: leases do not mind, but ages, --to TIME and retention do; \
                 synchronise both (NTP)",
                age(off)
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn only_what_lies_outside_of_the_question_counts() {
        let at = |told: Option<&str>| {
            let mut findings = Findings::default();
            check(told, 10_000, 14_000, &mut findings);
            findings.0[0].level
        };
        assert_eq!(at(None), Level::Ok);
        assert_eq!(at(Some("1970-01-01T00:00:12Z")), Level::Ok);
        assert_eq!(at(Some("1970-01-01T00:00:09.5Z")), Level::Ok);
        assert_eq!(at(Some("1970-01-01T00:00:08Z")), Level::Warn);
        assert_eq!(at(Some("1970-01-01T00:00:16Z")), Level::Warn);
    }
}
