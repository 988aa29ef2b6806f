//! A session's token: who it is, and a secret that nobody else has.
//!
//! It names the group, the worker and the life that it began with, so that any instance can tell whose
//! it is and go on with it, what the consumer calls itself, and what shows that it is there. Only the
//! hash of the secret is ever kept.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parti::WorkerId;
use parti::core::ids::Incarnation;
use serde::{Deserialize, Serialize};

use super::seat::{Client, Liveness};
use crate::access::Hashed;
use crate::failure::Failure;

/// Bytes of a secret.
const SECRET: usize = 32;

/// Which session.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionId {
    /// Of which group.
    pub group: String,
    /// As which worker.
    pub worker: WorkerId,
    /// In which life of that id.
    pub incarnation: Incarnation,
}

impl fmt::Display for SessionId {
    /// Its name within the group.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.worker, self.incarnation.0)
    }
}

/// A secret on its way to the one client that may have it.
pub struct Secret([u8; SECRET]);

impl Secret {
    /// A new one.
    pub fn draw() -> Result<Self, Failure> {
        let mut secret = [0; SECRET];
        getrandom::fill(&mut secret)
            .map_err(|_| Failure::unavailable("the system has no random numbers"))?;
        Ok(Self(secret))
    }

    /// What is kept of it.
    pub fn hashed(&self) -> Hashed {
        Hashed::of(&self.0)
    }
}

/// What a token carries.
#[derive(Serialize, Deserialize)]
struct Carried {
    g: String,
    w: String,
    i: u64,
    s: String,
    n: String,
    l: Liveness,
}

/// What a token tells.
pub struct Shown {
    /// Which session.
    pub id: SessionId,
    /// What nobody else has.
    pub secret: Vec<u8>,
    /// What the consumer calls itself.
    pub consumer: String,
    /// What shows that it is there.
    pub liveness: Liveness,
}

/// The token of a session.
pub fn write(id: &SessionId, secret: &Secret, client: &Client) -> String {
    let carried = Carried {
        g: id.group.clone(),
        w: id.worker.to_string(),
        i: id.incarnation.0,
        s: URL_SAFE_NO_PAD.encode(secret.0),
        n: client.consumer.clone(),
        l: client.liveness,
    };
    // Text and a number are always JSON.
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(&carried).unwrap_or_default())
}

/// Whose token this is.
pub fn read(token: &str) -> Option<Shown> {
    let carried: Carried = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
    let id = SessionId {
        group: carried.g,
        worker: WorkerId::new(carried.w),
        incarnation: Incarnation(carried.i),
    };
    Some(Shown {
        id,
        secret: URL_SAFE_NO_PAD.decode(carried.s).ok()?,
        consumer: carried.n,
        liveness: carried.l,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_says_whose_it_is_and_only_the_secret_opens() {
        let id = SessionId {
            group: "ord/ers".into(),
            worker: WorkerId::new("worker-7"),
            incarnation: Incarnation(41),
        };
        let (secret, other) = (
            Secret::draw().expect("random"),
            Secret::draw().expect("random"),
        );
        let client = Client {
            consumer: "billing".into(),
            metadata: serde_json::Value::Null,
            liveness: Liveness::Heartbeat,
        };
        let shown = read(&write(&id, &secret, &client)).expect("a token");
        assert_eq!((&shown.id, id.to_string().as_str()), (&id, "worker-7.41"));
        assert_eq!(shown.consumer, "billing");
        assert_eq!(shown.liveness, Liveness::Heartbeat);
        assert!(secret.hashed().is(&shown.secret));
        assert!(!other.hashed().is(&shown.secret));
        assert_eq!(secret.hashed().badge(), Hashed::of(&shown.secret).badge());
        for garbage in ["", "x", "e30", "!!!", &"A".repeat(10_000)] {
            assert!(read(garbage).is_none(), "{garbage}");
        }
    }
}
