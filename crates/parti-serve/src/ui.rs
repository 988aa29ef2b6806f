//! The dashboard's files, part of the program.

use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;

use crate::failure::Failure;

/// A file: its path, its type, what is in it.
type File = (&'static str, &'static str, &'static [u8]);

/// Every file in the folder `ui`, as the build found them.
const FILES: &[File] = include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// Whatever no route has: a file, or nothing.
pub async fn file(method: Method, uri: Uri) -> Response {
    let found = FILES.iter().find(|(path, _, _)| *path == uri.path());
    let Some((_, kind, content)) = found else {
        return Failure::not_found(
            format!("there is nothing at {}", uri.path()),
            "GET /v1/openapi.json says what there is",
        )
        .into_response();
    };
    if !matches!(method, Method::GET | Method::HEAD) {
        return wrong_method().await.into_response();
    }
    let mut response = Bytes::from_static(content).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// There is something, but not for this method.
pub async fn wrong_method() -> Failure {
    Failure::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "wrong_method",
        "this cannot be done here",
        "GET /v1/openapi.json says what can",
    )
}
