//! What is measured: each backend with its server, and the plain client to hold it against.
//!
//! A further one is an entry of [`ALL`] and a [`Plain`] for it. Servers run as they would for a
//! user who wants to keep what was acknowledged: what they sync to the disk by default, they sync.

use std::any::Any;
use std::sync::Arc;

use parti::store::{Memory, Store};
use tokio::runtime::Runtime;

use crate::plain::{self, Plain};

/// How to get one backend.
pub struct Start {
    pub name: &'static str,
    pub start: fn(&Runtime) -> Backend,
}

/// A backend that runs.
pub struct Backend {
    /// Who writes.
    pub store: Arc<dyn Store>,
    /// Another connection to the same store: who watches.
    pub other: Arc<dyn Store>,
    /// How another process gets to the same store, if it can.
    pub url: Option<String>,
    /// The fastest that the backend's own client can do.
    pub plain: Box<dyn Plain>,
    /// The server's process, if there is one.
    pub server_id: Option<u32>,
    /// The server, which ends when this is dropped.
    #[allow(dead_code, reason = "held for its drop")]
    pub server: Box<dyn Any>,
}

/// Everything that this build can measure.
pub const ALL: &[Start] = &[
    Start {
        name: "memory",
        start: memory,
    },
    #[cfg(feature = "sqlite")]
    Start {
        name: "sqlite",
        start: sqlite,
    },
    #[cfg(feature = "nats")]
    Start {
        name: "nats",
        start: nats,
    },
    #[cfg(feature = "etcd")]
    Start {
        name: "etcd",
        start: etcd,
    },
    #[cfg(feature = "postgres")]
    Start {
        name: "postgres",
        start: postgres,
    },
];

fn memory(_: &Runtime) -> Backend {
    let store = Memory::new();
    Backend {
        store: Arc::new(store.clone()),
        other: Arc::new(store),
        url: None,
        plain: Box::new(plain::memory::Map::default()),
        server_id: None,
        server: Box::new(()),
    }
}

#[cfg(any(
    feature = "sqlite",
    feature = "nats",
    feature = "etcd",
    feature = "postgres"
))]
fn opened(
    runtime: &Runtime,
    url: String,
    plain: Box<dyn Plain>,
    server_id: Option<u32>,
    server: Box<dyn Any>,
) -> Backend {
    let open = || runtime.block_on(parti::store::open(&url)).expect("a store");
    Backend {
        store: open(),
        other: open(),
        plain,
        server_id,
        server,
        url: Some(url),
    }
}

#[cfg(feature = "sqlite")]
fn sqlite(runtime: &Runtime) -> Backend {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("parti.db").display());
    let plain = plain::sqlite::Sqlite::create(&folder.path().join("plain.db"));
    opened(runtime, url, Box::new(plain), None, Box::new(folder))
}

#[cfg(feature = "nats")]
fn nats(runtime: &Runtime) -> Backend {
    let mut server = parti_servers::nats::Server::start();
    let plain = runtime.block_on(plain::nats::Nats::connect(&server.url()));
    let (url, id) = (server.url(), server.id());
    opened(runtime, url, Box::new(plain), id, Box::new(server))
}

#[cfg(feature = "etcd")]
fn etcd(runtime: &Runtime) -> Backend {
    let mut server = parti_servers::etcd::Server::start();
    let plain = runtime.block_on(plain::etcd::Etcd::connect(&server.address()));
    let (url, id) = (server.url(), server.id());
    opened(runtime, url, Box::new(plain), id, Box::new(server))
}

#[cfg(feature = "postgres")]
fn postgres(runtime: &Runtime) -> Backend {
    let mut server = parti_servers::postgres::Server::builder()
        .setting("fsync", "on")
        .setting("full_page_writes", "on")
        .setting("shared_buffers", "128MB")
        .start();
    let plain = runtime.block_on(plain::postgres::Postgres::connect(&server.url()));
    let (url, id) = (server.url(), server.id());
    opened(runtime, url, Box::new(plain), id, Box::new(server))
}
