//! What the server's answers mean for a bucket.

use std::collections::BTreeMap;

use async_nats::HeaderMap;
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::RawMessage;
use serde::Deserialize;
use serde_json::json;

use super::super::{Bytes, Error};
use super::bucket::Bucket;
use super::keys;
pub(super) use crate::nats::link::{Link, Refusal, Silence, Trouble, answer, code};

/// The last message of a subject.
#[derive(Clone, Debug)]
pub(super) struct Last {
    pub sequence: u64,
    /// `None`: a marker, left by a delete.
    pub value: Option<Bytes>,
}

/// Whether a message says that its key is gone: a delete, a purge, or the server's own marker.
pub(super) fn is_marker(headers: &HeaderMap) -> bool {
    let operation = headers.get("KV-Operation").map(|value| value.as_str());
    matches!(operation, Some("DEL" | "PURGE")) || headers.get("Nats-Marker-Reason").is_some()
}

impl Link {
    /// The last message that matches a filter, as the stream's leader knows it: never a replica's
    /// view, which can be older by any time.
    pub(super) async fn last(&self, bucket: &Bucket, filter: &str) -> Result<Option<Last>, Error> {
        #[derive(Deserialize)]
        struct Got {
            message: RawMessage,
        }
        let _turn = self.reads.acquire().await;
        let call = format!("STREAM.MSG.GET.{}", bucket.stream);
        let body = json!({ "last_by_subj": bucket.subject(filter) });
        let got: Got = match self.api(&call, body).await {
            Ok(got) => got,
            Err(Trouble::Refusal(refusal)) if refusal.err_code == code::NO_MESSAGE => {
                return Ok(None);
            }
            Err(trouble) => return Err(trouble.of_read(bucket)),
        };
        let message = StreamMessage::try_from(got.message)
            .map_err(|error| Error::corrupt(filter, format!("the server's answer: {error}")))?;
        Ok(Some(Last {
            sequence: message.sequence,
            value: (!is_marker(&message.headers)).then_some(message.payload),
        }))
    }
}

/// What a stream says of its subjects, in pages.
#[derive(Deserialize)]
struct Page {
    state: Subjects,
}

#[derive(Deserialize)]
struct Subjects {
    #[serde(default)]
    subjects: BTreeMap<String, u64>,
}

impl Link {
    /// All keys under a filter that have a message, be it one that says that they are deleted, as the
    /// leader knows them.
    pub(super) async fn names(&self, bucket: &Bucket, filter: &str) -> Result<Vec<String>, Error> {
        let _turn = self.reads.acquire().await;
        let call = format!("STREAM.INFO.{}", bucket.stream);
        let (mut names, mut offset) = (Vec::new(), 0);
        loop {
            let body = json!({ "subjects_filter": bucket.subject(filter), "offset": offset });
            let page: Page = match self.api(&call, body).await {
                Ok(page) => page,
                Err(trouble) => return Err(trouble.of_read(bucket)),
            };
            let subjects = page.state.subjects;
            if subjects.is_empty() {
                return Ok(names);
            }
            offset += subjects.len();
            let key = |subject: &String| bucket.key(subject).and_then(keys::decode);
            names.extend(subjects.keys().filter_map(key));
        }
    }
}

impl Silence {
    /// What it means for something that changes nothing.
    pub(super) fn of_read(self) -> Error {
        match self {
            Silence::Forbidden(text) => not_permitted(&text),
            Silence::NotSent(why) | Silence::Open(why) => Error::unavailable(why),
            Silence::TooLarge(why) => Error::rejected(why),
            Silence::Nobody => Error::unavailable("no JetStream server answers at the moment"),
        }
    }
}

impl Trouble {
    /// What it means for something that changes nothing.
    pub(super) fn of_read(self, bucket: &Bucket) -> Error {
        match self {
            Trouble::Silence(silence) => silence.of_read(),
            Trouble::Refusal(refusal) => match refusal.err_code {
                code::NO_STREAM => bucket.gone(),
                code::NOT_ENABLED | code::NOT_ENABLED_FOR_ACCOUNT => no_jetstream(),
                _ => Error::unavailable(refusal),
            },
            Trouble::Garbled(why) => Error::unavailable(format!("an answer is garbled: {why}")),
        }
    }
}

pub(super) fn not_permitted(text: &str) -> Error {
    Error::rejected(format!(
        "this user lacks a permission ({text}); allow it to publish to $KV.<bucket>.> and \
         $JS.API.>, $JS.FC.>, and to subscribe to _INBOX.>"
    ))
}

pub(super) fn no_jetstream() -> Error {
    Error::rejected(
        "JetStream is not enabled for this server or account; start nats-server with -js, or \
         enable it for the account",
    )
}
