//! Interest retention, and why it is refused: it forgets what nobody seems to need.

use serde_json::json;

use crate::lab::on_every_version;
use crate::pull::offsets;

#[tokio::test]
async fn interest_retention_deletes_the_backlog_of_a_subject_that_moves() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({"retention": "interest"})).await;
        let a = stream.durable("a", &["2"]).await;
        let b = stream.durable("b", &["1"]).await;
        stream.publish("2", 10).await;
        for message in a.fetch(3).await {
            a.ack(&message).await;
        }
        a.filter(&["none"]).await;
        // Before anybody could add it.
        stream.until_holds(0).await;
        b.filter(&["1", "2"]).await;
        let marker = stream.publish("2", 1).await;
        assert_eq!(offsets(&b.fetch(1).await), [marker]);
    })
    .await;
}

#[tokio::test]
async fn interest_retention_deletes_the_backlog_of_a_consumer_that_is_made_anew() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({"retention": "interest"})).await;
        let a = stream.durable("a", &["1"]).await;
        stream.publish("1", 3).await;
        stream.until_holds(3).await;
        a.delete().await;
        a.create_again().await;
        stream.until_holds(0).await;
    })
    .await;
}

#[tokio::test]
async fn interest_retention_keeps_nothing_that_nobody_waits_for() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({"retention": "interest"})).await;
        stream.durable("a", &["1"]).await;
        assert_eq!(stream.publish("2", 3).await, 3, "it is told to be stored");
        stream.until_holds(0).await;
    })
    .await;
}
