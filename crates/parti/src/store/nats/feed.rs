//! One filter of one bucket, from the present state on: an ephemeral push consumer of our own.
//!
//! ```text
//!   ask the leader for the filter's last sequence L
//!   make a consumer: the last message of each subject, then what comes
//!        │
//!        ▼
//!   messages … up to L                       (or a heartbeat that says: I am past L)
//!        │                                                    ▲
//!        ▼                                                    │ yes: up to there
//!   ask again: was anything written after what was told? ─────┘
//!        │ no: the snapshot is whole         └─ again and again ─▶ ask for all names: until each was told
//!        ▼
//!   messages, heartbeats                       any gap, any silence: Broken
//! ```
//!
//! A consumer lives on one replica of the stream, which can be behind. That is why L comes from
//! the leader, and the snapshot is whole only once the replica has told of L: everything that was
//! acknowledged before the feed was started is then in it, unless it was written anew meanwhile: a key
//! goes to the end with every write, and is not told at its old place any more. So the snapshot is
//! whole only if nothing was written after what was told, or if every name has been told. (How many
//! messages the consumer has left, which it says with each, is no proof: it learns of a new one a
//! moment after it has forgotten the old one.)
//!
//! The consumer numbers what it delivers, and its heartbeats repeat the last number. So a message
//! that was lost on the way is noticed by the next one, or by the next heartbeat.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_nats::{Message, Subscriber};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout, timeout_at};

use super::super::{Bytes, Error};
use super::api::{Link, is_marker};
use super::bucket::Bucket;
use super::keys;

const HEARTBEAT: Duration = Duration::from_secs(1);
/// Without a sign for this long, nothing is to be expected any more.
const SILENCE: Duration = Duration::from_millis(3500);
/// A snapshot in which nothing moves for this long is begun anew, perhaps on a better replica.
const STALLED: Duration = Duration::from_secs(5);
/// For how long the server keeps a consumer that nobody listens to.
const KEPT: Duration = Duration::from_secs(10);
/// So often it is asked whether something was written meanwhile, before all names are asked for.
const ROUNDS: u32 = 3;

/// A running feed.
pub(super) struct Feed {
    link: Link,
    bucket: Bucket,
    consumer: String,
    subscriber: Subscriber,
    /// The number of the last message of the consumer.
    heard: u64,
    last_sign: Instant,
}

/// What a message of a feed says.
#[derive(Debug)]
pub(super) enum News {
    /// A key has this value now (`None`: it was deleted), by the write with this sequence.
    Change(String, u64, Option<Bytes>),
    /// Something that is no key of ours, by the write with this sequence.
    Foreign(u64),
    /// All is told up to this sequence of the stream.
    Alive(u64),
    /// The consumer waits for us to keep up.
    Waiting,
    /// Something was missed, or may have been.
    Broken(String),
}

/// What was there, by key: which write put it there, and what.
pub(super) type Snapshot = BTreeMap<String, (u64, Bytes)>;

/// What was told so far.
#[derive(Default)]
struct State {
    snapshot: Snapshot,
    /// Keys whose last message says that they are not there.
    deleted: BTreeSet<String>,
    /// The highest sequence.
    told: u64,
}

impl Feed {
    /// Starts a feed, and reads what is there. Also answers the highest sequence that was told.
    pub(super) async fn start(
        link: &Link,
        bucket: &Bucket,
        filter: &str,
    ) -> Result<(Feed, Snapshot, u64), Error> {
        let last = async || {
            let last = link.last(bucket, filter).await?;
            Ok::<u64, Error>(last.map_or(0, |last| last.sequence))
        };
        let mut goal = last().await?;
        let mut feed = Feed::open(link, bucket, filter).await?;
        let mut state = State::default();
        for _ in 0..ROUNDS {
            feed.tell(&mut state, |state| state.told >= goal).await?;
            goal = last().await?;
            if goal <= state.told {
                return Ok((feed, state.snapshot, state.told));
            }
        }
        let mut names = link.names(bucket, filter).await?;
        let is_told = |state: &State, name: &String| {
            state.snapshot.contains_key(name) || state.deleted.contains(name)
        };
        feed.tell(&mut state, |state| {
            names.retain(|name| !is_told(state, name));
            names.is_empty()
        })
        .await?;
        Ok((feed, state.snapshot, state.told))
    }

    /// Takes in what comes, until it is enough.
    async fn tell(
        &mut self,
        state: &mut State,
        mut is_enough: impl FnMut(&State) -> bool,
    ) -> Result<(), Error> {
        let mut patience = Instant::now() + STALLED;
        while !is_enough(state) {
            let news = match timeout_at(patience, self.next()).await {
                Ok(news) => news,
                Err(_) => News::Broken("the server's snapshot does not move on".into()),
            };
            match news {
                News::Change(key, sequence, value) => {
                    state.told = sequence;
                    match value {
                        Some(value) => {
                            state.deleted.remove(&key);
                            state.snapshot.insert(key, (sequence, value));
                        }
                        None => {
                            state.snapshot.remove(&key);
                            state.deleted.insert(key);
                        }
                    }
                    patience = Instant::now() + STALLED;
                }
                News::Foreign(sequence) => state.told = sequence,
                News::Alive(sequence) => state.told = state.told.max(sequence),
                News::Waiting => {}
                News::Broken(why) => return Err(Error::unavailable(why)),
            }
        }
        Ok(())
    }

    async fn open(link: &Link, bucket: &Bucket, filter: &str) -> Result<Feed, Error> {
        let inbox = link.client.new_inbox();
        let unique = inbox.rsplit('.').next().unwrap_or_default();
        let consumer = format!("parti-{unique}");
        let subscriber = link
            .client
            .subscribe(inbox.clone())
            .await
            .map_err(Error::unavailable)?;
        let nanos = |duration: Duration| duration.as_nanos() as u64;
        let body = json!({
            "stream_name": bucket.stream,
            "action": "create",
            "config": {
                "name": consumer,
                "description": "a watch or list of Parti",
                "deliver_subject": inbox,
                "deliver_policy": "last_per_subject",
                "filter_subject": bucket.subject(filter),
                "ack_policy": "none",
                "replay_policy": "instant",
                "flow_control": true,
                "idle_heartbeat": nanos(HEARTBEAT),
                "inactive_threshold": nanos(KEPT),
                "max_deliver": 1,
                "mem_storage": true,
                "num_replicas": 1,
            },
        });
        // Before the question: its answer may be lost, and the consumer there all the same.
        let mut feed = Feed {
            link: link.clone(),
            bucket: bucket.clone(),
            consumer,
            subscriber,
            heard: 0,
            last_sign: Instant::now(),
        };
        let call = format!("CONSUMER.CREATE.{}.{}", bucket.stream, feed.consumer);
        match link.api::<Value>(&call, body).await {
            Ok(_) => {
                feed.last_sign = Instant::now();
                Ok(feed)
            }
            Err(trouble) => Err(trouble.of_read(bucket)),
        }
    }

    /// What comes next. May be dropped while it waits.
    pub(super) async fn next(&mut self) -> News {
        // A message that has been waiting for us wins over the clock.
        match timeout_at(self.last_sign + SILENCE, self.subscriber.next()).await {
            Ok(Some(message)) => {
                self.last_sign = Instant::now();
                self.read(message).await
            }
            Ok(None) => News::Broken("the connection was closed".into()),
            Err(_) => News::Broken(format!("the server was silent for {SILENCE:?}")),
        }
    }

    async fn read(&mut self, message: Message) -> News {
        match message.status.map(|status| status.as_u16()) {
            None => self.change(message),
            Some(100) => self.sign(message).await,
            Some(status) => News::Broken(format!(
                "the server ended it: {status} {}",
                message.description.unwrap_or_default()
            )),
        }
    }

    fn change(&mut self, message: Message) -> News {
        let Some((sequence, number)) = message.reply.as_deref().and_then(numbers) else {
            return News::Broken("a message has no numbers".into());
        };
        if number != self.heard + 1 {
            return News::Broken(format!(
                "message {number} came after {}: some were lost",
                self.heard
            ));
        }
        self.heard = number;
        let key = self.bucket.key(&message.subject).and_then(keys::decode);
        let Some(key) = key else {
            return News::Foreign(sequence);
        };
        let deleted = message.headers.as_ref().is_some_and(is_marker);
        News::Change(key, sequence, (!deleted).then_some(message.payload))
    }

    /// A heartbeat, or the question whether we keep up.
    async fn sign(&mut self, message: Message) -> News {
        let header = |name: &str| {
            let headers = message.headers.as_ref()?;
            Some(headers.get(name)?.as_str().to_owned())
        };
        let number = |name: &str| header(name).and_then(|text| text.parse::<u64>().ok());
        if let Some(reply) = message.reply.clone() {
            self.keep_up(reply.to_string()).await;
            return News::Waiting;
        }
        if let Some(reply) = header("Nats-Consumer-Stalled") {
            self.keep_up(reply).await;
            return News::Waiting;
        }
        match (number("Nats-Last-Consumer"), number("Nats-Last-Stream")) {
            (Some(last), _) if last != self.heard => News::Broken(format!(
                "the server has sent {last} messages, {} came",
                self.heard
            )),
            (Some(_), Some(position)) => News::Alive(position),
            _ => News::Waiting,
        }
    }

    async fn keep_up(&self, reply: String) {
        // If it does not get out, the consumer stalls, asks again, and in the end we start anew.
        let answer = self.link.client.publish(reply, Bytes::new());
        let _ = timeout(HEARTBEAT, answer).await;
    }
}

/// The consumer is of no use without us. Should this not arrive, the server finds out by itself.
impl Drop for Feed {
    fn drop(&mut self) {
        let call = format!("CONSUMER.DELETE.{}.{}", self.bucket.stream, self.consumer);
        let link = self.link.clone();
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                let _ = link.api::<Value>(&call, Value::Null).await;
            });
        }
    }
}

/// The numbers of a message in its stream and in its consumer, from where it wants its answer:
/// `$JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>`, or with
/// domain and account before the stream, and something random at the end.
fn numbers(reply: &str) -> Option<(u64, u64)> {
    let tokens: Vec<&str> = reply.strip_prefix("$JS.ACK.")?.split('.').collect();
    let at = match tokens.len() {
        7 => 3,
        9.. => 5,
        _ => return None,
    };
    Some((
        tokens.get(at)?.parse().ok()?,
        tokens.get(at + 1)?.parse().ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::numbers;

    #[test]
    fn both_forms_of_a_reply_are_read() {
        let short = "$JS.ACK.KV_parti.parti-x.1.44.7.1794744636801951936.0";
        let long = "$JS.ACK.hub.ACCOUNT.KV_parti.parti-x.1.44.7.1794744636801951936.0.abc";
        assert_eq!(numbers(short), Some((44, 7)));
        assert_eq!(numbers(long), Some((44, 7)));
        for bad in ["", "$JS.ACK.a.b", "$JS.ACK.a.b.1.x.7.1.0", "_INBOX.x"] {
            assert_eq!(numbers(bad), None, "{bad}");
        }
    }
}
