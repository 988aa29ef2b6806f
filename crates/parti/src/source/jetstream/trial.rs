//! What a worker will do to the stream, tried without a worker: whether this user may.
//!
//! ```text
//!   a consumer of nobody's ── made, looked at, pulled from, acked to ──▶ deleted
//!   a dead letter that expects another stream than there is ───────────▶ refused, so never stored
//! ```
//!
//! What is tried changes nothing for those who work: the consumer's name can be no worker's, in a work
//! queue its filter is no partition's subject, and it goes by itself where it cannot be deleted. The
//! one thing that others can notice is the dead letter: who subscribes to its subject hears an empty
//! message, though no stream keeps it.

use std::time::Duration;

use async_nats::HeaderMap;
use bytes::Bytes;
use parti_core::codec;
use parti_core::config::{AckMode, Config};
use parti_core::io::Retention;
use serde_json::{Value, json};

use super::JetStream;
use super::api::{Action, ConsumerInfo, error, refusal, rejected, unavailable};
use super::delivery::put;
use super::subjects::pattern;
use crate::nats::link::{Silence, Trouble, code};
use crate::source::SourceError;

/// No id of a worker, no partition and no stream: `=` begins an escape of two hex digits.
const NOBODY: &str = "=doctor";
/// A consumer that could not be deleted goes after this time.
const GONE_AFTER: Duration = Duration::from_secs(5);
/// The name in an API call's subject and the one in its body differ.
const STREAM_MISMATCH: u64 = 10056;
/// A consumer's filter is none of the stream's subjects.
const NO_SUBJECT: u64 = 10093;

/// Something that a worker does, and how it went.
#[derive(Clone, Debug, PartialEq)]
pub struct Tried {
    /// What.
    pub what: &'static str,
    /// Why it cannot be done, if it cannot.
    pub outcome: Result<(), SourceError>,
}

impl JetStream {
    /// Tries what workers of a group with these settings will do: making, reading and deleting a
    /// consumer, and sending a dead letter. Nothing stays behind: neither the consumer nor a message,
    /// but whoever subscribes to the dead letters' subject hears an empty one.
    pub async fn try_out(&self, group: Option<&str>, config: &Config) -> Vec<Tried> {
        vec![
            Tried {
                what: "consumers can be made, pulled from and deleted",
                outcome: self.try_consumer(group, config).await,
            },
            Tried {
                what: "messages can be read",
                outcome: self.try_read().await,
            },
            Tried {
                what: "dead letters can be sent",
                outcome: self.try_letter().await,
            },
        ]
    }

    async fn try_consumer(&self, group: Option<&str>, config: &Config) -> Result<(), SourceError> {
        let prefix = &config.jetstream.consumer_prefix;
        let mark = getrandom::u64().map_err(|error| unavailable(error.to_string()))?;
        // As those of the workers, where only these may be made.
        let name = match group {
            Some(group) => format!("{prefix}-{}-{NOBODY}-{mark:x}", codec::escape(group)),
            None => format!("{prefix}-{NOBODY}-{mark:x}"),
        };
        let made = self
            .api
            .put_consumer(&name, self.scratch(&name), Action::Create);
        match made.await {
            Ok(_) => {}
            // It may be made, but for what is there already.
            Err(Trouble::Refusal(refused))
                if self.retention == Retention::WorkQueue
                    && [refusal::NOT_UNIQUE, refusal::WHOLE_STREAM, NO_SUBJECT]
                        .contains(&refused.err_code) =>
            {
                return Ok(());
            }
            Err(trouble) => return Err(error(trouble)),
        }
        let used = self.use_consumer(&name, config.jetstream.ack).await;
        // Whatever else failed, nothing is to stay behind.
        self.api.delete_consumer(&name).await?;
        used
    }

    /// Behind which nothing is, or nothing that anybody has: whoever makes it waits for no count.
    fn scratch(&self, name: &str) -> Value {
        let pattern = pattern(&self.template);
        let (filter, policy) = match self.retention {
            Retention::Limits => (pattern.join("."), "new"),
            Retention::WorkQueue => {
                let nobodys = pattern.iter().map(|token| match *token {
                    "*" | ">" => NOBODY,
                    token => token,
                });
                (nobodys.collect::<Vec<_>>().join("."), "all")
            }
        };
        json!({
            "name": name,
            "description": "parti doctor: gone by itself in a moment",
            "ack_policy": "explicit",
            "deliver_policy": policy,
            "filter_subjects": [filter],
            "inactive_threshold": GONE_AFTER.as_nanos() as u64,
            "mem_storage": true,
            "num_replicas": 1,
        })
    }

    async fn use_consumer(&self, name: &str, ack: AckMode) -> Result<(), SourceError> {
        let looked: Option<ConsumerInfo> = self.api.consumer_info(name).await?;
        if looked.is_none() {
            return Err(unavailable(format!(
                "the consumer {name} was made, and is not there"
            )));
        }
        let stream = &self.api.stream;
        let pull = json!({ "batch": 1, "no_wait": true }).to_string();
        let pull_at = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}");
        self.ask(pull_at, pull.into()).await?;
        if ack == AckMode::Explicit {
            // More time for a message that it does not have: that alone is always answered.
            let ack_at = format!("$JS.ACK.{stream}.{name}.1.1.1.0.0");
            self.ask(ack_at, "+WPI".into()).await?;
        }
        Ok(())
    }

    async fn ask(&self, subject: String, body: Bytes) -> Result<(), SourceError> {
        let asked = self
            .api
            .link
            .request_or_forbidden(subject, None, body)
            .await;
        asked
            .map(drop)
            .map_err(|silence| error(Trouble::Silence(silence)))
    }

    async fn try_read(&self) -> Result<(), SourceError> {
        let end = self.api.stream_info().await?.state.end();
        let filter = pattern(&self.template).join(".");
        self.api.next_message(&filter, end).await.map(drop)
    }

    async fn try_letter(&self) -> Result<(), SourceError> {
        let subject = format!("{}.{NOBODY}", self.letters.subject());
        let mut headers = HeaderMap::new();
        put(&mut headers, "Nats-Expected-Stream", NOBODY);
        let link = &self.api.link;
        let sent = link.request_or_forbidden(subject.clone(), Some(headers), Bytes::new());
        let outcome = match sent.await {
            Ok(answer) => super::published::place(&answer.payload).map(drop),
            Err(silence) => Err(Trouble::Silence(silence)),
        };
        match outcome {
            Err(Trouble::Refusal(refused)) if refused.err_code == code::OTHER_STREAM => Ok(()),
            Err(Trouble::Silence(Silence::Nobody)) if self.letters.is_own() => {
                self.try_making_letters().await
            }
            Err(Trouble::Silence(Silence::Nobody)) => Err(self.letters.kept_by_none(&subject)),
            Err(trouble) => Err(error(trouble)),
            Ok(()) => Err(rejected(format!(
                "{subject} is answered, but not by a stream: nothing would keep dead letters"
            ))),
        }
    }

    /// Their stream is made with the first letter. Here it is asked for by two names, which no server
    /// makes.
    async fn try_making_letters(&self) -> Result<(), SourceError> {
        let call = format!("STREAM.CREATE.{}", self.letters.stream(&self.api));
        match self
            .api
            .link
            .api::<Value>(&call, json!({ "name": NOBODY }))
            .await
        {
            Err(Trouble::Refusal(refused)) if refused.err_code == STREAM_MISMATCH => Ok(()),
            Err(trouble) => Err(error(trouble)),
            Ok(_) => Err(unavailable("a stream of two names was made")),
        }
    }
}
