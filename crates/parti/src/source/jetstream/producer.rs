//! A producer for streams of virtual partitions.
//!
//! ```text
//!   key ──xxh3 mod N──▶ <prefix>.<n>, Parti-Key: key ──▶ stream ──ack──▶ where it is
//!         └─ none: the partitions in turn       up to `window` without an ack at a time
//! ```
//!
//! Messages are sent in order. One whose ack does not come is sent again under the same id, which
//! the stream stores once; those that were sent after it may then stand before it. With a window
//! of 1 that cannot happen.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_nats::{HeaderMap, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::time::{Instant, timeout_at};
use xxhash_rust::xxh3::xxh3_64;

use super::JetStream;
use super::api::{Api, error, rejected, unavailable};
use super::delivery::{KEY, key_header, put};
use super::published::place;
use super::subjects::subject;
use crate::source::{Offset, PartitionId, SourceError};
use crate::trace::Publishing;

/// How many messages may be without an ack, unless said otherwise.
const WINDOW: usize = 512;
/// After this time without an ack a message is sent again.
const AGAIN_AFTER: Duration = Duration::from_secs(3);
/// How often it is sent without an answer before the producer gives up.
const TRIES: u32 = 5;
/// How long a stream may answer that a message is under way. Longer than streams know an id, unless
/// they are told otherwise: by then they have stored the message, or take it.
const UNDER_WAY: Duration = Duration::from_secs(150);

/// A message to publish.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewMessage {
    /// Decides the partition; without one, partitions take turns.
    pub key: Option<Bytes>,
    /// Headers; names and values are text without line breaks.
    pub headers: Vec<(String, String)>,
    /// What it carries.
    pub payload: Bytes,
}

/// Publishes to a stream of virtual partitions. Clones share their turns.
#[derive(Clone, Debug)]
pub struct Producer {
    stream: JetStream,
    subjects: Arc<[String]>,
    window: usize,
    /// Part of every message's id, so that producers are not mistaken for one another.
    me: u64,
    sent: Arc<AtomicU64>,
}

impl JetStream {
    /// A producer; refused for a stream that was not made with virtual partitions.
    pub fn producer(&self) -> Result<Producer, SourceError> {
        let Some(count) = self.partitions else {
            return Err(rejected(format!(
                "the stream {} was not made with virtual partitions, so a key has no partition; \
                 publish to its subjects yourself",
                self.stream()
            )));
        };
        let subjects: Result<Vec<String>, SourceError> = (0..count)
            .map(|number| subject(&self.template, &id(number)))
            .collect();
        Ok(Producer {
            stream: self.clone(),
            subjects: subjects?.into(),
            window: WINDOW,
            me: getrandom::u64().map_err(|error| unavailable(error.to_string()))?,
            sent: Arc::default(),
        })
    }
}

fn id(number: u32) -> PartitionId {
    PartitionId::new(number.to_string())
}

/// A message that is on its way.
struct Flying {
    index: usize,
    tries: u32,
    again_at: Instant,
    /// Until when it may be under way.
    until: Instant,
}

impl Producer {
    /// How many messages may be without an ack at a time.
    #[must_use]
    pub fn window(mut self, window: usize) -> Self {
        self.window = window.max(1);
        self
    }

    /// The stream's name.
    pub fn stream(&self) -> &str {
        self.stream.stream()
    }

    fn count(&self) -> u64 {
        self.subjects.len() as u64
    }

    /// The partition that a key's messages go to.
    pub fn partition_of(&self, key: &[u8]) -> PartitionId {
        PartitionId::new((xxh3_64(key) % self.count()).to_string())
    }

    /// Publishes messages in order, and answers where each one is. Once this returns, the stream
    /// has all of them. After an error, some of them may be stored.
    pub async fn publish(
        &self,
        messages: Vec<NewMessage>,
    ) -> Result<Vec<(PartitionId, Offset)>, SourceError> {
        let mut spans = Publishing::wanted();
        if let Some(spans) = &mut spans {
            for (place, message) in messages.iter().enumerate() {
                let headers = message.headers.iter();
                let headers = headers.map(|(name, value)| (name.as_str(), value.as_bytes()));
                spans.begin(place, headers, self.stream());
            }
        }
        let client = &self.stream.api.link.client;
        let first = self
            .sent
            .fetch_add(messages.len() as u64, Ordering::Relaxed);
        let ready: Vec<Ready> = messages
            .into_iter()
            .zip(first..)
            .map(|(message, number)| self.ready(message, number))
            .collect::<Result<_, _>>()?;
        let inbox = client.new_inbox();
        let acks = client.subscribe(format!("{inbox}.*")).await;
        let mut acks = acks.map_err(|error| unavailable(error.to_string()))?;
        let mut placed = vec![None; ready.len()];
        let mut flying: VecDeque<Flying> = VecDeque::new();
        let mut next = 0;
        while next < ready.len() || !flying.is_empty() {
            if next < ready.len() && flying.len() < self.window {
                send(&self.stream.api, &ready[next], &inbox, next).await?;
                let now = Instant::now();
                flying.push_back(Flying {
                    index: next,
                    tries: 1,
                    again_at: now + AGAIN_AFTER,
                    until: now + UNDER_WAY,
                });
                next += 1;
                continue;
            }
            match acked(&mut acks, flying.front()).await? {
                Some((index, result)) => {
                    let at = flying.iter().position(|flying| flying.index == index);
                    match (at, result) {
                        (None, _) => {}
                        (Some(_), Err(error)) => return Err(error),
                        (Some(at), Ok(Some(offset))) => {
                            flying.remove(at);
                            placed[index] = Some(offset);
                        }
                        // The stream is there: it is asked again, when the time has come.
                        (Some(at), Ok(None)) if Instant::now() < flying[at].until => {
                            flying[at].tries = 0;
                        }
                        (Some(_), Ok(None)) => {
                            return Err(unavailable(
                                "the stream knows a message's id and does not say where it is; it \
                                 may be stored, or not",
                            ));
                        }
                    }
                }
                None => {
                    if let Some(mut late) = flying.pop_front() {
                        if late.tries == TRIES {
                            return Err(unavailable("the stream does not acknowledge a message"));
                        }
                        // Without a connection there is nothing to send into.
                        if self.stream.api.link.connected().await.is_ok() {
                            send(&self.stream.api, &ready[late.index], &inbox, late.index).await?;
                        }
                        late.tries += 1;
                        late.again_at = Instant::now() + AGAIN_AFTER;
                        flying.push_back(late);
                    }
                }
            }
        }
        let numbers = ready.iter().map(|ready| ready.partition);
        let placed = numbers.zip(placed);
        let placed: Vec<_> = placed
            .filter_map(|(number, offset)| Some((id(number), offset?)))
            .collect();
        if let Some(spans) = spans {
            spans.stored(&placed);
        }
        Ok(placed)
    }

    fn ready(&self, message: NewMessage, number: u64) -> Result<Ready, SourceError> {
        let partition = match &message.key {
            Some(key) => xxh3_64(key) % self.count(),
            None => number % self.count(),
        };
        let mut headers = HeaderMap::new();
        for (name, value) in &message.headers {
            if !put(&mut headers, name, value) {
                return Err(rejected(format!(
                    "the header {name:?} holds what no header can; use text without line breaks"
                )));
            }
        }
        if let Some(key) = &message.key {
            put(&mut headers, KEY, &key_header(key));
        }
        put(
            &mut headers,
            "Nats-Msg-Id",
            &format!("parti/{:016x}/{number}", self.me),
        );
        // The remainder is below the number of partitions, which is 32 bits wide.
        Ok(Ready {
            partition: partition as u32,
            subject: self.subjects[partition as usize].clone(),
            headers,
            payload: message.payload,
        })
    }
}

struct Ready {
    partition: u32,
    subject: String,
    headers: HeaderMap,
    payload: Bytes,
}

async fn send(api: &Api, ready: &Ready, inbox: &str, index: usize) -> Result<(), SourceError> {
    let sent = api.link.client.publish_with_reply_and_headers(
        ready.subject.clone(),
        format!("{inbox}.{index}"),
        ready.headers.clone(),
        ready.payload.clone(),
    );
    // Too large, or a subject that is none: nothing that another try would mend.
    sent.await.map_err(|error| rejected(error.to_string()))
}

/// Where a message is; `None`: the stream does not say.
type Answer = Result<Option<Offset>, SourceError>;

/// The next ack; `None`: the oldest message is late.
async fn acked(
    acks: &mut Subscriber,
    oldest: Option<&Flying>,
) -> Result<Option<(usize, Answer)>, SourceError> {
    let deadline = oldest.map_or_else(Instant::now, |oldest| oldest.again_at);
    loop {
        let Ok(came) = timeout_at(deadline, acks.next()).await else {
            return Ok(None);
        };
        let Some(message) = came else {
            return Err(unavailable("the connection is closed"));
        };
        let index = message.subject.rsplit('.').next();
        if let Some(index) = index.and_then(|index| index.parse().ok()) {
            // Nobody is there to take it, for the moment: it is sent again when it is late.
            if message.status.is_some() {
                continue;
            }
            return Ok(Some((index, place(&message.payload).map_err(error))));
        }
    }
}
