//! Which consumer and which stream it is, how long it lives, and what it says of its owner.

use parti_servers::install::{NATS_LATEST, NATS_OLDEST};
use parti_servers::nats::Server;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::lab::{Lab, PATIENCE, on_every_version};
use crate::pull::offsets;

#[tokio::test]
async fn a_consumer_made_anew_has_another_stamp_and_begins_its_sequence_anew() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let consumer = stream.durable("a", &["1"]).await;
        stream.publish("1", 2).await;
        consumer.fetch(1).await;
        let before = consumer.info().await["created"].clone();
        consumer.delete().await;
        let after = consumer.create_again().await;
        assert_ne!(after["created"], before);
        assert_eq!(after["delivered"]["consumer_seq"], 0);
        assert_eq!(offsets(&consumer.fetch(2).await), [1, 2]);
    })
    .await;
}

#[tokio::test]
async fn a_stream_made_anew_has_another_stamp_and_an_updated_one_has_not() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        stream.publish("1", 2).await;
        let consumer = stream.durable("a", &["1"]).await;
        let mut config = stream.config.clone();
        config["max_msgs"] = json!(100);
        let call = |what: &str| format!("STREAM.{what}.{}", stream.name);
        let updated = lab.does(&call("UPDATE"), config.clone()).await;
        assert_eq!(updated["created"], stream.created.as_str());
        lab.does(&call("DELETE"), Value::Null).await;
        let anew = lab.does(&call("CREATE"), config).await;
        assert_ne!(anew["created"], stream.created.as_str());
        assert_eq!(stream.holds().await, (0, 0, 0), "sequences begin anew");
        let gone = consumer.try_info().await.expect_err("gone with the stream");
        assert_eq!(gone.err_code, 10014);
    })
    .await;
}

#[tokio::test]
async fn a_restarted_server_keeps_filters_what_is_not_acked_and_stamps_before_2_14_only_the_streams()
 {
    for version in [NATS_LATEST, NATS_OLDEST] {
        let start = move || Server::start_version(version);
        let mut server = tokio::task::spawn_blocking(start).await.expect("starts");
        println!("on nats-server {version}");
        let lab = Lab::of(&server).await;
        let stream = lab.stream(json!({"storage": "file"})).await;
        let soon = json!({"ack_wait": 100_000_000});
        let consumer = stream.durable_with("a", &["1", "2"], soon).await;
        stream.publish("1", 2).await;
        let messages = consumer.fetch(2).await;
        consumer.ack(&messages[0]).await;
        let before = consumer.info().await;
        let restart = move || {
            server.restart();
            server
        };
        let _server = tokio::task::spawn_blocking(restart).await.expect("starts");
        let info = stream.info().await;
        assert_eq!(info["created"], stream.created.as_str());
        assert_eq!(info["state"]["last_seq"], 2);
        let after = consumer.info().await;
        // Older ones tell another than before, a moment apart: such a durable looks replaced.
        let same = after["created"] == before["created"];
        assert_eq!(same, lab.version >= (2, 14));
        assert_eq!(
            after["config"]["filter_subjects"],
            before["config"]["filter_subjects"]
        );
        let again = consumer.fetch(1).await;
        // What was delivered or acked last may not be on disk yet: then it is delivered anew.
        assert!(matches!(again[0].offset, 1 | 2));
    }
}

#[tokio::test]
async fn a_durable_goes_after_its_inactivity_threshold_unless_a_pull_is_open() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let short = json!({"inactive_threshold": 100_000_000});
        let used = stream.durable_with("used", &["1"], short.clone()).await;
        let mut pull = used.waiting_pull(2).await;
        // Whether the pull was there in time is only known if the durable is.
        used.until("num_waiting", 1).await;
        let idle = stream.durable_with("idle", &["1"], short).await;
        let deadline = Instant::now() + PATIENCE;
        let gone = loop {
            match idle.try_info().await {
                Ok(_) => assert!(Instant::now() < deadline, "still there"),
                Err(gone) => break gone,
            }
        };
        assert_eq!(gone.err_code, 10014);
        stream.publish("1", 1).await;
        assert_eq!(offsets(&pull.messages(1).await), [1]);
    })
    .await;
}

#[tokio::test]
async fn metadata_of_a_consumer_comes_back_and_an_update_without_it_drops_it() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let owner = json!({"metadata": {"parti.group": "g", "parti.worker": "worker-1"}});
        let consumer = stream.durable_with("a", &["1"], owner).await;
        let info = consumer.filter(&["1", "2"]).await;
        let metadata = &info["config"]["metadata"];
        assert_eq!(metadata["parti.group"], "g");
        assert_eq!(metadata["parti.worker"], "worker-1");
        // Newer servers add what they know.
        let version = metadata.get("_nats.ver").is_some();
        assert_eq!(version, lab.version > (2, 10));
        // What came back may be sent back.
        consumer
            .put("update", &info["config"])
            .await
            .expect("as it was");
        let without = consumer
            .change(json!({"metadata": {}}))
            .await
            .expect("changed");
        assert!(without["config"]["metadata"].get("parti.group").is_none());
    })
    .await;
}

#[tokio::test]
async fn a_pause_holds_messages_back_and_before_2_11_nobody_knows_it() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let until = json!({"pause_until": "2100-01-01T00:00:00Z"});
        let consumer = stream.durable_with("a", &["1"], until.clone()).await;
        stream.publish("1", 1).await;
        if lab.version > (2, 10) {
            assert_eq!(consumer.info().await["paused"], true);
            let mut pull = consumer.waiting_pull(2).await;
            consumer.until("num_waiting", 1).await;
            let resumed = lab.does(&consumer.call("PAUSE"), json!({})).await;
            assert_eq!(resumed["paused"], false);
            // That alone does not wake a pull that waits; the next message does.
            stream.publish("1", 1).await;
            assert_eq!(offsets(&pull.messages(2).await), [1, 2]);
        } else {
            let then = consumer.call("INFO");
            let call = consumer.call("PAUSE");
            assert!(lab.stays_unanswered(&call, until, &then).await);
            assert_eq!(offsets(&consumer.fetch(1).await), [1], "not paused at all");
        }
    })
    .await;
}

#[tokio::test]
async fn a_list_of_consumers_comes_in_pages_with_the_total() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let mut names = Vec::new();
        for number in 0..260 {
            let name = format!("c{number:03}");
            stream.durable(&name, &["1"]).await;
            names.push(name);
        }
        let call = format!("CONSUMER.LIST.{}", stream.name);
        let mut listed = Vec::new();
        while listed.len() < names.len() {
            let page = lab.does(&call, json!({"offset": listed.len()})).await;
            assert_eq!(page["total"], 260);
            let consumers = page["consumers"].as_array().expect("a list");
            assert!(!consumers.is_empty() && consumers.len() <= 256);
            let name = |info: &Value| info["name"].as_str().expect("a name").to_owned();
            assert!(consumers[0]["config"]["filter_subjects"].is_array());
            listed.extend(consumers.iter().map(name));
        }
        assert_eq!(listed, names);
    })
    .await;
}
