//! How a session ends, and what its client hears of that.

use crate::failure::{DISMISSED, Failure};

/// Why a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The client said goodbye.
    Goodbye,
    /// The client gave no sign of life.
    Silent,
    /// The group gave the session up.
    Lost,
    /// This instance stops.
    Service,
}

impl End {
    /// For people and programs.
    pub fn why(self) -> &'static str {
        match self {
            Self::Goodbye => "deregistered",
            Self::Silent => "no sign of life for the session's TTL",
            Self::Lost => "the group gave this session up",
            Self::Service => "the service stops",
        }
    }
}

/// What the end of a session means for its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Another session may follow.
    Gone,
    /// So it may; an operator ended this one, or the group saw nothing of it for its TTL.
    Evicted,
    /// An operator ended it, and wants the client to stay away.
    Dismissed,
}

impl Meaning {
    /// For programs: the same word in the stream's `end` and in answers.
    pub fn code(self) -> &'static str {
        match self {
            Self::Gone => "session_gone",
            Self::Evicted => "evicted",
            Self::Dismissed => "dismissed",
        }
    }
}

/// How a session has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Why, for people.
    pub why: String,
    /// What that means for the client.
    pub meaning: Meaning,
}

impl Ended {
    /// For this reason; another session may follow.
    pub fn because(why: impl ToString) -> Self {
        Self {
            why: why.to_string(),
            meaning: Meaning::Gone,
        }
    }

    /// The group gave it up.
    pub fn evicted() -> Self {
        Self {
            why: End::Lost.why().to_owned(),
            meaning: Meaning::Evicted,
        }
    }

    /// The client is to stay away.
    pub fn dismissed() -> Self {
        Self {
            why: DISMISSED.to_owned(),
            meaning: Meaning::Dismissed,
        }
    }

    /// What requests of the session are answered from now on.
    pub fn failure(&self) -> Failure {
        match self.meaning {
            Meaning::Dismissed => Failure::dismissed(&self.why),
            meaning => Failure::over(
                meaning.code(),
                format!("this session is over: {}", self.why),
            ),
        }
    }
}
