//! Messages of the embedded log, in and out.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use parti::source::log::NewRecord;
use parti::source::{Batch, Growth, Offset, PartitionId, Record};
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::time::Instant;
use utoipa::{IntoParams, ToSchema};

use crate::App;
use crate::extract::{Asked, Body, Named, within};
use crate::failure::{ErrorBody, Failure};
use crate::looking::partition;
use crate::places::Opened;

/// The longest wait for messages, in milliseconds.
const LONGEST_WAIT_MS: u64 = 30_000;
/// The most messages of one answer.
const MOST: u64 = 1_000;
/// The most bytes of one answer.
pub const MOST_BYTES: usize = 1024 * 1024;
/// Bytes of messages that are written without further ado.
const AT_ONCE: usize = 16 * 1024;
/// Bytes for what follows the messages of an answer.
const LAST_WORDS: usize = 64;

/// Messages to append.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Messages {
    messages: Vec<NewMessage>,
}

/// A message to append. Bytes that are no text go as base64.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewMessage {
    /// Messages with one key go to one partition, in order.
    key: Option<String>,
    key_b64: Option<String>,
    payload: Option<String>,
    payload_b64: Option<String>,
    #[serde(default)]
    headers: Vec<Header>,
    /// A partition of the producer's own choice; by default the key decides, or the turn.
    partition: Option<String>,
}

/// A header. Bytes that are no text go as base64.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Header {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_b64: Option<String>,
}

/// Bytes that came as text or as base64.
fn bytes(
    what: &str,
    text: Option<String>,
    coded: Option<String>,
) -> Result<Option<Bytes>, Failure> {
    match (text, coded) {
        (Some(_), Some(_)) => Err(Failure::bad(
            format!("a message has {what} and {what}_b64"),
            "give one of them",
        )),
        (Some(text), None) => Ok(Some(text.into())),
        (None, Some(coded)) => match STANDARD.decode(coded) {
            Ok(bytes) => Ok(Some(bytes.into())),
            Err(error) => Err(Failure::bad(
                format!("{what}_b64 is no base64: {error}"),
                "use the standard alphabet, with padding",
            )),
        },
        (None, None) => Ok(None),
    }
}

/// Text if it is, else base64.
fn shown(bytes: &Bytes) -> (Option<String>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(STANDARD.encode(bytes))),
    }
}

impl NewMessage {
    fn record(self) -> Result<NewRecord, Failure> {
        let headers = self.headers.into_iter().map(|header| {
            let value = bytes("value", header.value, header.value_b64)?;
            Ok((header.name, value.unwrap_or_default()))
        });
        let Some(payload) = bytes("payload", self.payload, self.payload_b64)? else {
            return Err(Failure::bad(
                "a message has no payload",
                "give payload or payload_b64",
            ));
        };
        Ok(NewRecord {
            key: bytes("key", self.key, self.key_b64)?,
            headers: headers.collect::<Result<_, Failure>>()?,
            payload,
            partition: self.partition.as_deref().map(partition).transpose()?,
        })
    }
}

/// Where messages are.
#[derive(Serialize, ToSchema)]
pub struct Placed {
    /// One for each, in order.
    placed: Vec<Position>,
}

/// Where a message is.
#[derive(Serialize, ToSchema)]
pub struct Position {
    partition: String,
    offset: u64,
}

/// Appends messages, all with one sync: once this answers they are on the disk.
#[utoipa::path(post, path = "/v1/topics/{topic}/messages", tag = "messages",
    params(("topic" = String, Path, description = "The topic's name",
        pattern = r"^[^\x00-\x1f\x7f-\x9f]+$")),
    request_body = Messages,
    responses(
        (status = 200, body = Placed),
        (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)
))]
pub async fn produce(
    State(app): State<Arc<App>>,
    Named(topic): Named<String>,
    Body(messages): Body<Messages>,
) -> Result<Json<Placed>, Failure> {
    let opened = app.places.topic(&topic).await?;
    let records = messages.messages.into_iter().map(NewMessage::record);
    let appended = opened
        .topic
        .append(records.collect::<Result<_, _>>()?)
        .await;
    app.places.standing.log_did(&appended);
    let placed = appended?.into_iter().map(|(partition, offset)| Position {
        partition: partition.to_string(),
        offset: offset.0,
    });
    Ok(Json(Placed {
        placed: placed.collect(),
    }))
}

/// Which messages.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct From {
    /// The first offset wanted. Beyond the end is 416, `offset_out_of_range`; at the end it waits.
    #[serde(default)]
    from: u64,
    /// The most messages, 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u64>,
    /// If there are none, wait for so long, 30 seconds at the most.
    #[serde(default)]
    #[param(maximum = 30000)]
    wait_ms: u64,
    /// The most bytes of the answer, 1 MiB by default. One message always comes, however large.
    #[param(minimum = 1, maximum = 1048576)]
    max_bytes: Option<u64>,
    /// The group that they are for: 409 if it is about another topic, and 503 `replaced` if it began
    /// with another log than this instance has. Consumers give it, so that they never handle
    /// messages that are not their group's.
    #[param(max_length = 64, pattern = "^[A-Za-z0-9_-]+$")]
    group: Option<String>,
}

/// Messages as found.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what `write` writes message by message")]
pub struct Found {
    messages: Vec<Message>,
    /// Where to go on.
    next: u64,
    /// One past the newest.
    end: u64,
}

/// A message.
#[derive(Serialize, ToSchema)]
pub struct Message {
    offset: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_b64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_b64: Option<String>,
    headers: Vec<Header>,
    timestamp_ms: u64,
}

impl Message {
    fn of(record: Record) -> Self {
        let (payload, payload_b64) = shown(&record.payload);
        let (key, key_b64) = record.key.as_ref().map(shown).unwrap_or_default();
        let headers = Vec::from(record.headers).into_iter().map(|(name, value)| {
            let (value, value_b64) = shown(&value);
            Header {
                name,
                value,
                value_b64,
            }
        });
        Self {
            offset: record.offset.0,
            key,
            key_b64,
            payload,
            payload_b64,
            headers: headers.collect(),
            timestamp_ms: record.timestamp_ms,
        }
    }
}

/// Messages of a partition from an offset on, in order; waits for some if there are none. As many as
/// fit: `next` says where to go on.
#[utoipa::path(get, path = "/v1/topics/{topic}/partitions/{partition}/messages", tag = "messages",
    params(
        ("topic" = String, Path, description = "The topic's name",
            pattern = r"^[^\x00-\x1f\x7f-\x9f]+$"),
        ("partition" = String, Path, description = "The partition's number", pattern = "^[0-9]+$"),
        From),
    responses(
        (status = 200, body = Found),
        (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)
))]
pub async fn fetch(
    State(app): State<Arc<App>>,
    Named((topic, id)): Named<(String, String)>,
    Asked(from): Asked<From>,
) -> Result<Response, Failure> {
    let limit = within("limit", from.limit.unwrap_or(100), 1..=MOST)?;
    let wait = within("wait_ms", from.wait_ms, 0..=LONGEST_WAIT_MS)?;
    let most = app.limits.fetch as u64;
    let bytes = within("max_bytes", from.max_bytes.unwrap_or(most), 1..=most)?;
    if let Some(group) = &from.group {
        app.fits.check(&app.places, group, &topic).await?;
    }
    let opened = app.places.topic(&topic).await?;
    let partitions = opened.topic.partitions();
    let number = id.parse::<u32>().ok();
    if !number.is_some_and(|number| number < partitions && number.to_string() == id) {
        return Err(Failure::not_found(
            format!("topic {topic:?} has no partition {id:?}"),
            format!("ask for one of 0 to {}", partitions.saturating_sub(1)),
        ));
    }
    let reading = Reading {
        opened,
        id: PartitionId::new(id),
        from: Offset(from.from),
        limit: limit as usize,
        bytes: bytes as usize,
        until: Instant::now() + Duration::from_millis(wait),
    };
    let body = tokio::select! {
        body = reading.answer(&app) => body?,
        // Nobody waits for messages while the service stops.
        () = app.stop.cancelled() => return Err(Failure::unavailable("the service stops")),
    };
    let kind = HeaderValue::from_static("application/json");
    Ok(([(header::CONTENT_TYPE, kind)], body).into_response())
}

/// What is to be read.
struct Reading {
    opened: Opened,
    id: PartitionId,
    from: Offset,
    limit: usize,
    bytes: usize,
    until: Instant,
}

impl Reading {
    /// The answer, in room that is set aside for it before anything is read.
    async fn answer(self, app: &App) -> Result<Bytes, Failure> {
        let room = &app.fetch_room;
        // Before the first look, so that nothing slips through between the two.
        let mut growth = self.opened.growth.subscribe();
        let mut needed = self.bytes;
        loop {
            let taken = room.take(needed).await?;
            let turn = room.turn().await?;
            let topic = &self.opened.topic;
            let batch = topic.read_within(&self.id, self.from, self.limit, self.bytes);
            let batch = batch.await;
            if batch.is_err() {
                // What can be read shows nothing of what can be appended.
                app.places.standing.log_did(&batch);
            }
            let batch = batch?;
            if self.from > batch.end {
                let (id, from, end) = (&self.id, self.from, batch.end);
                return Err(Failure::out_of_range(
                    format!("partition {id} ends at {end}, and {from} is beyond that"),
                    format!(
                        "ask from {end} on for what comes next; if there was more, the log is \
                             not the one it was"
                    ),
                ));
            }
            let is_empty = batch.records.is_empty() && batch.next <= self.from;
            if !is_empty || Instant::now() >= self.until {
                let body = written(batch, self.bytes).await?;
                drop(turn);
                if taken.fits(body.len()) {
                    return Ok(taken.fill(body));
                }
                // One message that is larger than what was set aside: again, with room for it.
                needed = body.len();
                continue;
            }
            // Who waits takes no room.
            drop((turn, taken));
            let grown = grows(&mut growth, &self.id);
            // At the end of its time it looks once more, and tells what is there.
            let _ = tokio::time::timeout_at(self.until, grown).await;
        }
    }
}

/// Waits until a partition may have grown.
async fn grows(growth: &mut broadcast::Receiver<Growth>, id: &PartitionId) {
    loop {
        match growth.recv().await {
            Ok(Growth::Partition(other)) if other != *id => {}
            Ok(_) | Err(RecvError::Lagged(_)) => return,
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// The JSON of a [`Found`]. Large ones take a moment, which others should not wait for.
async fn written(batch: Batch, most: usize) -> Result<Vec<u8>, Failure> {
    let bytes = batch.records.iter().map(|record| record.payload.len());
    if bytes.sum::<usize>() <= AT_ONCE {
        return Ok(write(batch, most));
    }
    let writing = tokio::task::spawn_blocking(move || write(batch, most)).await;
    writing.map_err(|_| Failure::unavailable("the answer was not written"))
}

/// As many messages as fit, and one in any case.
fn write(batch: Batch, most: usize) -> Vec<u8> {
    let (mut body, mut next) = (Vec::from(b"{\"messages\":["), batch.next);
    let end = batch.end;
    for (count, record) in batch.records.into_iter().enumerate() {
        let offset = record.offset;
        // Text and numbers are always JSON.
        let message = serde_json::to_vec(&Message::of(record)).unwrap_or_default();
        if count > 0 && body.len() + message.len() + LAST_WORDS > most {
            next = offset;
            break;
        }
        if count > 0 {
            body.push(b',');
        }
        body.extend(message);
    }
    body.extend(format!("],\"next\":{next},\"end\":{end}}}").into_bytes());
    body
}
