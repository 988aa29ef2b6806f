//! Writes: each a publish with an expectation, many of them on their way at once.
//!
//! ```text
//!   publish, expecting sequence r (or 0: nothing)       a revision that we never met is looked
//!     │                                                 up first, see `known`
//!     ├─ acknowledged ─────────────────▶ its sequence is the revision
//!     ├─ no answer ────────────────────▶ Unknown
//!     └─ "wrong last sequence" ─▶ ask the leader for what is there
//!           ▲                        ├─ something else ───────────▶ Conflict
//!           └─ publish, expecting ◀──┴─ what we expect (a delete's marker is nothing to us, a
//!              what is there            racing write came to nothing)
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_nats::HeaderMap;
use futures_util::StreamExt;
use futures_util::stream;
use serde::Deserialize;
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::super::{Bytes, Entry, Error, Expect, Revision, Write, check_batch};
use super::Shared;
use super::api::{Last, Link, Refusal, Silence, Trouble, code, not_permitted};
use super::bucket::Bucket;
use super::keys;

/// How many writes of a batch are on their way at once; the server refuses more than 10,000.
const WINDOW: usize = 2048;
/// How many bytes of a batch are on their way at once; the server refuses more than 128 MiB.
const WINDOW_BYTES: usize = 16 * 1024 * 1024;
/// How often a refused write looks and tries again, when what is there is what it expects.
const TRIES: u32 = 8;
/// A marker is only there so that those who are away for a while see a revision that grows with
/// the key's own; the stream's sequence grows without it.
const MARKER_LIVES: &str = "1h";

/// Carries out a batch.
pub(super) async fn batch(shared: &Shared, batch: Vec<Write>) -> Vec<Result<Revision, Error>> {
    let checks = check_batch(&batch);
    let window = Window::default();
    let mut outcomes: Vec<(usize, Result<Revision, Error>)> =
        stream::iter(batch.into_iter().zip(checks).enumerate())
            .map(|(number, (write, check))| {
                let window = &window;
                async move {
                    let outcome = match check {
                        Ok(()) => one(shared, window, write).await,
                        Err(error) => Err(error),
                    };
                    (number, outcome)
                }
            })
            .buffer_unordered(WINDOW)
            .collect()
            .await;
    outcomes.sort_unstable_by_key(|(number, _)| *number);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

/// What the writes of one batch share.
struct Window {
    bytes: Semaphore,
    /// An answer stayed away: what was not sent yet stays here, rather than to wait for one
    /// answer after the other.
    stuck: AtomicBool,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            bytes: Semaphore::new(WINDOW_BYTES),
            stuck: AtomicBool::new(false),
        }
    }
}

/// What came of one publish.
enum Outcome {
    Done(u64),
    /// Not stored, as the subject's last sequence is another: this one, where the server said.
    Refused(Option<u64>),
}

async fn one(shared: &Shared, window: &Window, write: Write) -> Result<Revision, Error> {
    let side = keys::side(&write.key);
    let bucket = shared.bucket(side);
    let publish = Publish {
        link: &shared.link,
        bucket,
        window,
        key: keys::encode(&write.key),
        value: write.value.as_ref(),
    };
    let known = shared.known(side);
    let done = |sequence: u64| {
        if write.value.is_some() {
            known.note(sequence);
        }
        Revision(sequence)
    };
    let expected = match write.expect {
        Expect::Absent => 0,
        Expect::At(revision) => revision.0,
    };
    let mut at_least = 0;
    if write.expect == Expect::Absent || known.holds(expected) {
        match publish.send(expected).await? {
            Outcome::Done(sequence) => return Ok(done(sequence)),
            Outcome::Refused(last) => at_least = last.unwrap_or(0),
        }
    }
    // From here on nothing has been done until a publish says otherwise.
    for attempt in 0..TRIES {
        if attempt > 0 {
            sleep(Duration::from_millis(2 << attempt)).await;
        }
        let last = match shared.link.last(bucket, &publish.key).await {
            Ok(last) => last,
            Err(error @ Error::Rejected { .. }) => return Err(error),
            Err(error) => return Err(Error::unavailable(error)),
        };
        let sequence = last.as_ref().map_or(0, |last| last.sequence);
        if sequence < at_least {
            // The one who answered has not seen yet what the one who refused saw.
            continue;
        }
        let holds = match (&last, write.expect) {
            (None | Some(Last { value: None, .. }), Expect::Absent) => true,
            (Some(Last { value: Some(_), .. }), Expect::At(_)) => sequence == expected,
            _ => false,
        };
        if !holds {
            return Err(Error::conflict(last.and_then(|last| {
                Some(Entry {
                    key: write.key.clone(),
                    value: last.value?,
                    revision: {
                        known.note(last.sequence);
                        Revision(last.sequence)
                    },
                })
            })));
        }
        match publish.send(sequence).await? {
            Outcome::Done(sequence) => return Ok(done(sequence)),
            Outcome::Refused(last) => at_least = last.unwrap_or(0),
        }
    }
    Err(Error::unavailable(format!(
        "others keep writing to {}, and nothing of it shows yet",
        write.key
    )))
}

struct Publish<'a> {
    link: &'a Link,
    bucket: &'a Bucket,
    window: &'a Window,
    key: String,
    value: Option<&'a Bytes>,
}

impl Publish<'_> {
    async fn send(&self, expected: u64) -> Result<Outcome, Error> {
        let size = self.value.map_or(0, Bytes::len).min(WINDOW_BYTES);
        let permits = u32::try_from(size).unwrap_or(u32::MAX);
        let _room = self.window.bytes.acquire_many(permits).await;
        if self.window.stuck.load(Ordering::Relaxed) {
            return Err(Error::unavailable(
                "the server does not answer, so this write was not sent",
            ));
        }
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Expected-Last-Subject-Sequence", expected.to_string());
        if self.value.is_none() {
            headers.insert("KV-Operation", "DEL");
            if self.bucket.messages_expire {
                headers.insert("Nats-TTL", MARKER_LIVES);
            }
        }
        let value = self.value.cloned().unwrap_or_default();
        let subject = self.bucket.subject(&self.key);
        let begun = Instant::now();
        match self.link.request(subject, Some(headers), value).await {
            Ok(message) => self.read(&message.payload),
            Err(silence) => {
                if matches!(silence, Silence::Open(_) | Silence::Nobody) {
                    self.link.not_answered(begun);
                }
                Err(self.no_answer(silence).await)
            }
        }
    }

    fn read(&self, payload: &[u8]) -> Result<Outcome, Error> {
        #[derive(Deserialize)]
        struct Ack {
            seq: Option<u64>,
            error: Option<Refusal>,
        }
        match serde_json::from_slice(payload) {
            Ok(Ack {
                error: Some(refusal),
                ..
            }) => self.refused(&refusal),
            Ok(Ack { seq: Some(seq), .. }) if seq > 0 => {
                self.link.answered();
                Ok(Outcome::Done(seq))
            }
            Ok(Ack { .. }) => Err(Error::unknown("the server's answer names no sequence")),
            Err(why) => Err(Error::unknown(format!(
                "the server's answer is garbled: {why}"
            ))),
        }
    }

    /// Only what is known not to have been stored is anything but `Unknown`.
    fn refused(&self, refusal: &Refusal) -> Result<Outcome, Error> {
        let name = &self.bucket.name;
        match refusal.err_code {
            code::WRONG_LAST | code::WRONG_LAST_IN_FLIGHT => {
                let last = refusal.description.rsplit_once(": ");
                Ok(Outcome::Refused(
                    last.and_then(|(_, number)| number.trim().parse().ok()),
                ))
            }
            code::TOO_MANY_REQUESTS => Err(Error::unavailable(refusal)),
            code::MESSAGE_TOO_LARGE => Err(Error::rejected(format!(
                "the bucket {name} takes no value of this size: {refusal}; raise its max_msg_size"
            ))),
            code::STORE_FAILED if refusal.description.starts_with("maximum") => {
                Err(full(name, refusal))
            }
            code::INSUFFICIENT_RESOURCES | code::STORAGE_EXCEEDED => Err(full(name, refusal)),
            code::SEALED => Err(Error::rejected(format!(
                "the bucket {name} is sealed; name another one in the URL"
            ))),
            code::NO_STREAM => Err(self.bucket.gone()),
            _ => Err(Error::unknown(refusal)),
        }
    }

    async fn no_answer(&self, silence: Silence) -> Error {
        match silence {
            Silence::NotSent(why) => match why.contains("payload") {
                true => Error::rejected(format!(
                    "the server takes no message of this size: {why}; raise its max_payload to \
                     1 MiB or more"
                )),
                false => Error::unavailable(why),
            },
            Silence::Forbidden(text) => not_permitted(&text),
            // No stream listens: it has no leader at the moment, or is gone for good.
            Silence::Nobody => match self.bucket.info(self.link).await {
                Err(Trouble::Refusal(refusal)) if refusal.err_code == code::NO_STREAM => {
                    self.bucket.gone()
                }
                _ => Error::unavailable(format!(
                    "nobody serves the bucket {} at the moment",
                    self.bucket.name
                )),
            },
            Silence::Open(why) => {
                self.window.stuck.store(true, Ordering::Relaxed);
                Error::unknown(why)
            }
        }
    }
}

fn full(bucket: &str, refusal: &Refusal) -> Error {
    Error::rejected(format!(
        "the bucket {bucket} is full: {refusal}; make room, or raise its limits or the server's"
    ))
}
