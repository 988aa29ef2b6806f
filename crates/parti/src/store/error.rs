//! What can go wrong, named by what the caller does next.

use super::Entry;

/// Why an operation on a store did not do what was asked. Messages never hold secrets.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// The expectation did not hold. Look at what is there, and decide anew.
    #[error("{}", conflict(.current.as_deref()))]
    Conflict {
        /// What is there instead.
        current: Option<Box<Entry>>,
    },
    /// Nothing was done. Try again.
    #[error("the store is not available: {why}")]
    Unavailable {
        /// What happened.
        why: String,
    },
    /// The write may have happened, or may happen yet. Settle it by a further write.
    #[error("the fate of the write is open: {why}")]
    Unknown {
        /// What happened.
        why: String,
    },
    /// The store refuses, and will again. A person must mend something; the message says what.
    #[error("the store refuses: {why}")]
    Rejected {
        /// What is wrong, and how to mend it.
        why: String,
    },
    /// What is there is not what this program wrote. A person must look.
    #[error("{key} is not readable: {why}")]
    Corrupt {
        /// Where.
        key: String,
        /// What is wrong with it.
        why: String,
    },
}

impl Error {
    /// An [`Error::Conflict`] with what is there.
    pub fn conflict(current: Option<Entry>) -> Self {
        Error::Conflict {
            current: current.map(Box::new),
        }
    }

    /// An [`Error::Unavailable`].
    pub fn unavailable(why: impl ToString) -> Self {
        Error::Unavailable {
            why: why.to_string(),
        }
    }

    /// An [`Error::Unknown`].
    pub fn unknown(why: impl ToString) -> Self {
        Error::Unknown {
            why: why.to_string(),
        }
    }

    /// An [`Error::Rejected`].
    pub fn rejected(why: impl ToString) -> Self {
        Error::Rejected {
            why: why.to_string(),
        }
    }

    /// An [`Error::Corrupt`].
    pub fn corrupt(key: impl Into<String>, why: impl ToString) -> Self {
        Error::Corrupt {
            key: key.into(),
            why: why.to_string(),
        }
    }

    /// Its kind as one word, for metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Error::Conflict { .. } => "conflict",
            Error::Unavailable { .. } => "unavailable",
            Error::Unknown { .. } => "unknown",
            Error::Rejected { .. } => "rejected",
            Error::Corrupt { .. } => "corrupt",
        }
    }
}

fn conflict(current: Option<&Entry>) -> String {
    match current {
        Some(entry) => format!(
            "the expectation did not hold: {} is at revision {}",
            entry.key, entry.revision.0
        ),
        None => "the expectation did not hold: nothing is there".into(),
    }
}
