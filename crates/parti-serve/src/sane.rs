//! Settings that would let in others than was meant, or nobody at all: refused at the start.

use axum::http::HeaderName;

use crate::listen::HEAD_BYTES;

/// Bytes of a token: more would leave too little of a request's head to the rest of it.
pub const LONGEST_TOKEN: usize = HEAD_BYTES / 2;

/// What clients, and browsers in particular, send by themselves, or proxies add to every request. Who
/// trusts a header of these lets in everybody who gets as far as here: none of them is a proxy's word
/// for who somebody is.
const OF_EVERYBODY: [&str; 46] = [
    "authorization",
    "cache-control",
    "connection",
    "cookie",
    "cookie2",
    "date",
    "dnt",
    "expect",
    "forwarded",
    "from",
    "host",
    "keep-alive",
    "last-event-id",
    "max-forwards",
    "origin",
    "pragma",
    "priority",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "referer",
    "save-data",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "upgrade-insecure-requests",
    "user-agent",
    "via",
    "x-client-ip",
    "x-correlation-id",
    "x-csrf-token",
    "x-forwarded-by",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "x-forwarded-proto",
    "x-forwarded-scheme",
    "x-forwarded-server",
    "x-parti-csrf",
    "x-real-ip",
    "x-request-id",
    "x-requested-with",
];

/// The same, by how they begin.
const OF_EVERYBODY_BEGIN: [&str; 5] = ["accept", "access-control-", "content-", "if-", "sec-"];

/// Why no proxy can name people in this header.
pub fn check_proxy_header(name: &HeaderName) -> Result<(), String> {
    let text = name.as_str();
    let begins = || OF_EVERYBODY_BEGIN.iter().any(|one| text.starts_with(one));
    if !OF_EVERYBODY.contains(&text) && !begins() {
        return Ok(());
    }
    Err(format!(
        "--trust-proxy-header: {text:?} is a header that clients send by themselves, or proxies add \
         to every request, so everybody would be let in; give one that only the proxy sets, \
         and that it removes from what clients send, such as x-forwarded-user"
    ))
}

/// Why no client can ask for this host.
pub fn check_host(host: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    let is_address = host.parse::<std::net::IpAddr>().is_ok();
    if is_address || ((1..=253).contains(&host.len()) && host.chars().all(fits)) {
        return Ok(());
    }
    Err(format!(
        "--host: {host:?} is no name of a host; give the name alone, as clients ask for it, such as \
         parti.example.org: no scheme, no port, no path"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_that_everybody_comes_with_names_nobody() {
        let check = |name: &str| check_proxy_header(&name.parse().expect("a header"));
        for name in [
            "x-forwarded-user",
            "x-user",
            "remote-user",
            "x-auth-request-email",
        ] {
            assert_eq!(check(name), Ok(()), "{name}");
        }
        for name in [
            "Host",
            "user-agent",
            "accept",
            "accept-language",
            "connection",
            "content-type",
            "cookie",
            "origin",
            "referer",
            "authorization",
            "sec-fetch-site",
            "if-none-match",
            "x-parti-csrf",
            "X-Forwarded-For",
            "forwarded",
            "x-real-ip",
            "x-request-id",
            "traceparent",
            "tracestate",
            "via",
        ] {
            let why = check(name).expect_err(name);
            assert!(why.contains(&name.to_ascii_lowercase()), "{why}");
            assert!(why.contains("everybody would be let in"), "{why}");
        }
    }

    #[test]
    fn a_host_is_a_name_alone() {
        for host in [
            "parti",
            "parti.example.org",
            "a-b_c.local",
            "10.0.0.7",
            "::1",
        ] {
            assert_eq!(check_host(host), Ok(()), "{host}");
        }
        let long = "x".repeat(254);
        for host in [
            "",
            " ",
            "evil/host",
            "http://x",
            "x:80",
            "*",
            "é.example",
            &long,
        ] {
            let why = check_host(host).expect_err(host);
            assert!(why.contains(&format!("{host:?}")), "{why}");
        }
    }
}
