//! A stream on disk, and messages in it.

use std::time::{Duration, Instant};

use async_nats::jetstream::{self, context::PublishAckFuture, stream};
use parti_servers::nats::Server;

/// Every message is that long.
pub const SIZE: usize = 128;
/// Messages that are sent before the first of them must be acked.
const WINDOW: usize = 1_000;

pub async fn context(server: &Server) -> jetstream::Context {
    let client = async_nats::connect(server.url()).await;
    jetstream::new(client.expect("connects"))
}

/// An empty stream on disk, of this name and with the subjects `<name>.*`.
pub async fn make(context: &jetstream::Context, name: &str) {
    let config = stream::Config {
        name: name.into(),
        subjects: vec![format!("{name}.*")],
        storage: stream::StorageType::File,
        ..stream::Config::default()
    };
    context.create_stream(config).await.expect("made");
}

/// Publishes so many messages to so many subjects in turn, each with its number in its subject.
pub async fn fill(context: &jetstream::Context, name: &str, subjects: u64, messages: u64) {
    let mut publisher = Publisher::new(context.clone(), name);
    for turn in 0..messages {
        publisher.send(turn % subjects, turn / subjects).await;
    }
    publisher.settle().await;
}

/// Publishes with acks, a window of them at a time.
pub struct Publisher {
    context: jetstream::Context,
    name: String,
    acks: Vec<PublishAckFuture>,
}

impl Publisher {
    pub fn new(context: jetstream::Context, name: &str) -> Self {
        Self {
            context,
            name: name.into(),
            acks: Vec::new(),
        }
    }

    /// Sends one message: a number, then spaces.
    pub async fn send(&mut self, subject: u64, number: u64) {
        let payload = format!("{number:<SIZE$}").into();
        let subject = format!("{}.{subject}", self.name);
        let sent = self.context.publish(subject, payload).await.expect("sent");
        self.acks.push(sent);
        if self.acks.len() >= WINDOW {
            self.settle().await;
        }
    }

    /// Waits until all that was sent is stored.
    pub async fn settle(&mut self) {
        for ack in self.acks.drain(..) {
            ack.await.expect("stored");
        }
    }

    /// Sends in turn to so many subjects, at this rate, for so long. Answers how many.
    pub async fn pace(
        &mut self,
        subjects: u64,
        rate: u64,
        time: Duration,
        mut number: impl FnMut(u64) -> u64,
    ) -> u64 {
        let begun = Instant::now();
        let mut sent = 0;
        while begun.elapsed() < time {
            let due = rate * begun.elapsed().as_micros() as u64 / 1_000_000;
            while sent < due && begun.elapsed() < time {
                self.send(sent % subjects, number(sent)).await;
                sent += 1;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        self.settle().await;
        sent
    }
}

/// The number of a message.
pub fn number(payload: &[u8]) -> u64 {
    let text = std::str::from_utf8(payload).expect("a number");
    text.trim_end().parse().expect("a number")
}
