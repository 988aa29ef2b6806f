//! How the program ends: one clear line, and a fitting exit code.

use parti::operate;
use parti::source::SourceError;
use parti::source::log::LogError;
use parti::source::place::PlaceError;
use parti::store;
use parti::{Fatal, WorkerError};

use crate::signals::Ending;

/// Something was lost, or did not come to its end.
const FAILED: u8 = 1;
/// What was asked for cannot be: a flag, a name, a setting.
const USAGE: u8 = 2;
/// A store or source cannot be reached just now.
const UNAVAILABLE: u8 = 3;
/// A store or source refuses; a person must mend something.
const REFUSED: u8 = 4;
/// Nothing fails, and something should be considered.
const WARNED: u8 = 5;
/// SIGINT came half way, as shells tell it.
const INTERRUPTED: u8 = 130;
/// SIGTERM did.
const TERMINATED: u8 = 143;

/// Exit codes, for every command's help.
pub const CODES: &str = "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 store or source unavailable, 4 refused; 130 and \
     143 ended half way by Ctrl-C or SIGTERM.";

/// Why the program ends.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub code: u8,
    /// What to print.
    pub line: String,
}

impl Failure {
    /// The job was not done.
    pub fn failed(line: impl ToString) -> Self {
        Self::new(FAILED, line)
    }

    /// What was asked for cannot be.
    pub fn usage(line: impl ToString) -> Self {
        Self::new(USAGE, line)
    }

    /// It would do harm; a person must do something else first.
    pub fn refused(line: impl ToString) -> Self {
        Self::new(REFUSED, line)
    }

    /// A signal came before it was done.
    pub fn ended(by: Ending, line: impl ToString) -> Self {
        let code = match by {
            Ending::Interrupted => INTERRUPTED,
            Ending::Terminated => TERMINATED,
        };
        Self::new(code, line)
    }

    /// The same end, told otherwise.
    pub fn told(self, line: impl ToString) -> Self {
        Self::new(self.code, line)
    }

    /// Nothing fails, and something should be considered.
    pub fn warned(line: impl ToString) -> Self {
        Self::new(WARNED, line)
    }

    fn new(code: u8, line: impl ToString) -> Self {
        Self {
            code,
            line: line.to_string(),
        }
    }
}

impl From<store::Error> for Failure {
    fn from(error: store::Error) -> Self {
        let code = match &error {
            store::Error::Unavailable { .. } | store::Error::Unknown { .. } => UNAVAILABLE,
            store::Error::Conflict { .. }
            | store::Error::Rejected { .. }
            | store::Error::Corrupt { .. } => REFUSED,
        };
        Self::new(code, error)
    }
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Self {
        let code = match &error {
            SourceError::Unavailable(_) => UNAVAILABLE,
            SourceError::Rejected(_) | SourceError::Occupied { .. } => REFUSED,
        };
        Self::new(code, error)
    }
}

impl From<PlaceError> for Failure {
    fn from(error: PlaceError) -> Self {
        match error {
            PlaceError::Url(why) => Self::usage(format!("--source: {why}")),
            PlaceError::Log(error) => error.into(),
            PlaceError::Stream(error) => error.into(),
        }
    }
}

impl From<LogError> for Failure {
    fn from(error: LogError) -> Self {
        let code = match &error {
            LogError::Unavailable(_) | LogError::Unknown(_) => UNAVAILABLE,
            LogError::NoSuchTopic { .. }
            | LogError::Mismatch { .. }
            | LogError::OtherLimit { .. }
            | LogError::Invalid(_) => USAGE,
            LogError::Rejected(_) | LogError::Corrupt(_) => REFUSED,
        };
        Self::new(code, error)
    }
}

impl From<WorkerError> for Failure {
    fn from(error: WorkerError) -> Self {
        match error {
            WorkerError::Store(error) => error.into(),
            WorkerError::Source(error) => error.into(),
            WorkerError::Config(problems) => Self::usage(problems),
            WorkerError::StartTimeout { .. } => Self::new(UNAVAILABLE, error),
            WorkerError::Fatal(Fatal::StopTimedOut { .. }) => Self::failed(error),
            WorkerError::Fatal(_) => Self::new(REFUSED, error),
            WorkerError::AlreadyStopped => Self::failed(error),
        }
    }
}

impl From<operate::Error> for Failure {
    fn from(error: operate::Error) -> Self {
        match error {
            operate::Error::Store(error) => error.into(),
            operate::Error::NoGroup(_) => Self::usage(error),
            operate::Error::Refused(_) => Self::refused(error),
            operate::Error::Overtaken(_) | operate::Error::Unfinished(_) => Self::failed(error),
            operate::Error::LeftPaused { ref cause, .. } => {
                let cause = Self::from((**cause).clone());
                Self::new(cause.code, error)
            }
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::failed(error)
    }
}
