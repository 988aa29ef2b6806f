//! Publishes to a KV bucket's subjects, each expecting the sequence before it, with all
//! acknowledgements awaited together.

use async_nats::header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE;
use async_nats::jetstream::{self, kv};
use async_nats::{Client, HeaderMap};
use async_trait::async_trait;
use parti::store::Bytes;

use super::Plain;

/// Less than the 10,000 unanswered publishes from which on a server refuses more.
const WINDOW: usize = 5_000;

pub struct Nats {
    context: jetstream::Context,
    sequences: Vec<u64>,
}

impl Nats {
    pub async fn connect(url: &str) -> Self {
        let client: Client = async_nats::connect(url).await.expect("a server");
        let context = jetstream::new(client);
        let bucket = kv::Config {
            bucket: "plain".into(),
            history: 1,
            ..kv::Config::default()
        };
        context.create_key_value(bucket).await.expect("a bucket");
        Self {
            context,
            sequences: Vec::new(),
        }
    }
}

#[async_trait]
impl Plain for Nats {
    async fn write(&mut self, writes: &[(String, Bytes)]) {
        self.sequences.resize(writes.len(), 0);
        let sequences = self.sequences.chunks_mut(WINDOW);
        for (writes, sequences) in writes.chunks(WINDOW).zip(sequences) {
            let mut answers = Vec::with_capacity(writes.len());
            for ((key, value), sequence) in writes.iter().zip(&*sequences) {
                let mut headers = HeaderMap::new();
                headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, sequence.to_string());
                let subject = format!("$KV.plain.{}", key.replace('/', "."));
                let sent = self
                    .context
                    .publish_with_headers(subject, headers, value.clone());
                answers.push(sent.await.expect("sent"));
            }
            for (answer, sequence) in answers.into_iter().zip(sequences) {
                *sequence = answer.await.expect("an acknowledgement").sequence;
            }
        }
    }
}
