//! Deterministic simulation of Parti groups.

fn main() {}
