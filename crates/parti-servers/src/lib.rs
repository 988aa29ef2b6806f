//! Real servers for tests and benches.
