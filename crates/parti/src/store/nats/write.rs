//! Writes: each a publish with an expectation, many of them on their way at once.
//!
//! ```text
//!   all at once: publish, expecting sequence r (or 0: nothing)
//!     │
//!     ├─ acknowledged ─────────────────▶ its sequence is the revision
//!     ├─ no answer ────────────────────▶ Unknown
//!     └─ "wrong last sequence", or r was never met before (see `known`)
//!           │
//!           └▶ one by one: ask the leader for what is there
//!                 ▲            ├─ something else ───────────▶ Conflict
//!                 └─ publish ◀─┴─ what we expect (a delete's marker is nothing to us, a racing
//!                                 write came to nothing)
//! ```

use std::time::{Duration, Instant};

use async_nats::{HeaderMap, Message};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use serde::Deserialize;
use tokio::time::sleep;

use super::super::{Entry, Error, Expect, Revision, Write, check_batch};
use super::Shared;
use super::api::{Last, Link, Refusal, Silence, Trouble, code, not_permitted};
use super::bucket::Bucket;
use super::keys;
use super::known::Known;
use crate::nats::volley::Shot;

/// How many writes that need a look are looked at together.
const LOOKS: usize = 64;
/// How often a refused write looks and tries again, when what is there is what it expects.
const TRIES: u32 = 8;
/// A marker is only there so that those who are away for a while see a revision that grows with
/// the key's own; the stream's sequence grows without it.
const MARKER_LIVES: &str = "1h";

/// Carries out a batch.
pub(super) async fn batch(shared: &Shared, batch: Vec<Write>) -> Vec<Result<Revision, Error>> {
    let checks = check_batch(&batch);
    let steps = batch.iter().zip(checks).map(|(write, check)| match check {
        Ok(()) => Step::first(Publish::new(shared, write)),
        Err(error) => Step::Done(Err(error)),
    });
    let mut steps: Vec<Step> = steps.collect();
    if steps.iter().any(|step| matches!(step, Step::Send(_))) {
        send_together(&shared.link, &mut steps).await;
    }
    let looks = steps.iter().enumerate();
    let looks: Vec<BoxFuture<'_, _>> = looks
        .filter_map(|(number, step)| match step {
            Step::Look { publish, at_least } => {
                let look = publish.look_and_send(*at_least);
                Some(look.map(move |outcome| (number, outcome)).boxed())
            }
            Step::Send(_) | Step::Done(_) => None,
        })
        .collect();
    let looked: Vec<(usize, Result<Revision, Error>)> =
        stream::iter(looks).buffer_unordered(LOOKS).collect().await;
    for (number, outcome) in looked {
        steps[number] = Step::Done(outcome);
    }
    let outcomes = steps.into_iter().map(|step| match step {
        Step::Done(outcome) => outcome,
        // Neither is left; if it were, nothing would have been done about it.
        Step::Send(_) | Step::Look { .. } => Err(Error::unavailable("it was not sent")),
    });
    outcomes.collect()
}

/// Sends what needs no look, all at once.
async fn send_together(link: &Link, steps: &mut [Step<'_>]) {
    let begun = Instant::now();
    let answers = link.volley(steps.iter().filter_map(Step::shot)).await;
    let mut answers = answers.into_iter();
    let mut silent = false;
    for step in steps {
        let Step::Send(publish) = step else {
            continue;
        };
        let Some(answer) = answers.next() else {
            return;
        };
        silent |= matches!(answer, Err(Silence::Open(_) | Silence::Nobody));
        *step = match publish.outcome(answer).await {
            Ok(Outcome::Done(sequence)) => Step::Done(Ok(publish.done(sequence))),
            Ok(Outcome::Refused(last)) => Step::Look {
                at_least: last.unwrap_or(0),
                publish: publish.clone(),
            },
            Err(error) => Step::Done(Err(error)),
        };
    }
    if silent {
        link.not_answered(begun);
    }
}

/// What is to be done about a write.
enum Step<'a> {
    /// Send it: what it expects is known to be a value's revision, or nothing.
    Send(Publish<'a>),
    /// Look what is there; what is older than this is not the newest.
    Look {
        publish: Publish<'a>,
        at_least: u64,
    },
    Done(Result<Revision, Error>),
}

impl<'a> Step<'a> {
    fn first(publish: Publish<'a>) -> Self {
        let expect = publish.write.expect;
        if expect == Expect::Absent || publish.known.holds(publish.expected()) {
            return Step::Send(publish);
        }
        let at_least = 0;
        Step::Look { publish, at_least }
    }

    fn shot(&self) -> Option<Shot> {
        match self {
            Step::Send(publish) => Some(publish.shot(publish.expected())),
            Step::Look { .. } | Step::Done(_) => None,
        }
    }
}

/// What came of one publish.
enum Outcome {
    Done(u64),
    /// Not stored, as the subject's last sequence is another: this one, where the server said.
    Refused(Option<u64>),
}

#[derive(Clone)]
struct Publish<'a> {
    link: &'a Link,
    bucket: &'a Bucket,
    known: &'a Known,
    key: String,
    write: &'a Write,
}

impl<'a> Publish<'a> {
    fn new(shared: &'a Shared, write: &'a Write) -> Self {
        let side = keys::side(&write.key);
        Self {
            link: &shared.link,
            bucket: shared.bucket(side),
            known: shared.known(side),
            key: keys::encode(&write.key),
            write,
        }
    }

    fn expected(&self) -> u64 {
        match self.write.expect {
            Expect::Absent => 0,
            Expect::At(revision) => revision.0,
        }
    }

    fn done(&self, sequence: u64) -> Revision {
        if self.write.value.is_some() {
            self.known.note(sequence);
        }
        Revision(sequence)
    }

    /// Looks what is there, and writes if it is what was expected. Nothing has been done until a
    /// publish says otherwise.
    async fn look_and_send(&self, mut at_least: u64) -> Result<Revision, Error> {
        for attempt in 0..TRIES {
            if attempt > 0 {
                sleep(Duration::from_millis(2 << attempt)).await;
            }
            let last = match self.link.last(self.bucket, &self.key).await {
                Ok(last) => last,
                Err(error @ Error::Rejected { .. }) => return Err(error),
                Err(error) => return Err(Error::unavailable(error)),
            };
            let sequence = last.as_ref().map_or(0, |last| last.sequence);
            if sequence < at_least {
                // The one who answered has not seen yet what the one who refused saw.
                continue;
            }
            let holds = match (&last, self.write.expect) {
                (None | Some(Last { value: None, .. }), Expect::Absent) => true,
                (Some(Last { value: Some(_), .. }), Expect::At(revision)) => sequence == revision.0,
                _ => false,
            };
            if !holds {
                return Err(Error::conflict(last.and_then(|last| self.entry(last))));
            }
            match self.send(sequence).await? {
                Outcome::Done(sequence) => return Ok(self.done(sequence)),
                Outcome::Refused(last) => at_least = last.unwrap_or(0),
            }
        }
        Err(Error::unavailable(format!(
            "others keep writing to {}, and nothing of it shows yet",
            self.write.key
        )))
    }

    fn entry(&self, last: Last) -> Option<Entry> {
        let value = last.value?;
        self.known.note(last.sequence);
        Some(Entry {
            key: self.write.key.clone(),
            value,
            revision: Revision(last.sequence),
        })
    }

    fn shot(&self, expected: u64) -> Shot {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Expected-Last-Subject-Sequence", expected.to_string());
        if self.write.value.is_none() {
            headers.insert("KV-Operation", "DEL");
            if self.bucket.messages_expire {
                headers.insert("Nats-TTL", MARKER_LIVES);
            }
        }
        Shot {
            subject: self.bucket.subject(&self.key),
            headers,
            payload: self.write.value.clone().unwrap_or_default(),
        }
    }

    async fn send(&self, expected: u64) -> Result<Outcome, Error> {
        let begun = Instant::now();
        let shot = self.shot(expected);
        let headers = Some(shot.headers);
        let answer = self.link.request(shot.subject, headers, shot.payload).await;
        if matches!(answer, Err(Silence::Open(_) | Silence::Nobody)) {
            self.link.not_answered(begun);
        }
        self.outcome(answer).await
    }

    async fn outcome(&self, answer: Result<Message, Silence>) -> Result<Outcome, Error> {
        match answer {
            Ok(message) => self.read(&message.payload),
            Err(silence) => Err(self.no_answer(silence).await),
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
            Silence::NotSent(why) => Error::unavailable(why),
            Silence::TooLarge(why) => Error::rejected(format!(
                "the server takes no message of this size: {why}; raise its max_payload to \
                 1 MiB or more"
            )),
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
            Silence::Open(why) => Error::unknown(why),
        }
    }
}

fn full(bucket: &str, refusal: &Refusal) -> Error {
    Error::rejected(format!(
        "the bucket {bucket} is full: {refusal}; make room, or raise its limits or the server's"
    ))
}
