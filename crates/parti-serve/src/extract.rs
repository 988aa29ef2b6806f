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
        match serde_json::from_slice(&bytes) {
            Ok(value) => Ok(Self(value)),
            Err(error) => Err(Failure::bad(
                format!("the body cannot be read: {error}"),
                "GET /v1/openapi.json says what it looks like",
            )),
        }
    }
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
        return Failure::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too_large",
            format!("the body is larger than {most} bytes"),
            "send less at once",
        );
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
