//! A wrapper that counts and times.
