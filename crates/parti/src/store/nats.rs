//! The store on NATS KV.
