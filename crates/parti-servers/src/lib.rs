//! Real servers for tests and benches: nats-server, etcd, PostgreSQL and Prometheus.
//!
//! ```text
//!   install ── finds the program, or fetches it once into a cache folder
//!      │
//!      ▼
//!   nats, etcd, postgres ── Server: temporary folder, leased loopback port, one process
//!      │                      kill · restart · pause · resume · drop
//!      ├── nats::Cluster ── three of them, their routes through proxies: isolate · heal
//!      └── proxy::Proxy  ── in front of any server: cut · stall · delay · heal
//! ```
//!
//! Everything blocks and needs no async runtime, so that a test of any runtime can use it.
//!
//! A server that cannot be had is never a test that is skipped: `start` panics with a message that
//! names what is missing and the command that gets it. `cargo run -p parti-servers -- install`
//! gets everything beforehand.
//!
//! ```no_run
//! let mut server = parti_servers::nats::Server::start();
//! println!("{}", server.url());
//! server.kill();
//! server.restart(); // same port, same data
//!
//! let mut proxy = parti_servers::proxy::Proxy::start(server.address());
//! proxy.cut(); // clients of proxy.address() lose their connections
//! proxy.heal();
//! ```
//!
//! Made for Linux: processes are found through `/proc`, and packages come from pip and apt.
//! Elsewhere, point `PARTI_NATS_SERVER`, `PARTI_ETCD`, `PARTI_POSTGRES_BIN` and
//! `PARTI_PROMETHEUS` at programs.

pub mod etcd;
pub mod http;
pub mod install;
pub mod nats;
pub mod postgres;
pub mod prometheus;
pub mod proxy;

mod error;
mod folder;
mod ports;
mod process;
mod running;
mod tls;

pub use error::Error;
pub use running::{Kind, Running};
