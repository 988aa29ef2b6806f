//! What a pull is told: statuses, and when they come.

use futures_util::FutureExt;
use serde_json::{Value, json};

use crate::lab::{PATIENCE, on_every_version};
use crate::pull::{Came, offsets, sequences};

fn said(code: u16, text: &str) -> (u16, String) {
    (code, text.to_owned())
}

#[tokio::test]
async fn a_pull_answered_in_full_ends_without_a_word() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let consumer = stream.durable("a", &["1"]).await;
        let mut first = consumer.waiting_pull(2).await;
        stream.publish("1", 3).await;
        first.messages(2).await;
        assert_eq!(sequences(&consumer.fetch(1).await), [3]);
        consumer.until("num_waiting", 0).await;
        assert!(first.next().now_or_never().is_none());
    })
    .await;
}

#[tokio::test]
async fn a_pull_with_bytes_left_that_is_answered_in_full_ends_with_409_after_its_messages() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let consumer = stream.durable("a", &["1"]).await;
        stream.publish("1", 3).await;
        for waiting in [
            json!({"no_wait": true}),
            json!({"expires": PATIENCE.as_nanos() as u64}),
        ] {
            consumer.delete().await;
            consumer.create_again().await;
            let mut request = json!({"batch": 2, "max_bytes": 100_000});
            for (name, value) in waiting.as_object().expect("an object") {
                request[name] = value.clone();
            }
            let mut pull = consumer.pull(request).await;
            let (messages, status) = pull.rest().await;
            assert_eq!(offsets(&messages), [1, 2], "all of them come before it");
            let says = (status.code, status.text.as_str());
            assert_eq!(says, (409, "Batch Completed"));
            assert_eq!(status.number("Nats-Pending-Messages"), Some(0));
            let bytes = status.number("Nats-Pending-Bytes");
            assert!(bytes.is_some_and(|bytes| bytes > 0 && bytes < 100_000));
            assert_eq!(
                offsets(&consumer.fetch(1).await),
                [3],
                "and nothing is lost by it"
            );
        }
    })
    .await;
}

#[tokio::test]
async fn a_no_wait_pull_of_nothing_ends_with_404() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let consumer = stream.durable("a", &["1"]).await;
        let mut pull = consumer.pull(json!({"batch": 5, "no_wait": true})).await;
        assert_eq!(pull.says().await, said(404, "No Messages"));
    })
    .await;
}

#[tokio::test]
async fn a_no_wait_pull_that_brought_something_ends_with_404_or_408() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let consumer = stream.durable("a", &["1"]).await;
        stream.publish("1", 2).await;
        let mut pull = consumer.pull(json!({"batch": 5, "no_wait": true})).await;
        let (messages, status) = pull.rest().await;
        assert_eq!(offsets(&messages), [1, 2]);
        match status.code {
            404 => assert_eq!(status.text, "No Messages"),
            408 => assert_eq!(status.number("Nats-Pending-Messages"), Some(3)),
            _ => panic!("{status:?}"),
        }
    })
    .await;
}

#[tokio::test]
async fn a_pull_that_expires_ends_with_408_and_says_what_it_did_not_bring() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let consumer = stream.durable("a", &["1"]).await;
        stream.publish("1", 2).await;
        let request = json!({"batch": 5, "expires": 100_000_000, "max_bytes": 10_000});
        let mut pull = consumer.pull(request).await;
        let (messages, status) = pull.rest().await;
        assert_eq!(messages.len(), 2);
        assert_eq!(
            (status.code, status.text.as_str()),
            (408, "Request Timeout")
        );
        assert_eq!(status.number("Nats-Pending-Messages"), Some(3));
        let bytes = status.number("Nats-Pending-Bytes");
        assert!(bytes.is_some_and(|bytes| bytes > 0 && bytes < 10_000));
        consumer.until("num_waiting", 0).await;
    })
    .await;
}

#[tokio::test]
async fn a_pull_ends_with_409_when_the_next_message_does_not_fit_its_bytes() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let consumer = stream.durable("a", &["1"]).await;
        for _ in 0..3 {
            lab.publish(&stream.subject("1"), &[], &"x".repeat(1000)).await;
        }
        let waiting = |bytes: u64| {
            json!({"batch": 9, "max_bytes": bytes, "expires": PATIENCE.as_nanos() as u64})
        };
        // Not even one.
        let mut pull = consumer.pull(waiting(500)).await;
        let too_large = said(409, "Message Size Exceeds MaxBytes");
        assert_eq!(pull.says().await, too_large);
        // Two, and no third.
        let mut pull = consumer.pull(waiting(2700)).await;
        let (messages, status) = pull.rest().await;
        assert_eq!(offsets(&messages), [1, 2]);
        assert_eq!((status.code, status.text.clone()), too_large);
        assert_eq!(status.number("Nats-Pending-Messages"), Some(7));
        assert!(status.number("Nats-Pending-Bytes").is_some());
        // What did not fit is not lost, and took no sequence.
        assert_eq!(sequences(&consumer.fetch(1).await), [3]);
    })
    .await;
}

#[tokio::test]
async fn more_pulls_than_max_waiting_are_refused_with_409() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let two = json!({"max_waiting": 2});
        let consumer = stream.durable_with("a", &["1"], two).await;
        let mut pulls = [
            consumer.waiting_pull(1).await,
            consumer.waiting_pull(1).await,
        ];
        let mut third = consumer.waiting_pull(1).await;
        assert_eq!(third.says().await, said(409, "Exceeded MaxWaiting"));
        stream.publish("1", 2).await;
        for pull in &mut pulls {
            pull.messages(1).await;
        }
    })
    .await;
}

#[tokio::test]
async fn open_pulls_take_turns() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let consumer = stream.durable("a", &["1"]).await;
        let mut first = consumer.waiting_pull(10).await;
        consumer.until("num_waiting", 1).await;
        let mut second = consumer.waiting_pull(10).await;
        consumer.until("num_waiting", 2).await;
        stream.publish("1", 4).await;
        assert_eq!(sequences(&first.messages(2).await), [1, 3]);
        assert_eq!(sequences(&second.messages(2).await), [2, 4]);
    })
    .await;
}

#[tokio::test]
async fn deleting_the_consumer_or_its_stream_ends_pulls_with_409() {
    on_every_version(async |lab| {
        for stream_too in [false, true] {
            let stream = lab.stream(json!({})).await;
            let consumer = stream.durable("a", &["1"]).await;
            let mut pull = consumer.waiting_pull(1).await;
            consumer.until("num_waiting", 1).await;
            if stream_too {
                let call = format!("STREAM.DELETE.{}", stream.name);
                lab.does(&call, Value::Null).await;
            } else {
                consumer.delete().await;
            }
            assert_eq!(pull.says().await, said(409, "Consumer Deleted"));
        }
    })
    .await;
}

#[tokio::test]
async fn a_pull_from_a_consumer_that_is_not_there_finds_nobody() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let absent = stream.durable_at("absent", &["1"], json!({}));
        let mut pull = absent.waiting_pull(1).await;
        assert_eq!(pull.status().await.code, 503);
    })
    .await;
}

#[tokio::test]
async fn a_pull_beyond_the_consumers_own_limits_ends_with_409() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let limits = json!({"max_batch": 3, "max_expires": 1_000_000_000, "max_bytes": 250});
        let consumer = stream.durable_with("a", &["1"], limits).await;
        for (request, text) in [
            (
                json!({"batch": 4, "no_wait": true}),
                "Exceeded MaxRequestBatch of 3",
            ),
            (
                json!({"batch": 1, "expires": 2_000_000_000}),
                "Exceeded MaxRequestExpires of 1s",
            ),
            (
                json!({"batch": 1, "no_wait": true, "max_bytes": 251}),
                "Exceeded MaxRequestMaxBytes of 250",
            ),
        ] {
            assert_eq!(consumer.pull(request).await.says().await, said(409, text));
        }
    })
    .await;
}

#[tokio::test]
async fn a_pull_that_makes_no_sense_ends_with_400() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let consumer = stream.durable("a", &["1"]).await;
        let mut pull = consumer.pull(json!({"batch": "many"})).await;
        let (code, text) = pull.says().await;
        assert!(code == 400 && text.starts_with("Bad Request"), "{text}");
        let request = json!({"batch": 1, "expires": 1_000, "idle_heartbeat": 900});
        assert_eq!(
            consumer.pull(request).await.says().await,
            said(400, "Bad Request - heartbeat value too large")
        );
    })
    .await;
}

#[tokio::test]
async fn an_idle_pull_with_a_heartbeat_is_told_how_far_the_consumer_is() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let consumer = stream.durable("a", &["1"]).await;
        stream.publish("1", 2).await;
        let expires = PATIENCE.as_nanos() as u64;
        let request = json!({"batch": 9, "expires": expires, "idle_heartbeat": 100_000_000});
        let mut pull = consumer.pull(request).await;
        pull.messages(2).await;
        let beat = pull.status().await;
        assert_eq!((beat.code, beat.text.as_str()), (100, "Idle Heartbeat"));
        assert_eq!(beat.number("Nats-Last-Consumer"), Some(2));
        assert_eq!(beat.number("Nats-Last-Stream"), Some(2));
        // It is still open.
        stream.publish("1", 1).await;
        loop {
            match pull.next().await {
                Came::Message(message) => return assert_eq!(message.sequence, 3),
                Came::Status(status) => assert_eq!(status.code, 100),
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_pull_that_nobody_listens_to_any_more_waits_no_more_and_takes_nothing() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let consumer = stream.durable("a", &["1"]).await;
        let pull = consumer.waiting_pull(10).await;
        consumer.until("num_waiting", 1).await;
        pull.abandon().await;
        consumer.until("num_waiting", 0).await;
        stream.publish("1", 3).await;
        assert_eq!(consumer.number("delivered/consumer_seq").await, 0);
        assert_eq!(sequences(&consumer.fetch(3).await), [1, 2, 3]);
    })
    .await;
}

#[tokio::test]
async fn a_no_wait_pull_waits_all_the_same_when_the_window_is_full() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let one = json!({"max_ack_pending": 1});
        let consumer = stream.durable_with("a", &["1"], one).await;
        stream.publish("1", 2).await;
        let first = consumer.fetch(1).await;
        let mut pull = consumer.pull(json!({"batch": 1, "no_wait": true})).await;
        consumer.until("num_waiting", 1).await;
        consumer.ack(&first[0]).await;
        assert_eq!(offsets(&pull.messages(1).await), [2]);
    })
    .await;
}
