//! The forms in which checkpoints can be imported.
//!
//! ```text
//!   ours       {"partition": "7", "next_offset": 42, …}      a line each, a list, or in one object
//!   cursors    {"/topics/t/subscriptions/s/cursor": 41, …}   one object
//!              {"key": "/topics/…", "value": 41}             a line each, or a list
//!              {"kvs": [{"key": …, "value": …}]}             etcdctl get -w json (base64)
//!              /topics/t/subscriptions/s/cursor              etcdctl get: key and value,
//!              41                                            a line each
//! ```

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parti::Offset;
use parti::core::codec;
use serde_json::Value;

/// No epoch reaches this, nor any that is higher by the jump of an import.
const EPOCHS: u64 = 1 << 62;

/// One checkpoint of a file.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    /// The partition's id.
    pub partition: String,
    /// Where to go on.
    pub next: u64,
    /// Done offsets from there on, sorted.
    pub done_above: Vec<u64>,
    /// The epoch that it had; 0 if it had none.
    pub epoch: u64,
}

/// What a file holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The checkpoints.
    pub entries: Vec<Entry>,
    /// Other subscriptions that have cursors in it.
    pub others: BTreeSet<String>,
    /// Keys that are no cursors.
    pub ignored: usize,
}

struct Reader<'a> {
    subscription: &'a str,
    map: &'a [(&'a str, &'a str)],
    found: Found,
}

/// Reads a file: our own checkpoints, and the cursors of one subscription.
pub fn read(text: &str, subscription: &str, map: &[(&str, &str)]) -> Result<Found, String> {
    let mut reader = Reader {
        subscription,
        map,
        found: Found::default(),
    };
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err("it is empty".into());
    }
    if trimmed.starts_with('/') {
        reader.printed(trimmed)?;
    } else if let Ok(document) = serde_json::from_str::<Value>(trimmed) {
        reader.document(&document)?;
    } else {
        let lines = (1..).zip(trimmed.lines());
        for (number, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
            let value = serde_json::from_str(line)
                .map_err(|error| format!("line {number} is not JSON: {error}"))?;
            reader
                .item(&value)
                .map_err(|why| format!("line {number} {why}"))?;
        }
    }
    let found = reader.found;
    match found.entries.is_empty() {
        false => Ok(found),
        true if found.others.is_empty() => Err("it holds no checkpoint".into()),
        true => {
            let others: Vec<&str> = found.others.iter().map(String::as_str).collect();
            Err(format!(
                "it holds no cursor of subscription {subscription:?}; there are {}: name one with \
                 --subscription",
                others.join(", ")
            ))
        }
    }
}

impl Reader<'_> {
    fn document(&mut self, document: &Value) -> Result<(), String> {
        match document {
            Value::Array(items) => self.items(items),
            Value::Object(fields) if fields.keys().any(|key| key.starts_with('/')) => {
                for (key, value) in fields {
                    self.cursor(key, value)?;
                }
                Ok(())
            }
            Value::Object(fields) => match (fields.get("partitions"), fields.get("kvs")) {
                (Some(Value::Array(items)), _) => self.items(items),
                (_, Some(Value::Array(pairs))) => {
                    pairs.iter().try_for_each(|pair| self.encoded(pair))
                }
                _ => self.item(document),
            },
            _ => Err("it holds no checkpoint".into()),
        }
    }

    fn items(&mut self, items: &[Value]) -> Result<(), String> {
        for (number, item) in (1..).zip(items) {
            self.item(item)
                .map_err(|why| format!("item {number} {why}"))?;
        }
        Ok(())
    }

    fn item(&mut self, item: &Value) -> Result<(), String> {
        if let (Some(key), Some(value)) = (item["key"].as_str(), item.get("value")) {
            return self.cursor(key, value);
        }
        let Some(partition) = item["partition"].as_str() else {
            return Err("has no partition (a text)".into());
        };
        let number = |name: &str, largest: u64| match &item[name] {
            Value::Null => Ok(None),
            value => match value.as_u64().filter(|number| *number <= largest) {
                Some(number) => Ok(Some(number)),
                None => Err(format!(
                    "has {value} as its {name}, which is no such number: they go from 0 to {largest}"
                )),
            },
        };
        let offset = number("offset", Offset::LARGEST.0)?;
        let next = number("next_offset", Offset::LARGEST.next().0)?;
        let next = match (offset, next) {
            (Some(offset), Some(next)) if next != offset + 1 => {
                return Err(format!(
                    "contradicts itself: its next_offset is {next}, and its offset is {offset}"
                ));
            }
            (_, Some(next)) => next,
            (Some(offset), None) => offset + 1,
            (None, None) => return Err("has neither offset nor next_offset".into()),
        };
        let mut done_above = Vec::new();
        for done in item["done_above"].as_array().into_iter().flatten() {
            match done.as_u64() {
                Some(done) if done >= next && done <= Offset::LARGEST.0 => done_above.push(done),
                _ => return Err(format!("has {done} in done_above, which is not above")),
            }
        }
        done_above.sort_unstable();
        done_above.dedup();
        self.found.entries.push(Entry {
            partition: partition.to_owned(),
            next,
            done_above,
            epoch: number("epoch", EPOCHS - 1)?.unwrap_or(0),
        });
        Ok(())
    }

    /// A pair of `etcdctl get -w json`.
    fn encoded(&mut self, pair: &Value) -> Result<(), String> {
        let text = |name: &str| {
            let bytes = STANDARD
                .decode(pair[name].as_str().unwrap_or_default())
                .ok();
            bytes.and_then(|bytes| String::from_utf8(bytes).ok())
        };
        let Some(key) = text("key") else {
            return Err("a key is not base64".into());
        };
        let value = text("value").unwrap_or_default();
        self.cursor(&key, &Value::String(value))
    }

    /// What `etcdctl get` prints: a key, then its value. Values that are no cursors may have any
    /// number of lines.
    fn printed(&mut self, text: &str) -> Result<(), String> {
        let mut lines = text.lines().map(str::trim).peekable();
        while let Some(key) = lines.next() {
            if !key.starts_with('/') {
                continue;
            }
            let mut value = String::new();
            while let Some(line) = lines.next_if(|line| !line.starts_with('/')) {
                value.push_str(line);
            }
            self.cursor(key, &Value::String(value))?;
        }
        Ok(())
    }

    fn cursor(&mut self, key: &str, value: &Value) -> Result<(), String> {
        let Some((topic, subscription)) = cursor_path(key) else {
            self.found.ignored += 1;
            return Ok(());
        };
        if subscription != self.subscription {
            self.found.others.insert(subscription.to_owned());
            return Ok(());
        }
        let offset = match value {
            Value::String(text) => serde_json::from_str(text)
                .ok()
                .as_ref()
                .and_then(cursor_offset),
            value => cursor_offset(value),
        };
        let Some(offset) = offset else {
            return Err(format!(
                "{key} holds neither a number nor an object with an offset"
            ));
        };
        self.found.entries.push(Entry {
            partition: self.partition(topic)?,
            next: offset + 1,
            done_above: Vec::new(),
            epoch: 0,
        });
        Ok(())
    }

    /// The partition that a topic is.
    fn partition(&self, topic: &str) -> Result<String, String> {
        let name = topic.rsplit('/').next().unwrap_or(topic);
        let mut map = self.map.iter();
        if let Some((_, partition)) = map.find(|(from, _)| *from == topic || *from == name) {
            return Ok((*partition).to_owned());
        }
        if let Some((_, number)) = name.rsplit_once("-part-")
            && number.parse::<u32>().is_ok()
        {
            return Ok(number.to_owned());
        }
        let id = codec::partition_id(&[name]).map_err(|problem| problem.to_string())?;
        Ok(id.to_string())
    }
}

/// The offset that a cursor's value has, in either shape.
fn cursor_offset(value: &Value) -> Option<u64> {
    let number = match value {
        Value::Object(fields) => fields.get("offset")?.as_u64()?,
        value => value.as_u64()?,
    };
    (number <= Offset::LARGEST.0).then_some(number)
}

/// The topic and the subscription of a cursor's key.
fn cursor_path(key: &str) -> Option<(&str, &str)> {
    let path = key.strip_suffix("/cursor")?;
    if let Some(rest) = path.strip_prefix("/danube/subscriptions/") {
        let (topic, subscription) = rest.rsplit_once('/')?;
        return Some((topic.trim_matches('/'), subscription));
    }
    let rest = path.strip_prefix("/topics/")?;
    let (topic, subscription) = rest.rsplit_once("/subscriptions/")?;
    let topic = topic.trim_matches('/');
    (!topic.is_empty() && !subscription.contains('/')).then_some((topic, subscription))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(text: &str) -> Result<Vec<(String, u64)>, String> {
        let found = read(text, "s", &[("odd topic", "9")])?;
        let entries = found.entries.into_iter();
        Ok(entries.map(|entry| (entry.partition, entry.next)).collect())
    }

    #[test]
    fn every_form_is_read() {
        let expected = Ok(vec![("7".to_owned(), 42), ("eu".to_owned(), 5)]);
        for text in [
            "{\"partition\":\"7\",\"offset\":41}\n\
             {\"partition\":\"eu\",\"next_offset\":5,\"epoch\":3}",
            "[{\"partition\":\"7\",\"offset\":41},{\"partition\":\"eu\",\"next_offset\":5}]",
            "{\"partitions\":[{\"partition\":\"7\",\"offset\":41,\"next_offset\":42},
              {\"partition\":\"eu\",\"offset\":null,\"next_offset\":5}]}",
            "{\"/danube/subscriptions/default/orders-part-7/s/cursor\":
               {\"offset\":41,\"updated_at\":1726937845},
              \"/topics/default/eu/subscriptions/s/cursor\":4}",
            "{\"key\":\"/topics/orders-part-7/subscriptions/s/cursor\",\"value\":41}
             {\"key\":\"/topics//default/eu/subscriptions/s/cursor\",\"value\":\"4\"}",
            "/topics/a-part-7/subscriptions/s/cursor\n41\n/topics/eu/policy\n{\n}\n\
             /danube/subscriptions/n/eu/s/cursor\n{\"offset\": 4,\n\"updated_at\": 1}\n",
        ] {
            assert_eq!(places(text), expected, "{text}");
        }
        let encoded = |text: &str| STANDARD.encode(text);
        let pairs = format!(
            "{{\"kvs\":[{{\"key\":\"{}\",\"value\":\"{}\"}}]}}",
            encoded("/topics/odd topic/subscriptions/s/cursor"),
            encoded("41")
        );
        assert_eq!(places(&pairs), Ok(vec![("9".to_owned(), 42)]));
    }

    #[test]
    fn what_cannot_be_meant_is_named() {
        for (text, why) in [
            ("", "it is empty"),
            ("{}", "has no partition"),
            ("7", "holds no checkpoint"),
            ("{\"partition\":\"7\"}", "neither offset nor next_offset"),
            (
                "{\"partition\":\"7\",\"offset\":-1}",
                "has -1 as its offset",
            ),
            (
                "{\"partition\":\"7\",\"offset\":3,\"next_offset\":9}",
                "contradicts itself",
            ),
            (
                "{\"partition\":\"7\",\"offset\":3,\"done_above\":[1]}",
                "not above",
            ),
            (
                "{\"partition\":\"7\",\"offset\":3}\nnothing",
                "line 2 is not JSON",
            ),
            ("/topics/t/subscriptions/other/cursor\n4", "there are other"),
            (
                "/topics/t/subscriptions/s/cursor\nx",
                "neither a number nor",
            ),
            (
                "/topics/t/subscriptions/s/cursor\n18446744073709551615",
                "neither a number nor",
            ),
        ] {
            let error = places(text).expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn other_keys_and_subscriptions_are_counted() {
        let text = "/topics/t/subscriptions/s/cursor\n4\n/topics/t/schema\nx\n\
                    /topics/t/subscriptions/other/cursor\n4\n";
        let found = read(text, "s", &[]).expect("good");
        assert_eq!((found.entries.len(), found.ignored), (1, 1));
        assert_eq!(found.others.into_iter().collect::<Vec<_>>(), ["other"]);
    }
}
