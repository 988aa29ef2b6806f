//! What a message of the stream says of itself.

use std::borrow::Cow;
use std::str::FromStr;
use std::sync::Arc;

use async_nats::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode, utf8_percent_encode};

use crate::source::{Headers, Offset, Record};

/// The header that holds a message's key, percent-encoded where it is not plain text.
pub(super) const KEY: &str = "Parti-Key";
const KEY_NAME: HeaderName = HeaderName::from_static(KEY);

/// What a header's value cannot hold as it is. (Spaces at its ends would be trimmed.)
const UNSAFE: &AsciiSet = &CONTROLS.add(b' ').add(b'%');

/// A key as a header's value.
pub(super) fn key_header(key: &[u8]) -> String {
    match std::str::from_utf8(key) {
        Ok(text) => utf8_percent_encode(text, UNSAFE).to_string(),
        Err(_) => percent_encoding::percent_encode(key, UNSAFE).to_string(),
    }
}

/// Adds a header. False: it holds what no header can.
pub(super) fn put(headers: &mut HeaderMap, name: &str, value: &str) -> bool {
    match (HeaderName::from_str(name), HeaderValue::from_str(value)) {
        (Ok(name), Ok(value)) => headers.append(name, value),
        _ => return false,
    }
    true
}

/// A delivery's place, as its reply address tells it.
///
/// ```text
///   $JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<time>.<pending>
///   $JS.ACK.<domain>.<account>.<stream>.<consumer>.<deliveries>.… [.<token>]
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place<'a> {
    pub consumer: &'a str,
    /// How often it was delivered, this time included.
    pub deliveries: u64,
    pub offset: u64,
    pub sequence: u64,
    pub timestamp_ms: u64,
    /// How many more there are to deliver.
    pub pending: u64,
}

/// Reads a reply address; `None` if it is none of a delivery.
pub(super) fn place(reply: &str) -> Option<Place<'_>> {
    let tokens = reply.strip_prefix("$JS.ACK.")?.as_bytes();
    let is_dot = |byte: &u8| *byte == b'.';
    let skipped = match tokens.iter().filter(|byte| is_dot(byte)).count() {
        // The stream.
        6 => 1,
        // Domain, account and stream.
        8.. => 3,
        _ => return None,
    };
    let mut tokens = tokens.split(is_dot).skip(skipped);
    let consumer = str::from_utf8(tokens.next()?).ok()?;
    let mut numbers = tokens.map_while(number);
    Some(Place {
        consumer,
        deliveries: numbers.next()?,
        offset: numbers.next()?,
        sequence: numbers.next()?,
        timestamp_ms: numbers.next()? / 1_000_000,
        pending: numbers.next()?,
    })
}

/// Reads a number. (Six of them in every message: `str::parse` is for everything else.)
fn number(digits: &[u8]) -> Option<u64> {
    let add = |number: u64, byte: &u8| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    };
    (!digits.is_empty()).then_some(())?;
    digits.iter().try_fold(0, add)
}

/// A message as a handler sees it.
pub(super) fn record(
    offset: u64,
    subject: impl Into<Arc<str>>,
    headers: Option<HeaderMap>,
    payload: Bytes,
    timestamp_ms: u64,
) -> Record {
    let key = headers.as_ref().and_then(|headers| headers.get(KEY_NAME));
    // Nearly all keys are plain text, and copied as they are.
    let key = key.map(|key| match Cow::from(percent_decode(key.as_ref())) {
        Cow::Borrowed(key) => Bytes::copy_from_slice(key),
        Cow::Owned(key) => key.into(),
    });
    Record {
        offset: Offset(offset),
        subject: subject.into(),
        key,
        headers: headers
            .as_ref()
            .map_or_else(Headers::default, Headers::given),
        payload,
        timestamp_ms,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_address_says_where_a_message_stands() {
        let expected = Place {
            consumer: "parti-g-worker-0",
            deliveries: 2,
            offset: 71,
            sequence: 9,
            timestamp_ms: 1_700_000_000_123,
            pending: 4,
        };
        for reply in [
            "$JS.ACK.S.parti-g-worker-0.2.71.9.1700000000123456789.4",
            "$JS.ACK._.ACCHASH.S.parti-g-worker-0.2.71.9.1700000000123456789.4",
            "$JS.ACK.hub.ACCHASH.S.parti-g-worker-0.2.71.9.1700000000123456789.4.token",
        ] {
            assert_eq!(place(reply), Some(expected), "{reply}");
        }
        for reply in [
            "",
            "_INBOX.x.1",
            "$JS.ACK.S.c.1.2.3.4",
            "$JS.ACK.S.c.1.2.3.4.5.6",
            "$JS.ACK.S.c.1.x.9.17.4",
            "$JS.ACK.S.c.1..9.17.4",
            "$JS.ACK.S.c.1.99999999999999999999.9.17.4",
            "$JS.FC.S.c.1.71.9.17.4",
        ] {
            assert_eq!(place(reply), None, "{reply}");
        }
    }

    #[test]
    fn the_key_is_a_header_and_all_headers_stay() {
        let mut headers = HeaderMap::new();
        headers.insert("traceparent", "00-1-2-01");
        headers.insert(KEY, "customer-7");
        headers.append("Tag", "b");
        headers.append("Tag", "a");
        let record = record(5, "o.1", Some(headers), Bytes::from("x"), 1);
        assert_eq!(record.key.as_deref(), Some(&b"customer-7"[..]));
        let names: Vec<&str> = record.headers.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, [KEY, "Tag", "Tag", "traceparent"]);
        assert_eq!(record.headers[1].1, "b", "values keep their order");
    }

    #[test]
    fn any_key_comes_back_from_its_header() {
        for key in [
            &b"plain"[..],
            b" a b ",
            b"100%",
            b"a\r\nX: y",
            b"\xff\x00",
            "\u{e9}".as_bytes(),
            b"",
        ] {
            let value = key_header(key);
            assert!(!value.contains(['\r', '\n', ' ', '\0']), "{value:?}");
            let mut headers = HeaderMap::new();
            headers.insert(KEY, value.as_str());
            let record = record(1, "s", Some(headers), Bytes::new(), 0);
            assert_eq!(record.key.as_deref(), Some(key));
        }
    }
}
