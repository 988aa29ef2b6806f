//! What can go wrong with a log, named by what the caller does next.

use parti_core::io::SourceError;
use parti_core::text::count;

use crate::sqlite::{Fault, WriteFault};

/// Why something on a log was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// Create the topic, or mend its name.
    #[error("there is no topic {topic:?} ({}); create it with its number of partitions", shown(.known))]
    NoSuchTopic {
        /// What was asked for.
        topic: String,
        /// What there is.
        known: Vec<String>,
    },
    /// Use the number that the topic has.
    #[error(
        "topic {topic:?} has {}, for good: {asked} would put one key's messages into two partitions; \
         use {has}, or another topic",
        count(*has, "partition")
    )]
    Mismatch {
        /// Which topic.
        topic: String,
        /// What it has.
        has: u32,
        /// What was asked for.
        asked: u32,
    },
    /// Leave the limit out, or make another topic.
    #[error(
        "topic {topic:?} keeps messages {has}, as it was made, and not {asked}; leave that limit \
         out, or use another topic"
    )]
    OtherLimit {
        /// Which topic.
        topic: String,
        /// Which messages it keeps.
        has: String,
        /// Which were asked for.
        asked: String,
    },
    /// Ask for something else: this cannot be, whatever state the log is in.
    #[error("the log cannot do that: {0}")]
    Invalid(String),
    /// Nothing was done. Try again.
    #[error("the log is not available: {0}")]
    Unavailable(String),
    /// The messages may have been appended, or may come to light after the next crash.
    #[error("the fate of what was appended is open: {0}")]
    Unknown(String),
    /// A person must mend something.
    #[error("the log refuses: {0}")]
    Rejected(String),
    /// What is there is not what was written.
    #[error("the log is damaged: {0}")]
    Corrupt(String),
}

fn shown(known: &[String]) -> String {
    if known.is_empty() {
        "there are none yet".into()
    } else {
        format!("there are {}", known.join(", "))
    }
}

impl From<Fault> for LogError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Busy(why) | Fault::Trouble(why) => LogError::Unavailable(why),
            Fault::Refused(why) => LogError::Rejected(why),
            Fault::Damaged(why) => LogError::Corrupt(why),
        }
    }
}

impl From<WriteFault> for LogError {
    fn from(fault: WriteFault) -> Self {
        match fault {
            WriteFault::NotDone(fault) => fault.into(),
            WriteFault::Open(why) => LogError::Unknown(why),
        }
    }
}

impl From<LogError> for SourceError {
    fn from(error: LogError) -> Self {
        let text = error.to_string().into();
        match error {
            LogError::Unavailable(_) | LogError::Unknown(_) => SourceError::Unavailable(text),
            LogError::NoSuchTopic { .. }
            | LogError::Mismatch { .. }
            | LogError::OtherLimit { .. }
            | LogError::Invalid(_)
            | LogError::Rejected(_)
            | LogError::Corrupt(_) => SourceError::Rejected(text),
        }
    }
}
