//! A worker on a stream, and everything that can happen to its consumer.

use std::time::Duration;

use async_nats::jetstream::{self, stream};
use parti::source::JetStream;
use parti::store::Memory;
use parti::{Message, Worker};
use parti_servers::nats::Server;

use crate::group::{Changing, Gate, config, metrics};
use crate::touched::{PATIENCE, Touched};

const MESSAGES: u64 = 8;

/// Runs it all; every metric that a consumer has is fed at its end.
pub async fn run(touched: &Touched) {
    let mut server = Server::start();
    let client = async_nats::connect(server.address()).await;
    let context = jetstream::new(client.expect("connects"));
    let made = context.create_stream(stream::Config {
        name: "S".into(),
        subjects: vec!["p.*".into()],
        ..stream::Config::default()
    });
    made.await.expect("made");
    let url = format!("jetstream://{}/S", server.address());
    let source = JetStream::connect(&url).await.expect("connects");

    // A server that does not answer fails the first update. One partition is over the cap.
    server.pause();
    let (gate, partitions) = (Gate::shut(), Changing::new(3));
    let handler = {
        let gate = gate.clone();
        move |message: Message| {
            let gate = gate.clone();
            async move { gate.handle(message).await }
        }
    };
    let worker = Worker::builder("stream", Memory::new(), source, partitions.clone())
        .config(config())
        .metrics(metrics(touched))
        .start(handler)
        .await
        .expect("starts");
    touched
        .until(&[
            "parti_consumer_update_failures_total",
            "parti_unserved_partitions",
        ])
        .await;
    server.resume();
    touched
        .until(&[
            "parti_consumer_update_attempts_total",
            "parti_consumer_update_successes_total",
            "parti_consumer_update_duration_seconds",
            "parti_consumer_subjects_added_total",
            "parti_consumer_subject_count",
            "parti_consumer_subject_cap",
            "parti_consumer_pull_loop_healthy",
        ])
        .await;

    // All partitions that are served, whichever they are.
    for _ in 0..MESSAGES {
        for subject in ["p.0", "p.1", "p.2"] {
            let sent = context.publish(subject, "waits".into()).await;
            sent.expect("sent").await.expect("stored");
        }
    }
    touched.until(&["parti_consumer_inflight"]).await;
    let began = std::time::Instant::now();
    while !touched.has("parti_consumer_redeliveries_total") {
        assert!(began.elapsed() < PATIENCE, "nothing is delivered again");
        refuse_all(&context).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    gate.open();

    for name in consumers(&context).await {
        let stream = context.get_stream("S").await.expect("there");
        stream.delete_consumer(&name).await.expect("deleted");
    }
    touched
        .until(&["parti_consumer_drift_repaired_total"])
        .await;

    // What comes and goes faster than updates may follow is no update.
    let began = std::time::Instant::now();
    while !touched.has("parti_consumer_update_skipped_total")
        || !touched.has("parti_consumer_subjects_removed_total")
    {
        assert!(began.elapsed() < PATIENCE, "{:?}", touched.names());
        for count in [1, 2] {
            partitions.set(count);
            worker.refresh_partitions();
            let serves = || worker.assignment().serve.len() == count as usize;
            crate::group::until("the new list", serves).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    worker.stop().await.expect("stops");
}

async fn consumers(context: &jetstream::Context) -> Vec<String> {
    use futures_util::TryStreamExt;
    let stream = context.get_stream("S").await.expect("there");
    let names = stream.consumer_names().try_collect().await;
    names.expect("listed")
}

/// Tells the server, in the worker's name, that nothing that it delivered was handled.
async fn refuse_all(context: &jetstream::Context) {
    for name in consumers(context).await {
        for stream_sequence in 1..=3 * MESSAGES {
            for consumer_sequence in 1..=3 * MESSAGES {
                let reply = format!("$JS.ACK.S.{name}.1.{stream_sequence}.{consumer_sequence}.0.0");
                let sent = context.publish(reply, "-NAK".into());
                let _ = sent.await;
            }
        }
    }
}
