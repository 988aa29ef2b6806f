//! Deterministic simulation of Parti groups.

pub mod model;
