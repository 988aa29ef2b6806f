//! What a filter is, and what a change of it does and does not do.

use serde_json::json;

use crate::lab::on_every_version;
use crate::pull::{offsets, sequences};

#[tokio::test]
async fn a_filter_update_does_not_move_the_position() {
    on_every_version(async |lab| {
        for retention in ["limits", "workqueue"] {
            let stream = lab.stream(json!({ "retention": retention })).await;
            let a = stream.durable("a", &["2"]).await;
            let b = stream.durable("b", &["1"]).await;
            stream.publish("2", 10).await;
            stream.publish("1", 1).await;
            for message in a.fetch(3).await {
                a.ack(&message).await;
            }
            for message in b.fetch(1).await {
                b.ack(&message).await;
            }
            // The partition moves as one would think it should.
            a.filter(&["none"]).await;
            b.filter(&["1", "2"]).await;
            let marker = stream.publish("2", 1).await;
            assert_eq!(offsets(&b.fetch(1).await), [marker], "{retention}");
            // Seven messages are there, and nobody gets them.
            let left = if retention == "limits" { 12 } else { 8 };
            stream.until_holds(left).await;
        }
    })
    .await;
}

#[tokio::test]
async fn an_empty_filter_list_means_the_whole_stream() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let created = stream.durable("created", &[]).await;
        let updated = stream.durable("updated", &["1"]).await;
        let info = updated.filter(&[]).await;
        assert!(info["config"].get("filter_subjects").is_none(), "{info}");
        stream.publish("1", 1).await;
        stream.publish("2", 1).await;
        assert_eq!(offsets(&created.fetch(2).await), [1, 2]);
        assert_eq!(offsets(&updated.fetch(2).await), [1, 2]);
    })
    .await;
}

#[tokio::test]
async fn a_filter_comes_back_as_it_was_sent_also_its_order() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let consumer = stream.durable("a", &["1"]).await;
        let config = consumer.info().await["config"].clone();
        assert_eq!(config["filter_subjects"], json!([stream.subject("1")]));
        assert!(config.get("filter_subject").is_none(), "{config}");
        let info = consumer.filter(&["z", "a"]).await;
        let sent = json!([stream.subject("z"), stream.subject("a")]);
        assert_eq!(info["config"]["filter_subjects"], sent);
        // The other way to say one subject stays the other way.
        let other = stream.durable_at("b", &[], json!({"filter_subject": stream.subject("1")}));
        let info = other.create_again().await;
        assert_eq!(info["config"]["filter_subject"], stream.subject("1"));
        assert!(info["config"].get("filter_subjects").is_none(), "{info}");
    })
    .await;
}

#[tokio::test]
async fn a_filter_may_name_subjects_that_the_stream_does_not_take() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let consumer = stream.durable("a", &["1"]).await;
        let elsewhere = json!({"filter_subjects": ["elsewhere.1"]});
        consumer.change(elsewhere).await.expect("accepted");
    })
    .await;
}

#[tokio::test]
async fn the_filters_of_one_consumer_may_not_overlap_and_none_may_be_empty() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let consumer = stream.durable("a", &["1"]).await;
        for (subjects, code) in [(["1", "*"], 10138), (["1", "1"], 10138)] {
            let refusal = consumer.try_filter(&subjects).await.expect_err("refused");
            assert_eq!((refusal.code, refusal.err_code), (400, code));
        }
        let with_empty = json!({"filter_subjects": [stream.subject("1"), ""]});
        let refusal = consumer.change(with_empty).await.expect_err("refused");
        assert_eq!((refusal.code, refusal.err_code), (400, 10139));
        let both = json!({"filter_subject": stream.subject("2")});
        let refusal = consumer.change(both).await.expect_err("refused");
        assert_eq!((refusal.code, refusal.err_code), (400, 10136));
        // The last good one is still there.
        let info = consumer.info().await;
        assert_eq!(
            info["config"]["filter_subjects"],
            json!([stream.subject("1")])
        );
    })
    .await;
}

#[tokio::test]
async fn an_update_keeps_the_creation_stamp_the_sequence_and_what_is_pending() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let consumer = stream.durable("a", &["1"]).await;
        stream.publish("1", 2).await;
        consumer.fetch(2).await;
        let before = consumer.info().await;
        // The same again, and then another one.
        for subjects in [&["1"][..], &["1", "2"]] {
            let after = consumer.filter(subjects).await;
            assert_eq!(after["created"], before["created"]);
            assert_eq!(after["delivered"]["consumer_seq"], 2);
            assert_eq!(after["num_ack_pending"], 2);
        }
        stream.publish("2", 1).await;
        assert_eq!(sequences(&consumer.fetch(1).await), [3]);
    })
    .await;
}

#[tokio::test]
async fn an_open_pull_lives_through_an_update_and_brings_the_new_subject() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let consumer = stream.durable("a", &["1"]).await;
        let mut pull = consumer.waiting_pull(10).await;
        consumer.until("num_waiting", 1).await;
        consumer.filter(&["1", "2"]).await;
        stream.publish("2", 1).await;
        stream.publish("1", 1).await;
        assert_eq!(sequences(&pull.messages(2).await), [1, 2]);
    })
    .await;
}

#[tokio::test]
async fn a_dropped_subject_comes_no_more() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let consumer = stream.durable("a", &["1", "2"]).await;
        stream.publish("2", 3).await;
        consumer.filter(&["1"]).await;
        stream.publish("2", 1).await;
        let marker = stream.publish("1", 1).await;
        assert_eq!(offsets(&consumer.fetch(1).await), [marker]);
    })
    .await;
}

#[tokio::test]
async fn a_filter_may_have_two_thousand_subjects() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let names: Vec<String> = (0..2000).map(|number| number.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let consumer = stream.durable("a", &names[..1]).await;
        let info = consumer.filter(&names).await;
        let filters = info["config"]["filter_subjects"].as_array();
        assert_eq!(filters.map(Vec::len), Some(2000));
        stream.publish("1999", 1).await;
        stream.publish("2000", 1).await;
        stream.publish("0", 1).await;
        assert_eq!(offsets(&consumer.fetch(2).await), [1, 3]);
    })
    .await;
}
