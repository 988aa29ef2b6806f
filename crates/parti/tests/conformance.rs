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

#[cfg(feature = "nats")]
mod nats {
    use super::*;
    use parti_servers::nats::Server;
    use std::sync::Mutex;

    struct Nats {
        name: &'static str,
        url: String,
        server: Mutex<Server>,
    }

    impl Nats {
        fn new(name: &'static str, server: Server) -> Self {
            Self {
                name,
                url: server.url(),
                server: Mutex::new(server),
            }
        }
    }

    #[async_trait]
    impl Subject for Nats {
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
            tokio::task::block_in_place(|| {
                let mut server = self.server.lock().expect("no panic holds it");
                server.restart();
            });
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn nats() {
        conforms(&Nats::new("nats", Server::start())).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn nats_oldest() {
        conforms(&Nats::new("nats 2.10", Server::start_version("2.10.26"))).await;
    }
}

// A further backend: one module with its subject and its test, by this pattern.
//
// #[cfg(feature = "nats")]
// mod nats {
//     use super::*;
//     use parti_servers::nats::Server;
//     use std::sync::Mutex;
//
//     struct Nats(Mutex<Server>, String);
//
//     #[async_trait]
//     impl Subject for Nats {
//         fn name(&self) -> &str { "nats" }
//         async fn connect(&self) -> Result<Arc<dyn Store>, Error> {
//             parti::store::open(&self.1).await
//         }
//         fn can_disturb(&self) -> bool { true }
//         async fn disturb(&self) -> Result<(), Error> {
//             // The servers' API blocks: block_in_place, or spawn_blocking.
//             tokio::task::block_in_place(|| {
//                 let mut server = self.0.lock().expect("no panic holds it");
//                 server.kill();
//                 server.restart();
//             });
//             Ok(())
//         }
//     }
//
//     #[tokio::test(flavor = "multi_thread")]
//     async fn nats() {
//         let server = Server::start();
//         let url = server.url();
//         conforms(&Nats(Mutex::new(server), url)).await;
//     }
// }
