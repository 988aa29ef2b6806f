//! Consuming in any language: a session is a member of the group that lives in this process, for a
//! client that is elsewhere.
//!
//! ```text
//!   POST /v1/groups ──▶ groups     topics/<group>/<topic>: N, strategy; every instance knows it
//!   POST …/sessions ──▶ registry ──▶ host: a parti::Manager ◀──▶ the group
//!                                     │ updater: granted, revoked, lost
//!                                     ▼
//!   GET  …/events ◀── SSE ◀──────── seat: what is held, under which epochs
//!   POST …/commits, …/released ───▶   │ each checked against it, then passed to the manager
//!   any request ──────────────────▶ a sign of life (the open stream, too, if the client chose so);
//!                                   none for a TTL: the seat is given up
//! ```
//!
//! A client may open its stream at any instance: its session goes on there, wherever it was before.
//! That instance claims the session's id anew under the client's badge, and takes each partition
//! under its next epoch; the old one, if it lives, finds that out by its next write.
//!
//! Safety is where it always is: in the partition's record. A client that was given up keeps its
//! epochs in its pocket; whatever it commits under them is refused.

mod ended;
mod events;
mod groups;
mod host;
mod http;
mod names;
mod progress;
mod registry;
mod seat;
mod token;

pub use groups::__path_create;
pub use groups::create;
pub use http::{
    __path_commits, __path_deregister, __path_events, __path_heartbeat, __path_list,
    __path_refresh, __path_register, __path_released,
};
pub use http::{commits, deregister, events, heartbeat, list, refresh, register, released};
pub use registry::Registry;
