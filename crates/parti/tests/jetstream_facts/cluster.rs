//! A cluster: what a change of the consumer's leader does, and what a replica that lags behind says.

use std::time::Duration;

use futures_util::StreamExt;
use parti_servers::nats::Cluster;
use serde_json::json;
use tokio::task::block_in_place;
use tokio::time::{Instant, timeout};

use crate::lab::{Consumer, Lab, PATIENCE, Stream, on_every_cluster};
use crate::positions::{shown_at_the_end, waited_at_the_end};
use crate::pull::{Came, offsets, sequences};
use crate::refusals::who_is_there_and_who_is_not;

/// Makes another node the consumer's leader.
async fn change_leader(consumer: &Consumer<'_>) {
    let lab = consumer.stream.lab;
    let leader = async || {
        let info = consumer.info().await;
        let leader = info["cluster"]["leader"].as_str();
        leader
            .map(str::to_owned)
            .filter(|leader| !leader.is_empty())
    };
    let deadline = Instant::now() + PATIENCE;
    let before = loop {
        if let Some(before) = leader().await {
            break before;
        }
        assert!(Instant::now() < deadline, "no leader");
    };
    loop {
        // Refused while there is none: that will do as well.
        let _ = lab.api(&consumer.call("LEADER.STEPDOWN"), json!({})).await;
        let again = Instant::now() + Duration::from_secs(5);
        while Instant::now() < again {
            if leader().await.is_some_and(|leader| leader != before) {
                consumer.until_reachable().await;
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(Instant::now() < deadline, "{before} stays the leader");
    }
}

/// Pulls so many messages, again whenever a change of leaders ended the pull.
async fn fetch(consumer: &Consumer<'_>, count: usize) -> Vec<u64> {
    let deadline = Instant::now() + PATIENCE;
    let mut all = Vec::new();
    while all.len() < count {
        let request = json!({"batch": count - all.len(), "expires": 2_000_000_000_u64});
        let mut pull = consumer.pull(request).await;
        let missing = count - all.len();
        for _ in 0..missing {
            match timeout(Duration::from_secs(10), pull.next()).await {
                Ok(Came::Message(message)) => all.push(message.offset),
                _ => break,
            }
        }
        assert!(Instant::now() < deadline, "only {all:?}");
    }
    all
}

#[tokio::test]
async fn a_change_of_the_leader_ends_open_pulls_with_409() {
    on_every_cluster(async |lab| {
        let stream = lab.stream(json!({"storage": "file"})).await;
        let consumer = stream.durable("a", &["1"]).await;
        let mut pull = consumer.waiting_pull(10).await;
        consumer.until("num_waiting", 1).await;
        change_leader(&consumer).await;
        let (code, text) = pull.says().await;
        assert_eq!((code, text.as_str()), (409, "Leadership Change"));
    })
    .await;
}

#[tokio::test]
async fn a_new_leader_knows_stamp_filter_sequence_and_what_is_not_acked() {
    on_every_cluster(async |lab| {
        let stream = lab.stream(json!({"storage": "file"})).await;
        let soon = json!({"ack_wait": 500_000_000});
        let consumer = stream.durable_with("a", &["1"], soon).await;
        stream.publish("1", 3).await;
        let messages = consumer.fetch(3).await;
        // What an ack confirms is with the others, too.
        consumer.ack(&messages[0]).await;
        let before = consumer.filter(&["1", "2"]).await;
        change_leader(&consumer).await;
        let after = consumer.info().await;
        assert_eq!(after["created"], before["created"]);
        assert_eq!(
            after["config"]["filter_subjects"],
            before["config"]["filter_subjects"]
        );
        let again = fetch(&consumer, 2).await;
        assert_eq!(again, [2, 3]);
    })
    .await;
}

/// A queue whose subject 2 moves from A to B, just after A let it go. A had nothing of it acked.
async fn moving<'a>(stream: &'a Stream<'a>) -> Consumer<'a> {
    let a = stream.durable("a", &["2"]).await;
    let b = stream.durable("b", &["1"]).await;
    stream.publish("2", 5).await;
    stream.publish("1", 2).await;
    for message in b.fetch(2).await {
        b.ack(&message).await;
    }
    a.filter(&["none"]).await;
    b
}

#[tokio::test]
async fn on_a_work_queue_adding_before_rewinding_destroys_the_backlog_if_the_leader_changes() {
    on_every_cluster(async |lab| {
        let queue = json!({"storage": "file", "retention": "workqueue"});
        let stream = lab.stream(queue).await;
        let b = moving(&stream).await;
        stream.until_holds(5).await;
        b.filter(&["1", "2"]).await;
        change_leader(&b).await;
        stream.until_holds(0).await;
    })
    .await;
}

#[tokio::test]
async fn on_a_work_queue_rewinding_before_adding_keeps_the_backlog_whenever_the_leader_changes() {
    on_every_cluster(async |lab| {
        let queue = json!({"storage": "file", "retention": "workqueue"});
        let stream = lab.stream(queue).await;
        let b = moving(&stream).await;
        change_leader(&b).await;
        if lab.resets() {
            b.reset(1).await.expect("reset");
            change_leader(&b).await;
            assert_eq!(b.number("delivered/stream_seq").await, 0, "stays rewound");
            b.filter(&["1", "2"]).await;
        } else {
            b.delete().await;
            stream.durable("b", &["1", "2"]).await;
        }
        change_leader(&b).await;
        assert_eq!(fetch(&b, 5).await, [1, 2, 3, 4, 5]);
        stream.until_holds(5).await;
    })
    .await;
}

#[tokio::test]
async fn a_position_at_the_end_stays_there_when_the_leader_changes() {
    on_every_cluster(async |lab| {
        let stream = lab.stream(json!({"storage": "file"})).await;
        let consumer = waited_at_the_end(&stream).await;
        change_leader(&consumer).await;
        consumer.filter(&["1", "2"]).await;
        let marker = stream.publish("2", 1).await;
        assert_eq!(fetch(&consumer, 1).await, [marker]);
    })
    .await;
}

#[tokio::test]
async fn a_streams_stamp_is_the_same_on_every_node_and_under_every_leader() {
    on_every_cluster(async |lab| {
        let stream = lab.stream(json!({"storage": "file"})).await;
        stream.publish("1", 1).await;
        let call = format!("STREAM.LEADER.STEPDOWN.{}", stream.name);
        for _ in 0..3 {
            let _ = lab.api(&call, json!({})).await;
            let info = stream.info().await;
            assert_eq!(info["created"], stream.created.as_str());
            assert_eq!(info["state"]["last_seq"], 1);
        }
    })
    .await;
}

#[tokio::test]
async fn a_reset_of_a_consumer_that_is_not_there_is_not_answered_by_a_cluster_either() {
    on_every_cluster(async |lab| {
        let stream = lab.stream(json!({})).await;
        let known = stream.durable("known", &["1"]).await;
        let absent = stream.durable_at("absent", &["1"], json!({}));
        let (call, then) = (absent.call("RESET"), known.call("INFO"));
        assert!(lab.stays_unanswered(&call, json!({"seq": 1}), &then).await);
    })
    .await;
}

#[tokio::test]
async fn consumer_sequences_go_on_after_a_change_of_the_leader() {
    on_every_cluster(async |lab| {
        let stream = lab.stream(json!({"storage": "file"})).await;
        let consumer = stream.durable("a", &["1"]).await;
        stream.publish("1", 2).await;
        for message in consumer.fetch(2).await {
            consumer.ack(&message).await;
        }
        change_leader(&consumer).await;
        stream.publish("1", 1).await;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut pull = consumer
                .pull(json!({"batch": 1, "expires": 2_000_000_000_u64}))
                .await;
            if let Came::Message(message) = pull.next().await {
                assert_eq!(sequences(std::slice::from_ref(&message)), [3]);
                assert_eq!(offsets(&[message]), [3]);
                return;
            }
            assert!(Instant::now() < deadline, "nothing came");
        }
    })
    .await;
}

#[tokio::test]
async fn in_a_cluster_too_the_info_may_not_show_the_position() {
    on_every_cluster(async |lab| {
        let file = lab.stream(json!({"storage": "file"})).await;
        let shown = if lab.version > (2, 10) { 5 } else { 0 };
        assert_eq!(shown_at_the_end(&file).await, shown);
    })
    .await;
}

#[tokio::test]
async fn a_cluster_tells_an_absent_consumer_from_one_that_is_there() {
    on_every_cluster(who_is_there_and_who_is_not).await;
}

/// What a node answers to a direct get of a sequence: whether it has it.
async fn node_has(node: &Lab, stream: &str, sequence: u64) -> Option<bool> {
    let inbox = node.client.new_inbox();
    let mut answers = node.client.subscribe(inbox.clone()).await.expect("sent");
    let body = json!({ "seq": sequence }).to_string();
    let subject = format!("$JS.API.DIRECT.GET.{stream}");
    let sent = node.client.publish_with_reply(subject, inbox, body.into());
    sent.await.expect("sent");
    let answer = timeout(Duration::from_secs(10), answers.next()).await;
    let status = answer.ok()??.status.map(|status| status.as_u16());
    match status {
        None => Some(true),
        Some(404) => Some(false),
        // Nobody answers at the moment.
        Some(_) => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_is_cut_off_answers_direct_gets_and_does_not_know_what_it_lacks() {
    let mut cluster = block_in_place(|| Cluster::start(3));
    let lab = Lab::of_node(&cluster.url()).await;
    let stream = lab
        .stream(json!({"storage": "file", "allow_direct": true}))
        .await;
    stream.publish("1", 1).await;
    let deadline = Instant::now() + PATIENCE;
    let leader = loop {
        if let Some(leader) = block_in_place(|| cluster.leader_of(&stream.name)) {
            break leader;
        }
        assert!(Instant::now() < deadline, "no leader");
    };
    let (cut_off, other) = ((leader + 1) % 3, (leader + 2) % 3);
    let urls = cluster.urls();
    let cut_off_node = Lab::of_node(&urls[cut_off]).await;
    while node_has(&cut_off_node, &stream.name, 1).await != Some(true) {
        assert!(Instant::now() < deadline, "the first one is not there");
    }
    block_in_place(|| cluster.isolate(cut_off));
    // The others go on, and have more.
    let well = Lab::of_node(&urls[other]).await;
    let more = well.publish(&stream.subject("1"), &[], "x").await;
    assert_eq!(more["seq"], 2);
    let which = json!({"seq": 2, "next_by_subj": stream.subject("1")});
    let call = format!("STREAM.MSG.GET.{}", stream.name);
    let told = well.does(&call, which).await;
    assert_eq!(told["message"]["seq"], 2);
    // It says that there is none, without a word about itself.
    let answer = loop {
        match node_has(&cut_off_node, &stream.name, 2).await {
            Some(answer) => break answer,
            None => assert!(Instant::now() < deadline, "it does not answer"),
        }
    };
    assert!(!answer, "it is cut off and cannot have it");
    assert_eq!(node_has(&cut_off_node, &stream.name, 1).await, Some(true));
}
