//! Keys of the store as keys of etcd: below a prefix, otherwise as they are.

use super::proto::KeyValue;
use crate::store::{Entry, Revision, Scope, check_key};

/// What stands before every key, with a slash at its end.
#[derive(Debug)]
pub(super) struct Keys {
    prefix: String,
}

impl Keys {
    /// Below this prefix.
    pub fn new(prefix: &str) -> Self {
        let prefix = match prefix.trim_end_matches('/') {
            "" => "parti",
            prefix => prefix,
        };
        Self {
            prefix: format!("{prefix}/"),
        }
    }

    /// The key as etcd has it.
    pub fn full(&self, key: &str) -> Vec<u8> {
        [self.prefix.as_bytes(), key.as_bytes()].concat()
    }

    /// A scope as etcd has it: from the first key to the end, which is empty for a single key.
    pub fn range(&self, scope: &Scope) -> (Vec<u8>, Vec<u8>) {
        match scope {
            Scope::Key(key) => (self.full(key), Vec::new()),
            Scope::Under(prefix) => {
                let start = self.full(prefix);
                let end = end_of(&start);
                (start, end)
            }
        }
    }

    /// The store's key of an etcd key, unless it is none that a store writes.
    pub fn own(&self, key: &[u8]) -> Option<String> {
        let own = std::str::from_utf8(key).ok()?.strip_prefix(&self.prefix)?;
        if let Err(error) = check_key(own) {
            tracing::warn!(%error, "passed over a foreign key in etcd");
            return None;
        }
        Some(own.to_owned())
    }

    /// The store's entry of what etcd has, unless it is none that a store writes.
    pub fn entry(&self, kv: KeyValue) -> Option<Entry> {
        Some(Entry {
            key: self.own(&kv.key)?,
            revision: revision(kv.mod_revision),
            value: kv.value,
        })
    }
}

/// A revision as the store has it. etcd's are positive.
pub(super) fn revision(revision: i64) -> Revision {
    Revision(u64::try_from(revision).unwrap_or(0))
}

/// The first key after all that start with this prefix. A prefix of nothing but 0xff has none;
/// a zero byte then means "to the end of everything".
fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_ends_right_after_its_prefix() {
        assert_eq!(end_of(b"a/"), b"a0");
        assert_eq!(end_of(b"a\xff\xff"), b"b");
        assert_eq!(end_of(b"\xff"), b"\0");
        assert_eq!(end_of(b""), b"\0");
    }

    #[test]
    fn keys_live_below_the_prefix_and_come_back() {
        let keys = Keys::new("a/b/");
        assert_eq!(keys.full("x/ü.*"), "a/b/x/ü.*".as_bytes());
        assert_eq!(keys.own("a/b/x/ü.*".as_bytes()).as_deref(), Some("x/ü.*"));
        for foreign in [&b"a/c/x"[..], b"a/b/", b"a/b/x//y", b"a/b/\xff", b"a/b"] {
            assert_eq!(keys.own(foreign), None);
        }
        assert_eq!(Keys::new("").full("k"), b"parti/k");
        assert_eq!(
            Keys::new("").range(&Scope::Under(String::new())),
            (b"parti/".to_vec(), b"parti0".to_vec())
        );
        assert_eq!(
            keys.range(&Scope::Key("k".into())),
            (b"a/b/k".to_vec(), vec![])
        );
    }
}
