//! The conformance suite, run against every backend with its real server.
//!
//! `cargo test -p parti --test conformance -- --nocapture` prints one line per case and backend.
//! `PARTI_CASES=watches` runs only the cases whose name holds that text.

use std::sync::Arc;

use async_trait::async_trait;
use parti::store::conformance::{Subject, Suite};
use parti::store::{Error, Memory, Store};

/// Runs the suite, prints what it found, and fails if a case did.
async fn conforms(subject: &dyn Subject) {
    let mut suite = Suite::new(subject);
    if let Ok(cases) = std::env::var("PARTI_CASES") {
        suite = suite.only(cases);
    }
    let report = suite.run().await;
    println!("{report}\n");
    report.assert();
}

struct InMemory(Memory);

#[async_trait]
impl Subject for InMemory {
    fn name(&self) -> &str {
        "memory"
    }

    async fn connect(&self) -> Result<Arc<dyn Store>, Error> {
        Ok(Arc::new(self.0.clone()))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn memory() {
    conforms(&InMemory(Memory::new())).await;
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use super::*;
    use tempfile::TempDir;

    /// Every connection is a handle of its own on the one file: handles in one process share
    /// nothing, and get along as processes do. There is no link to cut, so nothing to disturb.
    struct Sqlite(TempDir);

    #[async_trait]
    impl Subject for Sqlite {
        fn name(&self) -> &str {
            "sqlite"
        }

        async fn connect(&self) -> Result<Arc<dyn Store>, Error> {
            let path = self.0.path().join("parti.db");
            parti::store::open(&format!("sqlite:{}", path.display())).await
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn sqlite() {
        conforms(&Sqlite(tempfile::tempdir().expect("a folder"))).await;
    }
}

/// A backend with a server, which is killed and started again whenever the suite asks for trouble.
#[cfg(any(feature = "nats", feature = "etcd", feature = "postgres"))]
struct Served<F> {
    name: &'static str,
    url: String,
    strike: F,
}

#[cfg(any(feature = "nats", feature = "etcd", feature = "postgres"))]
#[async_trait]
impl<F: Fn() + Send + Sync> Subject for Served<F> {
    fn name(&self) -> &str {
        self.name
    }

    async fn connect(&self) -> Result<Arc<dyn Store>, Error> {
        parti::store::open(&self.url).await
    }

    fn can_disturb(&self) -> bool {
        true
    }

    async fn disturb(&self) -> Result<(), Error> {
        // The servers' API blocks.
        tokio::task::block_in_place(&self.strike);
        Ok(())
    }
}

/// A further backend with a server: one line of this.
#[cfg(any(feature = "nats", feature = "etcd", feature = "postgres"))]
macro_rules! served {
    ($name:ident, $server:expr) => {
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            let server = $server;
            let url = server.url();
            let server = std::sync::Mutex::new(server);
            let strike = || {
                let mut server = server.lock().expect("no panic holds it");
                server.kill();
                server.restart();
            };
            let name = stringify!($name);
            conforms(&Served { name, url, strike }).await;
        }
    };
}

#[cfg(feature = "nats")]
served!(nats, parti_servers::nats::Server::start());
// The oldest server that is supported: it lacks what newer ones help with.
#[cfg(feature = "nats")]
served!(
    nats_2_10,
    parti_servers::nats::Server::start_version("2.10.26")
);
#[cfg(feature = "etcd")]
served!(etcd, parti_servers::etcd::Server::start());
#[cfg(feature = "postgres")]
served!(postgres, parti_servers::postgres::Server::start());
