//! One pull request, and everything that is sent to its inbox.

use async_nats::{Client, HeaderMap, Message, Subscriber};
use futures_util::StreamExt;
use serde_json::Value;
use tokio::time::timeout;

use crate::lab::PATIENCE;

/// A delivery, with what its reply address says.
#[derive(Clone, Debug)]
pub struct Got {
    /// The last token of its subject.
    pub subject: String,
    /// Its sequence in the stream.
    pub offset: u64,
    /// The consumer sequence.
    pub sequence: u64,
    /// How often it was delivered, this time included.
    pub deliveries: u64,
    /// How many more there are for the consumer.
    pub pending: u64,
    /// Where acks go.
    pub reply: String,
}

/// What the server says of a pull.
#[derive(Clone, Debug)]
pub struct Status {
    pub code: u16,
    pub text: String,
    pub headers: HeaderMap,
}

impl Status {
    /// A number in a header.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.headers.get(name)?.as_str().parse().ok()
    }
}

/// What comes to a pull's inbox.
#[derive(Clone, Debug)]
pub enum Came {
    Message(Got),
    Status(Status),
}

/// A pull.
pub struct Pull {
    inbox: Subscriber,
}

impl Pull {
    /// Sends a pull request.
    pub async fn open(client: &Client, call: &str, request: &Value) -> Self {
        let reply = client.new_inbox();
        let inbox = client.subscribe(reply.clone()).await.expect("sent");
        let payload = request.to_string();
        let sent = client.publish_with_reply(format!("$JS.API.{call}"), reply, payload.into());
        sent.await.expect("sent");
        Self { inbox }
    }

    /// What comes next, which must come.
    pub async fn next(&mut self) -> Came {
        let message = timeout(PATIENCE, self.inbox.next()).await;
        came(message.expect("in time").expect("a connection"))
    }

    /// The next so many messages, and no status among them.
    pub async fn messages(&mut self, count: usize) -> Vec<Got> {
        let mut all = Vec::new();
        while all.len() < count {
            match self.next().await {
                Came::Message(got) => all.push(got),
                Came::Status(status) => panic!("{status:?} after {all:?}"),
            }
        }
        all
    }

    /// Messages up to the status that ends the pull.
    pub async fn rest(&mut self) -> (Vec<Got>, Status) {
        let mut all = Vec::new();
        loop {
            match self.next().await {
                Came::Message(got) => all.push(got),
                Came::Status(status) if status.code == 100 => {}
                Came::Status(status) => return (all, status),
            }
        }
    }

    /// The status that comes next.
    pub async fn status(&mut self) -> Status {
        match self.next().await {
            Came::Status(status) => status,
            Came::Message(got) => panic!("{got:?}"),
        }
    }

    /// Code and text of the status that comes next.
    pub async fn says(&mut self) -> (u16, String) {
        let status = self.status().await;
        (status.code, status.text)
    }

    /// Nobody listens to it any more.
    pub async fn abandon(mut self) {
        self.inbox.unsubscribe().await.expect("sent");
    }
}

fn came(message: Message) -> Came {
    if let Some(status) = message.status {
        return Came::Status(Status {
            code: status.as_u16(),
            text: message.description.unwrap_or_default(),
            headers: message.headers.unwrap_or_default(),
        });
    }
    let reply = message.reply.expect("a delivery has a reply address");
    let tokens: Vec<&str> = reply.split('.').collect();
    // $JS.ACK.<stream>.<consumer>.<deliveries>.<offset>.<sequence>.<time>.<pending>, or with domain
    // and account before the stream.
    let at = if tokens.len() == 9 { 4 } else { 6 };
    let number = |index: usize| tokens[at + index].parse().expect("a number");
    let subject = message.subject.rsplit('.').next();
    Came::Message(Got {
        subject: subject.unwrap_or_default().to_owned(),
        deliveries: number(0),
        offset: number(1),
        sequence: number(2),
        pending: number(4),
        reply: reply.to_string(),
    })
}

/// The offsets of deliveries.
pub fn offsets(messages: &[Got]) -> Vec<u64> {
    messages.iter().map(|message| message.offset).collect()
}

/// The consumer sequences of deliveries.
pub fn sequences(messages: &[Got]) -> Vec<u64> {
    messages.iter().map(|message| message.sequence).collect()
}
