//! Looking at groups. Changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use axum::{Extension, Json};
use futures_util::{StreamExt, TryStreamExt, stream};
use parti::PartitionId;
use parti::core::codec;
use parti::core::config::StrategyChoice;
use parti::core::record::SessionStatus;
use parti::inspect::whatif::{self, Case, Wish};
use parti::inspect::{self, Group};
use parti::store::GroupStore;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::App;
use crate::access::{Caller, Role};
use crate::extract::{Asked, Body, Named, within};
use crate::failure::{ErrorBody, Failure};
use crate::history::{self, Line, NEWEST};
use crate::shapes::{self, LiveEvent};
use crate::sse::{self, Manner};

/// A comment comes this often while nothing happens: the dashboard (`live.js`) takes a stream that says
/// nothing for longer than twice that for one that is frozen.
const BEAT: Duration = Duration::from_secs(3);
/// So many workers join in a what-if.
const MOST_JOIN: u64 = 1_000;
/// So many groups are read at once.
const AT_ONCE: usize = 8;

/// This service.
#[derive(Serialize, ToSchema)]
pub struct About {
    /// The program's version.
    version: &'static str,
    /// What this caller may do.
    role: Role,
    /// Where records live, without secrets.
    store: String,
    /// This instance: another one has another.
    instance: String,
}

/// What this service is, and what this caller may do.
#[utoipa::path(get, path = "/v1/about", tag = "looking", responses(
    (status = 200, body = About),
    (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)
))]
pub async fn about(State(app): State<Arc<App>>, caller: Extension<Caller>) -> Json<About> {
    Json(About {
        version: env!("CARGO_PKG_VERSION"),
        role: caller.role,
        store: app.places.store().name().to_owned(),
        instance: app.instance.clone(),
    })
}

/// All groups.
#[derive(Serialize, ToSchema)]
pub struct Groups {
    groups: Vec<Summary>,
}

/// A group in short.
#[derive(Serialize, ToSchema)]
pub struct Summary {
    group: String,
    coordination: String,
    leader: Option<String>,
    closed: bool,
    workers: usize,
    partitions: usize,
    owned: usize,
    moving: usize,
    paused: usize,
    lag: Option<u64>,
}

impl Summary {
    fn of(group: &Group) -> Self {
        let there = |status| matches!(status, SessionStatus::Live | SessionStatus::Leaving);
        let count = |wanted: fn(&inspect::PartitionView) -> bool| {
            group.partitions.iter().filter(|one| wanted(one)).count()
        };
        Self {
            group: group.name.clone(),
            coordination: group.coordination.clone(),
            leader: group.leader.as_ref().map(ToString::to_string),
            closed: group.closed,
            workers: group.workers.iter().filter(|w| there(w.status)).count(),
            partitions: group.partitions.len(),
            owned: count(|partition| partition.owner.is_some()),
            moving: group.handoffs.len(),
            paused: count(|partition| partition.paused),
            lag: group.lag(),
        }
    }
}

/// All groups of the store, in short.
#[utoipa::path(get, path = "/v1/groups", tag = "looking", responses(
    (status = 200, body = Groups),
    (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)
))]
pub async fn groups(State(app): State<Arc<App>>) -> Result<Json<Groups>, Failure> {
    let names = GroupStore::names(app.places.store().as_ref()).await?;
    let read = |name: String| {
        let places = app.places.clone();
        async move {
            let records = places.records(&name)?;
            // One that was deleted since the names were listed is none any more.
            let Some(mut group) = inspect::group(&records).await? else {
                return Ok::<_, Failure>(None);
            };
            places.locate(&records, &mut group).await;
            Ok(Some(Summary::of(&group)))
        }
    };
    let all: Vec<Option<Summary>> = stream::iter(names.into_iter().map(read))
        .buffered(AT_ONCE)
        .try_collect()
        .await?;
    let groups = all.into_iter().flatten().collect();
    Ok(Json(Groups { groups }))
}

/// One group, whole: leader, plan, workers, handoffs, partitions.
#[utoipa::path(get, path = "/v1/groups/{group}", tag = "looking",
    params(("group" = String, Path, description = "The group's name", max_length = 64,
            pattern = "^[A-Za-z0-9_-]+$")),
    responses(
        (status = 200, body = shapes::Group),
        (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)
))]
pub async fn group(
    State(app): State<Arc<App>>,
    Named(name): Named<String>,
) -> Result<Json<Group>, Failure> {
    let records = app.places.records(&name)?;
    let mut group = app.places.group(&records).await?;
    app.places.locate(&records, &mut group).await;
    Ok(Json(group))
}

/// Which part of a history.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Part {
    /// Only lines with a lower number.
    before: Option<u64>,
    /// The most lines, 200 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u64>,
}

/// Lines of a history.
#[derive(Serialize, ToSchema)]
pub struct Lines {
    /// The newest last.
    events: Vec<Line>,
}

/// A group's history, the newest last.
#[utoipa::path(get, path = "/v1/groups/{group}/events", tag = "looking",
    params(("group" = String, Path, description = "The group's name", max_length = 64,
            pattern = "^[A-Za-z0-9_-]+$"), Part),
    responses(
        (status = 200, body = Lines),
        (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)
))]
pub async fn events(
    State(app): State<Arc<App>>,
    Named(name): Named<String>,
    Asked(part): Asked<Part>,
) -> Result<Json<Lines>, Failure> {
    let limit = match part.limit {
        None => NEWEST,
        Some(limit) => within("limit", limit, 1..=1000)? as usize,
    };
    let records = app.places.records(&name)?;
    let before = part.before.unwrap_or(u64::MAX);
    let events = history::read(&records, before, limit).await?;
    if events.is_empty() {
        app.places.group(&records).await?;
    }
    Ok(Json(Lines { events }))
}

/// A group as it changes: server-sent events `group` (whole), `change`, `trouble`, `end`.
#[utoipa::path(get, path = "/v1/groups/{group}/live", tag = "looking",
    params(("group" = String, Path, description = "The group's name", max_length = 64,
            pattern = "^[A-Za-z0-9_-]+$")),
    responses(
        (status = 200, content_type = "text/event-stream", body = LiveEvent),
        (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)
))]
pub async fn live(
    State(app): State<Arc<App>>,
    Named(name): Named<String>,
) -> Result<Response, Failure> {
    let Ok(slot) = app.live_slots.clone().try_acquire_owned() else {
        return Err(Failure::too_many("too many live streams are open"));
    };
    let records = app.places.records(&name)?;
    let reader = app.live.look(&app.places, &records).await?;
    let stop = app.stop.clone();
    let manner = Manner {
        beat: BEAT,
        stop,
        _slot: slot,
    };
    Ok(sse::respond(reader, manner))
}

/// A what-if.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// So many workers join.
    #[serde(default)]
    #[schema(maximum = 1000)]
    add: u32,
    /// These workers go.
    #[serde(default)]
    remove: Vec<String>,
    /// These partitions have these weights.
    #[serde(default)]
    weights: BTreeMap<String, u64>,
    /// Only these strategies; all by default.
    strategies: Option<Vec<StrategyName>>,
}

/// A strategy.
#[derive(Clone, Copy, Deserialize, Serialize, PartialEq, Eq, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StrategyName {
    /// Weighted consistent hash with bounded load.
    ConsistentHash,
    /// One after the other.
    RoundRobin,
    /// Equal counts, fewest moves.
    FairShare,
}

impl StrategyName {
    fn is(self, choice: &StrategyChoice) -> bool {
        matches!(
            (self, choice),
            (Self::ConsistentHash, StrategyChoice::ConsistentHash { .. })
                | (Self::RoundRobin, StrategyChoice::RoundRobin)
                | (Self::FairShare, StrategyChoice::FairShare)
        )
    }

    /// As configurations have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ConsistentHash => "consistent_hash",
            Self::RoundRobin => "round_robin",
            Self::FairShare => "fair_share",
        }
    }
}

/// What each strategy would do. Changes nothing.
#[utoipa::path(post, path = "/v1/groups/{group}/plan", tag = "looking",
    params(("group" = String, Path, description = "The group's name", max_length = 64,
            pattern = "^[A-Za-z0-9_-]+$")),
    request_body = Question,
    responses(
        (status = 200, body = Vec<shapes::Outcome>),
        (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)
))]
pub async fn plan(
    State(app): State<Arc<App>>,
    Named(name): Named<String>,
    Body(question): Body<Question>,
) -> Result<Json<Value>, Failure> {
    within("add", question.add.into(), 0..=MOST_JOIN)?;
    let group = app.places.group(&app.places.records(&name)?).await?;
    let Ok(slot) = app.plan_slots.clone().try_acquire_owned() else {
        return Err(Failure::too_many("other plans are being computed"));
    };
    let wrong = |problems: parti::core::problem::Problems| {
        Failure::bad(problems, "ask for something that could be")
    };
    let weights = question.weights.iter();
    let wish = Wish {
        add: question.add,
        remove: question.remove,
        weights: weights
            .map(|(id, weight)| Ok((partition(id)?, *weight)))
            .collect::<Result<_, Failure>>()?,
    };
    let before = Case::of(&group, None).map_err(wrong)?;
    let after = before.changed(&wish).map_err(wrong)?;
    // Thousands of workers and partitions take a moment, which others should not wait for.
    let computing = tokio::task::spawn_blocking(move || {
        let wanted = |choice: &StrategyChoice| {
            let named = question.strategies.as_ref();
            named.is_none_or(|named| named.iter().any(|name| name.is(choice)))
        };
        let strategies: Vec<StrategyChoice> =
            before.strategies().into_iter().filter(wanted).collect();
        let outcomes = whatif::outcomes(&before, &after, None, &strategies);
        drop(slot);
        serde_json::to_value(outcomes)
    });
    match computing.await {
        Ok(Ok(outcomes)) => Ok(Json(outcomes)),
        _ => Err(Failure::unavailable("the plan was not computed")),
    }
}

/// A partition's id, as somebody wrote it.
pub fn partition(text: &str) -> Result<PartitionId, Failure> {
    if codec::is_canonical(text) {
        Ok(PartitionId::new(text))
    } else {
        Err(Failure::bad(
            "no partition has such an id",
            "copy it from GET /v1/groups/{group}",
        ))
    }
}
