//! A wrapper that makes a store misbehave.
