//! What went wrong, in words for the person who runs the tests.

use std::fmt;

/// A server that could not be found, installed or started. Its text says what to do.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(String);

impl Error {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl From<&str> for Error {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// A test that unwraps shows the text as it was written, with its line ends.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// The value, or a panic that nobody overlooks: a test without its server fails.
#[track_caller]
pub(crate) fn loud<T>(result: Result<T, Error>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => {
            let bar = "!".repeat(100);
            panic!("\n{bar}\n{error}\n{bar}")
        }
    }
}
