//! What is not acked comes again: when, to whom, and under which sequence.

use std::time::Duration;

use futures_util::StreamExt;
use serde_json::json;
use tokio::time::{Instant, timeout};

use crate::lab::{PATIENCE, on_every_version};
use crate::pull::{Came, offsets, sequences};

/// The shortest time after which something comes again, in these tests.
const SOON: u64 = 100_000_000;

#[tokio::test]
async fn the_consumer_sequence_grows_by_one_with_every_delivery_also_repeated_ones() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let soon = json!({ "ack_wait": SOON });
        let consumer = stream.durable_with("a", &["1", "2"], soon).await;
        stream.publish("1", 1).await;
        stream.publish("3", 2).await;
        stream.publish("2", 1).await;
        let messages = consumer.fetch(6).await;
        assert_eq!(sequences(&messages), [1, 2, 3, 4, 5, 6]);
        assert_eq!(consumer.number("delivered/consumer_seq").await, 6);
        let again = messages.iter().filter(|message| message.deliveries > 1);
        assert!(again.count() >= 4);
    })
    .await;
}

#[tokio::test]
async fn unacked_messages_never_come_to_another_consumer_but_to_their_own_even_if_it_dropped_the_subject()
 {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let a = stream.durable("a", &["1"]).await;
        let b = stream.durable("b", &["2"]).await;
        stream.publish("1", 2).await;
        stream.publish("2", 1).await;
        a.fetch(2).await;
        b.fetch(1).await;
        a.filter(&["none"]).await;
        b.filter(&["1", "2"]).await;
        let marker = stream.publish("1", 1).await;
        assert_eq!(offsets(&b.fetch(1).await), [marker]);
        // Once its patience is over, A gets them again.
        let filter = json!([stream.subject("none")]);
        let soon = json!({"ack_wait": SOON, "filter_subjects": filter});
        a.change(soon).await.expect("changed");
        let again = a.fetch(2).await;
        assert_eq!(offsets(&again), [1, 2]);
        assert!(again.iter().all(|m| m.subject == "1" && m.deliveries == 2));
    })
    .await;
}

#[tokio::test]
async fn what_comes_again_of_a_dropped_subject_fills_the_window_until_it_is_acked() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let narrow = json!({"ack_wait": SOON, "max_ack_pending": 2});
        let a = stream.durable_with("a", &["1", "2"], narrow).await;
        stream.publish("1", 2).await;
        let had = a.fetch(2).await;
        a.filter(&["2"]).await;
        stream.publish("2", 1).await;
        let again = a.fetch(4).await;
        assert!(again.iter().all(|message| message.subject == "1"));
        a.ack(&had[0]).await;
        a.ack(&had[1]).await;
        let mut pull = a.waiting_pull(100).await;
        assert_eq!(offsets(&pull.messages(1).await), [3]);
    })
    .await;
}

#[tokio::test]
async fn a_full_window_holds_back_new_messages_but_none_that_come_again() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let narrow = json!({"ack_wait": SOON, "max_ack_pending": 2});
        let consumer = stream.durable_with("a", &["1"], narrow).await;
        stream.publish("1", 3).await;
        let messages = consumer.fetch(6).await;
        assert_eq!(offsets(&messages), [1, 2, 1, 2, 1, 2]);
        assert_eq!(consumer.number("num_ack_pending").await, 2);
    })
    .await;
}

#[tokio::test]
async fn acks_are_no_fence_whoever_sends_one_for_whichever_delivery() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({"retention": "workqueue"})).await;
        let soon = json!({ "ack_wait": SOON });
        let consumer = stream.durable_with("a", &["1"], soon).await;
        stream.publish("1", 1).await;
        let messages = consumer.fetch(3).await;
        assert_eq!(sequences(&messages), [1, 2, 3]);
        // Another connection, and the oldest delivery.
        let other = lab.through(&format!("nats://{}", lab.address())).await;
        let sent = other
            .client
            .request(messages[0].reply.clone(), "+ACK".into());
        timeout(PATIENCE, sent)
            .await
            .expect("in time")
            .expect("taken");
        assert_eq!(consumer.number("num_ack_pending").await, 0);
        stream.until_holds(0).await;
        // Once more does no harm, and is taken, too.
        consumer.ack(&messages[2]).await;
    })
    .await;
}

#[tokio::test]
async fn a_delivery_that_is_said_to_be_worked_on_does_not_come_again_meanwhile() {
    const WAIT: Duration = Duration::from_secs(1);
    on_every_version(async |lab| {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let stream = lab.stream(json!({})).await;
            let one_second = json!({"ack_wait": WAIT.as_nanos() as u64});
            let consumer = stream.durable_with("a", &["1"], one_second).await;
            stream.publish("1", 2).await;
            let messages = consumer.fetch(2).await;
            let mut pull = consumer.waiting_pull(100).await;
            // The first is worked on until the second, of which nobody says anything, came again
            // twice. If we could not say so in time ourselves, that proves nothing.
            let (mut longest, mut said, mut second) = (Duration::ZERO, Instant::now(), 0);
            let mut first_came = false;
            while second < 2 {
                let word = lab.client.request(messages[0].reply.clone(), "+WPI".into());
                timeout(PATIENCE, word)
                    .await
                    .expect("in time")
                    .expect("taken");
                longest = longest.max(said.elapsed());
                said = Instant::now();
                let next = timeout(WAIT / 10, pull.next()).await;
                if let Ok(Came::Message(message)) = next {
                    first_came |= message.offset == 1;
                    second += usize::from(message.offset == 2);
                }
            }
            if longest < WAIT / 2 {
                assert!(!first_came);
                return;
            }
            assert!(Instant::now() < deadline, "never fast enough to tell");
        }
    })
    .await;
}

#[tokio::test]
async fn beyond_the_servers_own_max_deliver_a_message_is_dropped_silently() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let once = json!({"ack_wait": SOON, "max_deliver": 1});
        let consumer = stream.durable_with("a", &["1"], once).await;
        let event = format!(
            "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{}.a",
            stream.name
        );
        let mut given_up = lab.client.subscribe(event).await.expect("sent");
        stream.publish("1", 1).await;
        consumer.fetch(1).await;
        // Only a pull makes the server look.
        let mut pull = consumer.waiting_pull(10).await;
        let told = timeout(PATIENCE, given_up.next()).await;
        told.expect("in time").expect("an event");
        stream.publish("1", 1).await;
        assert_eq!(offsets(&pull.messages(1).await), [2]);
    })
    .await;
}

#[tokio::test]
async fn unless_told_a_message_is_delivered_any_number_of_times() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let soon = json!({ "ack_wait": 1_000_000 });
        let consumer = stream.durable_with("a", &["1"], soon).await;
        assert_eq!(consumer.info().await["config"]["max_deliver"], -1);
        stream.publish("1", 1).await;
        let messages = consumer.fetch(20).await;
        assert_eq!(messages.last().map(|message| message.deliveries), Some(20));
    })
    .await;
}
