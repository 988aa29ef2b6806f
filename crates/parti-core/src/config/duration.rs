//! Durations as people write them: `30s`, `500ms`, `1h30m`, `0`.

use std::time::Duration;

use jiff::SignedDuration;
use jiff::fmt::friendly::{Spacing, SpanPrinter};

static PRINTER: SpanPrinter = SpanPrinter::new().spacing(Spacing::None);

/// Reads a duration. Units are h, m, s, ms and us; only zero needs none. The error says what is wrong.
pub fn parse(text: &str) -> Result<Duration, &'static str> {
    let text = text.trim();
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("has no unit");
    }
    let signed: SignedDuration = text.parse().map_err(|_| "is no duration")?;
    Duration::try_from(signed).map_err(|_| "is negative")
}

/// Writes a duration so that [`parse`] yields it again.
pub fn show(duration: Duration) -> String {
    match SignedDuration::try_from(duration) {
        Ok(signed) => PRINTER.duration_to_string(&signed),
        // Beyond 292 billion years.
        Err(_) => format!("{}s", duration.as_secs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write() {
        for (text, micros) in [
            ("30s", 30_000_000),
            ("500ms", 500_000),
            ("1h30m", 5_400_000_000),
            ("1m0s", 60_000_000),
            ("24h", 86_400_000_000),
            ("1.5s", 1_500_000),
            ("250us", 250),
            ("250µs", 250),
            ("0", 0),
            ("0s", 0),
            (" 2s ", 2_000_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_micros(micros)), "{text}");
        }
    }

    #[test]
    fn what_is_refused() {
        for (text, why) in [
            ("2", "has no unit"),
            ("-5s", "is negative"),
            ("5s ago", "is negative"),
            ("", "is no duration"),
            ("s", "is no duration"),
            ("5 parsecs", "is no duration"),
            ("1e3s", "is no duration"),
            ("30s30s", "is no duration"),
            ("99999999999999999999h", "is no duration"),
            ("٣s", "is no duration"),
        ] {
            assert_eq!(parse(text), Err(why), "{text}");
        }
    }

    #[test]
    fn what_is_shown_reads_back() {
        for (millis, text) in [
            (0, "0s"),
            (500, "500ms"),
            (30_000, "30s"),
            (5_400_000, "1h30m"),
            (86_400_000, "24h"),
            (1_500, "1s500ms"),
        ] {
            let duration = Duration::from_millis(millis);
            assert_eq!(show(duration), text);
            assert_eq!(parse(text), Ok(duration));
        }
        let odd = Duration::new(3_723, 4_005_006);
        assert_eq!(parse(&show(odd)), Ok(odd));
        assert!(!show(Duration::MAX).is_empty());
    }
}
