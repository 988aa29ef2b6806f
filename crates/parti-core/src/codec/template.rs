//! Subjects by template: `dc.{0}.{1}.completion` makes `dc.tool001.chamber1.completion` of the
//! keys `["tool001", "chamber1"]`, and finds the keys again in a subject.
//!
//! A template is accepted only if no two partitions can share a subject:
//!
//! - `{0}`, `{1}`, … stand for one key each. All from `{0}` to the highest one must appear, and a
//!   partition must have exactly so many keys.
//! - `{id}` stands for all keys, joined by dots, whatever their number. It stands alone in its
//!   token, and no other placeholder beside it.
//! - A token holds at most one placeholder, possibly with text around it (`x{0}`): in `{0}-{1}`
//!   nobody could tell where one key ends.
//! - `*` stands for any one token, `>` at the end for one or more. A partition then has many
//!   subjects, as where a server computes its number: `orders.{0}.*` of
//!   `orders.{{partition(12,1)}}.{{wildcard(1)}}`. What these stand for is the message's key.

use std::fmt;

use crate::partition::Partition;
use crate::problem::Problem;

use super::{MAX_ID, escape, key_of_subject_token, subject_token};

/// The longest template, in bytes.
pub const MAX_TEMPLATE: usize = 200;
/// The longest subject, in bytes.
pub const MAX_SUBJECT: usize = 1000;
/// The most keys that a template can name.
const MAX_KEYS: usize = 16;

/// A checked subject template.
#[derive(Clone, PartialEq, Eq)]
pub struct Template {
    text: String,
    shape: Shape,
}

#[derive(Clone, PartialEq, Eq)]
enum Shape {
    /// `before.{id}.after`, each with its dot, or empty.
    WholeId { before: String, after: String },
    /// One entry per token. `open`: one or more tokens follow.
    Keys {
        tokens: Vec<Token>,
        count: usize,
        open: bool,
    },
}

#[derive(Clone, PartialEq, Eq)]
enum Token {
    Literal(String),
    /// Whatever it is.
    Any,
    Key {
        before: String,
        index: usize,
        after: String,
    },
}

/// What a token of the text holds.
enum Parsed {
    Literal,
    Any,
    Rest,
    Key(Token),
    WholeId,
}

impl Template {
    /// Checks a template.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let refuse = |what: String, remedy: &str| Err(Problem::new("subject", text, what, remedy));
        if text.is_empty() || text.len() > MAX_TEMPLATE {
            return refuse(
                format!("is not between 1 and {MAX_TEMPLATE} bytes long"),
                "use a template such as dc.{0}.{1}.completion",
            );
        }
        if text.starts_with('$') {
            return refuse(
                "starts with $".into(),
                "such subjects belong to the server; use another prefix",
            );
        }
        let mut tokens = Vec::new();
        let mut whole_id = None;
        let mut open = false;
        for (i, part) in text.split('.').enumerate() {
            if open {
                return refuse("has something after >".into(), "use > as the last token");
            }
            match parse_token(text, part)? {
                Parsed::Literal => tokens.push(Token::Literal(part.to_owned())),
                Parsed::Any => tokens.push(Token::Any),
                Parsed::Rest => open = true,
                Parsed::Key(token) => tokens.push(token),
                Parsed::WholeId if whole_id.is_none() => whole_id = Some(i),
                Parsed::WholeId => return refuse("holds {id} twice".into(), "use it once"),
            }
        }
        let used: Vec<usize> = tokens.iter().filter_map(Token::index).collect();
        let shape = match whole_id {
            Some(_) if !used.is_empty() => {
                return refuse(
                    "mixes {id} with single keys".into(),
                    "use {id} alone, or {0}, {1}, …",
                );
            }
            Some(_) if open || tokens.contains(&Token::Any) => {
                return refuse(
                    "mixes {id} with wildcards, so nobody could tell where the keys end".into(),
                    "name each key, as in dc.{0}.{1}.*",
                );
            }
            Some(_) => {
                let (before, after) = text.split_once("{id}").unwrap_or((text, ""));
                Shape::WholeId {
                    before: before.into(),
                    after: after.into(),
                }
            }
            None => {
                let count = used.iter().max().map_or(0, |highest| highest + 1);
                if count == 0 {
                    return refuse(
                        "has no placeholder, so all partitions would share one subject".into(),
                        "name each key, as in dc.{0}.{1}, or all of them by {id}",
                    );
                }
                if let Some(missing) = (0..count).find(|index| !used.contains(index)) {
                    return refuse(
                        format!(
                            "leaves out {{{missing}}}, so partitions that differ only there would share a subject"
                        ),
                        "name every key at least once",
                    );
                }
                Shape::Keys {
                    tokens,
                    count,
                    open,
                }
            }
        };
        Ok(Self {
            text: text.to_owned(),
            shape,
        })
    }

    /// The template as given.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether a partition has one subject only, so that one can publish to it.
    pub fn is_exact(&self) -> bool {
        match &self.shape {
            Shape::WholeId { .. } => true,
            Shape::Keys { tokens, open, .. } => !open && !tokens.contains(&Token::Any),
        }
    }

    /// The subject of a partition, or the filter of all its subjects where the template has
    /// wildcards. No two partitions share a subject.
    pub fn subject(&self, partition: &Partition) -> Result<String, Problem> {
        let subject = match &self.shape {
            Shape::WholeId { before, after } => {
                let tokens = partition.keys.iter().enumerate();
                let tokens =
                    tokens.map(|(at, key)| subject_token(key, at == 0 && before.is_empty()));
                format!("{before}{}{after}", tokens.collect::<Vec<_>>().join("."))
            }
            Shape::Keys {
                tokens,
                count,
                open,
            } => {
                if partition.keys.len() != *count {
                    return Err(Problem::new(
                        "keys",
                        partition.id.as_str(),
                        format!(
                            "has {} keys where the subject {} names {count}",
                            partition.keys.len(),
                            self.text
                        ),
                        "give all partitions the keys that the template names, or use {id}",
                    ));
                }
                let parts = tokens.iter().enumerate();
                let parts = parts.map(|(at, token)| token.render(&partition.keys, at == 0));
                let rest = open.then(|| ">".to_owned());
                parts.chain(rest).collect::<Vec<_>>().join(".")
            }
        };
        if subject.len() > MAX_SUBJECT {
            return Err(Problem::new(
                "subject",
                subject,
                format!("is longer than {MAX_SUBJECT} bytes"),
                "use shorter keys, or name each of them once",
            ));
        }
        Ok(subject)
    }

    /// The keys of the partition whose subject this is; `None` if it is no partition's.
    pub fn partition_of(&self, subject: &str) -> Option<Vec<String>> {
        match &self.shape {
            Shape::WholeId { before, after } => {
                let inner = subject.strip_prefix(before.as_str())?;
                let tokens = inner.strip_suffix(after.as_str())?.split('.').enumerate();
                let key = |(at, token)| {
                    let key = key_of_subject_token(token, at == 0 && before.is_empty());
                    key.filter(|key| !key.is_empty())
                };
                tokens
                    .map(key)
                    .collect::<Option<Vec<_>>>()
                    .filter(|keys| fits_id(keys))
            }
            Shape::Keys {
                tokens,
                count,
                open,
            } => {
                let mut keys: Vec<Option<String>> = vec![None; *count];
                let mut parts = subject.split('.');
                for (at, token) in tokens.iter().enumerate() {
                    let part = parts.next()?;
                    match token {
                        Token::Literal(text) if text == part => {}
                        Token::Literal(_) => return None,
                        Token::Any if part.is_empty() => return None,
                        Token::Any => {}
                        Token::Key {
                            before,
                            index,
                            after,
                        } => {
                            let inner = part
                                .strip_prefix(before.as_str())?
                                .strip_suffix(after.as_str())?;
                            let first = at == 0 && before.is_empty();
                            let key = key_of_subject_token(inner, first);
                            let key = key.filter(|key| !key.is_empty())?;
                            match keys.get_mut(*index)? {
                                slot @ None => *slot = Some(key),
                                Some(same) if *same == key => {}
                                Some(_) => return None,
                            }
                        }
                    }
                }
                let keys: Vec<String> = keys.into_iter().collect::<Option<_>>()?;
                (parts.next().is_some() == *open && fits_id(&keys)).then_some(keys)
            }
        }
    }

    /// What the wildcards stand for in a subject of some partition, joined by dots; `None` where
    /// the template has none.
    pub fn key_of(&self, subject: &str) -> Option<String> {
        let Shape::Keys { tokens, open, .. } = &self.shape else {
            return None;
        };
        let wild = |index: usize| {
            tokens
                .get(index)
                .map_or(*open, |token| *token == Token::Any)
        };
        let parts = subject.split('.').enumerate();
        let key: Vec<&str> = parts
            .filter(|(at, _)| wild(*at))
            .map(|(_, part)| part)
            .collect();
        (!key.is_empty()).then(|| key.join("."))
    }
}

/// Keys that are too long together for an id are no partition's.
fn fits_id(keys: &[String]) -> bool {
    let length: usize = keys.iter().map(|key| escape(key).len() + 1).sum();
    length <= MAX_ID + 1
}

impl Token {
    fn index(&self) -> Option<usize> {
        match self {
            Token::Literal(_) | Token::Any => None,
            Token::Key { index, .. } => Some(*index),
        }
    }

    /// `first`: the subject begins with it.
    fn render(&self, keys: &[String], first: bool) -> String {
        match self {
            Token::Literal(text) => text.clone(),
            Token::Any => "*".to_owned(),
            Token::Key {
                before,
                index,
                after,
            } => {
                let key = keys.get(*index).map_or("", String::as_str);
                let key = subject_token(key, first && before.is_empty());
                format!("{before}{key}{after}")
            }
        }
    }
}

fn parse_token(text: &str, token: &str) -> Result<Parsed, Problem> {
    let refuse = |what: String, remedy: &str| Err(Problem::new("subject", text, what, remedy));
    if token.is_empty() {
        return refuse(
            "has an empty token".into(),
            "remove leading, trailing and doubled dots",
        );
    }
    match token {
        "*" => return Ok(Parsed::Any),
        ">" => return Ok(Parsed::Rest),
        _ => {}
    }
    if let Some(bad) = token
        .chars()
        .find(|&c| !c.is_ascii_graphic() || c == '*' || c == '>')
    {
        return refuse(
            format!("contains '{}'", crate::problem::shown(&bad.to_string())),
            "use printable ASCII without spaces; * and > only as tokens of their own",
        );
    }
    let Some((before, rest)) = token.split_once('{') else {
        return if token.contains('}') {
            refuse(
                "has a } without its {".into(),
                "write placeholders as {0}, {1}, … or {id}",
            )
        } else {
            Ok(Parsed::Literal)
        };
    };
    let Some((name, after)) = rest.split_once('}') else {
        return refuse(
            "has a { without its }".into(),
            "write placeholders as {0}, {1}, … or {id}",
        );
    };
    if before.contains('}') || after.contains(['{', '}']) {
        return refuse(
            format!("has more than one placeholder in {token}, so keys could run together"),
            "give each placeholder a token of its own, as in {0}.{1}",
        );
    }
    if name == "id" {
        return if before.is_empty() && after.is_empty() {
            Ok(Parsed::WholeId)
        } else {
            refuse(
                format!("has text around {{id}} in {token}"),
                "give {id} a token of its own",
            )
        };
    }
    match name.parse::<usize>() {
        Ok(index) if index < MAX_KEYS && index.to_string() == name => Ok(Parsed::Key(Token::Key {
            before: before.to_owned(),
            index,
            after: after.to_owned(),
        })),
        _ => refuse(
            format!("has the unknown placeholder {{{name}}}"),
            "use {0} to {15} for single keys, or {id} for all of them",
        ),
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::HOSTILE;
    use super::*;
    use std::collections::BTreeMap;

    fn partition(keys: &[&str]) -> Partition {
        Partition::new(keys.iter().copied(), None).expect("valid keys")
    }

    #[test]
    fn the_example_of_the_design() {
        let template = Template::parse("dc.{0}.{1}.completion").expect("valid");
        let subject = template
            .subject(&partition(&["tool001", "chamber1"]))
            .expect("two keys");
        assert_eq!(subject, "dc.tool001.chamber1.completion");
        assert_eq!(
            template.partition_of(&subject),
            Some(vec!["tool001".into(), "chamber1".into()])
        );
        for other in [
            "dc.tool001.chamber1",
            "dc.tool001.chamber1.completion.x",
            "xx.tool001.chamber1.completion",
            "dc..chamber1.completion",
            "dc.=61.chamber1.completion",
            "dc.a b.c.completion",
            "",
        ] {
            assert_eq!(template.partition_of(other), None, "{other}");
        }
    }

    #[test]
    fn what_could_make_two_partitions_share_a_subject_is_refused() {
        for (text, why) in [
            ("", "between 1 and 200"),
            ("orders", "no placeholder"),
            ("dc.{1}", "leaves out {0}"),
            ("dc.{0}.{2}", "leaves out {1}"),
            ("x{0}{1}", "more than one placeholder"),
            ("{0}-{1}", "more than one placeholder"),
            ("{{0}}", "more than one placeholder"),
            ("a.{x}", "unknown placeholder"),
            ("a.{-1}", "unknown placeholder"),
            ("a.{00}", "unknown placeholder"),
            ("a.{99}", "unknown placeholder"),
            ("a.{0", "without its }"),
            ("a.0}.{0}", "without its {"),
            ("a.}{0}", "more than one placeholder"),
            ("a..{0}", "empty token"),
            (".{0}", "empty token"),
            ("{0}.", "empty token"),
            ("a*.{0}", "contains '*'"),
            ("{0}.x>", "contains '>'"),
            ("{0}.>.x", "after >"),
            ("a.*", "no placeholder"),
            ("{id}.*", "{id} with wildcards"),
            ("a.{id}.>", "{id} with wildcards"),
            ("*.{1}", "leaves out {0}"),
            ("a b.{0}", "contains ' '"),
            ("a\n.{0}", "contains '\\n'"),
            ("ü.{0}", "contains 'ü'"),
            ("$JS.{0}", "starts with $"),
            ("{id}.{0}", "mixes {id}"),
            ("{id}.{id}", "holds {id} twice"),
            ("x{id}", "text around {id}"),
        ] {
            let problem = Template::parse(text).expect_err(text);
            assert!(problem.what.contains(why), "{text}: {problem}");
            assert_eq!(problem.field, "subject");
        }
    }

    #[test]
    fn subjects_come_back_and_never_collide() {
        for text in [
            "{0}.{1}",
            "a.x{0}y.{1}",
            "{1}.{0}.{0}",
            "p.{id}.q",
            "{id}",
            "{0}-.-{1}",
            "a=.{1}={0}",
        ] {
            // `{1}={0}` must be refused, everything else must be injective.
            let Ok(template) = Template::parse(text) else {
                assert_eq!(text, "a=.{1}={0}");
                continue;
            };
            let mut seen = BTreeMap::new();
            for a in HOSTILE.iter().filter(|key| !key.is_empty()) {
                for b in HOSTILE.iter().filter(|key| !key.is_empty()) {
                    let partition = partition(&[a, b]);
                    let subject = template.subject(&partition).expect("two keys");
                    assert_eq!(
                        template.partition_of(&subject).as_ref(),
                        Some(&partition.keys),
                        "{subject}"
                    );
                    assert!(!subject.contains(['*', '>', ' ']) && !subject.contains(".."));
                    assert_eq!(seen.insert(subject, partition.id), None);
                }
            }
        }
    }

    #[test]
    fn a_template_fixes_the_number_of_keys_and_id_takes_any() {
        let two = Template::parse("dc.{0}.{1}").expect("valid");
        let problem = two.subject(&partition(&["a"])).expect_err("one key");
        assert!(
            problem
                .to_string()
                .contains("has 1 keys where the subject dc.{0}.{1} names 2"),
            "{problem}"
        );
        assert!(two.subject(&partition(&["a", "b", "c"])).is_err());

        let any = Template::parse("dc.{id}.done").expect("valid");
        for keys in [&["a"][..], &["a", "b.c", "d"]] {
            let subject = any.subject(&partition(keys)).expect("any number");
            assert_eq!(any.partition_of(&subject).expect("comes back"), keys);
        }
        assert_eq!(any.partition_of("dc.done"), None);
        assert_eq!(any.partition_of("dc..done"), None);
    }

    #[test]
    fn wildcards_leave_room_for_the_messages_key() {
        for (text, filter, subject, key) in [
            ("o.{0}.*", "o.7.*", "o.7.ann", "ann"),
            ("o.*.p{0}", "o.*.p7", "o.ann.p7", "ann"),
            ("{0}.>", "7.>", "7.a.b", "a.b"),
            ("*.x.{0}.>", "*.x.7.>", "a.x.7.b.c", "a.b.c"),
        ] {
            let template = Template::parse(text).expect("valid");
            assert!(!template.is_exact());
            let made = template.subject(&partition(&["7"])).expect("one key");
            assert_eq!(made, filter);
            let keys = Some(vec!["7".to_owned()]);
            assert_eq!(template.partition_of(subject), keys, "{text}");
            assert_eq!(template.partition_of(filter), keys, "a filter is its own");
            assert_eq!(template.key_of(subject).as_deref(), Some(key));
        }
        let template = Template::parse("o.{0}.*").expect("valid");
        for nobodys in ["o.7", "o.7.", "o.7.a.b", "x.7.a", "o..a"] {
            assert_eq!(template.partition_of(nobodys), None, "{nobodys}");
        }
        let open = Template::parse("o.{0}.>").expect("valid");
        assert_eq!(open.partition_of("o.7"), None);
        let exact = Template::parse("o.{0}").expect("valid");
        assert!(exact.is_exact());
        assert_eq!(exact.key_of("o.7"), None);
    }

    #[test]
    fn what_a_subject_can_hold_stays_as_it_is() {
        let template = Template::parse("odd.{0}").expect("valid");
        let first = Template::parse("{0}.x").expect("valid");
        for (key, subject) in [
            ("a=b", "odd.a=b"),
            ("\u{fc}", "odd.\u{fc}"),
            ("x%y", "odd.x%y"),
            ("$q", "odd.$q"),
            ("a/b", "odd.a/b"),
            ("a.b", "odd.a=2Eb"),
            ("a=2E", "odd.a=3D2E"),
            ("a=.", "odd.a==2E"),
            ("a b*>", "odd.a=20b=2A=3E"),
            ("\u{200b}", "odd.=E2=80=8B"),
        ] {
            let made = template.subject(&partition(&[key])).expect("one key");
            assert_eq!(made, subject);
            let keys = Some(vec![key.to_owned()]);
            assert_eq!(template.partition_of(subject), keys, "{key}");
        }
        for (key, subject) in [("$JS", "=24JS.x"), ("a$", "a$.x")] {
            let made = first.subject(&partition(&[key])).expect("one key");
            assert_eq!(made, subject);
            assert_eq!(first.partition_of(subject), Some(vec![key.to_owned()]));
        }
        for nobodys in ["odd.=61", "odd.=FF", "odd.a=24", "odd.=2e="] {
            let found = template.partition_of(nobodys);
            let again = found.map(|keys| Partition::new(keys, None).expect("valid keys"));
            let again = again.map(|one| template.subject(&one).expect("one key"));
            assert!(again.is_none_or(|again| again == nobodys), "{nobodys}");
        }
        assert_eq!(first.partition_of("$JS.x"), None);
    }

    #[test]
    fn a_key_that_appears_twice_must_be_the_same() {
        let template = Template::parse("{0}.x.{0}").expect("valid");
        assert_eq!(template.partition_of("a.x.a"), Some(vec!["a".into()]));
        assert_eq!(template.partition_of("a.x.b"), None);
    }

    #[test]
    fn keys_that_no_id_can_hold_are_nobodys() {
        let template = Template::parse("{0}.{1}").expect("valid");
        let long = "a".repeat(150);
        assert_eq!(template.partition_of(&format!("{long}.{long}")), None);
        let fits = format!("{}.{}", "a".repeat(100), "b".repeat(99));
        assert!(template.partition_of(&fits).is_some());
        assert!(template.partition_of(&format!("{fits}b")).is_none());
    }
}
