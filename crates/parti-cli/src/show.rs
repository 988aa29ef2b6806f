//! How results are shown: tables for people, JSON and YAML for programs.

use clap::ValueEnum;
use jiff::Timestamp;
use parti::core::config::show_duration;
use parti::core::text;
use serde::Serialize;

use crate::exit::Failure;
use crate::lines::print;

/// How a result is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Shape {
    /// For people
    #[default]
    Table,
    /// For programs
    Json,
    /// For programs and people
    Yaml,
}

/// Prints a result.
pub fn show<T: Serialize>(
    shape: Shape,
    value: &T,
    table: impl FnOnce(&T) -> String,
) -> Result<(), Failure> {
    let text = match shape {
        Shape::Table => table(value),
        Shape::Json => {
            let text = serde_json::to_string_pretty(value).map_err(Failure::failed)?;
            format!("{text}\n")
        }
        Shape::Yaml => serde_saphyr::to_string(value).map_err(Failure::failed)?,
    };
    print(&text)
}

/// The word that a value has in JSON, such as `post_cold_start`.
pub fn word(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

/// Now, in milliseconds since the Unix epoch.
pub fn now_ms() -> u64 {
    u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0)
}

/// A time as RFC 3339; a dash for none.
pub fn time(ms: u64) -> String {
    let time = i64::try_from(ms).ok().filter(|ms| *ms > 0);
    let time = time.and_then(|ms| Timestamp::from_millisecond(ms).ok());
    time.map_or_else(|| "-".to_owned(), |time| format!("{time:.3}"))
}

/// How long ago, roughly: `1.2s`, `40s`, `5m`, `3h`, `9d`.
pub fn age(ms: u64) -> String {
    let rounded = match ms {
        0..10_000 => ms - ms % 100,
        10_000..120_000 => ms - ms % 1_000,
        120_000..7_200_000 => ms - ms % 60_000,
        _ => ms - ms % 3_600_000,
    };
    match rounded {
        0 => "0s".to_owned(),
        172_800_000.. => format!("{}d", rounded / 86_400_000),
        1_000..10_000 if rounded % 1_000 != 0 => {
            format!("{}.{}s", rounded / 1_000, rounded % 1_000 / 100)
        }
        _ => show_duration(std::time::Duration::from_millis(rounded)),
    }
}

/// Text that somebody else wrote, for a terminal: whatever would steer it, begin a new line, or make
/// two names look the same, is written out.
pub fn plain(text: &str) -> String {
    written_out(text, text::is_unseen)
}

/// The same for a text of several lines.
pub fn plain_lines(text: &str) -> String {
    written_out(text, |c| text::is_unseen(c) && c != '\n')
}

fn written_out(text: &str, hidden: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if hidden(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// A count with its word: `1 worker`, `2 workers`.
pub fn count(number: usize, word: &str) -> String {
    text::count(number as u64, word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short() {
        for (ms, text) in [
            (0, "0s"),
            (40, "0s"),
            (1_240, "1.2s"),
            (2_000, "2s"),
            (300, "300ms"),
            (65_900, "1m5s"),
            (185_000, "3m"),
            (7_200_000, "2h"),
            (90_000_000, "25h"),
            (259_200_000, "3d"),
        ] {
            assert_eq!(age(ms), text, "{ms}");
        }
    }

    #[test]
    fn what_would_steer_a_terminal_is_written_out() {
        assert_eq!(plain("a\u{1b}[2Jb\tc\nd é"), "a\\u{1b}[2Jb\\tc\\nd é");
        assert_eq!(plain_lines("a\tb\nc"), "a\\tb\nc");
    }

    #[test]
    fn times_are_rfc_3339() {
        assert_eq!(time(1_700_000_000_123), "2023-11-14T22:13:20.123Z");
        assert_eq!(time(0), "-");
    }
}
