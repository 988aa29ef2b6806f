//! The service as clients see it: over HTTP, with a real store, a real log and real connections.

mod bodies;
mod client;
mod clients;
mod described;
mod elsewhere;
mod fetching;
mod instances;
mod lease;
mod live;
mod liveness;
mod logging;
mod modes;
mod operating;
mod safety;
mod scene;
mod shares;
mod stores;
mod tls;
mod topics;
mod trouble;
