//! What Parti relies on of JetStream, checked against real servers: one test per fact, and its name
//! says the fact.
//!
//! A server that behaves otherwise is noticed here before anybody's messages notice it. To try one:
//! `PARTI_NATS_SERVER=/path/to/nats-server cargo test -p parti --test jetstream_facts`.
//!
//! Where versions differ, the test says how, and from which version on. "Nothing comes" is never
//! waited for: something that must come later is, and then the other did not come before it.
//!
//! ```text
//!   lab       servers that tests share, a stream of its own for each test, the API in JSON
//!   pull      one pull request, and everything that is sent to its inbox
//! ```
#![cfg(feature = "nats")]

mod cluster;
mod filters;
mod interest;
mod lab;
mod layout;
mod lifetime;
mod links;
mod positions;
mod pull;
mod pulls;
mod reads;
mod redelivery;
mod refusals;
mod reset;
mod workqueue;
