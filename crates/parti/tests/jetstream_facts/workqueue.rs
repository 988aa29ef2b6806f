//! Work queues: one consumer per subject, and an ack removes the message.

use serde_json::json;
use tokio::time::Instant;

use crate::lab::{PATIENCE, on_every_version};
use crate::pull::offsets;

#[tokio::test]
async fn two_consumers_of_a_work_queue_may_not_share_a_subject() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({"retention": "workqueue"})).await;
        stream.durable("a", &["1", "2"]).await;
        let b = stream.durable("b", &["3"]).await;
        for shared in [&["2", "3"][..], &["*"], &[">"]] {
            let refusal = b.try_filter(shared).await.expect_err("refused");
            assert_eq!((refusal.code, refusal.err_code), (400, 10100), "{shared:?}");
            let c = stream.durable_at("c", shared, json!({}));
            let refusal = c.put("create", &c.config).await.expect_err("refused");
            assert_eq!((refusal.code, refusal.err_code), (400, 10100), "{shared:?}");
        }
        let all = stream.durable_at("c", &[], json!({}));
        let refusal = all.put("create", &all.config).await.expect_err("refused");
        assert_eq!((refusal.code, refusal.err_code), (400, 10099));
    })
    .await;
}

#[tokio::test]
async fn an_update_to_the_whole_work_queue_is_not_refused_whoever_else_is_there() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({"retention": "workqueue"})).await;
        let a = stream.durable("a", &["1"]).await;
        let b = stream.durable("b", &["2"]).await;
        b.filter(&[]).await;
        stream.publish("1", 1).await;
        assert_eq!(offsets(&a.fetch(1).await), [1]);
        assert_eq!(offsets(&b.fetch(1).await), [1], "both get it");
    })
    .await;
}

#[tokio::test]
async fn a_work_queue_wants_explicit_acks_and_a_start_at_the_beginning() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({"retention": "workqueue"})).await;
        for (options, code) in [
            (json!({"ack_policy": "none"}), 10084),
            (json!({"deliver_policy": "new"}), 10101),
            (
                json!({"deliver_policy": "by_start_sequence", "opt_start_seq": 1}),
                10101,
            ),
        ] {
            let consumer = stream.durable_at("a", &["1"], options);
            let refusal = consumer.put("create", &consumer.config).await;
            assert_eq!(refusal.expect_err("refused").err_code, code);
        }
    })
    .await;
}

#[tokio::test]
async fn a_consumer_that_nobody_pulls_from_keeps_its_subjects_until_it_is_deleted() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({"retention": "workqueue"})).await;
        let dead = stream.durable("dead", &["1"]).await;
        let b = stream.durable("b", &["2"]).await;
        if lab.version > (2, 10) {
            let until = json!({"pause_until": "2100-01-01T00:00:00Z"});
            let paused = lab.does(&dead.call("PAUSE"), until).await;
            assert_eq!(paused["paused"], true);
        }
        let refusal = b.try_filter(&["1", "2"]).await.expect_err("refused");
        assert_eq!(refusal.err_code, 10100);
        dead.delete().await;
        b.filter(&["1", "2"]).await;
    })
    .await;
}

#[tokio::test]
async fn a_subject_that_one_consumer_dropped_is_free_for_another_at_once() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({"retention": "workqueue"})).await;
        let a = stream.durable("a", &["1", "2"]).await;
        let b = stream.durable("b", &["3"]).await;
        for _ in 0..20 {
            a.filter(&["1"]).await;
            b.filter(&["2", "3"]).await;
            b.filter(&["3"]).await;
            a.filter(&["1", "2"]).await;
        }
    })
    .await;
}

#[tokio::test]
async fn an_ack_removes_the_message_from_a_work_queue() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({"retention": "workqueue"})).await;
        let a = stream.durable("a", &["1"]).await;
        stream.publish("1", 3).await;
        let messages = a.fetch(3).await;
        a.ack(&messages[1]).await;
        stream.until_holds(2).await;
        assert_eq!(stream.holds().await, (2, 1, 3));
        a.ack(&messages[0]).await;
        stream.until_holds(1).await;
        assert_eq!(stream.holds().await, (1, 3, 3));
    })
    .await;
}

#[tokio::test]
async fn a_work_queues_consumer_made_anew_gets_exactly_what_was_not_acked_in_order() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({"retention": "workqueue"})).await;
        let a = stream.durable("a", &["1", "2"]).await;
        for subject in ["1", "2", "1", "2", "1"] {
            stream.publish(subject, 1).await;
        }
        let messages = a.fetch(4).await;
        a.ack(&messages[0]).await;
        a.ack(&messages[2]).await;
        a.delete().await;
        stream.until_holds(3).await;
        a.create_again().await;
        assert_eq!(offsets(&a.fetch(3).await), [2, 4, 5]);
    })
    .await;
}

#[tokio::test]
async fn what_a_consumer_had_when_it_dropped_a_subject_comes_to_both() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({"retention": "workqueue"})).await;
        let soon = json!({"ack_wait": 100_000_000});
        let a = stream.durable_with("a", &["1", "2"], soon).await;
        stream.publish("1", 1).await;
        a.fetch(1).await;
        a.filter(&["2"]).await;
        let b = stream.durable("b", &["1"]).await;
        assert_eq!(offsets(&b.fetch(1).await), [1]);
        let again = a.fetch(1).await;
        assert_eq!((again[0].offset, again[0].subject.as_str()), (1, "1"));
        assert!(again[0].deliveries > 1);
    })
    .await;
}

#[tokio::test]
async fn an_ack_of_a_dropped_subject_removes_its_message_unless_another_consumer_has_it() {
    on_every_version(async |lab| {
        for taken_over in [false, true] {
            let stream = lab.stream(json!({"retention": "workqueue"})).await;
            let a = stream.durable("a", &["1", "2"]).await;
            stream.publish("1", 1).await;
            let messages = a.fetch(1).await;
            a.filter(&["2"]).await;
            if taken_over {
                let b = stream.durable("b", &["1"]).await;
                b.fetch(1).await;
            }
            // The consumer that had it takes the ack in any case.
            a.ack(&messages[0]).await;
            a.until("num_ack_pending", 0).await;
            // A later message, acked later, is gone: by then so is this one, if it goes.
            let later = stream.publish("2", 1).await;
            a.ack(&a.fetch(1).await[0]).await;
            let deadline = Instant::now() + PATIENCE;
            while stream.message(json!({ "seq": later })).await.is_ok() {
                assert!(Instant::now() < deadline, "still there");
            }
            // Older ones remove the message even from under its new owner.
            let stays = taken_over && lab.version >= (2, 14);
            assert_eq!(stream.message(json!({"seq": 1})).await.is_ok(), stays);
        }
    })
    .await;
}
