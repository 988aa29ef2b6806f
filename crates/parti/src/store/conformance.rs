//! The public conformance suite.
