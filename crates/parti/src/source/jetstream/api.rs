//! The JetStream API, as far as this source needs it, and what its answers mean.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::RawMessage;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use xxhash_rust::xxh3::xxh3_64;

use crate::nats::link::{Link, Silence, Trouble, code};
use crate::source::SourceError;

/// More of the server's complaints.
pub(super) mod refusal {
    pub const NO_CONSUMER: u64 = 10014;
    /// Among others: an update names another value for what cannot be changed.
    pub const NOT_CHANGED: u64 = 10012;
    pub const NOT_UNIQUE: u64 = 10100;
    pub const WHOLE_STREAM: u64 = 10099;
}

const OPEN_WITHIN: Duration = Duration::from_secs(10);
const TRY_EVERY: Duration = Duration::from_millis(250);

/// What the server says of a stream.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct StreamInfo {
    pub created: String,
    pub config: StreamConfig,
    pub state: StreamState,
    /// When the server answered, by its clock.
    #[serde(default)]
    pub ts: Option<String>,
}

/// How a stream is set up.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct StreamConfig {
    pub subjects: Vec<String>,
    pub retention: String,
    pub storage: String,
    pub num_replicas: usize,
    /// In nanoseconds; 0: for good.
    pub max_age: u64,
    /// This and the next two: 0 or less if there is no such limit.
    pub max_msgs: i64,
    pub max_bytes: i64,
    pub max_msgs_per_subject: i64,
    /// What goes when a limit is reached: `old` messages, or `new` ones, which are refused.
    pub discard: String,
    pub metadata: BTreeMap<String, String>,
    pub subject_transform: Option<Transform>,
    pub consumer_limits: ConsumerLimits,
}

/// What a stream allows its consumers.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ConsumerLimits {
    /// In nanoseconds; 0: as long as anybody likes.
    pub inactive_threshold: u64,
    /// 0 or less if there is no such limit.
    pub max_ack_pending: i64,
}

/// How a stream rewrites subjects before it stores messages.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Transform {
    pub dest: String,
}

/// What a stream holds.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct StreamState {
    pub first_seq: u64,
    pub last_seq: u64,
    pub messages: u64,
}

impl StreamState {
    /// The oldest sequence still there; one past the last if none is.
    pub fn first(&self) -> u64 {
        self.first_seq.max(1)
    }

    /// One past the newest.
    pub fn end(&self) -> u64 {
        self.last_seq + 1
    }
}

/// What the server says of a consumer.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct ConsumerInfo {
    #[serde(default)]
    pub name: String,
    pub created: String,
    /// All of it, as it has to be sent back in an update.
    pub config: Value,
    pub delivered: Delivered,
    #[serde(default)]
    pub num_waiting: u64,
    /// Somebody wants it to deliver nothing for a while (server 2.11 or newer).
    #[serde(default)]
    pub paused: bool,
}

/// How far a consumer has come.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct Delivered {
    pub consumer_seq: u64,
}

impl ConsumerInfo {
    /// The subjects that it delivers. None at all means the whole stream.
    pub fn filters(&self) -> Vec<&str> {
        let one = self.config["filter_subject"].as_str();
        let several = self.config["filter_subjects"].as_array();
        let several = several.into_iter().flatten().filter_map(Value::as_str);
        let all = one.into_iter().chain(several);
        all.filter(|subject| !subject.is_empty()).collect()
    }

    /// What its metadata says under a name.
    pub fn about(&self, name: &str) -> Option<&str> {
        self.config["metadata"][name].as_str()
    }
}

/// Whether an update makes a consumer or changes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// There must be none yet.
    Create,
    /// There must be one.
    Update,
}

/// One stream on a server.
#[derive(Clone)]
pub(super) struct Api {
    pub link: Link,
    pub stream: Arc<str>,
    /// When the stream was made: the same name with another stamp is another stream.
    created: Arc<str>,
    replaced: Arc<(AtomicBool, Notify)>,
}

impl Api {
    /// The stream of this name, with what the server says of it. A server that is not ready yet, or
    /// a cluster that chooses a leader, gets a little time.
    pub async fn open(link: Link, stream: &str) -> Result<(Self, StreamInfo), SourceError> {
        let give_up = Instant::now() + OPEN_WITHIN;
        loop {
            match Self::try_open(link.clone(), stream).await {
                Err(SourceError::Unavailable(_)) if Instant::now() < give_up => {
                    sleep(TRY_EVERY).await;
                }
                outcome => return outcome,
            }
        }
    }

    async fn try_open(link: Link, stream: &str) -> Result<(Self, StreamInfo), SourceError> {
        let call = format!("STREAM.INFO.{stream}");
        let info: StreamInfo = match link.api(&call, Value::Null).await {
            Ok(info) => info,
            Err(Trouble::Refusal(refusal)) if refusal.err_code == code::NO_STREAM => {
                return Err(rejected(format!(
                    "{} has no stream {stream}; make it first, for example by \
                     `parti topic create --source jetstream://…/{stream} --partitions 12`",
                    link.name
                )));
            }
            Err(trouble) => return Err(error(trouble)),
        };
        let api = Self {
            link,
            stream: stream.into(),
            created: info.created.as_str().into(),
            replaced: Arc::default(),
        };
        Ok((api, info))
    }

    /// Calls the API, and notes when nobody answers: a server that is cut off from the others has
    /// nobody to ask, and then another one has to be tried. That a question is answered proves
    /// nothing: a stream's former leader was seen to answer for minutes.
    async fn ask<T: DeserializeOwned>(&self, call: &str, body: Value) -> Result<T, Trouble> {
        let begun = std::time::Instant::now();
        let outcome = self.link.api(call, body).await;
        let nobody = match &outcome {
            Err(Trouble::Silence(Silence::Open(_) | Silence::Nobody)) => true,
            Err(Trouble::Refusal(refusal)) => refusal.code == 503,
            _ => false,
        };
        if nobody {
            self.link.not_answered(begun);
        }
        outcome
    }

    /// The same for what changes something: whoever answers has the others behind it.
    async fn change<T: DeserializeOwned>(&self, call: &str, body: Value) -> Result<T, Trouble> {
        let outcome = self.ask(call, body).await;
        if outcome.is_ok() {
            self.link.answered();
        }
        outcome
    }

    /// Which stream this is, as a number.
    pub fn identity(&self) -> u64 {
        xxh3_64(self.created.as_bytes())
    }

    /// When the stream was made.
    pub fn created(&self) -> &str {
        &self.created
    }

    /// Waits until the stream turns out to be another one.
    pub async fn replaced(&self) {
        let (replaced, news) = &*self.replaced;
        loop {
            let told = news.notified();
            if replaced.load(Ordering::Acquire) {
                return;
            }
            told.await;
        }
    }

    /// What the stream's leader says of it; an error if it is another stream by now.
    pub async fn stream_info(&self) -> Result<StreamInfo, SourceError> {
        let call = format!("STREAM.INFO.{}", self.stream);
        let info: StreamInfo = self.ask(&call, Value::Null).await.map_err(error)?;
        if *info.created != *self.created {
            let (replaced, news) = &*self.replaced;
            replaced.store(true, Ordering::Release);
            news.notify_waiters();
            return Err(rejected(format!(
                "the stream {} was deleted and made anew",
                self.stream
            )));
        }
        Ok(info)
    }

    /// What the consumer's leader says of it; `None`: there is no such consumer.
    pub async fn consumer_info(&self, name: &str) -> Result<Option<ConsumerInfo>, SourceError> {
        let call = format!("CONSUMER.INFO.{}.{name}", self.stream);
        match self.ask(&call, Value::Null).await {
            Ok(info) => Ok(Some(info)),
            Err(Trouble::Refusal(refusal)) if refusal.err_code == refusal::NO_CONSUMER => Ok(None),
            Err(trouble) => Err(error(trouble)),
        }
    }

    /// Makes or changes a consumer. The caller looks at refusals himself.
    pub async fn put_consumer(
        &self,
        name: &str,
        config: Value,
        action: Action,
    ) -> Result<ConsumerInfo, Trouble> {
        let call = format!("CONSUMER.CREATE.{}.{name}", self.stream);
        let action = match action {
            Action::Create => "create",
            Action::Update => "update",
        };
        let body = json!({"stream_name": &*self.stream, "config": config, "action": action});
        self.change(&call, body).await
    }

    /// Deletes a consumer; that there is none is fine.
    pub async fn delete_consumer(&self, name: &str) -> Result<(), SourceError> {
        let call = format!("CONSUMER.DELETE.{}.{name}", self.stream);
        match self.change::<Value>(&call, Value::Null).await {
            Ok(_) => Ok(()),
            Err(Trouble::Refusal(refusal)) if refusal.err_code == refusal::NO_CONSUMER => Ok(()),
            Err(trouble) => Err(error(trouble)),
        }
    }

    /// Makes a consumer begin anew at this sequence, with nothing pending (server 2.14 or newer). One
    /// that is not there is never answered for.
    pub async fn reset_consumer(&self, name: &str, start: u64) -> Result<ConsumerInfo, Trouble> {
        let call = format!("CONSUMER.RESET.{}.{name}", self.stream);
        self.change(&call, json!({ "seq": start })).await
    }

    /// Ends a pause of a consumer (server 2.11 or newer).
    pub async fn resume_consumer(&self, name: &str) -> Result<(), SourceError> {
        let call = format!("CONSUMER.PAUSE.{}.{name}", self.stream);
        // Until when: without it, not at all.
        let resumed = self.change::<Value>(&call, json!({})).await;
        resumed.map(|_| ()).map_err(error)
    }

    /// All consumers of the stream.
    pub async fn consumers(&self) -> Result<Vec<ConsumerInfo>, SourceError> {
        #[derive(Deserialize)]
        struct Page {
            total: usize,
            #[serde(default)]
            consumers: Option<Vec<ConsumerInfo>>,
        }
        let call = format!("CONSUMER.LIST.{}", self.stream);
        let mut found = Vec::new();
        loop {
            let body = json!({ "offset": found.len() });
            let page: Page = self.ask(&call, body).await.map_err(error)?;
            let consumers = page.consumers.unwrap_or_default();
            let ended = consumers.is_empty();
            found.extend(consumers);
            if ended || found.len() >= page.total {
                return Ok(found);
            }
        }
    }

    /// The first message of a subject from this sequence on, as the stream's leader knows it: that
    /// there is none is proof, which a replica's answer would not be.
    pub async fn next_message(
        &self,
        subject: &str,
        from: u64,
    ) -> Result<Option<StreamMessage>, SourceError> {
        #[derive(Deserialize)]
        struct Got {
            message: RawMessage,
        }
        let call = format!("STREAM.MSG.GET.{}", self.stream);
        // Sequence 0 would mean "none given".
        let body = json!({ "seq": from.max(1), "next_by_subj": subject });
        let got: Got = match self.ask(&call, body).await {
            Ok(got) => got,
            Err(Trouble::Refusal(refusal)) if refusal.err_code == code::NO_MESSAGE => {
                return Ok(None);
            }
            Err(trouble) => return Err(error(trouble)),
        };
        let message = StreamMessage::try_from(got.message)
            .map_err(|error| unavailable(format!("the server's answer: {error}")))?;
        Ok(Some(message))
    }
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.link.name)
    }
}

/// Try again.
pub(super) fn unavailable(why: impl AsRef<str>) -> SourceError {
    SourceError::Unavailable(why.as_ref().into())
}

/// A person must mend something.
pub(super) fn rejected(why: impl AsRef<str>) -> SourceError {
    SourceError::Rejected(why.as_ref().into())
}

/// What a failed call means for whoever asked.
pub(super) fn error(trouble: Trouble) -> SourceError {
    match trouble {
        Trouble::Silence(Silence::Forbidden(text)) => rejected(format!(
            "this user lacks a permission ({text}); allow it to publish to $JS.API.>, $JS.ACK.> and \
             the dead letters' subject, and to subscribe to _INBOX.>"
        )),
        Trouble::Silence(Silence::NotSent(why) | Silence::Open(why)) => unavailable(why),
        Trouble::Silence(Silence::TooLarge(why)) => rejected(format!(
            "the server takes no message of this size: {why}; raise its max_payload"
        )),
        Trouble::Silence(Silence::Nobody) => {
            unavailable("no JetStream server answers at the moment")
        }
        Trouble::Garbled(why) => unavailable(format!("an answer is garbled: {why}")),
        Trouble::Refusal(refusal) => match refusal.err_code {
            code::NO_STREAM => rejected(
                "the stream is gone; restore it from a backup, or make it anew and reset the \
                 checkpoints",
            ),
            code::NOT_ENABLED | code::NOT_ENABLED_FOR_ACCOUNT => unavailable(
                "JetStream is not enabled for this server or account; start nats-server with -js, \
                 or enable it for the account",
            ),
            code::CONSUMERS_LIMIT => rejected(
                "the stream or the account allows no more consumers; each worker has one, and up to \
                 17 more while it reads what lies before it: raise max_consumers, or leave it out",
            ),
            code::TOO_MANY_REQUESTS => unavailable(refusal.to_string()),
            _ if (400..500).contains(&refusal.code) => rejected(refusal.to_string()),
            _ => unavailable(refusal.to_string()),
        },
    }
}

/// What a failed connection or a bad URL means for whoever asked.
pub(super) fn of_connection(error: crate::store::Error) -> SourceError {
    use crate::store::Error;
    match error {
        Error::Rejected { why } => rejected(why),
        Error::Unavailable { why } | Error::Unknown { why } => unavailable(why),
        other => unavailable(other.to_string()),
    }
}
