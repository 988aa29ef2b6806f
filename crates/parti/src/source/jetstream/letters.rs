//! Dead letters: what could not be handled, kept on a subject of its own.
//!
//! ```text
//!   <letters' subject>.<partition>   payload and headers of the message, and
//!     Parti-Origin-Stream, -Subject, -Partition, -Offset    where it came from
//!     Parti-Attempts, Parti-Error, Parti-Group, Parti-Worker what happened
//! ```
//!
//! Unless another subject is given, letters go to `parti.dlq.<stream>.<partition>`, kept by the
//! stream `<stream>-dlq`, which is made when the first letter finds none.

use std::time::Duration;

use async_nats::HeaderMap;
use bytes::Bytes;
use parti_core::codec::{self, Template};
use serde_json::{Value, json};

use super::api::{Api, StreamConfig, error, rejected, unavailable};
use super::delivery::put;
use super::published::place;
use super::subjects;
use crate::nats::link::{Silence, Trouble, code};
use crate::source::{DeadLetter, Offset, SourceError};

/// How long the same letter is known again when it comes once more.
const KNOWN_AGAIN: Duration = Duration::from_secs(60 * 60);
/// The longest error text that a header carries.
const ERROR_CHARS: usize = 1_000;

/// The headers of a letter that are its own.
const NAMES: [&str; 8] = [
    "parti-origin-stream",
    "parti-origin-subject",
    "parti-origin-partition",
    "parti-origin-offset",
    "parti-attempts",
    "parti-error",
    "parti-group",
    "parti-worker",
];

/// Where dead letters go.
#[derive(Clone, Debug)]
pub(super) struct Letters {
    /// The subject, without the partition.
    subject: String,
    /// Whether the stream behind it is ours to make.
    own: bool,
    storage: String,
    replicas: usize,
}

impl Letters {
    /// To this subject, or to the default one. It must not be a partition's.
    pub fn new(
        stream: &str,
        given: Option<&str>,
        config: &StreamConfig,
        template: &Template,
    ) -> Result<Self, SourceError> {
        let subject = match given {
            Some(subject) => subject.to_owned(),
            None => format!("parti.dlq.{}", codec::escape(stream)),
        };
        let clean = |token: &str| {
            !token.is_empty()
                && token
                    .chars()
                    .all(|c| c.is_ascii_graphic() && !matches!(c, '*' | '>'))
        };
        if subject.len() > 200 || subject.starts_with('$') || !subject.split('.').all(clean) {
            return Err(rejected(format!(
                "dead letters cannot go to the subject {subject:?}; give one such as dead.orders"
            )));
        }
        let below: Vec<&str> = subject.split('.').chain([">"]).collect();
        if subjects::overlap(&below, &subjects::pattern(template)) {
            return Err(rejected(format!(
                "dead letters to {subject}.> could be taken for messages of a partition ({template}); \
                 give another subject, as in ?dead_letters=dead.orders"
            )));
        }
        Ok(Self {
            subject,
            own: given.is_none(),
            storage: config.storage.clone(),
            replicas: config.num_replicas.max(1),
        })
    }

    /// Publishes a letter. It is safely stored once this says so, and stored once only if the same
    /// comes again.
    pub async fn publish(
        &self,
        api: &Api,
        group: &str,
        worker: &str,
        letter: &DeadLetter,
    ) -> Result<(), SourceError> {
        let subject = format!("{}.{}", self.subject, letter.partition);
        let headers = headers(api, group, worker, letter);
        let mut made = false;
        loop {
            let published = publish(api, &subject, &headers, &letter.record.payload).await;
            match published {
                Err(Trouble::Silence(Silence::Nobody)) if self.own && !made => {
                    self.make(api).await?;
                    made = true;
                }
                Err(Trouble::Silence(Silence::Nobody)) => return Err(self.kept_by_none(&subject)),
                Err(trouble) => return Err(error(trouble)),
                Ok(Some(_)) => return Ok(()),
                // Not kept as far as anybody knows: it comes again, under the same id.
                Ok(None) => {
                    return Err(unavailable(
                        "the stream of the dead letters knows this one's id, and does not say that \
                         it has it",
                    ));
                }
            }
        }
    }

    /// The subject, without the partition.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Whether the stream behind it is ours to make.
    pub fn is_own(&self) -> bool {
        self.own
    }

    /// The stream that is made for them, if it is ours to make.
    pub fn stream(&self, api: &Api) -> String {
        format!("{}-dlq", api.stream)
    }

    /// Somebody has to make the stream.
    pub fn kept_by_none(&self, subject: &str) -> SourceError {
        unavailable(format!(
            "no stream keeps dead letters: {subject} is no stream's subject; make one that has {}.>",
            self.subject
        ))
    }

    async fn make(&self, api: &Api) -> Result<(), SourceError> {
        let name = self.stream(api);
        let config = json!({
            "name": name,
            "description": format!("what could not be handled of the stream {}", api.stream),
            "subjects": [format!("{}.>", self.subject)],
            "retention": "limits",
            "storage": self.storage,
            "num_replicas": self.replicas,
            "duplicate_window": KNOWN_AGAIN.as_nanos() as u64,
        });
        match api
            .link
            .api::<Value>(&format!("STREAM.CREATE.{name}"), config)
            .await
        {
            Ok(_) => Ok(()),
            // Somebody else made it just now.
            Err(Trouble::Refusal(refusal)) if refusal.err_code == code::NAME_IN_USE => Ok(()),
            Err(trouble) => Err(error(trouble)),
        }
    }
}

/// Publishes, and waits for the stream's word: where it is.
async fn publish(
    api: &Api,
    subject: &str,
    headers: &HeaderMap,
    payload: &Bytes,
) -> Result<Option<Offset>, Trouble> {
    let answered = api
        .link
        .request_or_forbidden(subject.to_owned(), Some(headers.clone()), payload.clone())
        .await
        .map_err(Trouble::Silence)?;
    place(&answered.payload)
}

fn headers(api: &Api, group: &str, worker: &str, letter: &DeadLetter) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in &letter.record.headers {
        // The server's own headers are about the message that it was, not about the letter; and a
        // letter of a letter has a new origin.
        let lower = name.to_ascii_lowercase();
        let about = lower.starts_with("nats-") || NAMES.iter().any(|own| lower == *own);
        if let Ok(text) = std::str::from_utf8(value)
            && !about
        {
            put(&mut headers, name, text);
        }
    }
    let offset = letter.record.offset.to_string();
    let attempts = letter.attempts.to_string();
    let id = format!(
        "parti/{}/{}/{}/{}/{offset}",
        codec::escape(group),
        api.stream,
        api.created(),
        letter.partition
    );
    for (name, value) in [
        ("Nats-Msg-Id", id.as_str()),
        ("Parti-Origin-Stream", &api.stream),
        ("Parti-Origin-Subject", &letter.record.subject),
        ("Parti-Origin-Partition", letter.partition.as_str()),
        ("Parti-Origin-Offset", &offset),
        ("Parti-Attempts", &attempts),
        ("Parti-Error", &one_line(&letter.error)),
        ("Parti-Group", group),
        ("Parti-Worker", worker),
    ] {
        put(&mut headers, name, value);
    }
    headers
}

/// A text that a header can carry.
fn one_line(text: &str) -> String {
    let shown = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let line: String = shown.take(ERROR_CHARS).collect();
    line.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letters(given: Option<&str>, template: &str) -> Result<Letters, SourceError> {
        let template = Template::parse(template).expect("valid");
        Letters::new("S x", given, &StreamConfig::default(), &template)
    }

    #[test]
    fn letters_never_go_to_a_partition() {
        let own = letters(None, "orders.{0}").expect("fine");
        assert_eq!((own.subject.as_str(), own.own), ("parti.dlq.S=20x", true));
        let given = letters(Some("dead.orders"), "orders.{0}").expect("fine");
        assert_eq!((given.subject.as_str(), given.own), ("dead.orders", false));
        for (subject, template) in [
            ("orders", "orders.{0}"),
            ("orders", "orders.{id}"),
            ("a", "{id}"),
            ("a.*", "orders.{0}"),
            ("a..b", "orders.{0}"),
            ("$JS.x", "orders.{0}"),
            ("a b", "orders.{0}"),
        ] {
            assert!(letters(Some(subject), template).is_err(), "{subject}");
        }
    }

    #[test]
    fn an_error_becomes_one_line() {
        assert_eq!(one_line("a\r\nb\0c "), "a  b c");
        assert_eq!(one_line(&"x".repeat(5000)).len(), ERROR_CHARS);
    }
}
