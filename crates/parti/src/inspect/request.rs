//! What operators asked for, and what is under way.

use parti_core::key::Key;
use parti_core::record::{Outcome, Record, Request};
use serde::Serialize;

use super::Records;

/// A request that is under way. Groups without a leader have none: there operators carry out
/// themselves what they want.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RequestView {
    /// Its name in the store.
    pub id: String,
    /// What is wanted.
    pub request: Request,
    /// The same, in words.
    pub text: String,
    /// Who asks.
    pub by: String,
    /// Why; may be empty.
    pub why: String,
    /// When it was asked, in milliseconds of the wall clock of whoever did.
    pub asked_ms: u64,
    /// How far it is.
    pub progress: Progress,
}

/// How far a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Progress {
    /// No leader has looked at it yet.
    Waiting,
    /// A leader carries it out.
    UnderWay,
}

/// Requests without an outcome, oldest first.
pub(super) fn requests(records: &Records) -> Vec<RequestView> {
    let open = records.requests.iter().filter_map(|stored| {
        let (Key::Request(id), Record::Request(record)) = (&stored.key, &stored.record) else {
            return None;
        };
        let progress = match record.outcome {
            Outcome::Open => Progress::Waiting,
            Outcome::Accepted => Progress::UnderWay,
            Outcome::Done | Outcome::Refused { .. } | Outcome::Overtaken { .. } => return None,
        };
        let view = RequestView {
            id: id.to_string(),
            request: record.request.clone(),
            text: record.request.to_string(),
            by: record.by.clone(),
            why: record.why.clone(),
            asked_ms: record.at,
            progress,
        };
        Some((stored.revision, view))
    });
    let mut open: Vec<_> = open.collect();
    open.sort_by_key(|(revision, _)| *revision);
    open.into_iter().map(|(_, view)| view).collect()
}
