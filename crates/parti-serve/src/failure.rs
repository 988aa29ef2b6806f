//! Why a request was not done: a status, a code for programs, a message and a remedy for people.
//!
//! ```text
//!   what the caller named cannot be ──▶ 4xx      names are checked before a store or log is asked
//!   the server's own trouble ─────────▶ 503      the same request may do later
//!     passing: unavailable               it mends itself
//!     lasting: store_refuses, …          a person must mend what the message says
//! ```

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use parti::core::problem::Problem;
use parti::source::SourceError;
use parti::source::log::LogError;
use parti::source::place::PlaceError;
use parti::{Fatal, WorkerError, operate, store};
use serde::Serialize;
use utoipa::ToSchema;

/// What every error answers with.
#[derive(Debug, Serialize, ToSchema)]
pub struct ErrorBody {
    /// What went wrong.
    pub error: Described,
}

/// What went wrong.
#[derive(Debug, Serialize, ToSchema)]
pub struct Described {
    /// For programs: a word that stays. With status 503 the same may be sent again later: `unavailable`
    /// passes by itself; with `store_refuses`, `source_refuses` and `replaced` a person must mend
    /// first what the message says.
    #[schema(example = "not_found")]
    pub code: &'static str,
    /// For people.
    pub message: String,
    /// What to do about it.
    pub remedy: String,
}

/// Why a request was not done.
#[derive(Debug)]
pub struct Failure {
    status: StatusCode,
    code: &'static str,
    message: String,
    remedy: String,
}

impl Failure {
    /// Any failure.
    pub fn new(
        status: StatusCode,
        code: &'static str,
        message: impl ToString,
        remedy: impl ToString,
    ) -> Self {
        Self {
            status,
            code,
            message: message.to_string(),
            remedy: remedy.to_string(),
        }
    }

    /// What was sent cannot be understood.
    pub fn bad(message: impl ToString, remedy: impl ToString) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message, remedy)
    }

    /// There is no such thing.
    pub fn not_found(message: impl ToString, remedy: impl ToString) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message, remedy)
    }

    /// It does not fit what is there.
    pub fn conflict(message: impl ToString, remedy: impl ToString) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", message, remedy)
    }

    /// Not at this moment.
    pub fn unavailable(message: impl ToString) -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "unavailable",
            message,
            "try again in a moment",
        )
    }

    /// Something was begun, and what became of it is not known.
    pub fn open(message: impl ToString, remedy: impl ToString) -> Self {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Self::new(status, "unavailable", message, remedy)
    }

    /// The server's own trouble, which lasts until a person has mended what the message says.
    pub fn broken(code: &'static str, message: impl ToString) -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            code,
            message,
            "have the operator of this service mend that, and send the same again later",
        )
    }

    /// What is here is not what the group began with.
    pub fn replaced(message: impl ToString) -> Self {
        Self::broken(REPLACED, message)
    }

    /// More than this service takes on.
    pub fn too_many(message: impl ToString) -> Self {
        Self::new(
            StatusCode::TOO_MANY_REQUESTS,
            "too_many",
            message,
            "close some, or ask another instance",
        )
    }

    /// More than this service takes at once.
    pub fn too_large(most: usize) -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too_large",
            format!("the body is larger than {most} bytes"),
            "send less at once",
        )
    }

    /// What is asked for is beyond the end of what there is.
    pub fn out_of_range(message: impl ToString, remedy: impl ToString) -> Self {
        let status = StatusCode::RANGE_NOT_SATISFIABLE;
        Self::new(status, "offset_out_of_range", message, remedy)
    }

    /// Another instance may have the session.
    pub fn not_here() -> Self {
        Self::new(
            StatusCode::MISDIRECTED_REQUEST,
            "not_here",
            "this instance does not hold that session",
            "send this to the instance that has the session's stream, or open the stream here: it \
             goes on here then",
        )
    }

    /// The session is over.
    pub fn session_gone(why: impl ToString) -> Self {
        Self::over("session_gone", why)
    }

    /// The same, with a word that says what that means.
    pub fn over(code: &'static str, why: impl ToString) -> Self {
        let remedy = "register again; everything that was held is lost";
        Self::new(StatusCode::GONE, code, why, remedy)
    }

    /// A session that an operator ended for good.
    pub fn dismissed(why: impl ToString) -> Self {
        Self::new(
            StatusCode::GONE,
            "dismissed",
            why,
            "register again only when the operator has nothing against it any more",
        )
    }

    /// Whether a session is over.
    pub fn is_over(&self) -> bool {
        self.status == StatusCode::GONE
    }

    /// Whether it is the server's trouble: it says nothing of what was asked about.
    pub fn is_trouble(&self) -> bool {
        self.status.is_server_error()
    }

    /// Whether the store or the source is not the one that the group began with.
    pub fn is_replaced(&self) -> bool {
        self.code == REPLACED
    }

    /// The message alone.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The remedy alone.
    #[cfg(test)]
    pub fn remedy(&self) -> &str {
        &self.remedy
    }
}

/// What a refused answer was about, for whoever logs it.
#[derive(Clone, Debug)]
pub struct Told {
    /// For programs.
    pub code: &'static str,
    /// For people.
    pub message: String,
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let told = Told {
            code: self.code,
            message: self.message.clone(),
        };
        let body = ErrorBody {
            error: Described {
                code: self.code,
                message: self.message,
                remedy: self.remedy,
            },
        };
        let mut response = (self.status, Json(body)).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            let how = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, how);
        }
        if self.status == StatusCode::TOO_MANY_REQUESTS {
            // Whoever is one too many makes room.
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            let soon = HeaderValue::from_static("1");
            response.headers_mut().insert(header::RETRY_AFTER, soon);
        }
        response.extensions_mut().insert(told);
        response
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        let Problem {
            field,
            value,
            what,
            remedy,
        } = problem;
        Self::bad(format!("{field}: {value} {what}"), remedy)
    }
}

impl From<store::Error> for Failure {
    fn from(error: store::Error) -> Self {
        match &error {
            store::Error::Unavailable { .. } | store::Error::Unknown { .. } => {
                Self::unavailable(error)
            }
            // Names were checked before: what is left is a full disk, a deleted file, a right that
            // is missing.
            store::Error::Rejected { .. } => Self::broken("store_refuses", error),
            store::Error::Conflict { .. } => Self::conflict(error, "look again, and try again"),
            store::Error::Corrupt { .. } => Self::new(
                StatusCode::BAD_GATEWAY,
                "corrupt",
                error,
                "mend the store: `parti doctor` says what is wrong",
            ),
        }
    }
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Self {
        match &error {
            SourceError::Unavailable(_) => Self::unavailable(error),
            SourceError::Rejected(_) | SourceError::Occupied { .. } => {
                Self::broken("source_refuses", error)
            }
        }
    }
}

impl From<PlaceError> for Failure {
    fn from(error: PlaceError) -> Self {
        match error {
            // The service's own settings.
            PlaceError::Url(_) => Self::broken("source_refuses", error),
            PlaceError::Log(error) => error.into(),
            PlaceError::Stream(error) => error.into(),
        }
    }
}

impl From<LogError> for Failure {
    fn from(error: LogError) -> Self {
        match &error {
            LogError::Unavailable(_) | LogError::Unknown(_) => Self::unavailable(error),
            LogError::NoSuchTopic { .. } => {
                Self::not_found(error, "make it with a group (POST /v1/groups)")
            }
            LogError::Mismatch { .. } => {
                Self::conflict(error, "the number of partitions never changes")
            }
            LogError::OtherLimit { .. } => {
                Self::conflict(error, "a topic's limits are as it was made")
            }
            LogError::Invalid(_) => {
                Self::bad(error, "give what the message names, within its limits")
            }
            LogError::Rejected(_) => Self::broken("source_refuses", error),
            LogError::Corrupt(_) => Self::new(
                StatusCode::BAD_GATEWAY,
                "corrupt",
                error,
                "restore the topic's file",
            ),
        }
    }
}

impl From<operate::Error> for Failure {
    fn from(error: operate::Error) -> Self {
        match error {
            operate::Error::Store(error) => error.into(),
            operate::Error::NoGroup(_) => no_group(error),
            operate::Error::Refused(_) => Self::conflict(error, "do first what it says"),
            operate::Error::Overtaken(_) => Self::conflict(error, "look at the group again"),
            operate::Error::Unfinished(_) | operate::Error::LeftPaused { .. } => {
                Self::unavailable(error)
            }
        }
    }
}

impl From<WorkerError> for Failure {
    fn from(error: WorkerError) -> Self {
        match error {
            WorkerError::Store(error) => error.into(),
            WorkerError::Source(error) => error.into(),
            WorkerError::Fatal(fatal) => fatal.into(),
            WorkerError::StartTimeout { .. } | WorkerError::AlreadyStopped => {
                Self::unavailable(error)
            }
            WorkerError::Config(_) => disagreement(error),
        }
    }
}

impl From<Fatal> for Failure {
    fn from(fatal: Fatal) -> Self {
        match fatal {
            Fatal::StableIdExhausted(_) => Self::too_many(fatal),
            Fatal::StoreReplaced | Fatal::StreamReplaced | Fatal::StoreWentBack => {
                Self::replaced(fatal)
            }
            Fatal::Disagreement(_) => disagreement(fatal),
            Fatal::SessionOver => Self::session_gone(fatal),
            Fatal::Dismissed => Self::dismissed(DISMISSED),
            Fatal::GaveUp { .. } | Fatal::StopTimedOut { .. } => Self::unavailable(fatal),
            Fatal::Rejected(_) => Self::broken("store_refuses", fatal),
        }
    }
}

/// The code of a store or a source that is not the one that the group began with.
const REPLACED: &str = "replaced";

/// What a consumer is told that was evicted for good.
pub const DISMISSED: &str = "an operator evicted this consumer, and wants it to stay away";

fn disagreement(error: impl ToString) -> Failure {
    Failure::conflict(
        error,
        "make the group's settings and the service's the same",
    )
}

/// Somebody names another topic than the group's own.
pub fn other_topic(group: &str, is: &str, named: &str) -> Failure {
    Failure::conflict(
        format!("topic: the group {group:?} is about {is:?}, not about {named:?}"),
        format!("give {is:?}, or a group of its own to {named:?} (POST /v1/groups)"),
    )
}

/// There is no such group.
pub fn no_group(message: impl ToString) -> Failure {
    Failure::not_found(message, "GET /v1/groups has all there are")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_trouble_is_never_the_callers_fault() {
        let full = || "no space is left on the disk".to_owned();
        let gave_up = || Fatal::GaveUp {
            step: "claiming",
            attempts: 3,
        };
        let refused = SourceError::Rejected("the file was deleted".into());
        let failures: [(Failure, &str); 8] = [
            (store::Error::rejected(full()).into(), "store_refuses"),
            (store::Error::unavailable(full()).into(), "unavailable"),
            (LogError::Rejected(full()).into(), "source_refuses"),
            (LogError::Unknown(full()).into(), "unavailable"),
            (refused.into(), "source_refuses"),
            (
                WorkerError::Fatal(Fatal::Rejected(full())).into(),
                "store_refuses",
            ),
            (WorkerError::Fatal(gave_up()).into(), "unavailable"),
            (WorkerError::Fatal(Fatal::StoreReplaced).into(), "replaced"),
        ];
        for (failure, code) in failures {
            assert_eq!((failure.status.as_u16(), failure.code), (503, code));
            let response = failure.into_response();
            assert!(response.headers().contains_key(header::RETRY_AFTER));
        }
        let wrong = Failure::from(LogError::Invalid("no such partition".into()));
        assert_eq!(wrong.status, StatusCode::BAD_REQUEST);
        let other = WorkerError::Fatal(Fatal::Disagreement("another strategy".into()));
        assert_eq!(Failure::from(other).status, StatusCode::CONFLICT);
    }
}
