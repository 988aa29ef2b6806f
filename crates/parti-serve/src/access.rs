//! Who may do what.
//!
//! ```text
//!   a token, a proxy's header, or nothing at all (loopback) ──▶ Caller: who, and in which role
//! ```
//!
//! Tokens are kept as hashes only, compared in constant time, and never shown.

use std::fmt;

use axum::http::{HeaderMap, HeaderName, header};
use parti::core::ids::Badge;
use serde::Serialize;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use utoipa::ToSchema;

use crate::sane::{LONGEST_TOKEN, check_proxy_header};

/// What somebody may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Look.
    Read,
    /// Look, and change.
    Operate,
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// What they may do.
    pub role: Role,
    /// What to call them in the group's history.
    pub name: String,
}

/// A secret, of which only the hash is kept.
#[derive(Clone)]
pub struct Hashed([u8; 32]);

impl fmt::Debug for Hashed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hashed(..)")
    }
}

impl Hashed {
    /// The hash of a secret.
    pub fn of(secret: &[u8]) -> Self {
        Self(Sha256::digest(secret).into())
    }

    /// What a session's record says of its consumer: half of the hash.
    pub fn badge(&self) -> Badge {
        let (half, _) = self.0.split_at(16);
        Badge(
            half.iter()
                .fold(0, |badge, byte| badge << 8 | u128::from(*byte)),
        )
    }

    /// Whether this is the secret; takes as long whether it is or not.
    pub fn is(&self, secret: &[u8]) -> bool {
        self.0.ct_eq(&Self::of(secret).0).into()
    }
}

/// The rules of one service.
#[derive(Clone, Debug, Default)]
pub struct Access {
    operate: Option<Hashed>,
    read: Option<Hashed>,
    proxy: Option<HeaderName>,
    /// Bytes of the longest token.
    longest: usize,
}

impl Access {
    /// Whoever has this token may do everything.
    #[must_use]
    pub fn operate_token(mut self, token: &str) -> Self {
        self.operate = Some(Hashed::of(token.as_bytes()));
        self.longest = self.longest.max(token.len());
        self
    }

    /// Whoever has this token may look.
    #[must_use]
    pub fn read_token(mut self, token: &str) -> Self {
        self.read = Some(Hashed::of(token.as_bytes()));
        self.longest = self.longest.max(token.len());
        self
    }

    /// A proxy in front has made sure of whoever it names in this header.
    #[must_use]
    pub fn proxy_header(mut self, name: HeaderName) -> Self {
        self.proxy = Some(name);
        self
    }

    /// Whether it lets in those that were meant, and no others. What is said repeats no token.
    pub(crate) fn check(&self) -> Result<(), String> {
        if let Some(proxy) = &self.proxy {
            check_proxy_header(proxy)?;
        }
        if let (Some(all), Some(some)) = (&self.operate, &self.read)
            && bool::from(all.0.ct_eq(&some.0))
        {
            return Err(
                "PARTI_TOKEN and PARTI_READ_TOKEN are the same token, so whoever may look could do \
                 everything; give two, or leave the second out"
                    .into(),
            );
        }
        if self.longest > LONGEST_TOKEN {
            let long = self.longest;
            return Err(format!(
                "a token has {long} bytes, and a request that carries it would be refused; give it \
                 up to {LONGEST_TOKEN}"
            ));
        }
        Ok(())
    }

    /// Whether everybody who gets here may do everything.
    pub fn is_open(&self) -> bool {
        self.operate.is_none() && self.read.is_none() && self.proxy.is_none()
    }

    /// Who asks; `None` if nobody that is known.
    pub fn caller(&self, headers: &HeaderMap) -> Option<Caller> {
        let caller = |role, name: &str| {
            let name = name.to_owned();
            Some(Caller { role, name })
        };
        if self.is_open() {
            return caller(Role::Operate, "local");
        }
        if let Some(proxy) = &self.proxy
            && let Some(name) = headers.get(proxy).and_then(|name| name.to_str().ok())
            && !name.trim().is_empty()
        {
            let short: String = name.trim().chars().take(100).collect();
            return caller(Role::Operate, &short);
        }
        let token = bearer(headers)?.as_bytes();
        let is = |hash: &Option<Hashed>| hash.as_ref().is_some_and(|hash| hash.is(token));
        if is(&self.operate) {
            caller(Role::Operate, "operator")
        } else if is(&self.read) {
            caller(Role::Read, "reader")
        } else {
            None
        }
    }
}

/// The token that a request carries.
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then_some(token.trim())
        .filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn with(name: &str, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let name: HeaderName = name.parse().expect("a name");
        headers.insert(name, HeaderValue::from_str(value).expect("a value"));
        headers
    }

    fn role(access: &Access, headers: &HeaderMap) -> Option<Role> {
        access.caller(headers).map(|caller| caller.role)
    }

    #[test]
    fn tokens_have_roles_and_nothing_else_does() {
        let access = Access::default().operate_token("all").read_token("some");
        let of = |value: &str| role(&access, &with("authorization", value));
        assert_eq!(of("Bearer all"), Some(Role::Operate));
        assert_eq!(of("bearer some"), Some(Role::Read));
        for wrong in ["Bearer al", "Bearer alll", "Basic all", "all", "Bearer "] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
        assert_eq!(role(&access, &HeaderMap::new()), None);
        assert!(!format!("{access:?}").contains("all"));
    }

    #[test]
    fn tokens_are_two_and_fit_into_a_request() {
        let access = Access::default().operate_token("all");
        assert_eq!(access.clone().read_token("some").check(), Ok(()));
        let same = access.clone().read_token("all").check();
        let why = same.expect_err("the same");
        assert!(
            why.contains("PARTI_READ_TOKEN") && !why.contains("\"all\""),
            "{why}"
        );
        let longest = "x".repeat(LONGEST_TOKEN);
        assert_eq!(access.clone().read_token(&longest).check(), Ok(()));
        let why = access.read_token(&format!("{longest}x")).check();
        assert!(why.expect_err("too long").contains("16385 bytes"));
    }

    #[test]
    fn a_proxy_names_people_only_where_it_is_trusted() {
        let headers = with("x-user", " anna ");
        let trusting = Access::default().proxy_header(HeaderName::from_static("x-user"));
        let caller = trusting.caller(&headers).expect("known");
        assert_eq!((caller.role, caller.name.as_str()), (Role::Operate, "anna"));
        assert_eq!(role(&trusting, &with("x-user", "  ")), None);
        assert_eq!(role(&Access::default().operate_token("t"), &headers), None);
        assert_eq!(
            role(&Access::default(), &HeaderMap::new()),
            Some(Role::Operate)
        );
    }
}
