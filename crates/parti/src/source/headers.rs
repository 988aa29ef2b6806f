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
    /// As the client library gave them. Most handlers never look, so the list is made for the first
    /// one that does.
    #[cfg(feature = "nats")]
    Given(async_nats::HeaderMap, OnceLock<Vec<(String, Bytes)>>),
}

#[cfg(feature = "nats")]
impl Headers {
    /// What a client library gave. It does not keep the sender's order: they are in the order of
    /// their names.
    pub(crate) fn given(map: async_nats::HeaderMap) -> Self {
        Self(Held::Given(map, OnceLock::new()))
    }
}

#[cfg(feature = "nats")]
fn list(map: &async_nats::HeaderMap) -> Vec<(String, Bytes)> {
    let mut list = Vec::with_capacity(map.len());
    for (name, values) in map.iter() {
        let name: &str = name.as_ref();
        for value in values {
            let value = Bytes::copy_from_slice(value.as_str().as_bytes());
            list.push((name.to_owned(), value));
        }
    }
    list.sort_by(|(a, _), (b, _)| a.cmp(b));
    list
}

impl Deref for Headers {
    type Target = [(String, Bytes)];

    fn deref(&self) -> &Self::Target {
        match &self.0 {
            Held::List(list) => list,
            #[cfg(feature = "nats")]
            Held::Given(map, made) => made.get_or_init(|| list(map)),
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
            Held::Given(map, mut made) => made.take().unwrap_or_else(|| list(&map)),
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
