//! Many requests at once, whose answers come in any order.
//!
//! ```text
//!   subscribe inbox.*
//!   publish, reply to inbox.0 ──▶        ◀── inbox.1: answer
//!   publish, reply to inbox.1 ──▶  server
//!   publish, reply to inbox.2 ──▶        ◀── inbox.0: answer
//! ```
//!
//! One subscription and one timer serve all of them. A future, a timer and a place in the client's
//! own table for each would cost half as much again as the writes themselves.

use std::time::Instant;

use async_nats::{HeaderMap, Message, PublishErrorKind, StatusCode, Subject, Subscriber};
use futures_util::StreamExt;
use tokio::time::timeout;

use super::link::{ANSWER_WITHIN, Link, Silence, forbidden};
use crate::store::Bytes;

/// How many requests are on their way at once; the server refuses more than 10,000.
const WINDOW: usize = 4096;
/// How many bytes are on their way at once; the server refuses more than 128 MiB.
const WINDOW_BYTES: usize = 16 * 1024 * 1024;

/// One request.
pub(crate) struct Shot {
    pub subject: String,
    pub headers: HeaderMap,
    pub payload: Bytes,
}

impl Link {
    /// Sends all of them, and waits for all answers. Once an answer stays away, what was not sent
    /// yet is not sent any more, rather than to wait for one answer after the other.
    pub(crate) async fn volley(
        &self,
        shots: impl Iterator<Item = Shot>,
    ) -> Vec<Result<Message, Silence>> {
        let inbox = self.client.new_inbox();
        let answers = match self.client.subscribe(format!("{inbox}.*")).await {
            Ok(answers) => answers,
            Err(error) => {
                return shots
                    .map(|_| Err(Silence::NotSent(error.to_string())))
                    .collect();
            }
        };
        let mut volley = Volley {
            link: self,
            begun: Instant::now(),
            inbox,
            answers,
            shots: Vec::new(),
            waiting: 0,
            bytes: 0,
        };
        let mut stuck = None;
        for shot in shots {
            if stuck.is_none() {
                stuck = volley.make_room(shot.payload.len()).await.err();
            }
            match &stuck {
                None => volley.send(shot).await,
                Some(why) => volley.shots.push(Fate::Known(Err(why.clone()))),
            }
        }
        if stuck.is_none() {
            // Whatever is still open then stays so.
            let _ = volley.receive_until(|volley| volley.waiting == 0).await;
        }
        volley.end()
    }
}

/// What became of a request.
enum Fate {
    /// Sent, and not answered yet.
    Waiting {
        subject: Subject,
        bytes: usize,
    },
    Known(Result<Message, Silence>),
}

struct Volley<'a> {
    link: &'a Link,
    begun: Instant,
    inbox: String,
    answers: Subscriber,
    shots: Vec<Fate>,
    /// How many are on their way, and their bytes.
    waiting: usize,
    bytes: usize,
}

impl Volley<'_> {
    /// Waits until another one may be sent. Half of the window is emptied at a time: requests that
    /// go out together cost the least.
    async fn make_room(&mut self, bytes: usize) -> Result<(), Silence> {
        if self.waiting < WINDOW && self.bytes + bytes <= WINDOW_BYTES {
            return Ok(());
        }
        self.receive_until(|volley| {
            volley.waiting <= WINDOW / 2 && volley.bytes <= WINDOW_BYTES / 2
        })
        .await
    }

    async fn send(&mut self, shot: Shot) {
        let fate = match self.try_send(shot).await {
            Ok(waiting) => waiting,
            Err(silence) => Fate::Known(Err(silence)),
        };
        self.shots.push(fate);
    }

    async fn try_send(&mut self, shot: Shot) -> Result<Fate, Silence> {
        self.link.connected().await?;
        let bytes = shot.payload.len();
        let subject = Subject::from(shot.subject);
        let reply = format!("{}.{}", self.inbox, self.shots.len());
        let sent = self.link.client.publish_with_reply_and_headers(
            subject.clone(),
            reply,
            shot.headers,
            shot.payload,
        );
        sent.await.map_err(|error| match error.kind() {
            PublishErrorKind::MaxPayloadExceeded => Silence::TooLarge(error.to_string()),
            PublishErrorKind::InvalidSubject | PublishErrorKind::Send => {
                Silence::NotSent(error.to_string())
            }
        })?;
        self.waiting += 1;
        self.bytes += bytes;
        Ok(Fate::Waiting { subject, bytes })
    }

    async fn receive_until(&mut self, enough: impl Fn(&Self) -> bool) -> Result<(), Silence> {
        while !enough(self) {
            match timeout(ANSWER_WITHIN, self.answers.next()).await {
                Ok(Some(message)) => self.receive(message),
                Ok(None) | Err(_) => {
                    return Err(Silence::NotSent(
                        "the server does not answer, so this was not sent".into(),
                    ));
                }
            }
        }
        Ok(())
    }

    fn receive(&mut self, message: Message) {
        let number = message.subject.rsplit('.').next();
        let number: Option<usize> = number.and_then(|number| number.parse().ok());
        let Some(fate) = number.and_then(|number| self.shots.get_mut(number)) else {
            return;
        };
        if let Fate::Waiting { bytes, .. } = fate {
            self.waiting -= 1;
            self.bytes -= *bytes;
            *fate = Fate::Known(match message.status {
                Some(StatusCode::NO_RESPONDERS) => Err(Silence::Nobody),
                _ => Ok(message),
            });
        }
    }

    fn end(self) -> Vec<Result<Message, Silence>> {
        let (link, begun) = (self.link, self.begun);
        let known = |fate| match fate {
            Fate::Known(result) => result,
            Fate::Waiting { subject, .. } => {
                let health = link.health.borrow();
                let open = || Silence::Open(format!("no answer within {ANSWER_WITHIN:?}"));
                Err(forbidden(&health, &subject, begun).unwrap_or_else(open))
            }
        };
        self.shots.into_iter().map(known).collect()
    }
}
