//! Sessions over HTTP.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::events::SessionEvent;
use super::names;
use super::progress::{Commit, Committed, Release, Released};
use super::seat::{Client, Liveness, Seat};
use crate::App;
use crate::access::bearer;
use crate::extract::{Body, Named};
use crate::failure::{ErrorBody, Failure};
use crate::sse::{self, Manner};

/// The most commits of one request.
const MOST_COMMITS: usize = 10_000;
/// The most bytes of metadata.
const MOST_METADATA: usize = 4_096;

/// A consumer that registers.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Registration {
    /// What it calls itself.
    #[schema(schema_with = names::consumer_schema)]
    consumer: String,
    /// What else there is to know of it.
    #[serde(default)]
    #[schema(value_type = Object)]
    metadata: serde_json::Map<String, Value>,
    /// What shows that it is there: its requests alone (`heartbeat`), or its open stream, too
    /// (`stream`, the default). A client whose process may be frozen chooses `heartbeat`.
    #[serde(default)]
    liveness: Liveness,
    /// The topic that it is going to fetch from: 409 if the group is about another one, because its
    /// commits would count for messages that it never had. Left out, nothing is checked: compare the
    /// topic of the answer.
    topic: Option<String>,
}

/// A session.
#[derive(Serialize, ToSchema)]
pub struct Opened {
    /// Its name within the group.
    session: String,
    /// What shows that it is yours: keep it to yourself.
    token: String,
    /// As which worker it is in the group.
    worker: String,
    /// The group's topic: what is assigned are partitions of this one, and of no other.
    topic: String,
    /// Without a sign of life for so long it is over. Any request of the session is one; so is the
    /// open stream, unless the consumer registered with `heartbeat`.
    ttl_ms: u64,
}

/// Registers a consumer. What it gets comes over the session's stream.
#[utoipa::path(post, path = "/v1/groups/{group}/sessions", tag = "consuming",
    params(("group" = String, Path, description = "The group's name", max_length = 64,
            pattern = "^[A-Za-z0-9_-]+$")),
    request_body = Registration,
    responses(
        (status = 201, body = Opened),
        (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)
))]
pub async fn register(
    State(app): State<Arc<App>>,
    Named(group): Named<String>,
    Body(new): Body<Registration>,
) -> Result<(StatusCode, Json<Opened>), Failure> {
    names::check_consumer(&new.consumer)?;
    let metadata = Value::Object(new.metadata);
    if metadata.to_string().len() > MOST_METADATA {
        return Err(Failure::bad(
            format!("metadata has up to {MOST_METADATA} bytes"),
            "give less",
        ));
    }
    let client = Client {
        consumer: new.consumer,
        metadata,
        liveness: new.liveness,
    };
    let registering = app.sessions.register(&group, client, new.topic.as_deref());
    let registered = registering.await?;
    Ok((
        StatusCode::CREATED,
        Json(Opened {
            session: registered.id.to_string(),
            token: registered.token,
            worker: registered.id.worker.to_string(),
            topic: registered.topic.to_string(),
            ttl_ms: millis(registered.ttl),
        }),
    ))
}

/// Sessions of a group.
#[derive(Serialize, ToSchema)]
pub struct Sessions {
    sessions: Vec<Listed>,
}

/// One of them.
#[derive(Serialize, ToSchema)]
pub struct Listed {
    session: String,
    worker: String,
    consumer: String,
    #[schema(value_type = Object)]
    metadata: Value,
    /// How many partitions it holds.
    partitions: usize,
}

/// The sessions of a group that this instance holds.
#[utoipa::path(get, path = "/v1/groups/{group}/sessions", tag = "consuming",
    params(("group" = String, Path, description = "The group's name", max_length = 64,
            pattern = "^[A-Za-z0-9_-]+$")),
    responses(
        (status = 200, body = Sessions),
        (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)
))]
pub async fn list(
    State(app): State<Arc<App>>,
    Named(group): Named<String>,
) -> Result<Json<Sessions>, Failure> {
    let records = app.places.records(&group)?;
    app.places.group(&records).await?;
    let sessions = app.sessions.of(&group).into_iter();
    let sessions = sessions.map(|(id, seat)| Listed {
        session: id.to_string(),
        worker: id.worker.to_string(),
        consumer: seat.client.consumer.clone(),
        metadata: seat.client.metadata.clone(),
        partitions: seat.holds(),
    });
    Ok(Json(Sessions {
        sessions: sessions.collect(),
    }))
}

/// The session that a request is about, by its token: looked for before anything of a body is read,
/// which nobody else can have done.
pub struct Seated(Arc<Seat>);

impl FromRequestParts<Arc<App>> for Seated {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Failure> {
        let named = Named::<(String, String)>::from_request_parts(parts, app);
        let Named((group, session)) = named.await?;
        let token = bearer(&parts.headers).unwrap_or_default();
        Ok(Self(app.sessions.find(token, &group, &session).await?))
    }
}

/// What happens to a session: server-sent events `session`, `assigned`, `revoke`, `lost`, `end`.
///
/// Any instance can be asked: a session that another one has, or had, goes on here, with its
/// partitions under new epochs.
#[utoipa::path(get, path = "/v1/groups/{group}/sessions/{session}/events", tag = "consuming",
    params(
        ("group" = String, Path, description = "The group's name", max_length = 64,
            pattern = "^[A-Za-z0-9_-]+$"),
        ("session" = String, Path, description = "The session's name")),
    responses(
        (status = 200, content_type = "text/event-stream", body = SessionEvent),
        (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)
))]
pub async fn events(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    Named(path): Named<(String, String)>,
) -> Result<Response, Failure> {
    let (group, session) = &path;
    let token = bearer(&headers).unwrap_or_default();
    let seat = app.sessions.find_or_go_on(token, group, session).await?;
    seat.hear()?;
    let Ok(slot) = app.session_slots.clone().try_acquire_owned() else {
        return Err(Failure::too_many("too many streams of sessions are open"));
    };
    let stream = seat.open(session);
    let manner = Manner {
        beat: seat.ttl / 3,
        stop: app.stop.clone(),
        _slot: slot,
    };
    Ok(sse::respond(stream, manner))
}

/// Progress.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Commits {
    #[schema(max_items = 10000)]
    commits: Vec<Commit>,
}

/// What became of it.
#[derive(Serialize, ToSchema)]
pub struct Results {
    /// One for each commit, in order.
    results: Vec<Committed>,
}

/// Commits progress, of one partition or many. Each is checked against its epoch first; `ok` means
/// that it is in the store.
#[utoipa::path(post, path = "/v1/groups/{group}/sessions/{session}/commits", tag = "consuming",
    params(
        ("group" = String, Path, description = "The group's name", max_length = 64,
            pattern = "^[A-Za-z0-9_-]+$"),
        ("session" = String, Path, description = "The session's name")),
    request_body = Commits,
    responses(
        (status = 200, body = Results),
        (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)
))]
pub async fn commits(
    State(app): State<Arc<App>>,
    Seated(seat): Seated,
    Body(commits): Body<Commits>,
) -> Result<Json<Results>, Failure> {
    seat.hear()?;
    if commits.commits.len() > MOST_COMMITS {
        return Err(Failure::bad(
            format!("one request has up to {MOST_COMMITS} commits"),
            "send several",
        ));
    }
    let committing = app
        .places
        .standing
        .unless_refused(seat.commit(commits.commits));
    let results = seat.unless_cut_off(committing).await?;
    Ok(Json(Results { results }))
}

/// Lets go of a partition that was revoked.
#[utoipa::path(post, path = "/v1/groups/{group}/sessions/{session}/released", tag = "consuming",
    params(
        ("group" = String, Path, description = "The group's name", max_length = 64,
            pattern = "^[A-Za-z0-9_-]+$"),
        ("session" = String, Path, description = "The session's name")),
    request_body = Release,
    responses(
        (status = 200, body = Released),
        (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)
))]
pub async fn released(
    State(app): State<Arc<App>>,
    Seated(seat): Seated,
    Body(release): Body<Release>,
) -> Result<Json<Released>, Failure> {
    seat.hear()?;
    let releasing = app.places.standing.unless_refused(seat.release(&release));
    let released = seat.unless_cut_off(releasing).await?;
    Ok(Json(released))
}

/// A plain yes.
#[derive(Serialize, ToSchema)]
pub struct Done {
    #[schema(example = "ok")]
    result: &'static str,
}

const DONE: Json<Done> = Json(Done { result: "ok" });

/// What a sign of life is answered with.
#[derive(Serialize, ToSchema)]
pub struct Heard {
    #[schema(example = "ok")]
    result: &'static str,
    /// For so long, counted from before the request was sent, nobody else gets what the session
    /// holds. After that handle nothing, until another sign of life was answered.
    lease_ms: u64,
}

/// A sign of life.
#[utoipa::path(post, path = "/v1/groups/{group}/sessions/{session}/heartbeat", tag = "consuming",
    params(
        ("group" = String, Path, description = "The group's name", max_length = 64,
            pattern = "^[A-Za-z0-9_-]+$"),
        ("session" = String, Path, description = "The session's name")),
    responses(
        (status = 200, body = Heard),
        (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)
))]
pub async fn heartbeat(Seated(seat): Seated) -> Result<Json<Heard>, Failure> {
    let left = seat.hear()?;
    Ok(Json(Heard {
        result: "ok",
        lease_ms: millis(left),
    }))
}

/// Ends a session: what it has goes to others at once, as far as it was committed.
#[utoipa::path(delete, path = "/v1/groups/{group}/sessions/{session}", tag = "consuming",
    params(
        ("group" = String, Path, description = "The group's name", max_length = 64,
            pattern = "^[A-Za-z0-9_-]+$"),
        ("session" = String, Path, description = "The session's name")),
    responses(
        (status = 200, body = Done),
        (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)
))]
pub async fn deregister(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    Named(path): Named<(String, String)>,
) -> Result<Json<Done>, Failure> {
    let (group, session) = &path;
    let token = bearer(&headers).unwrap_or_default();
    let ending = app.sessions.end(token, group, session);
    app.places.standing.unless_refused(ending).await?;
    Ok(DONE)
}

/// Has the members of this group list its partitions again: those whose sessions this instance holds.
/// Their number is the one that the group was made with, for good, so no partition comes or goes by
/// this. Workers elsewhere list by themselves.
#[utoipa::path(post, path = "/v1/groups/{group}/refresh", tag = "consuming",
    params(("group" = String, Path, description = "The group's name", max_length = 64,
            pattern = "^[A-Za-z0-9_-]+$")),
    responses(
        (status = 200, body = Done),
        (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)
))]
pub async fn refresh(
    State(app): State<Arc<App>>,
    Named(group): Named<String>,
) -> Result<Json<Done>, Failure> {
    let records = app.places.records(&group)?;
    app.places.group(&records).await?;
    app.sessions.refresh(&group);
    Ok(DONE)
}

/// Whole milliseconds.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
