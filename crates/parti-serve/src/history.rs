//! A group's history, as it is shown.

use parti::inspect::{self, Happening};
use parti::store::GroupStore;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::failure::Failure;
use crate::shapes;

/// So many lines are sent along with a group.
pub const NEWEST: usize = 200;

/// One line of a group's history.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, ToSchema)]
pub struct Line {
    /// A later one has a higher one.
    pub n: u64,
    /// When, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// Who wrote it: a worker, or an operator.
    pub worker: String,
    /// What kind of thing happened.
    #[schema(value_type = shapes::Happened)]
    pub kind: Value,
    /// What happened.
    pub text: String,
    /// How it went, if partitions moved.
    #[schema(value_type = Option<shapes::Moves>)]
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub moves: Value,
}

impl Line {
    fn of(happening: &Happening) -> Self {
        Self {
            n: happening.number,
            at_ms: happening.at_ms,
            worker: happening.by.clone(),
            kind: serde_json::to_value(happening.kind).unwrap_or_default(),
            text: happening.text.clone(),
            moves: serde_json::to_value(&happening.moves).unwrap_or_default(),
        }
    }
}

/// The newest of these lines, oldest first.
pub fn newest(all: &[Happening], limit: usize) -> Vec<Line> {
    let shown = &all[all.len().saturating_sub(limit)..];
    shown.iter().map(Line::of).collect()
}

/// The newest lines before a number, oldest first.
pub async fn read(records: &GroupStore, before: u64, limit: usize) -> Result<Vec<Line>, Failure> {
    let mut all = inspect::history(records).await?;
    all.retain(|one| one.number < before);
    Ok(newest(&all, limit))
}
