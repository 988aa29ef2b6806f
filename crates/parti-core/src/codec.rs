//! The one place that turns user-supplied keys into ids, store keys and subjects.
//!
//! ```text
//!   keys                          tokens                    canonical id
//!   ["tool001", "chamber1"] ──▶ tool001, chamber1  ──▶ tool001.chamber1 ──▶ partitions/tool001.chamber1
//!   ["a.b"]                 ──▶ a=2Eb              ──▶ a=2Eb
//!                           ◀──                    ◀──
//!   ["a.b", "x/y"]          ──────────────────────────▶ dc.a=2Eb.x/y.completion
//!                           ◀──                    ◀──  (a subject, by template)
//! ```
//!
//! In ids a byte outside `[A-Za-z0-9_-]` becomes `=XX` (uppercase hex); tokens are joined by dots.
//! Decoding accepts exactly what encoding yields, so the mapping is a bijection: two different
//! lists of keys never share an id, and every id has one spelling. The alphabet is safe in NATS KV
//! keys, in etcd, in SQL and in file names. Subjects hold more as it is, and are a bijection, too.

pub mod template;

pub use template::Template;

use crate::ids::{PartitionId, WorkerId};
use crate::problem::Problem;
use crate::text::is_unseen;

/// The longest partition id, in bytes, after escaping.
pub const MAX_ID: usize = 200;
/// The longest group name, worker-id prefix or consumer prefix, in bytes.
pub const MAX_NAME: usize = 64;
/// The longest topic name, in bytes, after escaping.
pub const MAX_TOPIC: usize = 200;

/// Marks a store key's segment that holds a name which is no canonical id. No canonical id
/// contains it, because there `=` is always followed by two hex digits.
const FOREIGN: &str = "=-";

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

/// One key as a token: total, injective; empty only for the empty key.
pub fn escape(key: &str) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut token = String::with_capacity(key.len());
    for byte in key.bytes() {
        if is_plain(byte) {
            token.push(char::from(byte));
        } else {
            token.push('=');
            token.push(char::from(HEX[usize::from(byte >> 4)]));
            token.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
    token
}

/// The key that a token stands for; `None` for anything that [`escape`] does not yield.
pub fn unescape(token: &str) -> Option<String> {
    fn hex(digit: u8) -> Option<u8> {
        match digit {
            b'0'..=b'9' => Some(digit - b'0'),
            b'A'..=b'F' => Some(digit - b'A' + 10),
            _ => None,
        }
    }
    let mut key = Vec::with_capacity(token.len());
    let mut bytes = token.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'=' {
            let value = hex(bytes.next()?)? << 4 | hex(bytes.next()?)?;
            // What needs no escape must not have one: every key has one spelling only.
            if is_plain(value) {
                return None;
            }
            key.push(value);
        } else if is_plain(byte) {
            key.push(byte);
        } else {
            return None;
        }
    }
    String::from_utf8(key).ok()
}

/// One key as a token of a subject: itself, wherever a subject can hold it, because streams that are
/// there already have their own subjects. What no token can hold is escaped as in [`escape`], and so
/// is what would read like an escape. `first`: the subject begins with it, where `$` is the server's.
pub fn subject_token(key: &str, first: bool) -> String {
    let mut token = String::with_capacity(key.len());
    for (at, c) in key.char_indices() {
        let reads_like_an_escape = c == '=' && begins_with_hex(&key[at + 1..]);
        let is_servers = c == '$' && first && at == 0;
        if reads_like_an_escape || is_servers || !fits_subject(c) {
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                token.push_str(&format!("={byte:02X}"));
            }
        } else {
            token.push(c);
        }
    }
    token
}

/// The key that a token of a subject stands for; `None` for anything that [`subject_token`] does not
/// yield.
pub fn key_of_subject_token(token: &str, first: bool) -> Option<String> {
    let mut key = Vec::with_capacity(token.len());
    let mut rest = token;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        if c == '=' && begins_with_hex(rest) {
            key.push(u8::from_str_radix(&rest[..2], 16).ok()?);
            rest = &rest[2..];
        } else {
            key.extend(c.encode_utf8(&mut [0; 4]).bytes());
        }
    }
    let key = String::from_utf8(key).ok()?;
    // Every key has one spelling only.
    (subject_token(&key, first) == token).then_some(key)
}

fn fits_subject(c: char) -> bool {
    !(matches!(c, '.' | '*' | '>') || c.is_control() || c.is_whitespace() || is_unseen(c))
}

fn begins_with_hex(text: &str) -> bool {
    let is_hex = |byte: &u8| byte.is_ascii_digit() || (b'A'..=b'F').contains(byte);
    let digits = text.as_bytes().get(..2);
    digits.is_some_and(|digits| digits.iter().all(is_hex))
}

/// The canonical id of a partition with these keys, outermost first.
pub fn partition_id<K: AsRef<str>>(keys: &[K]) -> Result<PartitionId, Problem> {
    if keys.is_empty() {
        return Err(Problem::new(
            "keys",
            "[]",
            "has no key",
            "give each partition at least one key",
        ));
    }
    let mut id = String::new();
    for (i, key) in keys.iter().map(AsRef::as_ref).enumerate() {
        if key.is_empty() {
            return Err(Problem::new(
                format!("keys[{i}]"),
                "\"\"",
                "is empty",
                "give it at least one character, or leave the key out",
            ));
        }
        if i > 0 {
            id.push('.');
        }
        id.push_str(&escape(key));
        if id.len() > MAX_ID {
            return Err(Problem::new(
                format!("keys[{i}]"),
                key,
                format!("makes the partition's id longer than {MAX_ID} bytes"),
                "use shorter or fewer keys (a byte outside A-Z a-z 0-9 _ - counts three times)",
            ));
        }
    }
    Ok(PartitionId::new(id))
}

/// The keys that a canonical id stands for; `None` for anything that [`partition_id`] does not yield.
pub fn keys_of(id: &str) -> Option<Vec<String>> {
    if id.len() > MAX_ID {
        return None;
    }
    id.split('.')
        .map(|token| unescape(token).filter(|key| !key.is_empty()))
        .collect()
}

/// Whether this is an id that [`partition_id`] can yield.
pub fn is_canonical(id: &str) -> bool {
    // The common case without any escape needs no allocation: plans hold thousands of ids.
    let plain = id.len() <= MAX_ID
        && id
            .split('.')
            .all(|token| !token.is_empty() && token.bytes().all(is_plain));
    plain || keys_of(id).is_some()
}

/// Checks a name that appears unescaped in places with narrow rules (NATS bucket and consumer
/// names): group names, worker-id prefixes, consumer prefixes.
pub fn check_name(field: &str, name: &str) -> Result<(), Problem> {
    let what = if name.is_empty() {
        return Err(Problem::new(
            field,
            "\"\"",
            "is empty",
            format!("give it a name of 1 to {MAX_NAME} characters of A-Z a-z 0-9 _ -"),
        ));
    } else if name.len() > MAX_NAME {
        format!("is longer than {MAX_NAME} bytes")
    } else if let Some(bad) = name.chars().find(|&c| !u8::try_from(c).is_ok_and(is_plain)) {
        format!("contains '{}'", crate::problem::shown(&bad.to_string()))
    } else {
        return Ok(());
    };
    Err(Problem::new(
        field,
        name,
        what,
        format!("use 1 to {MAX_NAME} characters of A-Z a-z 0-9 _ -"),
    ))
}

/// Checks a group's name.
pub fn check_group(name: &str) -> Result<(), Problem> {
    check_name("group", name)
}

/// Checks the name of something that is about to be made, a group, a topic or a consumer: people will
/// read it in tables and logs, and type it. Two names that look the same must not be two, nor may
/// one look like none. What is there already goes on, and can be looked at and ended, under any name.
pub fn check_readable(field: &str, name: &str) -> Result<(), Problem> {
    let (what, remedy) = if let Some(bad) = name.chars().find(|c| is_unseen(*c)) {
        let kind = if bad.is_control() {
            "control"
        } else {
            "invisible"
        };
        let bad = bad.escape_default();
        (
            format!("contains the {kind} character '{bad}'"),
            "leave it out",
        )
    } else if name.is_empty() {
        ("is empty".into(), "give it a name")
    } else if name.trim().is_empty() {
        (
            "is nothing but space".into(),
            "give it a name that can be seen",
        )
    } else if name.trim() != name {
        ("begins or ends with a space".into(), "leave that out")
    } else {
        return Ok(());
    };
    // In quotes: else a space at an end could not be told.
    Err(Problem::new(field, format!("\"{name}\""), what, remedy))
}

/// The stable id with this number. The prefix comes from a validated configuration.
pub fn worker_id(prefix: &str, number: u64) -> WorkerId {
    WorkerId::new(format!("{prefix}-{number}"))
}

/// The number in a stable id with this prefix; `None` if [`worker_id`] does not yield it.
pub fn worker_number(prefix: &str, worker: &WorkerId) -> Option<u64> {
    let digits = worker.as_str().strip_prefix(prefix)?.strip_prefix('-')?;
    let number = digits.parse().ok()?;
    (worker_id(prefix, number) == *worker).then_some(number)
}

/// Any name as one segment of a store key: canonical ids as they are, everything else escaped
/// and marked. Total and injective, so that not even a wrong id can reach into another's key.
pub(crate) fn segment(name: &str) -> String {
    if is_canonical(name) {
        name.to_owned()
    } else {
        format!("{FOREIGN}{}", escape(name))
    }
}

/// The name that a segment stands for; `None` for anything that [`segment`] does not yield.
pub(crate) fn name_of_segment(segment: &str) -> Option<String> {
    match segment.strip_prefix(FOREIGN) {
        Some(token) => unescape(token).filter(|name| !is_canonical(name)),
        None => is_canonical(segment).then(|| segment.to_owned()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::rng::Rng;

    /// Names that have broken somebody's key scheme before.
    pub(crate) const HOSTILE: &[&str] = &[
        "",
        ".",
        "..",
        "a.b",
        "a..b",
        ".a",
        "a.",
        "*",
        ">",
        "a.*",
        "/",
        "a/b",
        "../x",
        "\\",
        " ",
        "a b",
        "\t",
        "\n",
        "\0",
        "\u{7f}",
        "=",
        "==",
        "=2E",
        "=2e",
        "=61",
        "=-",
        "=-a",
        "%2E",
        "ü",
        "日本",
        "\u{202e}x",
        "{0}",
        "{id}",
        "$JS",
        "_INBOX",
        "workers",
        "leader",
        "-",
        "_",
        "--",
        "a=",
        "a=2",
        "=C3=BC",
        "=FF",
        "A",
        "a",
        "0",
        "00",
        "🦀",
        "'; drop table",
        "a\u{301}",
    ];

    #[test]
    fn examples() {
        let id = |keys: &[&str]| partition_id(keys).map(|id| id.to_string());
        assert_eq!(id(&["tool001", "chamber1"]), Ok("tool001.chamber1".into()));
        assert_eq!(id(&["a.b"]), Ok("a=2Eb".into()));
        assert_eq!(id(&["a=b", "ü *"]), Ok("a=3Db.=C3=BC=20=2A".into()));
        assert_eq!(
            keys_of("a=2Eb.c"),
            Some(vec!["a.b".to_owned(), "c".to_owned()])
        );
    }

    #[test]
    fn decoding_accepts_only_what_encoding_yields() {
        for wrong in [
            "", ".", "a.", ".a", "a..b", "=61", "=2e", "=2", "=", "a b", "ü", "=FF", "=-a", "a/b",
        ] {
            assert_eq!(keys_of(wrong), None, "{wrong:?}");
            assert!(!is_canonical(wrong), "{wrong:?}");
        }
        assert_eq!(keys_of(&"a".repeat(MAX_ID + 1)), None);
    }

    #[test]
    fn hostile_keys_come_back_and_never_collide() {
        let mut seen = std::collections::BTreeMap::new();
        let names: Vec<&str> = HOSTILE
            .iter()
            .copied()
            .filter(|name| !name.is_empty())
            .collect();
        for a in &names {
            for keys in std::iter::once(vec![*a]).chain(names.iter().map(|b| vec![*a, *b])) {
                let id = partition_id(&keys).expect("short and not empty");
                assert!(is_canonical(id.as_str()));
                assert_eq!(keys_of(id.as_str()).expect("decodes"), keys);
                assert!(
                    id.as_str()
                        .bytes()
                        .all(|b| is_plain(b) || b == b'.' || b == b'=')
                );
                assert_eq!(seen.insert(id, keys), None);
            }
        }
    }

    #[test]
    fn random_text_decodes_only_if_it_encodes_to_itself() {
        let mut rng = Rng::new(7);
        let alphabet = b"aA0_-=2E61F.CB */";
        let mut accepted = 0;
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..rng.between(1, 8))
                .map(|_| alphabet[rng.below(alphabet.len() as u64) as usize])
                .collect();
            let text = String::from_utf8_lossy(&bytes);
            if let Some(keys) = keys_of(&text) {
                accepted += 1;
                assert_eq!(partition_id(&keys).expect("decoded").as_str(), text);
            }
        }
        assert!(
            accepted > 1_000,
            "the test must reach the accepting side: {accepted}"
        );
    }

    #[test]
    fn refusals_name_field_value_and_remedy() {
        let refused = |keys: &[&str]| partition_id(keys).expect_err("refused").to_string();
        assert_eq!(
            refused(&[]),
            "keys: [] has no key; give each partition at least one key"
        );
        assert_eq!(
            refused(&["a", ""]),
            "keys[1]: \"\" is empty; give it at least one character, or leave the key out"
        );
        let long = refused(&["\n".repeat(70).as_str()]);
        assert!(long.starts_with("keys[0]: \\n\\n"), "{long}");
        assert!(
            long.contains("longer than 200 bytes; use shorter"),
            "{long}"
        );
        assert!(partition_id(&["x".repeat(MAX_ID)]).is_ok());
        assert!(partition_id(&["x".repeat(MAX_ID - 1), "y".into()]).is_err());
    }

    #[test]
    fn names_are_narrow_and_topics_are_wide() {
        assert_eq!(check_group("orders_EU-1"), Ok(()));
        for wrong in HOSTILE
            .iter()
            .filter(|name| !name.bytes().all(is_plain) || name.is_empty())
        {
            assert!(check_group(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(
            check_name("worker_id_prefix", "my worker")
                .expect_err("space")
                .to_string(),
            "worker_id_prefix: my worker contains ' '; use 1 to 64 characters of A-Z a-z 0-9 _ -"
        );
        for fine in [
            "orders.eu",
            "заказы",
            "a b/c",
            "नमस्ते",
            "e\u{301}t\u{e9}",
            "順\u{3000}番",
        ] {
            assert_eq!(check_readable("topic", fine), Ok(()));
        }
    }

    #[test]
    fn a_new_name_is_one_that_can_be_seen() {
        for (wrong, why) in [
            (
                "a\nb",
                r#""a\nb" contains the control character '\n'; leave it out"#,
            ),
            (
                "\u{1b}[2J",
                r#""\u{1b}[2J" contains the control character '\u{1b}'; leave it out"#,
            ),
            (
                "a\u{200b}",
                r#""a\u{200b}" contains the invisible character '\u{200b}'; leave it out"#,
            ),
            (
                "\u{3164}",
                r#""\u{3164}" contains the invisible character '\u{3164}'; leave it out"#,
            ),
            ("", r#""" is empty; give it a name"#),
            (
                " \u{a0}",
                r#"" \u{a0}" is nothing but space; give it a name that can be seen"#,
            ),
            ("a ", r#""a " begins or ends with a space; leave that out"#),
            (
                "\u{3000}a",
                r#""\u{3000}a" begins or ends with a space; leave that out"#,
            ),
        ] {
            let refused = check_readable("group", wrong).expect_err(why);
            assert_eq!(refused.to_string(), format!("group: {why}"));
        }
        for wrong in [
            "a\u{202e}b",
            "\0",
            "\u{85}",
            "a\u{feff}b",
            "a\u{e0062}",
            "\u{2028}",
        ] {
            assert!(check_readable("topic", wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn worker_ids_have_one_spelling() {
        assert_eq!(worker_id("worker", 7).as_str(), "worker-7");
        assert_eq!(worker_number("worker", &worker_id("worker", 0)), Some(0));
        assert_eq!(worker_number("a-1", &worker_id("a-1", 2)), Some(2));
        for wrong in [
            "worker-07",
            "worker-",
            "worker-+7",
            "worker7",
            "other-7",
            "worker--7",
        ] {
            assert_eq!(
                worker_number("worker", &WorkerId::new(wrong)),
                None,
                "{wrong}"
            );
        }
    }

    #[test]
    fn any_name_makes_a_safe_segment() {
        for name in HOSTILE {
            let segment = segment(name);
            assert!(!segment.is_empty() && !segment.contains('/'));
            assert_eq!(name_of_segment(&segment).as_deref(), Some(*name));
        }
        // A canonical name in the marked form would be a second spelling.
        assert_eq!(name_of_segment("=-abc"), None);
        assert_eq!(name_of_segment("=-a=2Eb"), None);
    }

    /// Messages that are in a stream already are found by these subjects. A character more or less
    /// here, also by a newer Unicode, would make a partition's messages nobody's.
    #[test]
    fn what_a_subject_escapes_is_part_of_the_format() {
        let escaped: String = ('\0'..=char::MAX).filter(|c| !fits_subject(*c)).collect();
        assert_eq!(escaped.chars().count(), 4262);
        let hash = xxhash_rust::xxh3::xxh3_64(escaped.as_bytes());
        assert_eq!(hash, 0x3549_f5cc_4b46_3ebf);
    }
}
