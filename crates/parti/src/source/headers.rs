//! The headers of a message.

use std::fmt;
use std::ops::Deref;
#[cfg(feature = "nats")]
use std::sync::OnceLock;

use bytes::Bytes;

/// The headers of a message, in order: a slice of names and values.
#[derive(Clone)]
pub struct Headers(Held);

#[derive(Clone)]
enum Held {
    List(Vec<(String, Bytes)>),
    /// As they came. Most handlers never look, so the list is made for the first one that does.
    #[cfg(feature = "nats")]
    Packed(Packed, OnceLock<Vec<(String, Bytes)>>),
}

#[cfg(feature = "nats")]
impl Headers {
    /// What a client library gave. It does not keep the sender's order: they are in the order of
    /// their names.
    pub(crate) fn given(map: &async_nats::HeaderMap) -> Self {
        match Packed::of(map) {
            Some(packed) => Self(Held::Packed(packed, OnceLock::new())),
            None => Self::default(),
        }
    }
}

/// Headers as lines of `name:value`. A name holds no colon, and neither of them a line feed: they
/// came in such lines. One piece of memory instead of some for each header, most of which would be
/// freed by another thread than the one that made them, and that is slow.
#[cfg(feature = "nats")]
#[derive(Clone)]
struct Packed(Box<str>);

#[cfg(feature = "nats")]
impl Packed {
    /// None: there are none.
    fn of(map: &async_nats::HeaderMap) -> Option<Self> {
        let mut length = 0;
        each(map, |name, value| length += name.len() + value.len() + 2);
        let mut lines = String::with_capacity(length);
        each(map, |name, value| {
            for part in [name, ":", value, "\n"] {
                lines.push_str(part);
            }
        });
        (length > 0).then(|| Self(lines.into_boxed_str()))
    }

    fn list(&self) -> Vec<(String, Bytes)> {
        let headers = self
            .0
            .split_terminator('\n')
            .filter_map(|line| line.split_once(':'));
        let owned = |(name, value): (&str, &str)| {
            let value = Bytes::copy_from_slice(value.as_bytes());
            (name.to_owned(), value)
        };
        let mut list: Vec<_> = headers.map(owned).collect();
        list.sort_by(|(a, _), (b, _)| a.cmp(b));
        list
    }
}

#[cfg(feature = "nats")]
fn each(map: &async_nats::HeaderMap, mut act: impl FnMut(&str, &str)) {
    for (name, values) in map.iter() {
        for value in values {
            act(name.as_ref(), value.as_str());
        }
    }
}

impl Deref for Headers {
    type Target = [(String, Bytes)];

    fn deref(&self) -> &Self::Target {
        match &self.0 {
            Held::List(list) => list,
            #[cfg(feature = "nats")]
            Held::Packed(packed, made) => made.get_or_init(|| packed.list()),
        }
    }
}

impl Default for Headers {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl From<Vec<(String, Bytes)>> for Headers {
    fn from(list: Vec<(String, Bytes)>) -> Self {
        Self(Held::List(list))
    }
}

impl From<Headers> for Vec<(String, Bytes)> {
    fn from(headers: Headers) -> Self {
        match headers.0 {
            Held::List(list) => list,
            #[cfg(feature = "nats")]
            Held::Packed(packed, mut made) => made.take().unwrap_or_else(|| packed.list()),
        }
    }
}

impl<'a> IntoIterator for &'a Headers {
    type Item = &'a (String, Bytes);
    type IntoIter = std::slice::Iter<'a, (String, Bytes)>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl PartialEq for Headers {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Headers {}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&**self).finish()
    }
}
