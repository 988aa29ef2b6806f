//! The store on etcd v3, from version 3.4 on.
//!
//! ```text
//!   etcd://[user:password@]host[:2379][,host…][/prefix][?tls=true&ca=FILE&cert=FILE&key=FILE]
//! ```
//!
//! Keys are stored as they are, below the prefix (`parti` unless the URL has another), so that
//! `etcdctl get --prefix parti/` shows them. A key's revision is etcd's modification revision,
//! which counts all writes of the cluster and so grows across delete and re-create. Reads are
//! linearizable: one that succeeds is never stale.
//!
//! Several hosts are several members of one cluster. One of them is asked, until it fails; then
//! the next. What only reads is asked again elsewhere, a write only if it was certainly not done.
//!
//! | file | subject |
//! |---|---|
//! | `settings` | the URL |
//! | `keys` | store keys and etcd keys |
//! | `proto` | etcd's messages |
//! | `link`, `client` | connections, tokens, who is asked |
//! | `fault` | what went wrong, and what is known of the request's fate |
//! | `batch`, `watch` | writing, watching |

mod batch;
mod client;
mod fault;
mod keys;
mod link;
mod proto;
mod settings;
mod watch;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::timeout;

use client::{Client, Kind};
use fault::Fault;
use keys::Keys;
use proto::{
    MEMBER_LIST, MemberListRequest, MemberListResponse, RANGE, RangeRequest, RangeResponse, STATUS,
    StatusRequest, StatusResponse,
};
use settings::Settings;

use super::{About, Entry, Error, Revision, Scope, Store, Watch, Write, check_key};

const OPEN_WITHIN: Duration = Duration::from_secs(15);
const OLDEST: (u32, u32) = (3, 4);
/// How many entries one answer of a list has at most.
const PAGE: i64 = 1_000;

/// A store on etcd. Clones share their connection.
#[derive(Clone)]
pub struct Etcd {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    client: Client,
    keys: Keys,
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Etcd({})", self.inner.name)
    }
}

/// Whether the URL can be used.
pub(super) fn check_url(url: &str) -> Result<(), Error> {
    Settings::parse(url).map(|_| ())
}

impl Etcd {
    /// Opens the store that a URL names, and makes sure that it can be read from: that a member
    /// answers, is new enough, has no alarm, and accepts the user.
    pub async fn open(url: &str) -> Result<Self, Error> {
        let settings = Settings::parse(url)?;
        let store = Self {
            inner: Arc::new(Inner {
                name: settings.name,
                client: Client::new(settings.links, settings.login),
                keys: settings.keys,
            }),
        };
        match timeout(OPEN_WITHIN, store.inner.check()).await {
            Ok(Ok(())) => Ok(store),
            Ok(Err(fault)) => Err(store.inner.cannot_open(fault)),
            Err(_) => Err(Error::unavailable(format!(
                "{} did not answer within {} s",
                store.inner.name,
                OPEN_WITHIN.as_secs()
            ))),
        }
    }
}

impl Inner {
    async fn check(&self) -> Result<(), Fault> {
        let status = StatusRequest {};
        let status: StatusResponse = self.client.call(STATUS, &status, Kind::Read).await?;
        check_version(&status.version)?;
        if let Some(alarm) = status.errors.iter().find_map(|error| Fault::alarm(error)) {
            return Err(alarm);
        }
        let (key, range_end) = self.keys.range(&Scope::Under(String::new()));
        let probe = RangeRequest {
            key,
            range_end,
            limit: 1,
            keys_only: true,
            ..RangeRequest::default()
        };
        let _: RangeResponse = self.client.call(RANGE, &probe, Kind::Read).await?;
        Ok(())
    }

    async fn about(&self) -> Result<About, Fault> {
        let (status, members) = (StatusRequest {}, MemberListRequest {});
        let status: StatusResponse = self.client.call(STATUS, &status, Kind::Read).await?;
        let mut concerns = status.errors;
        let list = self.client.call(MEMBER_LIST, &members, Kind::Read).await;
        let voters = match list {
            Ok(MemberListResponse { members }) => {
                let voters = members.iter().filter(|member| !member.is_learner);
                Some(voters.count())
            }
            // A user who may only use some keys may not ask for members.
            Err(Fault::Refused(_)) => None,
            Err(fault) => return Err(fault),
        };
        if let Some(voters @ (2 | 4 | 6)) = voters {
            concerns.push(format!(
                "the cluster has {voters} members: an even number survives no more failures than \
                 one less; use 3 or 5"
            ));
        }
        Ok(About {
            server: Some(format!("etcd {}", status.version)),
            replicas: voters,
            servers: voters,
            concerns,
            ..About::default()
        })
    }

    fn cannot_open(&self, fault: Fault) -> Error {
        let hint = match &fault {
            Fault::NotDone(_) | Fault::Open(_) => {
                "; is it an etcd, does the URL say tls=true if it speaks TLS, and cert and key if \
                 it wants a client's certificate?"
            }
            _ => "",
        };
        match fault.for_read() {
            Error::Unavailable { why } => {
                Error::unavailable(format!("{} cannot be reached: {why}{hint}", self.name))
            }
            Error::Rejected { why } => {
                Error::rejected(format!("{} cannot be used: {why}", self.name))
            }
            other => other,
        }
    }

    /// Everything in a scope, in order, with the revision at which it is so.
    async fn list(&self, scope: &Scope) -> Result<(Vec<Entry>, i64), Fault> {
        let mut compacted = 0;
        loop {
            match self.pages(scope).await {
                // Page by page at one revision, which a compaction may take from under us.
                Err(Fault::Compacted) if compacted < 3 => compacted += 1,
                done => return done,
            }
        }
    }

    async fn pages(&self, scope: &Scope) -> Result<(Vec<Entry>, i64), Fault> {
        let (key, range_end) = self.keys.range(scope);
        let mut request = RangeRequest {
            key,
            range_end,
            limit: PAGE,
            ..RangeRequest::default()
        };
        let mut entries = Vec::new();
        loop {
            let page: RangeResponse = self.client.call(RANGE, &request, Kind::Read).await?;
            if request.revision == 0 {
                let header = page.header.unwrap_or_default();
                request.revision = header.revision;
            }
            let last = page.kvs.last().map(|kv| kv.key.clone());
            entries.extend(page.kvs.into_iter().filter_map(|kv| self.keys.entry(kv)));
            match last {
                Some(last) if page.more => {
                    request.key = last;
                    request.key.push(0);
                }
                _ => return Ok((entries, request.revision)),
            }
        }
    }
}

#[async_trait]
impl Store for Etcd {
    fn name(&self) -> &str {
        &self.inner.name
    }

    async fn read(&self, key: &str) -> Result<Option<Entry>, Error> {
        check_key(key)?;
        let request = RangeRequest {
            key: self.inner.keys.full(key),
            ..RangeRequest::default()
        };
        let answer = self.inner.client.call(RANGE, &request, Kind::Read).await;
        let found: RangeResponse = answer.map_err(Fault::for_read)?;
        let kv = found.kvs.into_iter().next();
        Ok(kv.and_then(|kv| self.inner.keys.entry(kv)))
    }

    async fn list(&self, scope: &Scope) -> Result<Vec<Entry>, Error> {
        scope.check()?;
        let listed = self.inner.list(scope).await;
        listed.map(|(entries, _)| entries).map_err(Fault::for_read)
    }

    async fn about(&self) -> Result<About, Error> {
        self.inner.about().await.map_err(Fault::for_read)
    }

    async fn write(&self, batch: Vec<Write>) -> Vec<Result<Revision, Error>> {
        batch::write(&self.inner, batch).await
    }

    fn watch(&self, scope: Scope) -> Watch {
        watch::watch(Arc::clone(&self.inner), scope)
    }
}

fn check_version(version: &str) -> Result<(), Fault> {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().ok());
    match (parts.next().flatten(), parts.next().flatten()) {
        (Some(major), Some(minor)) if (major, minor) < OLDEST => Err(Fault::Refused(format!(
            "it is etcd {version}; Parti needs {}.{} or newer",
            OLDEST.0, OLDEST.1
        ))),
        // A version that cannot be read is not a reason to refuse.
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_server_is_refused_by_name() {
        for good in ["3.4.0", "3.5.21", "3.10.0-rc.1", "4.0", "unknown", ""] {
            assert_eq!(check_version(good), Ok(()), "{good}");
        }
        let Err(Fault::Refused(why)) = check_version("3.3.27") else {
            panic!("refused")
        };
        assert!(why.contains("3.3.27") && why.contains("3.4"), "{why}");
        assert!(check_version("2.3.8").is_err());
    }
}
