//! The passive models: what a store, a stream and an embedded log hold, and how they behave.
//!
//! They are deterministic and have no clock and no randomness of their own: time comes in as
//! microseconds of the simulated world, randomness as a generator. The world adds delay, loss and
//! outages on the way to and from them.

pub mod store;
