//! The reset of a consumer, which servers have from 2.14 on.

use serde_json::json;

use crate::lab::on_every_version;
use crate::pull::{offsets, sequences};

#[tokio::test]
async fn a_reset_rewinds_clears_what_is_pending_and_begins_the_sequence_anew() {
    on_every_version(async |lab| {
        if !lab.resets() {
            return;
        }
        let stream = lab.stream(json!({})).await;
        let consumer = stream.durable("a", &["1"]).await;
        stream.publish("1", 5).await;
        let messages = consumer.fetch(4).await;
        consumer.ack(&messages[0]).await;
        let before = consumer.info().await;
        assert_eq!(before["num_ack_pending"], 3);
        let after = consumer.reset(1).await.expect("reset");
        assert_eq!(after["reset_seq"], 1);
        assert_eq!(after["created"], before["created"], "the same consumer");
        assert_eq!(after["config"], before["config"]);
        assert_eq!(after["num_ack_pending"], 0);
        assert_eq!(after["num_pending"], 5);
        for counter in ["delivered", "ack_floor"] {
            assert_eq!(after[counter]["consumer_seq"], 0);
            assert_eq!(after[counter]["stream_seq"], 0);
        }
        let again = consumer.fetch(5).await;
        assert_eq!(offsets(&again), [1, 2, 3, 4, 5]);
        assert_eq!(sequences(&again), [1, 2, 3, 4, 5]);
        assert!(again.iter().all(|message| message.deliveries == 1));
    })
    .await;
}

/// How a durable that lags is put at the stream's end.
#[tokio::test]
async fn a_reset_or_on_2_10_recreation_to_one_past_the_last_brings_exactly_what_comes_later() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let start = |at: u64| json!({"deliver_policy": "by_start_sequence", "opt_start_seq": at});
        let consumer = stream.durable_with("a", &["1"], start(1)).await;
        stream.publish("1", 5).await;
        stream.publish("2", 1).await;
        consumer.fetch(2).await;
        let after = if lab.resets() {
            consumer.reset(7).await.expect("reset")
        } else {
            consumer.delete().await;
            let anew = stream.durable_at("a", &["1"], start(7));
            anew.create_again().await
        };
        assert_eq!(after["num_pending"], 0, "nothing of what was left");
        assert_eq!(after["num_ack_pending"], 0, "nor of what was not acked");
        assert_eq!(after["delivered"]["consumer_seq"], 0);
        stream.publish("1", 2).await;
        let later = consumer.fetch(2).await;
        assert_eq!(offsets(&later), [7, 8]);
        assert_eq!(sequences(&later), [1, 2]);
    })
    .await;
}

#[tokio::test]
async fn on_a_work_queue_a_reset_brings_back_exactly_what_is_not_acked_in_order() {
    on_every_version(async |lab| {
        if !lab.resets() {
            return;
        }
        let stream = lab.stream(json!({"retention": "workqueue"})).await;
        let consumer = stream.durable("a", &["1", "2"]).await;
        for subject in ["1", "2", "1", "2", "1"] {
            stream.publish(subject, 1).await;
        }
        let messages = consumer.fetch(4).await;
        consumer.ack(&messages[0]).await;
        consumer.ack(&messages[2]).await;
        consumer.reset(1).await.expect("reset");
        assert_eq!(offsets(&consumer.fetch(3).await), [2, 4, 5]);
    })
    .await;
}

#[tokio::test]
async fn a_reset_then_an_added_subject_brings_that_subjects_whole_backlog() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({"retention": "workqueue"})).await;
        let a = stream.durable("a", &["2"]).await;
        let b = stream.durable("b", &["1"]).await;
        stream.publish("2", 4).await;
        stream.publish("1", 1).await;
        let messages = a.fetch(2).await;
        a.ack(&messages[0]).await;
        b.fetch(1).await;
        a.filter(&["none"]).await;
        if lab.resets() {
            b.reset(1).await.expect("reset");
            b.filter(&["1", "2"]).await;
        } else {
            b.delete().await;
            let both = stream.durable_at("b", &["1", "2"], json!({}));
            both.create_again().await;
        }
        assert_eq!(offsets(&b.fetch(4).await), [2, 3, 4, 5]);
    })
    .await;
}

#[tokio::test]
async fn an_open_pull_lives_through_a_reset_and_gets_everything_again() {
    on_every_version(async |lab| {
        if !lab.resets() {
            return;
        }
        let stream = lab.stream(json!({})).await;
        let consumer = stream.durable("a", &["1"]).await;
        let mut pull = consumer.waiting_pull(10).await;
        stream.publish("1", 2).await;
        assert_eq!(sequences(&pull.messages(2).await), [1, 2]);
        consumer.reset(1).await.expect("reset");
        let again = pull.messages(2).await;
        assert_eq!(
            (offsets(&again), sequences(&again)),
            (vec![1, 2], vec![1, 2])
        );
    })
    .await;
}

#[tokio::test]
async fn an_ack_from_before_a_reset_is_ignored_until_its_message_came_again() {
    on_every_version(async |lab| {
        if !lab.resets() {
            return;
        }
        let stream = lab.stream(json!({"retention": "workqueue"})).await;
        let consumer = stream.durable("a", &["1"]).await;
        stream.publish("1", 4).await;
        let before = consumer.fetch(4).await;
        consumer.reset(1).await.expect("reset");
        let after = consumer.fetch(2).await;
        // One that is ahead of the position, and one that is not.
        let client = &lab.client;
        client
            .publish(before[3].reply.clone(), "+ACK".into())
            .await
            .expect("sent");
        consumer.ack(&before[0]).await;
        consumer.ack(&after[1]).await;
        stream.until_holds(2).await;
        assert_eq!(stream.holds().await, (2, 3, 4));
        assert_eq!(offsets(&consumer.fetch(2).await), [3, 4]);
    })
    .await;
}

#[tokio::test]
async fn a_reset_is_refused_for_new_and_last_and_below_a_configured_start() {
    on_every_version(async |lab| {
        if !lab.resets() {
            return;
        }
        let stream = lab.stream(json!({})).await;
        stream.publish("1", 5).await;
        for policy in ["new", "last", "last_per_subject"] {
            let options = json!({ "deliver_policy": policy });
            let consumer = stream.durable_with(policy, &["1"], options).await;
            let refusal = consumer.reset(1).await.expect_err("refused");
            assert_eq!((refusal.code, refusal.err_code), (400, 10204), "{policy}");
        }
        let start = json!({"deliver_policy": "by_start_sequence", "opt_start_seq": 3});
        let consumer = stream.durable_with("start", &["1"], start).await;
        let refusal = consumer.reset(2).await.expect_err("refused");
        assert_eq!((refusal.code, refusal.err_code), (400, 10204));
        let info = consumer.reset(3).await.expect("at the start");
        assert_eq!(info["reset_seq"], 3);
    })
    .await;
}

#[tokio::test]
async fn a_reset_of_a_consumer_that_is_not_there_is_not_answered_at_all() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let known = stream.durable("known", &["1"]).await;
        let absent = stream.durable_at("absent", &["1"], json!({}));
        let (call, body) = (absent.call("RESET"), json!({"seq": 1}));
        assert!(
            lab.stays_unanswered(&call, body.clone(), &known.call("INFO"))
                .await
        );
        let call = "CONSUMER.RESET.NO_SUCH_STREAM.a";
        assert!(lab.stays_unanswered(call, body, &known.call("INFO")).await);
    })
    .await;
}

#[tokio::test]
async fn a_server_before_2_14_does_not_answer_a_reset_and_changes_nothing() {
    on_every_version(async |lab| {
        if lab.resets() {
            return;
        }
        let stream = lab.stream(json!({})).await;
        let consumer = stream.durable("a", &["1"]).await;
        stream.publish("1", 2).await;
        consumer.fetch(1).await;
        let (call, body) = (consumer.call("RESET"), json!({"seq": 1}));
        assert!(
            lab.stays_unanswered(&call, body, &consumer.call("INFO"))
                .await
        );
        let next = consumer.fetch(1).await;
        assert_eq!((offsets(&next), sequences(&next)), (vec![2], vec![2]));
    })
    .await;
}
