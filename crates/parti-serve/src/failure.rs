//! Why a request was not done: a status, a code for programs, a message and a remedy for people.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use parti::source::SourceError;
use parti::source::log::LogError;
use parti::{WorkerError, operate, store};
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
    /// For programs: a word that stays.
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

    /// More than this service takes on.
    pub fn too_many(message: impl ToString) -> Self {
        Self::new(
            StatusCode::TOO_MANY_REQUESTS,
            "too_many",
            message,
            "close some, or ask another instance",
        )
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
        Self::new(
            StatusCode::GONE,
            "session_gone",
            why,
            "register again; everything that was held is lost",
        )
    }

    /// The message alone.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
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
        response
    }
}

impl From<store::Error> for Failure {
    fn from(error: store::Error) -> Self {
        match &error {
            store::Error::Unavailable { .. } | store::Error::Unknown { .. } => {
                Self::unavailable(error)
            }
            store::Error::Rejected { .. } => Self::bad(error, "send what the store can keep"),
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
                Self::bad(error, "send what the source can do")
            }
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
            LogError::Rejected(_) => Self::bad(error, "send what the log can keep"),
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
            operate::Error::Unfinished(_) => Self::unavailable(error),
        }
    }
}

impl From<WorkerError> for Failure {
    fn from(error: WorkerError) -> Self {
        match error {
            WorkerError::Store(error) => error.into(),
            WorkerError::Source(error) => error.into(),
            WorkerError::StartTimeout { .. } => Self::unavailable(error),
            WorkerError::Config(_) | WorkerError::Fatal(_) | WorkerError::AlreadyStopped => {
                Self::conflict(
                    error,
                    "make the group's settings and the service's the same",
                )
            }
        }
    }
}

/// There is no such group.
pub fn no_group(message: impl ToString) -> Failure {
    Failure::not_found(message, "GET /v1/groups has all there are")
}
