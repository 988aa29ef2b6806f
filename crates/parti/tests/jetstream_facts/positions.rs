//! Where a consumer stands, what shows it, and what is a safe bound of it.

use serde_json::{Value, json};

use crate::lab::{Consumer, Stream, on_every_version};
use crate::pull::offsets;

/// A consumer of subject 1 that waited at the end of a stream with five messages of subject 2.
pub async fn waited_at_the_end<'a>(stream: &'a Stream<'a>) -> Consumer<'a> {
    stream.publish("2", 5).await;
    let consumer = stream.durable("a", &["2"]).await;
    // In a cluster: the node that it is on has them all.
    consumer.until("num_pending", 5).await;
    consumer.filter(&["1"]).await;
    let request = json!({"batch": 1, "expires": 300_000_000});
    assert_eq!(consumer.pull(request).await.status().await.code, 408);
    consumer
}

/// What such a consumer's info shows of its position.
pub async fn shown_at_the_end(stream: &Stream<'_>) -> u64 {
    let consumer = waited_at_the_end(stream).await;
    let shown = consumer.number("delivered/stream_seq").await;
    // Wherever it says it stands, it stands at the end.
    consumer.filter(&["1", "2"]).await;
    let marker = stream.publish("2", 1).await;
    assert_eq!(offsets(&consumer.fetch(1).await), [marker]);
    shown
}

#[tokio::test]
async fn a_waiting_pull_takes_the_position_to_the_end_and_the_info_may_not_show_it() {
    on_every_version(async |lab| {
        let memory = lab.stream(json!({})).await;
        assert_eq!(shown_at_the_end(&memory).await, 5);
        let file = lab.stream(json!({"storage": "file"})).await;
        let shown = if lab.version > (2, 10) { 0 } else { 5 };
        assert_eq!(shown_at_the_end(&file).await, shown);
    })
    .await;
}

#[tokio::test]
async fn a_no_wait_pull_that_finds_nothing_leaves_the_position() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let consumer = stream.durable("a", &["1"]).await;
        stream.publish("2", 3).await;
        assert!(consumer.fetch_all().await.is_empty());
        consumer.filter(&["1", "2"]).await;
        assert_eq!(offsets(&consumer.fetch(3).await), [1, 2, 3]);
    })
    .await;
}

#[tokio::test]
async fn without_a_pull_the_position_stays() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let consumer = stream.durable("a", &["1"]).await;
        stream.publish("2", 3).await;
        consumer.filter(&["1", "2"]).await;
        assert_eq!(offsets(&consumer.fetch(3).await), [1, 2, 3]);
    })
    .await;
}

#[tokio::test]
async fn whatever_is_above_the_last_sequence_asked_after_the_update_comes() {
    on_every_version(async |lab| {
        for _ in 0..10 {
            let stream = lab.stream(json!({})).await;
            let consumer = stream.durable("a", &["1"]).await;
            let mut pull = consumer.waiting_pull(1_000_000).await;
            let publish = async |count: usize| {
                let mut moved = Vec::new();
                for _ in 0..count {
                    moved.push(stream.publish("2", 1).await);
                    stream.publish("1", 1).await;
                }
                moved
            };
            let update = async {
                consumer.filter(&["1", "2"]).await;
                stream.holds().await.2
            };
            let (mut moved, base) = tokio::join!(publish(20), update);
            moved.extend(publish(1).await);
            let last = stream.publish("1", 1).await;
            let mut came = Vec::new();
            while came.last() != Some(&last) {
                came.extend(offsets(&pull.messages(1).await));
            }
            moved.retain(|offset| *offset > base);
            assert!(moved.iter().all(|offset| came.contains(offset)), "{base}");
            assert!(came.is_sorted());
        }
    })
    .await;
}

#[tokio::test]
async fn a_durable_that_starts_one_past_the_end_gets_exactly_what_comes_later() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let end = stream.publish("1", 3).await + 1;
        let at_end = json!({"deliver_policy": "by_start_sequence", "opt_start_seq": end});
        let consumer = stream.durable_with("a", &["1"], at_end).await;
        stream.publish("1", 2).await;
        assert_eq!(offsets(&consumer.fetch(2).await), [4, 5]);
        // Also when nothing was ever published.
        let empty = lab.stream(json!({})).await;
        let at_end = json!({"deliver_policy": "by_start_sequence", "opt_start_seq": 1});
        let consumer = empty.durable_with("a", &["1"], at_end).await;
        empty.publish("1", 1).await;
        assert_eq!(offsets(&consumer.fetch(1).await), [1]);
    })
    .await;
}

#[tokio::test]
async fn a_start_further_than_one_past_the_end_waits_for_it_or_on_2_10_does_not() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        stream.publish("1", 1).await;
        let far = json!({"deliver_policy": "by_start_sequence", "opt_start_seq": 4});
        let consumer = stream.durable_with("a", &["1"], far).await;
        stream.publish("1", 3).await;
        let first = if lab.version > (2, 10) { 4 } else { 2 };
        assert_eq!(offsets(&consumer.fetch(1).await), [first]);
    })
    .await;
}

#[tokio::test]
async fn a_consumer_says_how_much_is_left_in_all_but_not_of_which_subject() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let consumer = stream.durable("a", &["1", "2"]).await;
        stream.publish("1", 3).await;
        stream.publish("2", 2).await;
        consumer.until("num_pending", 5).await;
        let text = consumer.info().await.to_string();
        // Its subjects are named where its filter is, and nowhere else.
        for subject in ["1", "2"] {
            let named = format!("\"{}\"", stream.subject(subject));
            assert_eq!(text.matches(&named).count(), 1, "{text}");
        }
        // The stream knows: so many of each, and which is the last.
        let call = format!("STREAM.INFO.{}", stream.name);
        let filter = json!({"subjects_filter": stream.subject("*")});
        let state = lab.does(&call, filter).await["state"].clone();
        assert_eq!(state["subjects"][stream.subject("1")], 3);
        assert_eq!(state["subjects"][stream.subject("2")], 2);
        let last = json!({"last_by_subj": stream.subject("1")});
        assert_eq!(stream.message(last).await.expect("is there")["seq"], 3);
        assert!(
            stream.info().await["state"]
                .get("subjects")
                .is_none_or(Value::is_null),
            "only when asked for"
        );
    })
    .await;
}
