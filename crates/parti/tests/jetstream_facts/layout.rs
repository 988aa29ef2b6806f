//! Where messages lie: virtual partitions, keys of a bucket, message ids, what a stream remembers.

use serde_json::{Value, json};

use crate::lab::{on_every_version, unique};
use crate::pull::offsets;

#[tokio::test]
async fn metadata_of_a_stream_comes_back_and_only_an_update_changes_it() {
    on_every_version(async |lab| {
        let recorded = json!({"metadata": {"parti.partitions": "64"}});
        let stream = lab.stream(recorded).await;
        let metadata = stream.info().await["config"]["metadata"].clone();
        assert_eq!(metadata["parti.partitions"], "64");
        // Somebody who would make it with another number is told.
        let mut other = stream.config.clone();
        other["metadata"]["parti.partitions"] = json!("32");
        let call = |what: &str| format!("STREAM.{what}.{}", stream.name);
        let refusal = lab.api(&call("CREATE"), other.clone()).await;
        assert_eq!(refusal.expect_err("refused").err_code, 10058);
        // An update is not refused: who updates a stream has to send back what is there.
        let updated = lab.does(&call("UPDATE"), other.clone()).await;
        assert_eq!(updated["config"]["metadata"]["parti.partitions"], "32");
        other["metadata"] = json!({});
        let updated = lab.does(&call("UPDATE"), other).await;
        let metadata = &updated["config"]["metadata"];
        assert!(metadata.get("parti.partitions").is_none(), "{metadata}");
    })
    .await;
}

#[tokio::test]
async fn metadata_of_a_bucket_comes_back() {
    on_every_version(async |lab| {
        let bucket = unique("bucket");
        let name = format!("KV_{bucket}");
        let config = json!({
            "name": name,
            "subjects": [format!("$KV.{bucket}.>")],
            "storage": "memory",
            "max_msgs_per_subject": 1,
            "allow_rollup_hdrs": true,
            "deny_delete": true,
            "metadata": {"parti.partitions": "64"},
        });
        lab.does(&format!("STREAM.CREATE.{name}"), config).await;
        let info = lab.does(&format!("STREAM.INFO.{name}"), Value::Null).await;
        assert_eq!(info["config"]["metadata"]["parti.partitions"], "64");
    })
    .await;
}

#[tokio::test]
async fn the_transform_partition_places_a_key_always_in_the_same_partition() {
    on_every_version(async |lab| {
        let (from, to) = (unique("orders"), unique("placed"));
        let stream = lab
            .stream(json!({
                "subjects": [format!("{from}.*")],
                "subject_transform": {
                    "src": format!("{from}.*"),
                    "dest": format!("{to}.{{{{partition(8,1)}}}}.{{{{wildcard(1)}}}}"),
                },
            }))
            .await;
        // Also with another version of the server: what is placed stays placed.
        let placed = [("alice", 7), ("bob", 4), ("carol", 2), ("dave", 7)];
        for (key, partition) in placed.into_iter().chain(placed) {
            let answer = lab.publish(&format!("{from}.{key}"), &[], "x").await;
            let stored = stream.message(json!({"seq": answer["seq"]})).await;
            assert_eq!(
                stored.expect("is there")["subject"],
                format!("{to}.{partition}.{key}")
            );
        }
        // A consumer names what is stored, not what was published to.
        let seven = json!({"filter_subjects": [format!("{to}.7.*")]});
        let consumer = stream.durable_with("stored", &[], seven).await;
        assert_eq!(offsets(&consumer.fetch(4).await), [1, 4, 5, 8]);
        let published = json!({"filter_subjects": [format!("{from}.*")]});
        let consumer = stream.durable_with("published", &[], published).await;
        assert_eq!(consumer.number("num_pending").await, 0);
    })
    .await;
}

#[tokio::test]
async fn a_wildcard_is_accepted_as_a_subject_and_its_compare_and_set_looks_at_its_neighbours() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({"max_msgs_per_subject": 1})).await;
        let expect = async |last: &str, sequence: &str| {
            let headers = [("Nats-Expected-Last-Subject-Sequence", sequence)];
            let answer = lab.publish(&stream.subject(last), &headers, "x").await;
            answer["error"]["err_code"].as_u64()
        };
        assert_eq!(expect("a.*", "0").await, None, "accepted");
        assert_eq!(expect("a.x", "0").await, None);
        // Its last is 1, and yet:
        assert_eq!(expect("a.*", "1").await, Some(10071));
        assert_eq!(expect("a.*", "2").await, None, "the neighbour's will do");
        assert_eq!(expect("a.x", "2").await, None, "which is not harmed by it");
        let last = json!({"last_by_subj": stream.subject("a.*")});
        let last = stream.message(last).await.expect("is there");
        assert_eq!(last["subject"], stream.subject("a.x"), "not its own");
    })
    .await;
}

#[tokio::test]
async fn a_subject_with_an_empty_token_reaches_nobody() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        assert!(lab.nobody_takes(&stream.subject("a..b")).await);
    })
    .await;
}

#[tokio::test]
async fn a_message_id_is_stored_once_and_the_second_is_told_the_first_ones_sequence() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let id = [("Nats-Msg-Id", "partition-7-offset-12")];
        let first = lab.publish(&stream.subject("1"), &id, "x").await;
        stream.publish("1", 1).await;
        let second = lab.publish(&stream.subject("1"), &id, "x").await;
        assert_eq!((&first["seq"], &second["seq"]), (&json!(1), &json!(1)));
        assert_eq!(second["duplicate"], true);
        assert_eq!(stream.holds().await.0, 2);
    })
    .await;
}

#[tokio::test]
async fn a_message_meant_for_another_stream_is_refused() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let headers = [("Nats-Expected-Stream", "ANOTHER")];
        let answer = lab.publish(&stream.subject("1"), &headers, "x").await;
        assert_eq!(answer["error"]["err_code"], 10060);
        assert_eq!(stream.holds().await.0, 0);
    })
    .await;
}

#[tokio::test]
async fn a_message_ttl_below_a_second_is_refused_and_on_2_10_no_ttl_means_anything() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({"allow_msg_ttl": true})).await;
        let publish = async |ttl: &str| {
            let answer = lab
                .publish(&stream.subject("1"), &[("Nats-TTL", ttl)], "x")
                .await;
            answer["error"]["err_code"].as_u64()
        };
        assert_eq!(publish("1s").await, None);
        let newer = lab.version > (2, 10);
        assert_eq!(stream.config["allow_msg_ttl"] == true, newer);
        assert_eq!(publish("500ms").await, newer.then_some(10165));
        assert_eq!(publish("soon").await, newer.then_some(10165));
    })
    .await;
}
