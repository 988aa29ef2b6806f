//! Asking the server, and reading its answers: what was said, and what is known if nothing was.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_nats::connection::State;
use async_nats::{Client, HeaderMap, Message, Request, RequestErrorKind};
use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::connect::Health;

/// How long an answer may take. After a lost leader a cluster needs 4 to 8 seconds for a new one:
/// to wait for that here would only delay the caller's own decision.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// How long an operation waits for a connection that is just being made again.
const CONNECT_WITHIN: Duration = Duration::from_secs(1);

/// A cluster without a leader has a new one sooner than this, most times.
const OTHER_SERVER_AFTER: Duration = Duration::from_secs(6);

const READS_AT_ONCE: usize = 128;

/// What JetStream calls its complaints.
pub(crate) mod code {
    pub const NO_PEERS: u64 = 10005;
    pub const INSUFFICIENT_RESOURCES: u64 = 10023;
    pub const NO_MESSAGE: u64 = 10037;
    pub const NOT_ENABLED_FOR_ACCOUNT: u64 = 10039;
    pub const STORAGE_EXCEEDED: u64 = 10047;
    pub const MESSAGE_TOO_LARGE: u64 = 10054;
    pub const NAME_IN_USE: u64 = 10058;
    /// A stream with `max_consumers` has that many.
    pub const CONSUMERS_LIMIT: u64 = 10026;
    pub const NO_STREAM: u64 = 10059;
    pub const OTHER_STREAM: u64 = 10060;
    pub const WRONG_LAST: u64 = 10071;
    pub const NOT_CLUSTERED: u64 = 10074;
    pub const NOT_ENABLED: u64 = 10076;
    pub const STORE_FAILED: u64 = 10077;
    pub const SEALED: u64 = 10109;
    /// A message with this id is on its way to the replicas, or was.
    pub const ID_IN_PROCESS: u64 = 10158;
    /// As `WRONG_LAST`, while another write to the subject is still on its way to the replicas.
    pub const WRONG_LAST_IN_FLIGHT: u64 = 10164;
    pub const TOO_MANY_REQUESTS: u64 = 10167;
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Silence {
    /// It was never sent.
    NotSent(String),
    /// It was never sent, because the server takes nothing of this size.
    TooLarge(String),
    /// It was sent, and nobody was there to take it.
    Nobody,
    /// The server forbids it, and did not carry it out.
    Forbidden(String),
    /// It may have been carried out.
    Open(String),
}

/// Why an API call did not do what was asked.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    Silence(Silence),
    Refusal(Refusal),
    Garbled(String),
}

/// The server's own words.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Refusal {
    #[serde(default)]
    pub code: u64,
    #[serde(default)]
    pub err_code: u64,
    #[serde(default)]
    pub description: String,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.description, self.err_code)
    }
}

/// A connection, and what it has told of itself.
#[derive(Clone)]
pub(crate) struct Link {
    pub client: Client,
    pub health: watch::Receiver<Health>,
    pub name: String,
    unanswered: Arc<Mutex<Unanswered>>,
    /// The server drops all API requests when too many wait for it: a batch of conflicts must not
    /// bring that about.
    pub reads: Arc<Semaphore>,
}

/// Since when nothing has been answered, and when last nothing was.
#[derive(Debug, Default)]
struct Unanswered(Option<(Instant, Instant)>);

impl Link {
    pub(crate) fn new(client: Client, health: watch::Receiver<Health>, name: String) -> Self {
        Self {
            client,
            health,
            name,
            unanswered: Arc::default(),
            reads: Arc::new(Semaphore::new(READS_AT_ONCE)),
        }
    }

    /// A write was answered: the server that we are connected to has a leader to hand it to.
    pub(crate) fn answered(&self) {
        self.unanswered().0 = None;
    }

    /// Something begun at this time was not answered. If that goes on, the server that we are
    /// connected to may be cut off from the others, which a client cannot see: another one is
    /// tried, if there is one.
    pub(crate) fn not_answered(&self, begun: Instant) {
        let now = Instant::now();
        {
            let mut unanswered = self.unanswered();
            let since = match unanswered.0 {
                Some((since, last)) if now - last < OTHER_SERVER_AFTER * 2 => since,
                _ => begun,
            };
            unanswered.0 = Some((since, now));
            if now - since < OTHER_SERVER_AFTER {
                return;
            }
            // The next one gets its time, too, though less: mostly it is the second that works.
            unanswered.0 = Some((now - OTHER_SERVER_AFTER / 2, now));
        }
        let client = self.client.clone();
        let elsewhere = self.health.borrow().elsewhere.clone();
        tokio::spawn(async move {
            if client.server_pool().await.is_ok_and(|pool| pool.len() > 1) {
                tracing::info!("the server answers nothing; another one is tried");
                elsewhere.ask();
                let _ = client.force_reconnect().await;
            }
        });
    }

    fn unanswered(&self) -> MutexGuard<'_, Unanswered> {
        self.unanswered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn no_connection(&self) -> String {
        format!("there is no connection to {}", self.name)
    }

    /// Waits a little for a connection, and answers its number. What is sent without one would lie
    /// in a queue and be carried out at some later time, when nobody wants it any more.
    pub(crate) async fn connected(&self) -> Result<u64, Silence> {
        let is_up = |health: &Health| {
            // The state is the newest there is; the health tells which connection it is.
            health.up && self.client.connection_state() == State::Connected
        };
        {
            let health = self.health.borrow();
            if is_up(&health) {
                return Ok(health.connects);
            }
        }
        let mut health = self.health.clone();
        match timeout(CONNECT_WITHIN, health.wait_for(is_up)).await {
            Ok(Ok(health)) => Ok(health.connects),
            _ => Err(Silence::NotSent(self.no_connection())),
        }
    }

    /// Asks once.
    pub(crate) async fn request(
        &self,
        subject: String,
        headers: Option<HeaderMap>,
        payload: Bytes,
    ) -> Result<Message, Silence> {
        self.connected().await?;
        let begun = Instant::now();
        let request = Request {
            payload: Some(payload),
            headers,
            // Ours, below, is enough: thousands of timers cost something.
            timeout: Some(None),
            ..Request::new()
        };
        let answer = self.client.send_request(subject.clone(), request);
        match timeout(ANSWER_WITHIN, answer).await {
            Ok(Ok(message)) => Ok(message),
            Ok(Err(error)) => Err(match error.kind() {
                RequestErrorKind::NoResponders => Silence::Nobody,
                RequestErrorKind::InvalidSubject => Silence::NotSent(error.to_string()),
                RequestErrorKind::MaxPayloadExceeded => Silence::TooLarge(error.to_string()),
                RequestErrorKind::TimedOut | RequestErrorKind::Other => {
                    Silence::Open(error.to_string())
                }
            }),
            Err(_) => Err(forbidden(&self.health.borrow(), &subject, begun)
                .unwrap_or_else(|| Silence::Open(format!("no answer within {ANSWER_WITHIN:?}")))),
        }
    }

    /// As [`request`](Self::request), and does not wait for an answer once the server has said
    /// that there will be none.
    pub(crate) async fn request_or_forbidden(
        &self,
        subject: String,
        headers: Option<HeaderMap>,
        payload: Bytes,
    ) -> Result<Message, Silence> {
        let begun = Instant::now();
        let mut health = self.health.clone();
        let about = subject.clone();
        let is_forbidden = |health: &Health| forbidden(health, &about, begun).is_some();
        tokio::select! {
            answer = self.request(subject, headers, payload) => answer,
            Ok(health) = health.wait_for(is_forbidden) => Err(forbidden(&health, &about, begun)
                .unwrap_or_else(|| Silence::Open("the server forbids it".into()))),
        }
    }

    /// Calls the JetStream API.
    pub(crate) async fn api<T: DeserializeOwned>(
        &self,
        call: &str,
        body: Value,
    ) -> Result<T, Trouble> {
        let body = match body {
            Value::Null => Bytes::new(),
            body => body.to_string().into(),
        };
        let message = self
            .request_or_forbidden(format!("$JS.API.{call}"), None, body)
            .await
            .map_err(Trouble::Silence)?;
        answer(&message.payload)
    }
}

/// An answer's content, or the complaint in it.
pub(crate) fn answer<T: DeserializeOwned>(payload: &[u8]) -> Result<T, Trouble> {
    #[derive(Deserialize)]
    struct Complaint {
        error: Option<Refusal>,
    }
    let garbled = |error: serde_json::Error| Trouble::Garbled(error.to_string());
    let complaint: Complaint = serde_json::from_slice(payload).map_err(garbled)?;
    match complaint.error {
        Some(refusal) => Err(Trouble::Refusal(refusal)),
        None => serde_json::from_slice(payload).map_err(garbled),
    }
}

pub(crate) fn forbidden(health: &Health, subject: &str, since: Instant) -> Option<Silence> {
    let quoted = format!("\"{subject}\"");
    let about_us = |text: &str| text.contains(&quoted) || text.contains("Subscription to \"_INBOX");
    let (_, text) = health
        .forbidden
        .iter()
        .find(|(when, text)| *when >= since && about_us(text))?;
    Some(Silence::Forbidden(text.clone()))
}
