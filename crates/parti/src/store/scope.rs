//! What can be named: keys, scopes, batches; and the checks that every backend makes first.

use std::collections::HashSet;

use super::{Error, Expect, MAX_KEY, MAX_VALUE, Write};

/// What is listed or watched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// One key.
    Key(String),
    /// Every key that starts with this text, which ends with a slash (or is empty: every key).
    Under(String),
}

impl Scope {
    /// Whether a key belongs to it.
    pub fn holds(&self, key: &str) -> bool {
        match self {
            Scope::Key(own) => own == key,
            Scope::Under(prefix) => key.starts_with(prefix.as_str()),
        }
    }

    /// Refuses a prefix that could end within a segment, and what could be no key.
    pub fn check(&self) -> Result<(), Error> {
        match self {
            Scope::Key(key) => check_key(key),
            Scope::Under(prefix) if prefix.is_empty() => Ok(()),
            Scope::Under(prefix) => match prefix.strip_suffix('/') {
                Some(segments) => check_key(segments),
                None => Err(Error::rejected(format!(
                    "the prefix {prefix:?} does not end with a slash; only whole segments can be listed or watched"
                ))),
            },
        }
    }
}

/// Refuses what cannot be a key on every backend: an empty text, an empty segment, a text that is
/// too long, and the character NUL, which PostgreSQL cannot hold.
pub fn check_key(key: &str) -> Result<(), Error> {
    let why = if key.len() > MAX_KEY {
        format!("it has {} bytes, the most is {MAX_KEY}", key.len())
    } else if key.split('/').any(str::is_empty) {
        "it has an empty segment".into()
    } else if key.contains('\0') {
        "it holds a NUL character".into()
    } else {
        return Ok(());
    };
    let shown: String = key.chars().take(80).collect();
    Err(Error::rejected(format!("{shown:?} cannot be a key: {why}")))
}

/// What each write of a batch is refused for before anything is sent, if it is; in order.
pub fn check_batch<'a>(batch: &'a [Write]) -> Vec<Result<(), Error>> {
    // A sorted batch, as most are, shows without looking further that no key comes twice.
    let sorted = batch.windows(2).all(|two| two[0].key < two[1].key);
    let mut seen = HashSet::new();
    let check = |write: &'a Write| {
        check_key(&write.key)?;
        if !sorted && !seen.insert(write.key.as_str()) {
            return Err(Error::rejected(format!(
                "{} is written twice in one batch; make it two batches",
                write.key
            )));
        }
        match &write.value {
            None if write.expect == Expect::Absent => Err(Error::rejected(format!(
                "{} is to be deleted if it is absent, which is no write",
                write.key
            ))),
            Some(value) if value.len() > MAX_VALUE => Err(Error::rejected(format!(
                "the value for {} has {} bytes, the most is {MAX_VALUE}; split it",
                write.key,
                value.len()
            ))),
            _ => Ok(()),
        }
    };
    batch.iter().map(check).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Bytes, Revision};

    fn write(key: &str, expect: Expect, value: Option<&'static [u8]>) -> Write {
        Write {
            key: key.into(),
            expect,
            value: value.map(Bytes::from_static),
        }
    }

    #[test]
    fn a_scope_ends_where_a_segment_ends() {
        let scope = Scope::Under("a/b/".into());
        assert!(scope.check().is_ok() && scope.holds("a/b/c") && !scope.holds("a/bc"));
        assert!(Scope::Under(String::new()).check().is_ok());
        for bad in ["a", "/", "a//", "a/b"] {
            assert!(Scope::Under(bad.into()).check().is_err(), "{bad}");
        }
    }

    #[test]
    fn what_can_be_no_key_is_refused() {
        for good in ["a", "a/b.*", "ä/ö >", "a/=2E", &"x".repeat(MAX_KEY)] {
            assert_eq!(check_key(good), Ok(()), "{good}");
        }
        for bad in ["", "/", "a/", "/a", "a//b", "a\0", &"x".repeat(MAX_KEY + 1)] {
            assert!(check_key(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_bad_write_is_refused_and_its_neighbours_are_not() {
        let batch = [
            write("a", Expect::Absent, Some(b"1")),
            write("a", Expect::At(Revision(3)), Some(b"2")),
            write("b", Expect::Absent, None),
            write("c", Expect::At(Revision(3)), None),
            Write {
                value: Some(vec![0; MAX_VALUE + 1].into()),
                ..write("d", Expect::Absent, None)
            },
        ];
        let ok: Vec<bool> = check_batch(&batch).iter().map(Result::is_ok).collect();
        assert_eq!(ok, [true, false, false, true, false]);
    }
}
