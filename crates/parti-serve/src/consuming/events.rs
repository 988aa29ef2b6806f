//! What a session's stream tells, as types: what is written out, and what OpenAPI says of it.

use bytes::Bytes;
use parti::{Epoch, Offset, PartitionId};
use serde::Serialize;
use utoipa::ToSchema;

use crate::sse;

/// An event of a session's stream: its name, and its data as JSON.
#[derive(Serialize, ToSchema)]
#[serde(tag = "event", content = "data", rename_all = "snake_case")]
pub enum SessionEvent {
    /// First on every stream.
    Session(Begins),
    /// A partition is this session's.
    Assigned(Assigned),
    /// A partition is to be released.
    Revoke(Revoke),
    /// A partition is this session's no more.
    Lost(Lost),
    /// The session is over, or another stream has it.
    End(Ends),
}

impl SessionEvent {
    /// As it goes out.
    pub fn frame(&self) -> Bytes {
        match self {
            Self::Session(data) => sse::frame("session", data),
            Self::Assigned(data) => sse::frame("assigned", data),
            Self::Revoke(data) => sse::frame("revoke", data),
            Self::Lost(data) => sse::frame("lost", data),
            Self::End(data) => sse::frame("end", data),
        }
    }
}

/// How a stream begins.
#[derive(Serialize, ToSchema)]
pub struct Begins {
    /// What the session holds; anything else is not its own any more.
    pub held: Vec<HeldUnder>,
    /// Its name within the group.
    pub session: String,
    /// The group's topic.
    pub topic: String,
    /// Without a sign of life for so long it is over.
    pub ttl_ms: u64,
}

/// A partition that a session holds.
#[derive(Serialize, ToSchema)]
pub struct HeldUnder {
    /// Under which epoch.
    #[schema(value_type = u64)]
    pub epoch: Epoch,
    /// Which.
    #[schema(value_type = String)]
    pub partition: PartitionId,
}

/// A partition that is the session's from now on.
#[derive(Serialize, ToSchema)]
pub struct Assigned {
    /// The last done offset; null if none is.
    #[schema(value_type = Option<u64>)]
    pub checkpoint: Option<Offset>,
    /// Under which epoch: every commit gives it.
    #[schema(value_type = u64)]
    pub epoch: Epoch,
    /// Where to begin.
    #[schema(value_type = u64)]
    pub next_offset: Offset,
    /// Which.
    #[schema(value_type = String)]
    pub partition: PartitionId,
}

/// A partition that is to be released.
#[derive(Serialize, ToSchema)]
pub struct Revoke {
    /// Until when, in milliseconds since the Unix epoch: after that it moves anyway.
    pub deadline_ms: u64,
    /// Under which epoch it is held.
    #[schema(value_type = u64)]
    pub epoch: Epoch,
    /// Which.
    #[schema(value_type = String)]
    pub partition: PartitionId,
}

/// A partition of which nothing can be committed any more.
#[derive(Serialize, ToSchema)]
pub struct Lost {
    /// Under which epoch it was held.
    #[schema(value_type = u64)]
    pub epoch: Epoch,
    /// Which.
    #[schema(value_type = String)]
    pub partition: PartitionId,
    /// Why.
    pub why: String,
}

/// How a stream ends for good. Where the service itself ends before the session does, there is only
/// `why`.
#[derive(Serialize, ToSchema)]
pub struct Ends {
    /// Whether the consumer may register again.
    #[schema(required = false)]
    pub again: bool,
    /// For programs: `session_gone`, `evicted`, `dismissed`, or `taken_over`.
    #[schema(required = false)]
    pub code: &'static str,
    /// For people.
    pub why: String,
}
