//! What is measured: each backend with its server, and the plain client to hold it against.
//!
//! A further one is an entry of [`ALL`] and a [`Plain`] for it.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use parti::store::{Bytes, Memory, Store};
use tokio::runtime::Runtime;

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
    /// The fastest that the backend's own client can do, if there is something to compare with.
    pub plain: Option<Box<dyn Plain>>,
    /// The server, which ends when this is dropped.
    #[allow(dead_code, reason = "held for its drop")]
    pub server: Box<dyn Any>,
}

/// A backend's own client, without Parti: all writes at once, pipelined or in one message, as fast
/// as they can be made durable.
#[async_trait]
pub trait Plain: Send {
    /// Writes these keys and values, and returns when all are acknowledged.
    async fn write(&mut self, writes: &[(String, Bytes)]);
}

/// Everything that this build can measure.
pub const ALL: &[Start] = &[
    Start {
        name: "memory",
        start: memory,
    },
    // #[cfg(feature = "nats")]
    // Start { name: "nats", start: nats },
];

fn memory(_: &Runtime) -> Backend {
    let store = Memory::new();
    Backend {
        store: Arc::new(store.clone()),
        other: Arc::new(store),
        plain: Some(Box::new(PlainMap::default())),
        server: Box::new(()),
    }
}

// A backend with a server:
//
// #[cfg(feature = "nats")]
// fn nats(runtime: &Runtime) -> Backend {
//     let server = parti_servers::nats::Server::start();
//     let open = || runtime.block_on(parti::store::open(&server.url())).expect("a store");
//     Backend {
//         store: open(),
//         other: open(),
//         plain: Some(Box::new(runtime.block_on(PlainNats::connect(&server.url())))),
//         server: Box::new(server),
//     }
// }

/// A map behind a lock, with a revision for each value.
#[derive(Default)]
struct PlainMap {
    map: Mutex<BTreeMap<String, (u64, Bytes)>>,
}

#[async_trait]
impl Plain for PlainMap {
    async fn write(&mut self, writes: &[(String, Bytes)]) {
        let mut map = self.map.lock().expect("no panic holds it");
        for (key, value) in writes {
            let revision = map.get(key).map_or(0, |(revision, _)| *revision);
            map.insert(key.clone(), (revision + 1, value.clone()));
        }
    }
}
