//! Reading: from scopes to ranges of keys, from rows to entries.

use tokio_postgres::Row;

use super::super::{Entry, Error, MAX_KEY, Revision, Scope};
use super::pool::Lanes;

/// Parameters: a range of keys.
pub(super) const LIST: &str = r#"
SELECT key, revision, value FROM {schema}.records
 WHERE key >= $1::text COLLATE "C" AND key < $2::text COLLATE "C" AND value IS NOT NULL
 ORDER BY key"#;

/// The keys of a scope as a range: from the first text up to, without, the second, in the order of
/// their bytes, which is the order of the column.
pub(super) fn range(scope: &Scope) -> (String, String) {
    match scope {
        // Nothing fits between a key and itself with the smallest character that is allowed.
        Scope::Key(key) => (key.clone(), format!("{key}\u{1}")),
        // The largest character, more often than a key can hold it.
        Scope::Under(prefix) if prefix.is_empty() => {
            (String::new(), "\u{10FFFF}".repeat(MAX_KEY / 4 + 1))
        }
        // The character after the slash is the zero.
        Scope::Under(prefix) => (
            prefix.clone(),
            format!("{}0", prefix.strip_suffix('/').unwrap_or(prefix)),
        ),
    }
}

/// Everything in a scope, sorted by key.
pub(super) async fn list(lanes: &Lanes, scope: &Scope) -> Result<Vec<Entry>, Error> {
    let (from, to) = range(scope);
    let rows = lanes
        .ask(|statements| &statements.list, &[&from, &to])
        .await?;
    rows.iter().map(|row| entry(row, 0)).collect()
}

/// An entry of a row whose columns from this one on are key, revision and value (not NULL).
pub(super) fn entry(row: &Row, at: usize) -> Result<Entry, Error> {
    let value: &[u8] = get(row, at + 2)?;
    Ok(Entry {
        key: get(row, at)?,
        revision: revision(row, at + 1)?,
        value: value.to_vec().into(),
    })
}

/// A column that is a revision.
pub(super) fn revision(row: &Row, at: usize) -> Result<Revision, Error> {
    let number: i64 = get(row, at)?;
    Ok(Revision(number.unsigned_abs()))
}

/// A column.
pub(super) fn get<'a, T: tokio_postgres::types::FromSql<'a>>(
    row: &'a Row,
    at: usize,
) -> Result<T, Error> {
    row.try_get(at).map_err(|error| {
        Error::rejected(format!(
            "the tables of Parti are not as they were made: {error}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_holds_exactly_its_scope() {
        let scopes = [
            Scope::Key("a/b".into()),
            Scope::Under("a/".into()),
            Scope::Under("a/b/".into()),
            Scope::Under(String::new()),
        ];
        let largest = "\u{10FFFF}".repeat(MAX_KEY / 4);
        let keys = [
            "a",
            "a/",
            "a/\u{1}",
            "a/b",
            "a/b\u{1}",
            "a/b\u{1}x",
            "a/b/c",
            "a/b/\u{10FFFF}",
            "a/b0",
            "a/bc",
            "a0",
            "a.",
            "b",
            "\u{1}",
            &largest,
        ];
        for scope in &scopes {
            let (from, to) = range(scope);
            for key in keys
                .iter()
                .filter(|key| super::super::super::check_key(key).is_ok())
            {
                let inside = *key >= from.as_str() && *key < to.as_str();
                assert_eq!(inside, scope.holds(key), "{key:?} {scope:?}");
            }
        }
    }
}
