//! What an operator changes by hand.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use parti::core::problem::shown;
use parti::core::record::Request;
use parti::inspect::Bounds;
use parti::operate::{
    self, Applied, Change, Checkpoints, Reason, Rules, TakeOver, Verdict, Wanted,
};
use parti::source::place::Located;
use parti::{Offset, PartitionId, StartPosition, store};
use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::App;
use crate::access::Caller;
use crate::extract::{Body, Named};
use crate::failure::{ErrorBody, Failure};
use crate::looking::partition;
use crate::whole::{Whole, maybe_whole};

/// The most bytes of an operator's request: none names more than a worker and a partition.
const MOST_REQUEST: usize = 2_048;

/// Where checkpoints are to go.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Reset {
    /// Which partitions; all that the group knows, if left out.
    partitions: Option<Vec<String>>,
    /// Where to go on: `"earliest"`, `"latest"`, `{"offset":7}` or `{"time_ms":1700000000000}`.
    #[serde(deserialize_with = "place")]
    to: Place,
    /// Only say what would change.
    #[serde(default)]
    dry_run: bool,
    /// Change partitions that are being served, too: each is paused until its owner has let go of
    /// it, changed, and resumed. An owner that does not let go in time is fenced.
    #[serde(default)]
    force: bool,
    /// Why, for the group's history.
    #[serde(default)]
    why: String,
}

/// A place in a partition.
#[derive(Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// The oldest message that is there.
    Earliest,
    /// After the newest message.
    Latest,
    /// At this offset.
    Offset(u64),
    /// At the first message not older than this, in milliseconds since the Unix epoch.
    TimeMs(u64),
}

/// Reads one of the four: in words of its own, because there is a choice to tell of.
fn place<'de, D: Deserializer<'de>>(from: D) -> Result<Place, D::Error> {
    let found = Value::deserialize(from)?;
    let number = |value: &Value| Whole::deserialize(value).ok().map(|Whole(number)| number);
    let place = match &found {
        Value::String(word) if word == "earliest" => Some(Place::Earliest),
        Value::String(word) if word == "latest" => Some(Place::Latest),
        Value::Object(fields) if fields.len() == 1 => {
            fields
                .iter()
                .next()
                .and_then(|(name, value)| match name.as_str() {
                    "offset" => number(value).map(Place::Offset),
                    "time_ms" => number(value).map(Place::TimeMs),
                    _ => None,
                })
        }
        _ => None,
    };
    place.ok_or_else(|| {
        D::Error::custom(format!(
            "{} is no place; expected one of \"earliest\", \"latest\", {{\"offset\":7}}, \
             {{\"time_ms\":1700000000000}}",
            shown(&found.to_string())
        ))
    })
}

impl Place {
    fn position(self) -> StartPosition {
        match self {
            Self::Earliest => StartPosition::Earliest,
            Self::Latest => StartPosition::Latest,
            Self::Offset(offset) => StartPosition::Offset(offset),
            Self::TimeMs(ms) => StartPosition::Time(ms),
        }
    }
}

/// What became of all of them.
#[derive(Serialize, ToSchema)]
pub struct Changes {
    changes: Vec<Changed>,
    /// The group began with another source than the one here, and goes on with this one now, or
    /// would.
    takes_over: bool,
}

/// What became of one.
#[derive(Serialize, ToSchema)]
pub struct Changed {
    partition: String,
    /// Where reading went on before; null if nobody ever took it.
    from: Option<u64>,
    /// Where reading goes on.
    to: u64,
    /// The epoch from now on.
    epoch: u64,
    /// Whether it was written.
    done: bool,
    /// Why not, or what to know.
    note: Option<String>,
}

/// Moves checkpoints. If one is refused, none is changed.
#[utoipa::path(post, path = "/v1/groups/{group}/checkpoints", tag = "operating",
    params(("group" = String, Path, description = "The group's name", max_length = 64,
            pattern = "^[A-Za-z0-9_-]+$")),
    request_body = Reset,
    responses(
        (status = 200, body = Changes),
        (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)
))]
pub async fn checkpoints(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Named(name): Named<String>,
    Body(reset): Body<Reset>,
) -> Result<Json<Changes>, Failure> {
    let reason = reason(caller, reset.why)?;
    let records = app.places.records(&name)?;
    let group = app.places.group(&records).await?;
    let named = reset.partitions.iter().flatten();
    let mut ids: Vec<PartitionId> = named.map(|id| partition(id)).collect::<Result<_, _>>()?;
    let stranger = |id: &&PartitionId| group.partition(id).is_none();
    if let Some(stranger) = ids.iter().find(stranger) {
        return Err(Failure::not_found(
            format!("the group does not know partition {stranger}"),
            "GET /v1/groups/{group} has those that it knows",
        ));
    }
    if group.has_no_log() {
        return Err(Failure::conflict(
            "the group was made without a log: nobody here knows where its partitions begin and end",
            "have the program set one at an offset of your own: parti checkpoint set --next, without \
             --source",
        ));
    }
    let Some(source) = app.places.located(&records, &group).await? else {
        return Err(Failure::conflict(
            "this service does not know where the group's messages are",
            "start it with --source",
        ));
    };
    // Before the places: a checkpoint that is past the end is of a log that went back.
    let checkpoints = Checkpoints::read(&records).await?;
    let checkpoints = checkpoints.of_source(&source).await?;
    let mut gone = Vec::new();
    if reset.partitions.is_none() {
        (gone, ids) = (checkpoints.all().into_iter()).partition(|id| checkpoints.is_gone(id));
    }
    if let Some(gone) = ids.iter().find(|id| checkpoints.is_gone(id)) {
        return Err(Failure::conflict(
            format!("the source has no partition {gone}, and the group began with another one"),
            "leave `partitions` out, if the group is to go on with this source",
        ));
    }
    let mut wanted = wanted(&source, &ids, reset.to).await?;
    // Of a source that had more: what it says there means nothing any more.
    wanted.extend(gone.into_iter().map(|id| Wanted::at(id, Offset(0))));
    let rules = Rules {
        // Both the wait for owners and the one for the end of pauses, before the request's own
        // limit ends it without a word.
        force: (reset.force).then(|| app.limits.request.mul_f64(0.4).into()),
        back: true,
        // All that the group names, also what nobody ever took.
        unknown: reset.partitions.is_none(),
    };
    let mut changes = checkpoints.plan(wanted, rules);
    let mut takes_over = checkpoints.takes_over(&changes)?;
    let mut left_paused = Vec::new();
    let refused = |change: &Change| !matches!(change.verdict, Verdict::Change | Verdict::Same);
    let go = !reset.dry_run && !changes.iter().any(refused);
    if go {
        let (by, why) = (reason.by.clone(), reason.why.clone());
        // A caller that goes away must not leave partitions paused.
        let applying = async move {
            let (never, mut reached) = (std::future::pending(), TakeOver::default());
            let applied = checkpoints.apply_noting(changes, rules, &reason, never, &mut reached);
            (applied.await, reached)
        };
        let (applied, reached) = tokio::spawn(applying).await.map_err(|_| {
            Failure::unavailable("the service ended before checkpoints were changed")
        })?;
        let applied: Applied = applied.map_err(|error| failed(error, reached))?;
        (changes, left_paused) = (applied.changes, applied.left_paused);
        takes_over = reached == TakeOver::Adopted;
        let count = changes.len();
        tracing::info!(group = name, by, why, count, "checkpoints were moved");
    } else if !reset.dry_run
        && let Some(first) = changes.iter().find(|change| refused(change))
    {
        let why = note(first, false).unwrap_or_default();
        return Err(Failure::conflict(
            format!("partition {}: {why}; nothing was changed", first.partition),
            "pause it or stop its worker, or give force",
        ));
    }
    let told = changes.iter().map(|change| Changed {
        partition: change.partition.to_string(),
        from: change.before.map(|before| before.next_offset.0),
        to: change.after.next_offset.0,
        epoch: match (&change.verdict, change.before) {
            (Verdict::Same, Some(before)) => before.epoch.0,
            _ => change.after.epoch.0,
        },
        done: go && change.verdict == Verdict::Change,
        note: match left_paused.contains(&change.partition) {
            true => Some("it was paused for this, and is not resumed yet: resume it".into()),
            false => note(change, go),
        },
    });
    Ok(Json(Changes {
        changes: told.collect(),
        takes_over,
    }))
}

/// Why checkpoints were not changed, and what that means for a group that was to go on with another
/// source.
fn failed(error: operate::Error, reached: TakeOver) -> Failure {
    let so = match reached {
        TakeOver::Untouched | TakeOver::Adopted => return error.into(),
        TakeOver::Holding => {
            "no checkpoint was changed, but it may be that nobody can join the group any more"
        }
        TakeOver::Held => "some checkpoints may have changed, and nobody can join the group",
    };
    let message = format!("{error}; {so}");
    match error {
        operate::Error::Store(store::Error::Rejected { .. }) => {
            Failure::broken("store_refuses", message)
        }
        _ => Failure::open(message, "send the same again: it does the rest"),
    }
}

/// Who asks, and why: both stand in the group's history.
fn reason(caller: Caller, why: String) -> Result<Reason, Failure> {
    let by = caller.name;
    let reason = Reason { by, why };
    match reason.check() {
        Ok(()) => Ok(reason),
        Err(wrong) => Err(Failure::bad(
            wrong,
            "give one plain line of up to 500 bytes",
        )),
    }
}

fn note(change: &Change, written: bool) -> Option<String> {
    match &change.verdict {
        Verdict::Change if written => {
            let owner = change.served_by.as_ref()?;
            Some(format!(
                "{owner} had not let go of it, and is fenced at its next commit, or when its lapsed \
                 lease comes back"
            ))
        }
        Verdict::Change => None,
        Verdict::Same => Some("it is there already".into()),
        Verdict::Served => {
            let by = change.served_by.as_ref();
            let by = by.map_or_else(|| "somebody".to_owned(), ToString::to_string);
            Some(format!("it is being served by {by}"))
        }
        Verdict::Back => Some("it would go back".into()),
        Verdict::Unknown => Some("the group does not know it".into()),
        Verdict::Unreadable(why) => Some(format!("its record cannot be read: {why}")),
    }
}

async fn wanted(source: &Located, ids: &[PartitionId], to: Place) -> Result<Vec<Wanted>, Failure> {
    let bounds: BTreeMap<PartitionId, Bounds> = source.bounds(ids).await?;
    let mut wanted = Vec::with_capacity(ids.len());
    for id in ids {
        let Some(bounds) = bounds.get(id) else {
            return Err(Failure::conflict(
                format!("the source has no partition {id}"),
                "is it the right source?",
            ));
        };
        let next = match to {
            Place::Earliest => bounds.first,
            Place::Latest => bounds.end,
            Place::Offset(offset) => Offset(offset),
            Place::TimeMs(_) => source.resolve(id, to.position()).await?,
        };
        if !bounds.hold(next) {
            return Err(Failure::out_of_range(
                format!("partition {id} cannot go on at {next}"),
                format!("give from {} to {}", bounds.first, bounds.end),
            ));
        }
        wanted.push(match to {
            Place::Latest => Wanted::latest(id.clone(), next),
            _ => Wanted::at(id.clone(), next),
        });
    }
    Ok(wanted)
}

/// What is to be done; with what its kind needs.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"kind": "drain", "worker": "worker-1"}))]
pub struct Action {
    /// What kind.
    kind: Kind,
    /// Which worker: for drain, undrain, evict, move and pin.
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<String>,
    /// In which life: for evict.
    #[serde(default, deserialize_with = "maybe_whole")]
    #[serde(skip_serializing_if = "Option::is_none")]
    incarnation: Option<u64>,
    /// Whether it is to stay away: for evict, false by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    stay_away: Option<bool>,
    /// Which partition: for move, pin, unpin, pause and resume.
    #[serde(skip_serializing_if = "Option::is_none")]
    partition: Option<String>,
}

/// Kinds of actions.
#[derive(Clone, Copy, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Drain,
    Undrain,
    Evict,
    Move,
    Pin,
    Unpin,
    Pause,
    Resume,
    Rebalance,
}

/// What an operator wants.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Wish {
    /// What is to be done.
    request: Action,
    /// Why, for the group's history.
    #[serde(default)]
    why: String,
}

/// What became of it.
#[derive(Serialize, ToSchema)]
pub struct Fulfilled {
    #[schema(example = "done")]
    outcome: &'static str,
    /// How long it took until its effect was there.
    took_ms: u64,
    /// What was done.
    text: String,
}

/// Asks the group for something, and answers once its effect is there.
#[utoipa::path(post, path = "/v1/groups/{group}/requests", tag = "operating",
    params(("group" = String, Path, description = "The group's name", max_length = 64,
            pattern = "^[A-Za-z0-9_-]+$")),
    request_body = Wish,
    responses(
        (status = 200, body = Fulfilled),
        (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)
))]
pub async fn requests(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Named(name): Named<String>,
    Body(wish): Body<Wish>,
) -> Result<Json<Fulfilled>, Failure> {
    let asked = json!(wish.request);
    if asked.to_string().len() > MOST_REQUEST {
        return Err(Failure::bad(
            format!("request: it has up to {MOST_REQUEST} bytes"),
            "name one worker or partition of the group",
        ));
    }
    // Lives are counted from 1: this one cannot be over, because it never was.
    if matches!(wish.request.kind, Kind::Evict) && wish.request.incarnation == Some(0) {
        let worker = wish.request.worker.unwrap_or_default();
        return Err(Failure::conflict(
            format!("request.incarnation: there is no life 0 of {worker:?} in the group"),
            "GET /v1/groups/{group} has every worker's incarnation",
        ));
    }
    // All that can be wrong now is that something is missing.
    let request: Request = serde_json::from_value(asked)
        .map_err(|error| Failure::bad(format!("request: {error}"), "give what its kind needs"))?;
    let records = app.places.records(&name)?;
    let reason = reason(caller, wish.why)?;
    // Before the request's own limit ends it without a word.
    let patience = app.limits.request.mul_f64(0.9);
    let (by, why, asked) = (reason.by.clone(), reason.why.clone(), request.to_string());
    let done = operate::request(&records, request, reason, patience).await;
    let outcome = done
        .as_ref()
        .map_or_else(ToString::to_string, |_| "done".into());
    tracing::info!(
        group = name,
        by,
        why,
        request = asked,
        outcome,
        "an operator's request"
    );
    let done = done?;
    Ok(Json(Fulfilled {
        outcome: "done",
        took_ms: done.took_ms,
        text: done.request.to_string(),
    }))
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;

    use super::*;

    #[test]
    fn a_take_over_that_fails_says_whether_anybody_can_join() {
        let open = || store::Error::unavailable("no answer");
        let refused = || operate::Error::Refused("worker-0 lives".into());
        let full = || store::Error::rejected("no space is left");
        for (error, reached, status, said, again) in [
            (refused(), TakeOver::Untouched, 409, "worker-0", false),
            (open().into(), TakeOver::Untouched, 503, "no answer", false),
            (open().into(), TakeOver::Holding, 503, "no checkpoint", true),
            (open().into(), TakeOver::Held, 503, "nobody can join", true),
            (refused(), TakeOver::Held, 503, "nobody can join", true),
            (full().into(), TakeOver::Held, 503, "nobody can join", false),
        ] {
            let failure = failed(error, reached);
            assert!(failure.message().contains(said), "{failure:?}");
            let rest = failure.remedy().contains("does the rest");
            assert_eq!(rest, again, "{failure:?}");
            assert_eq!(failure.into_response().status(), status);
        }
    }

    #[test]
    fn a_place_has_a_number_like_any_other() {
        let read = |to: &str| {
            let reset = format!(r#"{{"to":{to}}}"#);
            let reset: Result<Reset, _> = serde_json::from_str(&reset);
            reset.map(|reset| reset.to.position()).ok()
        };
        let at = |offset| Some(StartPosition::Offset(offset));
        assert_eq!(read(r#"{"offset":7.0}"#), at(7));
        assert_eq!(read(r#"{"offset":1e16}"#), at(10_000_000_000_000_000));
        assert_eq!(read(r#"{"offset":18446744073709551615}"#), at(u64::MAX));
        assert_eq!(read(r#"{"time_ms":1e3}"#), Some(StartPosition::Time(1_000)));
        for wrong in [
            r#"{"offset":7.5}"#,
            r#"{"offset":-1}"#,
            r#"{"offset":"7"}"#,
            "7",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
