//! Why a scenario could not be played to its end.

use std::fmt;

/// A sentence for people.
#[derive(Clone, Debug)]
pub struct Failure(String);

impl Failure {
    /// With this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whatever went wrong outside of Parti, with what was tried.
pub trait While<T> {
    /// Says what was tried.
    fn during(self, what: &str) -> Result<T, Failure>;
}

impl<T, E: fmt::Display> While<T> for Result<T, E> {
    fn during(self, what: &str) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(format!("{what}: {error}")))
    }
}
