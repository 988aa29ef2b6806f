//! Configuration from text and back.

use std::fmt;

use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::Config;
use super::settings::{Reading, Setting};
use crate::problem::{Problem, Problems};

impl Config {
    /// Reads and validates YAML. Whatever is not given has its default; an empty text is all defaults.
    pub fn from_yaml(text: &str) -> Result<Self, Problems> {
        Self::default().with_yaml(text)
    }

    /// The same over these settings instead of the defaults: they stay wherever the text gives none.
    pub fn with_yaml(self, text: &str) -> Result<Self, Problems> {
        let options = serde_saphyr::options! {
            with_snippet: false,
            // As text they reach their field, which refuses them by name.
            non_finite_float_policy: serde_saphyr::NonFiniteFloatPolicy::AsString,
        };
        let tree: Tree = serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| syntax("YAML", &error.to_string()))?;
        self.with_tree(&tree.0)
    }

    /// Reads and validates JSON. Whatever is not given has its default.
    pub fn from_json(text: &str) -> Result<Self, Problems> {
        let tree: Tree =
            serde_json::from_str(text).map_err(|error| syntax("JSON", &error.to_string()))?;
        Self::from_tree(&tree.0)
    }

    /// Reads and validates a tree that was parsed before, such as one section of a larger file.
    pub fn from_tree(tree: &Value) -> Result<Self, Problems> {
        Self::default().with_tree(tree)
    }

    fn with_tree(mut self, tree: &Value) -> Result<Self, Problems> {
        let mut reading = Reading::default();
        self.read("", tree, &mut reading);
        let Reading {
            mut problems,
            broken,
        } = reading;
        problems.extend(self.broken_rules(&broken));
        Problems::none_of(problems)?;
        Ok(self)
    }

    /// All settings as YAML, in the order of their tables. [`Config::from_yaml`] yields them again.
    pub fn to_yaml(&self) -> String {
        // Text, numbers and lists of them: writing those to memory has no way to fail.
        serde_saphyr::to_string(&self.write()).unwrap_or_default()
    }

    /// All settings as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(&self.write()).unwrap_or_default()
    }

    /// The JSON schema of a configuration, for editors. Rules between fields are not in it.
    pub fn json_schema() -> Value {
        let mut schema = Self::default().schema();
        if let Value::Object(fields) = &mut schema {
            fields.insert(
                "$schema".into(),
                "https://json-schema.org/draft/2020-12/schema".into(),
            );
            fields.insert("title".into(), "Parti configuration".into());
        }
        schema
    }
}

fn syntax(format: &str, error: &str) -> Problems {
    Problem {
        field: "configuration".into(),
        value: "the text".into(),
        what: format!(
            "is not {format}: {}",
            crate::problem::shown_up_to(error, 300)
        ),
        remedy: "mend it there".into(),
    }
    .into()
}

impl Serialize for Config {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.write().serialize(to)
    }
}

/// Validates too: the error names every problem.
impl<'de> Deserialize<'de> for Config {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let tree = Tree::deserialize(from)?;
        Self::from_tree(&tree.0).map_err(de::Error::custom)
    }
}

/// A tree in which no field appears twice: otherwise the last one would silently win.
struct Tree(Value);

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        TreeSeed.deserialize(from).map(Tree)
    }
}

struct TreeSeed;

impl<'de> DeserializeSeed<'de> for TreeSeed {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for TreeSeed {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a configuration")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        self.deserialize(from)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        // JSON trees hold no infinity; as text it is refused by its field, by name.
        Ok(serde_json::Number::from_f64(value).map_or(value.to_string().into(), Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(TreeSeed)? {
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(TreeSeed)?;
            if fields.contains_key(&name) {
                return Err(de::Error::custom(format!("{name} is given twice")));
            }
            fields.insert(name, value);
        }
        Ok(fields.into())
    }
}
