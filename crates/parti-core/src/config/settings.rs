//! The machinery behind the `settings!` tables: reading a tree field by field, so that one mistake
//! does not hide the next; writing; and the JSON schema.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::Config;
use crate::problem::Problem;

/// Something that can be set: one value, or a section of them.
pub(super) trait Setting {
    /// Takes over what the text says at this path. A mistake is noted, and the old value stays.
    fn read(&mut self, at: &str, value: &Value, reading: &mut Reading);
    /// As it is written.
    fn write(&self) -> Written;
    /// Its JSON schema; the value is the default.
    fn schema(&self) -> Value;
}

/// What went wrong while reading.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// The problems so far.
    pub problems: Vec<Problem>,
    /// Settings whose value is not what the text meant: no rule should judge them.
    pub broken: Vec<String>,
}

impl Reading {
    /// Notes that the value at this path cannot be taken over.
    pub fn refuse(
        &mut self,
        at: &str,
        value: &Value,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.problems
            .push(Problem::new(at, value.to_string(), what, remedy));
        self.broken.push(at.to_owned());
    }

    /// Notes a field that does not exist, and which one was probably meant.
    pub fn unknown(&mut self, at: &str, name: &str, value: &Value, siblings: &[&str]) {
        let path = join(at, name);
        let meant = nearest(name, siblings)
            .map(|meant| join(at, meant))
            .or_else(|| elsewhere(name));
        let remedy = match &meant {
            Some(meant) => format!("did you mean {meant}?"),
            None => format!("known here are {}", siblings.join(", ")),
        };
        self.problems.push(Problem::new(
            &path,
            value.to_string(),
            "is set, but there is no such setting",
            remedy,
        ));
        self.broken.push(path);
        // Rules about the field that was meant would judge its default.
        self.broken.extend(meant);
    }

    /// The fields of a section, after noting those that do not exist. An empty section is allowed:
    /// all of its lines may be commented out.
    pub fn section<'v>(
        &mut self,
        at: &str,
        value: &'v Value,
        known: &[&str],
    ) -> Option<&'v Map<String, Value>> {
        match value {
            Value::Null => None,
            Value::Object(fields) => {
                for (name, value) in fields
                    .iter()
                    .filter(|(name, _)| !known.contains(&name.as_str()))
                {
                    self.unknown(at, name, value, known);
                }
                Some(fields)
            }
            _ => {
                let at = if at.is_empty() { "configuration" } else { at };
                self.refuse(
                    at,
                    value,
                    "is no section",
                    format!("give it fields: {}", known.join(", ")),
                );
                None
            }
        }
    }
}

/// A setting as it is written, with sections in the order of their tables.
#[derive(Debug, PartialEq)]
pub(super) enum Written {
    /// One value.
    Leaf(Value),
    /// Fields in order.
    Section(Vec<(&'static str, Written)>),
}

impl Serialize for Written {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Written::Leaf(value) => value.serialize(to),
            Written::Section(fields) => {
                let mut map = to.serialize_map(Some(fields.len()))?;
                for (name, value) in fields {
                    map.serialize_entry(name, value)?;
                }
                map.end()
            }
        }
    }
}

/// A field's path.
pub(super) fn join(at: &str, name: &str) -> String {
    if at.is_empty() {
        name.to_owned()
    } else {
        format!("{at}.{name}")
    }
}

/// A field's schema with its description.
pub(super) fn described(mut schema: Value, doc: &str, default: &Written) -> Value {
    if let Value::Object(fields) = &mut schema {
        fields.insert("description".into(), json!(doc.trim()));
        if let Written::Leaf(value) = default {
            fields.insert("default".into(), value.clone());
        }
    }
    schema
}

/// The known name that is closest, if it is close enough to be meant.
fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let name = plain(name);
    let (distance, best) = known
        .iter()
        .map(|known| (distance(&name, &plain(known)), *known))
        .min()?;
    (distance <= 1 + name.chars().count() / 5).then_some(best)
}

/// The path of a setting with this very name in some other section.
fn elsewhere(name: &str) -> Option<String> {
    fn find(at: &str, written: &Written, wanted: &str) -> Option<String> {
        let Written::Section(fields) = written else {
            return None;
        };
        fields.iter().find_map(|(name, inner)| {
            let path = join(at, name);
            if plain(name) == wanted {
                Some(path)
            } else {
                find(&path, inner, wanted)
            }
        })
    }
    find("", &Config::default().write(), &plain(name))
}

/// Without what people vary: `heartbeatInterval`, `heartbeat-interval`.
fn plain(name: &str) -> String {
    name.chars()
        .filter(|c| !matches!(c, '_' | '-'))
        .take(64)
        .collect::<String>()
        .to_lowercase()
}

/// How many letters must be added, removed or changed (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// Makes a struct, its defaults and its [`Setting`] of one table.
macro_rules! settings {
    (
        $(#[doc = $doc:literal])*
        pub struct $name:ident {
            $( $(#[doc = $field_doc:literal])* pub $field:ident: $type:ty = $default:expr, )*
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $( $(#[doc = $field_doc])* pub $field: $type, )*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $( $field: $default, )* }
            }
        }

        impl $crate::config::settings::Setting for $name {
            fn read(
                &mut self,
                at: &str,
                value: &serde_json::Value,
                reading: &mut $crate::config::settings::Reading,
            ) {
                let Some(fields) = reading.section(at, value, &[$(stringify!($field)),*]) else {
                    return;
                };
                $(
                    if let Some(value) = fields.get(stringify!($field)) {
                        let at = $crate::config::settings::join(at, stringify!($field));
                        self.$field.read(&at, value, reading);
                    }
                )*
            }

            fn write(&self) -> $crate::config::settings::Written {
                $crate::config::settings::Written::Section(vec![
                    $( (stringify!($field), self.$field.write()), )*
                ])
            }

            fn schema(&self) -> serde_json::Value {
                let mut properties = serde_json::Map::new();
                $(
                    properties.insert(
                        stringify!($field).into(),
                        $crate::config::settings::described(
                            self.$field.schema(),
                            concat!($($field_doc),*),
                            &self.$field.write(),
                        ),
                    );
                )*
                serde_json::json!({
                    "type": ["object", "null"],
                    "additionalProperties": false,
                    "properties": properties,
                })
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found() {
        let known = ["heartbeat_interval", "heartbeat_ttl", "ack"];
        assert_eq!(
            nearest("heartbeat_intervall", &known),
            Some("heartbeat_interval")
        );
        assert_eq!(nearest("heartbeatTTL", &known), Some("heartbeat_ttl"));
        assert_eq!(nearest("hartbeat_tll", &known), Some("heartbeat_ttl"));
        assert_eq!(nearest("ac", &known), Some("ack"));
        assert_eq!(nearest("color", &known), None);
        assert_eq!(nearest("x", &[]), None);
        assert_eq!(
            elsewhere("rebalance_cooldown").as_deref(),
            Some("assignment.rebalance_cooldown")
        );
        assert_eq!(elsewhere("color"), None);
    }

    #[test]
    fn distances() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", ""), 3);
        assert_eq!(distance("abc", "abc"), 0);
    }
}
