//! The service as clients see it: over HTTP, with a real store, a real log and real connections.

mod client;
mod clients;
mod instances;
mod live;
mod operating;
mod safety;
mod scene;
mod shares;
