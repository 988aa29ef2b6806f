//! Reading past the durable: for the splice, and to find out where to start.

use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::lab::{PATIENCE, Stream, on_every_version};
use crate::pull::{offsets, sequences};

/// Everything that is answered to a direct get, up to a status or to the first message.
async fn direct_get(stream: &Stream<'_>, which: Value) -> (Vec<u64>, Option<(u16, Value)>) {
    let client = &stream.lab.client;
    let inbox = client.new_inbox();
    let mut answers = client.subscribe(inbox.clone()).await.expect("sent");
    let subject = format!("$JS.API.DIRECT.GET.{}", stream.name);
    let sent = client.publish_with_reply(subject, inbox, which.to_string().into());
    sent.await.expect("sent");
    let batch = which.get("batch").is_some() && stream.lab.version > (2, 10);
    let mut found = Vec::new();
    loop {
        let answer = timeout(PATIENCE, answers.next()).await.expect("in time");
        let answer = answer.expect("a connection");
        let headers = answer.headers.unwrap_or_default();
        let number = |name: &str| headers.get(name)?.as_str().parse::<u64>().ok();
        if let Some(status) = answer.status {
            let left = json!([number("Nats-Num-Pending"), number("Nats-Last-Sequence")]);
            return (found, Some((status.as_u16(), left)));
        }
        found.push(number("Nats-Sequence").expect("a sequence"));
        if !batch {
            return (found, None);
        }
    }
}

#[tokio::test]
async fn the_leader_finds_the_next_message_of_a_subject_or_says_that_there_is_none() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        stream.publish("1", 2).await;
        stream.publish("2", 2).await;
        stream.publish("1", 1).await;
        for (from, found) in [(1, Ok(1)), (2, Ok(2)), (3, Ok(5)), (6, Err(10037))] {
            let which = json!({"seq": from, "next_by_subj": stream.subject("1")});
            let message = stream.message(which).await;
            let message = message.map(|message| message["seq"].as_u64().expect("a number"));
            assert_eq!(message.map_err(|refusal| refusal.err_code), found);
        }
        let which = json!({"last_by_subj": stream.subject("3")});
        let refusal = stream.message(which).await.expect_err("none");
        assert_eq!((refusal.code, refusal.err_code), (404, 10037));
    })
    .await;
}

/// How it is known that a sweep reached its end.
#[tokio::test]
async fn the_leader_finds_the_next_message_of_any_subject_and_passes_over_holes() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        for subject in ["1", "2", "3", "1"] {
            stream.publish(subject, 1).await;
        }
        let hole = json!({"seq": 2, "no_erase": true});
        lab.does(&format!("STREAM.MSG.DELETE.{}", stream.name), hole)
            .await;
        for (from, found) in [(1, Ok(1)), (2, Ok(3)), (4, Ok(4)), (5, Err(10037))] {
            let message = stream.message(json!({"seq": from, "next_by_subj": ">"}));
            let message = message.await;
            let message = message.map(|message| message["seq"].as_u64().expect("a number"));
            assert_eq!(message.map_err(|refusal| refusal.err_code), found);
        }
    })
    .await;
}

#[tokio::test]
async fn a_reader_of_one_subject_starts_at_an_offset_and_gets_all_of_it_in_order() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        for _ in 0..5 {
            stream.publish("1", 1).await;
            stream.publish("2", 1).await;
        }
        let name = "reader";
        let config = json!({
            "name": name,
            "ack_policy": "none",
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": 4,
            "filter_subject": stream.subject("1"),
            "inactive_threshold": PATIENCE.as_nanos() as u64,
            "mem_storage": true,
            "num_replicas": 1,
        });
        let mut reader = stream.durable_at(name, &[], json!({}));
        reader.config = config;
        reader.create_again().await;
        let messages = reader.fetch_all().await;
        assert_eq!(offsets(&messages), [5, 7, 9]);
        assert_eq!(sequences(&messages), [1, 2, 3]);
        let left: Vec<u64> = messages.iter().map(|message| message.pending).collect();
        assert_eq!(left, [2, 1, 0], "and it knows that this was all");
    })
    .await;
}

#[tokio::test]
async fn a_direct_get_of_what_is_not_there_says_only_that() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({"allow_direct": true})).await;
        stream.publish("1", 2).await;
        let which = json!({"seq": 2, "next_by_subj": stream.subject("1")});
        assert_eq!(direct_get(&stream, which).await.0, [2]);
        for which in [
            json!({"seq": 3, "next_by_subj": stream.subject("1")}),
            json!({"seq": 3, "next_by_subj": stream.subject("1"), "batch": 5}),
            json!({"seq": 9}),
            json!({"last_by_subj": stream.subject("2")}),
        ] {
            // Not how far it looked: from a replica that lags behind, this is no proof.
            let (found, status) = direct_get(&stream, which).await;
            assert_eq!((found, status), (vec![], Some((404, json!([null, null])))));
        }
    })
    .await;
}

#[tokio::test]
async fn a_direct_get_brings_a_batch_and_on_2_10_one_message_whatever_was_asked() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({"allow_direct": true})).await;
        for _ in 0..4 {
            stream.publish("1", 1).await;
            stream.publish("2", 1).await;
        }
        let which = json!({"seq": 2, "next_by_subj": stream.subject("1"), "batch": 2});
        let answer = direct_get(&stream, which).await;
        if lab.version > (2, 10) {
            // 204: one more is left, and 5 was the last.
            assert_eq!(answer, (vec![3, 5], Some((204, json!([1, 5])))));
        } else {
            assert_eq!(answer, (vec![3], None));
        }
    })
    .await;
}

#[tokio::test]
async fn without_allow_direct_nobody_answers_a_direct_get() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({"allow_direct": false})).await;
        let subject = format!("$JS.API.DIRECT.GET.{}", stream.name);
        assert!(lab.nobody_takes(&subject).await);
    })
    .await;
}

#[tokio::test]
async fn what_retention_removed_is_skipped_by_reads_and_consumers_alike() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({"max_msgs": 3})).await;
        stream.publish("1", 10).await;
        assert_eq!(stream.holds().await, (3, 8, 10));
        let which = json!({"seq": 2, "next_by_subj": stream.subject("1")});
        assert_eq!(stream.message(which).await.expect("is there")["seq"], 8);
        let start = json!({"deliver_policy": "by_start_sequence", "opt_start_seq": 2});
        let consumer = stream.durable_with("a", &["1"], start).await;
        let messages = consumer.fetch(3).await;
        assert_eq!(offsets(&messages), [8, 9, 10]);
        assert_eq!(sequences(&messages), [1, 2, 3], "which shows no gap");
    })
    .await;
}

#[tokio::test]
async fn an_empty_stream_begins_at_zero_or_one_past_its_last() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        assert_eq!(stream.holds().await, (0, 0, 0), "never used");
        stream.publish("1", 3).await;
        let call = format!("STREAM.PURGE.{}", stream.name);
        lab.does(&call, Value::Null).await;
        assert_eq!(stream.holds().await, (0, 4, 3), "all removed");
        assert_eq!(
            stream.publish("1", 1).await,
            4,
            "no sequence is given twice"
        );
    })
    .await;
}
