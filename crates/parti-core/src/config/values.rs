//! How single values are read and written.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::duration;
use super::settings::{Reading, Setting, Written, join};
use super::{AckMode, Coordination, Ordering, StartPosition, StrategyChoice};

/// What a value is instead of what it should be.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "is empty",
        Value::Bool(_) => "is a truth value",
        Value::Number(_) => "is a number",
        Value::String(_) => "is text",
        Value::Array(_) => "is a list",
        Value::Object(_) => "is a section",
    }
}

fn whole(value: &Value, most: u64) -> Result<u64, (&'static str, String)> {
    let remedy = format!("give a whole number from 0 to {most}");
    let Value::Number(number) = value else {
        return Err(match value {
            Value::String(text) if text.parse::<u64>().is_ok() => {
                ("is text", "remove the quotes".into())
            }
            _ => (kind(value), remedy),
        });
    };
    match number.as_u64() {
        Some(number) if number <= most => Ok(number),
        Some(_) => Err(("is too large", remedy)),
        None if number.as_f64().is_some_and(|number| number < 0.0) => Err(("is negative", remedy)),
        None => Err(("is not a whole number", remedy)),
    }
}

impl Setting for u64 {
    fn read(&mut self, at: &str, value: &Value, reading: &mut Reading) {
        // A signed 64-bit number holds it too, in every language that shares the file.
        match whole(value, i64::MAX.unsigned_abs()) {
            Ok(number) => *self = number,
            Err((what, remedy)) => reading.refuse(at, value, what, remedy),
        }
    }

    fn write(&self) -> Written {
        Written::Leaf(json!(self))
    }

    fn schema(&self) -> Value {
        json!({ "type": "integer", "minimum": 0 })
    }
}

impl Setting for u32 {
    fn read(&mut self, at: &str, value: &Value, reading: &mut Reading) {
        match whole(value, u64::from(u32::MAX)) {
            Ok(number) => *self = u32::try_from(number).unwrap_or(u32::MAX),
            Err((what, remedy)) => reading.refuse(at, value, what, remedy),
        }
    }

    fn write(&self) -> Written {
        Written::Leaf(json!(self))
    }

    fn schema(&self) -> Value {
        json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX })
    }
}

impl Setting for bool {
    fn read(&mut self, at: &str, value: &Value, reading: &mut Reading) {
        match value {
            Value::Bool(yes) => *self = *yes,
            _ => reading.refuse(at, value, kind(value), "give true or false, without quotes"),
        }
    }

    fn write(&self) -> Written {
        Written::Leaf(json!(self))
    }

    fn schema(&self) -> Value {
        json!({ "type": "boolean" })
    }
}

impl Setting for f64 {
    fn read(&mut self, at: &str, value: &Value, reading: &mut Reading) {
        match value.as_f64() {
            Some(number) => *self = number,
            None => reading.refuse(
                at,
                value,
                kind(value),
                "give a number such as 0.5, without quotes",
            ),
        }
    }

    fn write(&self) -> Written {
        Written::Leaf(json!(self))
    }

    fn schema(&self) -> Value {
        json!({ "type": "number" })
    }
}

impl Setting for String {
    fn read(&mut self, at: &str, value: &Value, reading: &mut Reading) {
        match value {
            Value::String(text) => text.clone_into(self),
            Value::Number(_) | Value::Bool(_) => {
                reading.refuse(
                    at,
                    value,
                    kind(value),
                    format!("put it in quotes: \"{value}\""),
                );
            }
            _ => reading.refuse(
                at,
                value,
                kind(value),
                "give it text, or remove the line for the default",
            ),
        }
    }

    fn write(&self) -> Written {
        Written::Leaf(json!(self))
    }

    fn schema(&self) -> Value {
        json!({ "type": "string" })
    }
}

impl Setting for Duration {
    fn read(&mut self, at: &str, value: &Value, reading: &mut Reading) {
        let remedy = "give a duration such as 500ms, 30s or 1h30m";
        match value {
            Value::String(text) => match duration::parse(text) {
                Ok(duration) => *self = duration,
                Err(what) => reading.refuse(at, value, what, remedy),
            },
            Value::Number(number) if number.as_u64() == Some(0) => *self = Duration::ZERO,
            Value::Number(_) => reading.refuse(at, value, "has no unit", remedy),
            _ => reading.refuse(at, value, kind(value), remedy),
        }
    }

    fn write(&self) -> Written {
        Written::Leaf(json!(duration::show(*self)))
    }

    fn schema(&self) -> Value {
        json!({ "type": ["string", "integer"], "examples": ["500ms", "30s", "1h30m", 0] })
    }
}

impl<T: Setting + Default> Setting for Option<T> {
    fn read(&mut self, at: &str, value: &Value, reading: &mut Reading) {
        if value.is_null() {
            *self = None;
            return;
        }
        let before = reading.problems.len();
        let mut inner = T::default();
        inner.read(at, value, reading);
        if reading.problems.len() == before {
            *self = Some(inner);
        }
    }

    fn write(&self) -> Written {
        self.as_ref()
            .map_or(Written::Leaf(Value::Null), Setting::write)
    }

    fn schema(&self) -> Value {
        json!({ "anyOf": [T::default().schema(), { "type": "null" }] })
    }
}

impl Setting for Vec<Duration> {
    fn read(&mut self, at: &str, value: &Value, reading: &mut Reading) {
        let Value::Array(items) = value else {
            reading.refuse(at, value, kind(value), "give a list such as [2s, 5s, 15s]");
            return;
        };
        *self = vec![Duration::ZERO; items.len()];
        for (i, (slot, item)) in self.iter_mut().zip(items).enumerate() {
            slot.read(&format!("{at}[{i}]"), item, reading);
        }
    }

    fn write(&self) -> Written {
        Written::Leaf(
            self.iter()
                .map(|duration| json!(duration::show(*duration)))
                .collect(),
        )
    }

    fn schema(&self) -> Value {
        json!({ "type": "array", "items": Duration::ZERO.schema() })
    }
}

/// One of a few names.
macro_rules! choice {
    ($type:ident: $($name:literal = $value:ident),*) => {
        impl Setting for $type {
            fn read(&mut self, at: &str, value: &Value, reading: &mut Reading) {
                match value.as_str() {
                    $(Some($name) => *self = $type::$value,)*
                    _ => {
                        let names = [$($name),*].join(", ");
                        reading.refuse(at, value, "is not known", format!("use one of: {names}"));
                    }
                }
            }

            fn write(&self) -> Written {
                Written::Leaf(json!(match self { $($type::$value => $name,)* }))
            }

            fn schema(&self) -> Value {
                json!({ "enum": [$($name),*] })
            }
        }
    };
}

choice!(Coordination: "leader" = Leader, "leaderless" = Leaderless);
choice!(Ordering: "partition" = Partition, "key" = Key, "none" = None);
choice!(AckMode: "explicit" = Explicit, "none" = None);

const STRATEGIES: &str =
    "use consistent_hash, round_robin, fair_share, or {name: consistent_hash, virtual_nodes: 150}";

/// A name alone, or a section with the name and its parameters.
impl Setting for StrategyChoice {
    fn read(&mut self, at: &str, value: &Value, reading: &mut Reading) {
        let name = match value {
            Value::Object(fields) => fields.get("name").unwrap_or(&Value::Null),
            name => name,
        };
        let (mut choice, known): (_, &[&str]) = match name.as_str() {
            Some("consistent_hash") => (
                StrategyChoice::ConsistentHash { virtual_nodes: 150 },
                &["name", "virtual_nodes"],
            ),
            Some("round_robin") => (StrategyChoice::RoundRobin, &["name"]),
            Some("fair_share") => (StrategyChoice::FairShare, &["name"]),
            _ => return reading.refuse(at, value, "names no known strategy", STRATEGIES),
        };
        if let Value::Object(_) = value
            && let Some(fields) = reading.section(at, value, known)
            && let StrategyChoice::ConsistentHash { virtual_nodes } = &mut choice
            && let Some(value) = fields.get("virtual_nodes")
        {
            virtual_nodes.read(&join(at, "virtual_nodes"), value, reading);
        }
        *self = choice;
    }

    fn write(&self) -> Written {
        Written::Leaf(match self {
            StrategyChoice::ConsistentHash { virtual_nodes } => {
                json!({ "name": "consistent_hash", "virtual_nodes": virtual_nodes })
            }
            StrategyChoice::RoundRobin => json!("round_robin"),
            StrategyChoice::FairShare => json!("fair_share"),
        })
    }

    fn schema(&self) -> Value {
        let names = json!({ "enum": ["consistent_hash", "round_robin", "fair_share"] });
        let virtual_nodes = json!({ "type": "integer", "minimum": 1, "maximum": 10_000 });
        json!({ "anyOf": [names, {
            "type": "object",
            "required": ["name"],
            "additionalProperties": false,
            "properties": { "name": names, "virtual_nodes": virtual_nodes },
        }] })
    }
}

const STARTS: &str = "use latest, earliest, {offset: 5} or {time: \"2026-01-31T12:00:00Z\"}";

impl Setting for StartPosition {
    fn read(&mut self, at: &str, value: &Value, reading: &mut Reading) {
        match value {
            Value::String(text) if text == "latest" => *self = StartPosition::Latest,
            Value::String(text) if text == "earliest" => *self = StartPosition::Earliest,
            Value::Object(fields) => match fields.iter().next() {
                Some((name, value)) if name == "offset" && fields.len() == 1 => {
                    let mut offset = 0_u64;
                    offset.read(&join(at, "offset"), value, reading);
                    *self = StartPosition::Offset(offset);
                }
                Some((name, value)) if name == "time" && fields.len() == 1 => match millis(value) {
                    Some(time) => *self = StartPosition::Time(time),
                    None => {
                        reading.refuse(&join(at, "time"), value, "is no time since 1970", STARTS)
                    }
                },
                _ => reading.refuse(at, value, "is no start", STARTS),
            },
            _ => reading.refuse(at, value, "is no start", STARTS),
        }
    }

    fn write(&self) -> Written {
        Written::Leaf(match *self {
            StartPosition::Latest => json!("latest"),
            StartPosition::Earliest => json!("earliest"),
            StartPosition::Offset(offset) => json!({ "offset": offset }),
            StartPosition::Time(time) => {
                let stamp = i64::try_from(time)
                    .ok()
                    .and_then(|time| Timestamp::from_millisecond(time).ok());
                json!({ "time": stamp.map_or(json!(time), |stamp| json!(stamp.to_string())) })
            }
        })
    }

    fn schema(&self) -> Value {
        let one = |name: &str, schema: Value| {
            json!({
                "type": "object",
                "required": [name],
                "additionalProperties": false,
                "properties": { name: schema },
            })
        };
        json!({ "anyOf": [
            { "enum": ["latest", "earliest"] },
            one("offset", 0_u64.schema()),
            one("time", json!({ "type": ["string", "integer"] })),
        ] })
    }
}

/// Milliseconds since the Unix epoch, given as such or as RFC 3339.
fn millis(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => {
            let stamp: Timestamp = text.parse().ok()?;
            u64::try_from(stamp.as_millisecond()).ok()
        }
        _ => whole(value, i64::MAX.unsigned_abs()).ok(),
    }
}
