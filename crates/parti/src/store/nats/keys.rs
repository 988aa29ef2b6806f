//! From a store key to a KV key and back, and which bucket a key lives in.
//!
//! ```text
//!   workers/orders/worker-0  ◀──▶  workers.orders.worker-0
//!   events/a.b/c d           ◀──▶  events.a/b.c=20d
//! ```
//!
//! A slash separates segments and becomes a dot, which separates tokens; a dot within a segment
//! becomes a slash, which is an ordinary character there. Everything else that a KV key must not
//! hold, and the escape character itself, becomes `=XX` for each byte. Segments are never empty, so
//! that no dot is doubled or stands at an end, and no wildcard survives.

use super::super::Scope;

/// The first segment of the keys that live in the bucket of checkpoints.
const CHECKPOINTS: &str = "partitions";

/// Which of the two buckets: checkpoints are written often and hardly watched, everything else is
/// rare and watched. Apart, a flush of thousands of checkpoints does not delay what is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Records,
    Checkpoints,
}

/// Where a key lives.
pub(super) fn side(key: &str) -> Side {
    match key.split('/').next() {
        Some(CHECKPOINTS) => Side::Checkpoints,
        _ => Side::Records,
    }
}

/// Where a scope's keys live, and the filter that matches exactly them there.
pub(super) fn places(scope: &Scope) -> Vec<(Side, String)> {
    match scope {
        Scope::Key(key) => vec![(side(key), encode(key))],
        Scope::Under(prefix) => match prefix.strip_suffix('/') {
            Some(segments) => vec![(side(segments), format!("{}.>", encode(segments)))],
            None => vec![(Side::Records, ">".into()), (Side::Checkpoints, ">".into())],
        },
    }
}

/// The KV key of a store key.
pub(super) fn encode(key: &str) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut text = String::with_capacity(key.len());
    for byte in key.bytes() {
        match byte {
            b'/' => text.push('.'),
            b'.' => text.push('/'),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => text.push(byte.into()),
            _ => {
                text.push('=');
                text.push(HEX[usize::from(byte >> 4)].into());
                text.push(HEX[usize::from(byte & 15)].into());
            }
        }
    }
    text
}

/// The store key of a KV key; `None` for what [`encode`] would not have made, which somebody else
/// put there.
pub(super) fn decode(text: &str) -> Option<String> {
    let mut key = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        key.push(match byte {
            b'.' => b'/',
            b'/' => b'.',
            b'=' => {
                let (high, low) = (bytes.next()?, bytes.next()?);
                let digit = |byte: u8| char::from(byte).to_digit(16);
                u8::try_from(digit(high)? * 16 + digit(low)?).ok()?
            }
            other => other,
        });
    }
    // Only the one spelling of a key counts: two KV keys must never be one store key.
    let key = String::from_utf8(key).ok()?;
    (super::super::check_key(&key).is_ok() && encode(&key) == text).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits_kv(text: &str) -> bool {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-/_=.".contains(c);
        text.chars().all(plain) && !text.split('.').any(str::is_empty)
    }

    #[test]
    fn keys_come_back_and_fit() {
        let long = "ü".repeat(256);
        let mut seen = std::collections::BTreeSet::new();
        for key in [
            "a",
            "a/b",
            "a.b",
            "a/.b",
            "a/b.",
            ".",
            "..",
            "a/./b",
            "a=b",
            "a/=2E",
            "a*",
            "*",
            ">",
            "a/>",
            "a b",
            "a\tb",
            "ä/ö",
            "日本/語",
            "$KV",
            "a\\b",
            "A",
            "_kv",
            "-",
            "=",
            "==",
            "%2F",
            "\u{1F980}",
            "a\r\nb",
            &long,
        ] {
            let text = encode(key);
            assert!(fits_kv(&text), "{key:?} becomes {text:?}");
            assert_eq!(decode(&text).as_deref(), Some(key));
            assert!(seen.insert(text), "{key:?} collides");
        }
    }

    #[test]
    fn every_character_comes_back() {
        for c in (1..0x3000).filter_map(char::from_u32).filter(|c| *c != '/') {
            let key = format!("x/{c}/{c}y");
            let text = encode(&key);
            assert!(fits_kv(&text) && decode(&text) == Some(key), "{c:?}");
        }
    }

    #[test]
    fn what_others_put_there_is_no_key() {
        for text in [
            "", "a..b", ".a", "a.", "a=2e", "a=41", "a=", "a=2", "a=FF", "a=00", "a=2F", "a b",
            "a*",
        ] {
            assert_eq!(decode(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_scope_knows_its_buckets() {
        use Side::{Checkpoints, Records};
        let under = |prefix: &str| places(&Scope::Under(prefix.into()));
        assert_eq!(under("workers/a.b/"), [(Records, "workers.a/b.>".into())]);
        assert_eq!(under("partitions/"), [(Checkpoints, "partitions.>".into())]);
        assert_eq!(under("").len(), 2);
        assert_eq!(
            places(&Scope::Key("partitions/g/p".into())),
            [(Checkpoints, "partitions.g.p".into())]
        );
        assert_eq!(side("partitionsx/g"), Records);
    }
}
