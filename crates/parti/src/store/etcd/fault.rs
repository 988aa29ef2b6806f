//! What went wrong with a request, and what is known of its fate.
//!
//! By exclusion: only what etcd is known to say before it does anything counts as not done. The
//! texts are etcd's own and have been the same since 3.4; its codes alone do not tell, because the
//! client and proxies make up some of them.

use std::error::Error as _;

use tonic::{Code, ConnectError, Status};

use crate::store::Error;

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fault {
    /// It was not done: not sent, or refused by a member that cannot serve now. Another may.
    NotDone(String),
    /// It was not done, because the token is missing or no longer good.
    Login(String),
    /// It was not done, and will not be.
    Refused(String),
    /// It was not done as a whole; its parts may fare better.
    RefusedWhole(String),
    /// The revision that was asked for is no longer kept.
    Compacted,
    /// Nobody knows.
    Open(String),
}

const NO_SPACE: &str = "etcd is out of space (its NOSPACE alarm) and takes no more writes; compact \
     and defragment it, then lift the alarm: etcdctl compact REVISION, etcdctl defrag, etcdctl \
     alarm disarm; or give it more with --quota-backend-bytes";

const CORRUPT: &str = "etcd has found its members to differ (its CORRUPT alarm) and serves \
     nothing; restore the member that is wrong, then lift the alarm with etcdctl alarm disarm";

impl Fault {
    /// What a status says.
    pub fn of(status: &Status) -> Self {
        if never_connected(status) {
            return Fault::NotDone(told(status));
        }
        if broke(status) {
            return Fault::Open(told(status));
        }
        match status.code() {
            Code::Unimplemented => Fault::Refused(format!(
                "what answers is not an etcd v3 server ({})",
                status.message()
            )),
            _ => Self::said(status.message()),
        }
    }

    /// What a text of etcd says, be it a status or the reason of a cancelled watch.
    pub fn said(text: &str) -> Self {
        let says = |known: &str| text.contains(known);
        if says("no leader")
            || says("too many requests")
            || says("not supported for learner")
            || says("raft proposal dropped")
        {
            Fault::NotDone(text.to_owned())
        } else if says("invalid auth token")
            || says("user name is empty")
            || says("revision of auth store is old")
        {
            Fault::Login(text.to_owned())
        } else if says("permission denied") {
            Fault::RefusedWhole(format!(
                "{text}; grant the user's role readwrite on the whole prefix: etcdctl role \
                 grant-permission ROLE readwrite PREFIX/ --prefix"
            ))
        } else if says("invalid user ID or password") {
            Fault::Refused("etcd does not accept the user or the password of the URL".into())
        } else if says("database space exceeded") {
            Fault::Refused(NO_SPACE.into())
        } else if says("corrupt cluster") {
            Fault::Refused(CORRUPT.into())
        } else if says("request is too large") || says("received message larger than max") {
            Fault::RefusedWhole(format!(
                "{text}; raise etcd's --max-request-bytes (its default of 1.5 MiB is enough)"
            ))
        } else if says("too many operations in txn") {
            Fault::RefusedWhole(format!("{text}; raise etcd's --max-txn-ops"))
        } else if says("required revision has been compacted") {
            Fault::Compacted
        } else {
            Fault::Open(text.to_owned())
        }
    }

    /// An alarm that a member reports, in its own words.
    pub fn alarm(report: &str) -> Option<Self> {
        if report.contains("NOSPACE") {
            Some(Fault::Refused(NO_SPACE.into()))
        } else if report.contains("CORRUPT") {
            Some(Fault::Refused(CORRUPT.into()))
        } else {
            None
        }
    }

    /// What it means for one who only wanted to know something.
    pub fn for_read(self) -> Error {
        match self {
            Fault::NotDone(why) | Fault::Open(why) => Error::unavailable(why),
            Fault::Compacted => Error::unavailable("etcd was compacted in the middle of a read"),
            Fault::Login(why) | Fault::Refused(why) | Fault::RefusedWhole(why) => {
                Error::rejected(why)
            }
        }
    }

    /// What it means for one who wanted to change something.
    pub fn for_write(self) -> Error {
        match self {
            Fault::Open(why) => Error::unknown(why),
            other => other.for_read(),
        }
    }
}

/// Whether the request stayed here because there was no connection to send it on.
fn never_connected(status: &Status) -> bool {
    let mut source = status.source();
    while let Some(error) = source {
        if error.is::<ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}

/// Whether the connection is to blame: what a server says has no cause on our side.
pub(super) fn broke(status: &Status) -> bool {
    status.source().is_some()
}

fn told(status: &Status) -> String {
    match status.source() {
        Some(source) => root(source),
        None => status.message().to_owned(),
    }
}

/// The innermost cause, which is the one that helps: "connection refused", not "transport error".
pub(super) fn root(error: &(dyn std::error::Error + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_known_not_to_have_happened_is_not_unknown() {
        let kind = |text: &str| Fault::of(&Status::unavailable(text)).for_write().kind();
        assert_eq!(kind("etcdserver: no leader"), "unavailable");
        assert_eq!(kind("etcdserver: too many requests"), "unavailable");
        assert_eq!(
            kind("etcdserver: mvcc: database space exceeded"),
            "rejected"
        );
        assert_eq!(kind("etcdserver: request is too large"), "rejected");
        assert_eq!(kind("etcdserver: permission denied"), "rejected");
        for open in [
            "etcdserver: request timed out",
            "etcdserver: request timed out, possibly due to previous leader failure",
            "etcdserver: leader changed",
            "etcdserver: server stopped",
            "something new",
            "",
        ] {
            assert_eq!(kind(open), "unknown", "{open}");
        }
    }

    #[test]
    fn a_broken_connection_leaves_a_write_open_and_one_never_made_does_not() {
        let error = || Box::new(std::io::Error::other("reset"));
        let broken = Status::from_error(error());
        assert_eq!(Fault::of(&broken), Fault::Open("reset".into()));
        let unmade = Status::from_error(Box::new(ConnectError(error())));
        assert_eq!(Fault::of(&unmade), Fault::NotDone("reset".into()));
    }
}
