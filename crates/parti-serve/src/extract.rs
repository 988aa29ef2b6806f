//! What handlers get out of a request, with errors that look like all others.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use serde::de::DeserializeOwned;

use crate::App;
use crate::failure::Failure;

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
        // A part of the time for the whole request: then there is some left to say what is wrong.
        let limit = app.limits.request / 3;
        let coming = Bytes::from_request(request, app);
        let bytes = tokio::time::timeout(limit, coming).await;
        let bytes = bytes.map_err(|_| unfinished(limit))?;
        let bytes = bytes.map_err(|rejection| unread(&rejection, app.limits.body))?;
        read(&bytes).map(Self)
    }
}

/// What the bytes of a body say. What is wrong is named by its place in it.
fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
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
    Failure::bad(
        format!("the body cannot be read: {why}"),
        format!("give {place} as GET /v1/openapi.json says"),
    )
}

fn unfinished(limit: Duration) -> Failure {
    Failure::new(
        StatusCode::REQUEST_TIMEOUT,
        "body_timeout",
        format!("the body did not come to its end within {limit:?}"),
        "send as much as content-length says, in time",
    )
}

fn unread(rejection: &BytesRejection, most: usize) -> Failure {
    if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
        return Failure::too_large(most);
    }
    Failure::bad("the body could not be read to its end", "send it again")
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

/// What follows the question mark.
pub struct Asked<T>(pub T);

impl<T: DeserializeOwned + Send> FromRequestParts<Arc<App>> for Asked<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Failure> {
        match Query::<T>::from_request_parts(parts, app).await {
            Ok(Query(value)) => Ok(Self(value)),
            Err(error) => Err(Failure::bad(
                error.body_text(),
                "GET /v1/openapi.json says what can be asked",
            )),
        }
    }
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
            (r#"{"commits":[],"more":1}"#, "more", "expected `commits`"),
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
    }
}
