//! What handlers get out of a request, with errors that look like all others.

use std::ops::RangeInclusive;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::HttpBody as _;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use futures_util::StreamExt;
use parti::core::problem::shown;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::time::{Instant, timeout_at};

use crate::App;
use crate::failure::Failure;
use crate::room::Taken;
use crate::strict::Strict;

/// Bodies of so many bytes take no room from others: whoever sends little is served, whatever else comes.
const SMALL: usize = 16 * 1024;

/// The room that the body of a request takes, which is its own until it is answered.
#[derive(Clone, Debug, Default)]
pub struct Carried(Arc<OnceLock<Taken>>);

impl Carried {
    /// Sets room aside for so many bytes.
    async fn take(&self, bytes: usize, app: &App) -> Result<(), Failure> {
        if bytes > SMALL && self.0.get().is_none() {
            let taken = app.body_room.take(bytes).await?;
            // A request has one body.
            let _ = self.0.set(taken);
        }
        Ok(())
    }
}

/// A JSON body. Nothing else is taken for one: a form of a foreign page cannot be JSON.
pub struct Body<T>(pub T);

impl<T: DeserializeOwned> FromRequest<Arc<App>> for Body<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Failure> {
        let kind = request.headers().get(header::CONTENT_TYPE);
        let is_json = kind
            .and_then(|kind| kind.to_str().ok())
            .is_some_and(|kind| {
                let essence = kind.split(';').next().unwrap_or_default();
                essence.trim().eq_ignore_ascii_case("application/json")
            });
        if !is_json {
            return Err(Failure::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "not_json",
                "the body is not JSON",
                "send it with content-type: application/json",
            ));
        }
        let carried = request.extensions().get::<Carried>();
        let carried = carried.cloned().unwrap_or_default();
        read(&gather(request.into_body(), &carried, app).await?).map(Self)
    }
}

/// All of a body. One that says how long it is takes its room before any of it is read; one that does
/// not takes the most there may be, and only once it turns out not to be small.
async fn gather(body: axum::body::Body, carried: &Carried, app: &App) -> Result<Vec<u8>, Failure> {
    let most = app.limits.body;
    if let Some(bytes) = body.size_hint().upper() {
        let bytes = usize::try_from(bytes).unwrap_or(most);
        carried.take(bytes.min(most), app).await?;
    }
    // A part of the time for the whole request: then there is some left to say what is wrong.
    let limit = app.limits.request / 3;
    let mut until = Instant::now() + limit;
    let (mut pieces, mut gathered) = (body.into_data_stream(), Vec::new());
    loop {
        let piece = timeout_at(until, pieces.next()).await;
        let piece = match piece.map_err(|_| unfinished(limit))? {
            None => return Ok(gathered),
            Some(Ok(piece)) => piece,
            Some(Err(_)) => {
                let why = "the body could not be read to its end";
                return Err(Failure::bad(why, "send it again"));
            }
        };
        let length = gathered.len() + piece.len();
        if length > most {
            return Err(Failure::too_large(most));
        }
        if length > SMALL {
            let waiting = Instant::now();
            carried.take(most, app).await?;
            until += waiting.elapsed();
        }
        gathered.extend_from_slice(&piece);
    }
}

/// What the bytes of a body say. What is wrong is named by its place in it.
fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(Strict(&mut json)).map_err(|error| {
        let (place, why) = (error.path().to_string(), error.into_inner());
        match place.as_str() {
            "." | "?" => unfit(why.to_string(), "it"),
            place => unfit(format!("{place}: {why}"), place),
        }
    })?;
    json.end().map_err(|error| unfit(error.to_string(), "it"))?;
    Ok(value)
}

fn unfit(why: String, place: &str) -> Failure {
    let remedy = match known(&why) {
        Some(known) => format!("leave it out, or give one of those that there are: {known}"),
        None => format!("give {place} as GET /v1/openapi.json says"),
    };
    Failure::bad(format!("the body cannot be read: {why}"), remedy)
}

/// The fields that there are, if one is not known: serde tells them in its own words, quoted.
fn known(why: &str) -> Option<String> {
    let (_, rest) = why.split_once("unknown field `")?;
    let (_, expected) = rest.split_once("`, expected ")?;
    // Every second piece is a name.
    let names: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

fn unfinished(limit: Duration) -> Failure {
    Failure::new(
        StatusCode::REQUEST_TIMEOUT,
        "body_timeout",
        format!("the body did not come to its end within {limit:?}"),
        "send as much as content-length says, in time",
    )
}

/// Parts of the path.
pub struct Named<T>(pub T);

impl<T: DeserializeOwned + Send> FromRequestParts<Arc<App>> for Named<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Failure> {
        match Path::<T>::from_request_parts(parts, app).await {
            Ok(Path(value)) => Ok(Self(value)),
            Err(error) => Err(Failure::bad(error, "percent-encode names as UTF-8")),
        }
    }
}

/// What follows the question mark that is no number.
const WORDS: [&str; 1] = ["group"];

/// What follows the question mark: numbers and words, each with a name.
pub struct Asked<T>(pub T);

impl<T: DeserializeOwned + Send> FromRequestParts<Arc<App>> for Asked<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Failure> {
        let pairs = Query::<Vec<(String, String)>>::from_request_parts(parts, app).await;
        let Query(pairs) = pairs.map_err(|error| unasked(error.body_text()))?;
        asked(pairs).map(Self)
    }
}

/// What pairs of names and values say.
fn asked<T: DeserializeOwned>(pairs: Vec<(String, String)>) -> Result<T, Failure> {
    let mut named = Map::new();
    for (name, value) in pairs {
        let value = match WORDS.contains(&name.as_str()) {
            true => Value::from(value),
            false => number(&name, &value)?.into(),
        };
        let told = value.to_string();
        if named.insert(name.clone(), value).is_some() {
            return Err(Failure::bad(
                format!("{name}: {told} is not the only one"),
                format!("give {name} once"),
            ));
        }
    }
    serde_path_to_error::deserialize(Value::Object(named)).map_err(unasked)
}

fn number(name: &str, value: &str) -> Result<u64, Failure> {
    if let Ok(number) = value.parse() {
        return Ok(number);
    }
    let digits = value.strip_prefix('+').unwrap_or(value);
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Failure::bad(
            format!("{name}: {} is too large", shown(value)),
            format!("give {name} as GET /v1/openapi.json says"),
        ));
    }
    Err(Failure::bad(
        format!("{name}: \"{}\" is no whole number", shown(value)),
        format!("give {name} as a number such as 100"),
    ))
}

fn unasked(why: impl ToString) -> Failure {
    Failure::bad(why, "GET /v1/openapi.json says what can be asked")
}

/// A number that was sent, if it is as large as it may be.
pub fn within(name: &str, number: u64, range: RangeInclusive<u64>) -> Result<u64, Failure> {
    if range.contains(&number) {
        return Ok(number);
    }
    let (least, most) = range.into_inner();
    Err(Failure::bad(
        format!("{name}: {number} is not from {least} to {most}"),
        format!("give {name} from {least} to {most}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sent {
        #[expect(dead_code, reason = "only read")]
        commits: Vec<One>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct One {
        #[expect(dead_code, reason = "only read")]
        offset: u64,
    }

    #[test]
    fn what_is_wrong_is_named_by_its_place() {
        for (sent, place, why) in [
            (
                r#"{"commits":[{"offset":1},{"offset":"2"}]}"#,
                "commits[1].offset",
                r#"string "2""#,
            ),
            (r#"{"commits":7}"#, "commits", "integer `7`"),
            (
                r#"{"commits":[{"offset":-1}]}"#,
                "commits[0].offset",
                "`-1`",
            ),
            (
                r#"{"commits":[{}]}"#,
                "commits[0]",
                "missing field `offset`",
            ),
            (r#"[[]]"#, "it", "expected an object with named fields"),
            (
                r#"{"commits":[[7]]}"#,
                "commits[0]",
                "expected an object with named fields",
            ),
            (r#"{"commits":[]} x"#, "it", "trailing characters"),
            ("", "it", "EOF"),
        ] {
            let failure = read::<Sent>(sent.as_bytes()).expect_err(sent);
            assert!(failure.message().contains(why), "{failure:?}");
            assert!(
                failure.remedy().contains(&format!("give {place} as")),
                "{failure:?}"
            );
            assert!(
                place == "it" || failure.message().contains(place),
                "{failure:?}"
            );
        }
        read::<Sent>(br#"{"commits":[{"offset":1}]}"#).expect("it fits");
        let sent = br#"{"commits":[{"offset":1,"ofset":2}]}"#;
        let failure = read::<Sent>(sent).expect_err("unknown");
        assert!(
            failure.message().contains("commits[0].ofset"),
            "{failure:?}"
        );
        let remedy = "leave it out, or give one of those that there are: offset";
        assert_eq!(failure.remedy(), remedy);
        let several = "unknown field `x`, expected one of `a`, `b`, `c` at line 1 column 2";
        assert_eq!(known(several).as_deref(), Some("a, b, c"));
        assert_eq!(known("missing field `a`"), None);
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Wanted {
        #[serde(default)]
        from: u64,
        limit: Option<u64>,
    }

    #[test]
    fn a_number_that_cannot_be_is_named_with_its_value() {
        let of = |pairs: &[(&str, &str)]| {
            let pairs = pairs
                .iter()
                .map(|(name, value)| ((*name).into(), (*value).into()));
            asked::<Wanted>(pairs.collect())
        };
        for value in ["abc", "-1", "1.5", "", "+", "1e30", " 1", "a\u{200b}\n"] {
            let failure = of(&[("from", "7"), ("limit", value)]).expect_err(value);
            let value = shown(value);
            let why = format!("limit: \"{value}\" is no whole number");
            assert_eq!(failure.message(), why);
            assert!(failure.remedy().starts_with("give limit as"), "{failure:?}");
        }
        for value in ["18446744073709551616", "9999999999999999999999"] {
            let failure = of(&[("limit", value)]).expect_err(value);
            assert_eq!(failure.message(), format!("limit: {value} is too large"));
            let remedy = "give limit as GET /v1/openapi.json says";
            assert_eq!(failure.remedy(), remedy, "its own range is not known here");
        }
        let twice = of(&[("limit", "1"), ("limit", "2")]).expect_err("twice");
        assert_eq!(twice.message(), "limit: 2 is not the only one");
        for (number, fits) in [(0, false), (1, true), (1000, true), (1001, false)] {
            let found = within("limit", number, 1..=1000);
            assert_eq!(found.is_ok(), fits, "{number}");
            if let Err(failure) = found {
                let why = format!("limit: {number} is not from 1 to 1000");
                assert_eq!(failure.message(), why);
                assert_eq!(failure.remedy(), "give limit from 1 to 1000");
            }
        }
        let (from, limit) = (u64::MAX, Some(3));
        let fits = of(&[("limit", "3"), ("from", "18446744073709551615")]);
        assert_eq!(fits.expect("it fits"), Wanted { from, limit });
        let none = of(&[]).expect("it fits");
        assert_eq!(
            none,
            Wanted {
                from: 0,
                limit: None
            }
        );
    }
}
