//! What every request has to pass, and what every answer carries.
//!
//! ```text
//!   head ──▶ Host ──▶ Origin ──▶ x-parti-csrf ──▶ who, in which role ──▶ length ──▶ handler,
//!    431      400      403          403             401, 403              413     in its time: 503
//! ```
//!
//! What is answered is logged here: every request for whoever debugs, what goes wrong in this
//! service and tokens that are refused for everybody, once and then by their number (`refusals`). A
//! token or a body never is.
//!
//! - A page elsewhere that has its own name point to this machine (DNS rebinding) sends that name as
//!   Host: only names that were allowed are served. An address as Host is fine, because no page can
//!   be loaded from here under an address that it chose.
//! - A page elsewhere sends its own Origin: refused. State changes by a browser need a header that
//!   no foreign page can send without asking first, and whoever asks first is refused.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::App;
use crate::access::{Role, bearer};
use crate::extract::Carried;
use crate::failure::{Failure, Told};
use crate::listen::{HEAD_BYTES, Peer};
use crate::refusals::Refusals;

/// The code of a token that may not do what was asked for.
const FORBIDDEN: &str = "forbidden";
/// Headers of a request.
const HEADERS: usize = 64;
/// What browsers send along with their own requests, so that others cannot.
pub const CSRF: &str = "x-parti-csrf";

/// What a page from here may do: load its own files, and talk to where it came from.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
img-src 'self' data:; font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; \
form-action 'none'; frame-ancestors 'none'";

/// What a request needs.
#[derive(Debug, PartialEq, Eq)]
enum Need {
    /// Nothing: files of the dashboard, the description of the API.
    Nothing,
    /// A role.
    Role(Role),
    /// A session's own token, which its handlers look at.
    Session,
}

fn need(method: &Method, path: &str) -> Need {
    let mut parts = path.split('/').skip(1);
    let looks = matches!(*method, Method::GET | Method::HEAD);
    if parts.next() != Some("v1") {
        return Need::Nothing;
    }
    let rest: Vec<&str> = parts.collect();
    match rest.as_slice() {
        ["openapi.json"] => Need::Nothing,
        ["groups", _, "sessions", _, ..] => Need::Session,
        // Says what would happen, and changes nothing.
        ["groups", _, "plan"] => Need::Role(Role::Read),
        _ if looks => Need::Role(Role::Read),
        _ => Need::Role(Role::Operate),
    }
}

/// Lets a request through, or not.
pub async fn guard(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let began = Instant::now();
    let asked = Asked::of(&request);
    let is_api = is_api(request.uri().path());
    // The room of its body is free again when it is answered.
    let carried = Carried::default();
    request.extensions_mut().insert(carried.clone());
    let answer = match check(&app, &mut request) {
        Err(failure) => failure.into_response(),
        Ok(()) => match tokio::time::timeout(app.limits.request, next.run(request)).await {
            Ok(answer) => answer,
            Err(_) => too_long(app.limits.request).into_response(),
        },
    };
    asked.log(&answer, began, &app.refusals);
    with_headers(answer, is_api, app.secure)
}

/// Nobody waits any longer; what was begun may still be done.
fn too_long(limit: Duration) -> Failure {
    Failure::open(
        format!("it took longer than {limit:?}, and what became of it is not known"),
        "see what is there now, and send the same again",
    )
}

/// What changes with every request, unlike the files of the dashboard.
fn is_api(path: &str) -> bool {
    path.starts_with("/v1/") || matches!(path, "/healthz" | "/readyz")
}

/// What is logged of a request: nothing that could be a secret, and nothing that was not checked to
/// be one line.
struct Asked {
    peer: String,
    method: Method,
    path: String,
    has_token: bool,
}

impl Asked {
    fn of(request: &Request) -> Self {
        let peer = request.extensions().get::<Peer>();
        Self {
            peer: peer.map_or_else(String::new, |peer| peer.0.to_string()),
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            has_token: bearer(request.headers()).is_some(),
        }
    }

    fn log(&self, answer: &Response, began: Instant, refusals: &Refusals) {
        let Self {
            peer, method, path, ..
        } = self;
        let status = answer.status();
        let took = began.elapsed();
        tracing::debug!(peer, %method, path, status = status.as_u16(), ?took, "answered");
        let told = answer.extensions().get::<Told>();
        let code = told.map_or("unknown", |told| told.code);
        // A token that nobody knows, or one that may only look.
        let is_refused =
            self.has_token && (status == StatusCode::UNAUTHORIZED || code == FORBIDDEN);
        if !is_refused && !status.is_server_error() {
            return;
        }
        let status = status.as_u16();
        let Some(more) = refusals.refused((status, code)) else {
            return;
        };
        let more = more.told();
        if is_refused {
            tracing::warn!(peer, %method, path, status, code, "a token was refused{more}");
        } else {
            let why = told.map_or("", |told| told.message.as_str());
            tracing::warn!(peer, %method, path, status, code, why, "not done{more}");
        }
    }
}

fn check(app: &App, request: &mut Request) -> Result<(), Failure> {
    if head_bytes(request) > HEAD_BYTES {
        return Err(Failure::new(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            "head_too_large",
            format!("the head of a request has up to {HEAD_BYTES} bytes"),
            "send fewer or shorter headers",
        ));
    }
    if request.headers().len() > HEADERS {
        return Err(Failure::new(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            "too_many_headers",
            format!("a request has up to {HEADERS} headers"),
            "send fewer",
        ));
    }
    let headers = request.headers();
    let host = host_of(headers)?.to_owned();
    if !is_served(&host, &app.hosts) {
        return Err(Failure::new(
            StatusCode::MISDIRECTED_REQUEST,
            "wrong_host",
            "this service does not go by that name",
            "ask for it by its address, or allow the name with --host",
        ));
    }
    let foreign = || {
        Failure::new(
            StatusCode::FORBIDDEN,
            "wrong_origin",
            "a page from elsewhere may not use this service",
            "open the dashboard that this service has itself",
        )
    };
    let origin = headers.get(header::ORIGIN);
    if let Some(origin) = origin
        && !is_same(origin, &host)
    {
        return Err(foreign());
    }
    let fetch_site = headers.get("sec-fetch-site");
    if is_api(request.uri().path())
        && fetch_site.is_some_and(|site| site != "same-origin" && site != "none")
    {
        return Err(foreign());
    }
    let by_browser = origin.is_some() || fetch_site.is_some();
    let changes = !matches!(*request.method(), Method::GET | Method::HEAD);
    if changes && by_browser && !headers.contains_key(CSRF) {
        return Err(Failure::new(
            StatusCode::FORBIDDEN,
            "csrf",
            format!("a browser's request that changes something carries {CSRF}"),
            format!("send the header {CSRF}: 1"),
        ));
    }
    let need = need(request.method(), request.uri().path());
    if let Need::Role(needed) = need {
        let Some(caller) = app.access.caller(headers) else {
            return Err(Failure::new(
                StatusCode::UNAUTHORIZED,
                "unauthorized",
                "this needs a token",
                "send the header Authorization: Bearer TOKEN",
            ));
        };
        if caller.role < needed {
            return Err(Failure::new(
                StatusCode::FORBIDDEN,
                FORBIDDEN,
                "this token may only look",
                "use the token of the role operate",
            ));
        }
        request.extensions_mut().insert(caller);
    }
    // By what it says of itself: whoever sends nothing more must not be waited for.
    let length = request.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > app.limits.body as u64) {
        return Err(Failure::too_large(app.limits.body));
    }
    Ok(())
}

/// How long the head of a request is, as clients usually write it. The connection's buffer can hold
/// more than that.
fn head_bytes(request: &Request) -> usize {
    let path = request.uri().path_and_query();
    let line = request.method().as_str().len() + path.map_or(0, |path| path.as_str().len());
    let headers = request.headers().iter();
    let headers = headers.map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len());
    line + "  HTTP/1.1\r\n\r\n".len() + headers.sum::<usize>()
}

/// The one Host of a request, with its port.
fn host_of(headers: &HeaderMap) -> Result<&str, Failure> {
    let wrong = || Failure::bad("a request has exactly one Host", "send one");
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next().ok_or_else(wrong)?;
    if hosts.next().is_some() {
        return Err(wrong());
    }
    host.to_str().map_err(|_| wrong())
}

/// The name or address in a Host, without its port.
fn name_of(host: &str) -> &str {
    if let Some((inside, _)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return inside;
    }
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    }
}

fn is_served(host: &str, allowed: &[String]) -> bool {
    let name = name_of(host);
    name.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || allowed.iter().any(|one| one.eq_ignore_ascii_case(name))
}

/// Whether a page's origin is this very service.
fn is_same(origin: &HeaderValue, host: &str) -> bool {
    let origin = origin.to_str().unwrap_or("null");
    let authority = origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"));
    authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

fn with_headers(mut answer: Response, is_api: bool, secure: bool) -> Response {
    let headers = answer.headers_mut();
    let fixed = [
        (header::CONTENT_SECURITY_POLICY.as_str(), CONTENT_POLICY),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        (
            "permissions-policy",
            "camera=(), geolocation=(), microphone=()",
        ),
    ];
    for (name, value) in fixed {
        let name = HeaderName::from_static(name);
        headers.insert(name, HeaderValue::from_static(value));
    }
    if is_api {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    if secure {
        let long = HeaderValue::from_static("max-age=31536000");
        headers.insert(header::STRICT_TRANSPORT_SECURITY, long);
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_allowed_names_are_served() {
        let allowed = ["parti.example".to_owned()];
        for good in [
            "localhost",
            "LocalHost:8080",
            "127.0.0.1:1",
            "[::1]:8080",
            "10.0.0.7",
            "Parti.Example:443",
        ] {
            assert!(is_served(good, &allowed), "{good}");
        }
        for bad in [
            "evil.example",
            "parti.example.evil",
            "",
            "localhost.evil:80",
            "[::1",
        ] {
            assert!(!is_served(bad, &allowed), "{bad}");
        }
    }

    #[test]
    fn only_the_same_origin_is_the_same() {
        let same =
            |origin: &'static str| is_same(&HeaderValue::from_static(origin), "127.0.0.1:80");
        assert!(same("http://127.0.0.1:80") && same("https://127.0.0.1:80"));
        for other in [
            "null",
            "http://127.0.0.1:81",
            "http://evil",
            "127.0.0.1:80",
            "",
        ] {
            assert!(!same(other), "{other}");
        }
    }

    #[test]
    fn every_change_needs_the_role_for_it() {
        let needs = |method: Method, path| need(&method, path);
        assert_eq!(needs(Method::GET, "/"), Need::Nothing);
        assert_eq!(needs(Method::GET, "/v1/groups"), Need::Role(Role::Read));
        assert_eq!(
            needs(Method::POST, "/v1/groups/g/plan"),
            Need::Role(Role::Read)
        );
        assert_eq!(needs(Method::POST, "/v1/groups"), Need::Role(Role::Operate));
        assert_eq!(
            needs(Method::POST, "/v1/groups/g/sessions"),
            Need::Role(Role::Operate)
        );
        assert_eq!(
            needs(Method::GET, "/v1/groups/g/sessions/s/events"),
            Need::Session
        );
        assert_eq!(
            needs(Method::DELETE, "/v1/other"),
            Need::Role(Role::Operate)
        );
        assert_eq!(needs(Method::POST, "/v1"), Need::Role(Role::Operate));
    }
}
