//! One test per measured fact.
