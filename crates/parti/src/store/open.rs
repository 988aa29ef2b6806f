//! From a URL to a store.

use std::sync::Arc;

use super::{Error, Memory, Store};

/// Every scheme there is, in whichever build.
const KNOWN: [&str; 6] = ["sqlite", "nats", "tls", "etcd", "postgres", "postgresql"];

/// Opens the store that a URL names, and makes sure that it can be used.
///
/// | URL | what |
/// |---|---|
/// | `memory:` | this process alone; gone with it |
/// | `sqlite:PATH` | a file that several processes of one machine can share |
/// | `nats://[user:password@]host[:4222][,…][/bucket][?…]` | NATS KV; also `tls://` |
/// | `etcd://[user:password@]host[:2379][,…][/prefix][?…]` | etcd v3 |
/// | `postgres://[user:password@]host[:5432][,…][/database][?…]` | PostgreSQL |
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), parti::store::Error> {
/// let store = parti::store::open("memory:").await?;
/// assert_eq!(store.name(), "memory:");
/// assert!(parti::store::open("redis://localhost").await.is_err());
/// # Ok(())
/// # }
/// ```
pub async fn open(url: &str) -> Result<Arc<dyn Store>, Error> {
    match scheme(url).as_str() {
        #[cfg(feature = "sqlite")]
        "sqlite" => Ok(Arc::new(super::sqlite::Sqlite::open(url).await?)),
        #[cfg(feature = "nats")]
        "nats" | "tls" => Ok(Arc::new(super::nats::Nats::open(url).await?)),
        #[cfg(feature = "etcd")]
        "etcd" => Ok(Arc::new(super::etcd::Etcd::open(url).await?)),
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => Ok(Arc::new(super::postgres::Postgres::open(url).await?)),
        _ => check_url(url).map(|()| Arc::new(Memory::new()) as Arc<dyn Store>),
    }
}

/// Opens a store to look at what is there: `None` if the file, bucket or tables that it names are
/// not. Where [`open`] would make them, a mistyped name would look like a store without groups.
pub async fn open_existing(url: &str) -> Result<Option<Arc<dyn Store>>, Error> {
    match scheme(url).as_str() {
        #[cfg(feature = "sqlite")]
        "sqlite" if !super::sqlite::is_there(url).await? => Ok(None),
        #[cfg(feature = "nats")]
        "nats" | "tls" => {
            let found = super::nats::Nats::open_existing(url).await?;
            Ok(found.map(|store| Arc::new(store) as Arc<dyn Store>))
        }
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => {
            let found = super::postgres::Postgres::open_existing(url).await?;
            Ok(found.map(|store| Arc::new(store) as Arc<dyn Store>))
        }
        _ => open(url).await.map(Some),
    }
}

/// Whether a URL has the form of some store's, and names files that can be read, without asking any
/// server.
pub fn check_url(url: &str) -> Result<(), Error> {
    match scheme(url).as_str() {
        "memory" if url.len() == "memory:".len() => Ok(()),
        "memory" => Err(Error::rejected(
            "memory: takes nothing after the colon: it is this process's own",
        )),
        #[cfg(feature = "sqlite")]
        "sqlite" => super::sqlite::check_url(url),
        #[cfg(feature = "nats")]
        "nats" | "tls" => super::nats::check_url(url),
        #[cfg(feature = "etcd")]
        "etcd" => super::etcd::check_url(url),
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => super::postgres::check_url(url),
        known if KNOWN.contains(&known) => Err(Error::rejected(format!(
            "this build of Parti has no {known} store; build it with that feature"
        ))),
        // What stands before the colon may be a password, if the scheme was forgotten.
        _ => Err(Error::rejected(
            "the store's URL does not start with memory:, sqlite:, nats://, etcd:// or postgres://",
        )),
    }
}

fn scheme(url: &str) -> String {
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    scheme.to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::group::for_core;

    #[tokio::test]
    async fn a_file_is_made_only_for_who_begins() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("group.db");
        let url = format!("sqlite:{}", file.display());
        assert!(open_existing(&url).await.expect("no trouble").is_none());
        assert!(!file.exists(), "looking makes nothing");
        open(&url).await.expect("made");
        assert!(open_existing(&url).await.expect("no trouble").is_some());
    }

    #[test]
    fn a_url_is_judged_without_asking_anybody() {
        for url in [
            "memory:",
            "sqlite:a.db",
            "nats://127.0.0.1:1",
            "etcd://127.0.0.1:1",
            "postgres://127.0.0.1:1/db",
        ] {
            assert_eq!(check_url(url), Ok(()), "{url}");
        }
        for url in [
            "bogus:",
            "",
            "sqlite:",
            "memory:x",
            "nats://",
            "etcd://h?what=1",
        ] {
            assert!(check_url(url).is_err(), "{url}");
        }
    }

    #[test]
    fn who_refuses_is_said_once() {
        let full = Error::rejected("the disk is full");
        let said = for_core(&full).to_string();
        assert_eq!(said, "the store refuses: the disk is full");
    }
}
