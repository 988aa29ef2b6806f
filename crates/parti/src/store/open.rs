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
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    match scheme.to_ascii_lowercase().as_str() {
        "memory" if url.len() == "memory:".len() => Ok(Arc::new(Memory::new())),
        "memory" => Err(Error::rejected(
            "memory: takes nothing after the colon: it is this process's own",
        )),
        #[cfg(feature = "sqlite")]
        "sqlite" => Ok(Arc::new(super::sqlite::Sqlite::open(url).await?)),
        #[cfg(feature = "nats")]
        "nats" | "tls" => Ok(Arc::new(super::nats::Nats::open(url).await?)),
        #[cfg(feature = "etcd")]
        "etcd" => Ok(Arc::new(super::etcd::Etcd::open(url).await?)),
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => Ok(Arc::new(super::postgres::Postgres::open(url).await?)),
        known if KNOWN.contains(&known) => Err(Error::rejected(format!(
            "this build of Parti has no {known} store; build it with that feature"
        ))),
        // What stands before the colon may be a password, if the scheme was forgotten.
        _ => Err(Error::rejected(
            "the store's URL does not start with memory:, sqlite:, nats://, etcd:// or postgres://",
        )),
    }
}
