//! What becomes of deliveries on their way: lost, stolen, late; and how that shows.

use parti_servers::proxy::Proxy;
use serde_json::json;

use crate::lab::{Consumer, on_every_version};
use crate::pull::{offsets, sequences};

/// Three messages of subject 1 are sent to a client whose link dies before they arrive.
async fn into_a_dying_link(consumer: &Consumer<'_>) {
    let lab = consumer.stream.lab;
    let mut proxy = Proxy::start(lab.address());
    let other = lab.through(&format!("nats://{}", proxy.address())).await;
    let request = json!({"batch": 100, "expires": 3_600_000_000_000_u64});
    let _pull = consumer.pull_by(&other, request).await;
    consumer.until("num_waiting", 1).await;
    proxy.stall();
    consumer.stream.publish("1", 3).await;
    consumer.until("delivered/consumer_seq", 3).await;
    proxy.cut();
    consumer.until("num_waiting", 0).await;
}

#[tokio::test]
async fn without_acks_what_a_dying_link_swallowed_never_comes_again_and_shows_as_a_gap() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let none = json!({"ack_policy": "none"});
        let consumer = stream.durable_with("a", &["1"], none).await;
        into_a_dying_link(&consumer).await;
        stream.publish("1", 2).await;
        let messages = consumer.fetch(2).await;
        assert_eq!(offsets(&messages), [4, 5]);
        assert_eq!(sequences(&messages), [4, 5], "1 to 3 are missing");
        assert_eq!(consumer.number("num_ack_pending").await, 0);
    })
    .await;
}

#[tokio::test]
async fn with_acks_what_a_dying_link_swallowed_comes_behind_newer_messages() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let consumer = stream.durable("a", &["1"]).await;
        into_a_dying_link(&consumer).await;
        stream.publish("1", 1).await;
        let newer = consumer.fetch(1).await;
        assert_eq!((newer[0].offset, newer[0].sequence), (4, 4));
        consumer.ack(&newer[0]).await;
        // Now let its patience end.
        let soon = json!({"ack_wait": 100_000_000});
        consumer.change(soon).await.expect("changed");
        let late = consumer.fetch(3).await;
        assert_eq!(offsets(&late), [1, 2, 3], "in the order of the stream");
        assert_eq!(sequences(&late), [5, 6, 7], "under new sequences");
        assert!(late.iter().all(|message| message.deliveries == 2));
    })
    .await;
}

#[tokio::test]
async fn a_frozen_predecessors_open_pull_steals_messages_and_that_shows_as_gaps() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let none = json!({"ack_policy": "none"});
        let consumer = stream.durable_with("a", &["1"], none).await;
        let frozen = lab.through(&format!("nats://{}", lab.address())).await;
        let request = json!({"batch": 100, "expires": 3_600_000_000_000_u64});
        let _pull = consumer.pull_by(&frozen, request).await;
        consumer.until("num_waiting", 1).await;
        let mut own = consumer.waiting_pull(100).await;
        consumer.until("num_waiting", 2).await;
        stream.publish("1", 6).await;
        let messages = own.messages(3).await;
        assert_eq!(sequences(&messages), [2, 4, 6]);
        assert_eq!(offsets(&messages), [2, 4, 6]);
    })
    .await;
}

#[tokio::test]
async fn a_connection_that_ends_takes_its_pulls_along() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let consumer = stream.durable("a", &["1"]).await;
        let mut proxy = Proxy::start(lab.address());
        let other = lab.through(&format!("nats://{}", proxy.address())).await;
        let request = json!({"batch": 100, "expires": 3_600_000_000_000_u64});
        let _pull = consumer.pull_by(&other, request).await;
        consumer.until("num_waiting", 1).await;
        proxy.cut();
        consumer.until("num_waiting", 0).await;
        stream.publish("1", 3).await;
        assert_eq!(sequences(&consumer.fetch(3).await), [1, 2, 3]);
    })
    .await;
}
