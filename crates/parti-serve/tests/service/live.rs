//! Groups as they change.

use std::sync::Arc;

use parti::store::faulty::Faulty;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::client::{Events, request};
use crate::scene::{Manner, Scene};

/// Reads until something is so.
async fn until(events: &mut Events, wanted: impl Fn(&str, &Value) -> bool) -> (String, Value) {
    loop {
        let (event, data) = events.next().await.expect("the stream goes on");
        if wanted(&event, &data) {
            return (event, data);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_come_as_changes() {
    let scene = Scene::new().await;
    scene.make_group(8).await;
    let mut events = Events::open(scene.address(), "/v1/groups/g/live", &[]).await;
    assert!(events.head.contains("200") && events.head.contains("text/event-stream"));
    let (event, group) = events.next().await.expect("the group");
    assert_eq!((event.as_str(), &group["group"]), ("group", &json!("g")));
    assert!(group["events"].is_array() && group["partitions"].is_array());
    let consumer = scene.consumer(Manner::Polite).await;
    let mine = |change: &Value| {
        let partitions = change["partitions"].as_array().expect("a list");
        partitions
            .iter()
            .any(|one| one["owner"] == consumer.worker.as_str())
    };
    let (event, change) = until(&mut events, |_, change| mine(change)).await;
    assert_eq!(event, "change");
    assert_eq!(change["head"]["group"], "g");
    assert!(change["head"].get("partitions").is_none());
    // The log grows: nothing of that is in the store, and it is seen all the same.
    scene.produce(8, 5).await;
    let lag = |change: &Value| {
        let partitions = change["partitions"].as_array().expect("a list");
        partitions.iter().any(|one| one["lag"] == 5)
    };
    until(&mut events, |_, change| lag(change)).await;
    scene.service.stop().await;
    let (_, end) = until(&mut events, |event, _| event == "end").await;
    assert_eq!(end["why"], "the service stops");
    assert!(events.next().await.is_none(), "and then it is closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_looks_first_while_the_store_is_away_is_told_so() {
    let mut link = None;
    let scene = Scene::with(|settings| {
        let faulty = Arc::new(Faulty::new(settings.store.clone(), 1));
        link = Some(faulty.clone());
        settings.store = faulty;
    })
    .await;
    let link = link.expect("a link");
    scene.make_group(2).await;
    link.outage(true);
    let refused = scene.get("/v1/groups/g/live").await;
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (503, "unavailable")
    );
    assert!(refused.body.contains("an injected outage"), "{refused:?}");
    link.outage(false);
    let mut events = Events::open(scene.address(), "/v1/groups/g/live", &[]).await;
    assert_eq!(events.next().await.expect("the group").0, "group");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_never_reads_disturbs_nobody() {
    let scene = Scene::with(|settings| settings.limits.live_streams = 20).await;
    scene.make_group(8).await;
    let address = scene.address();
    let mut silent = Vec::new();
    for _ in 0..19 {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        let text = request(address, "GET", "/v1/groups/g/live", &[], None);
        stream.write_all(text.as_bytes()).await.expect("sent");
        silent.push(stream);
    }
    // One that says nothing at all, and one that never comes to an end.
    silent.push(TcpStream::connect(address).await.expect("a connection"));
    let mut slow = TcpStream::connect(address).await.expect("a connection");
    slow.write_all(b"GET /v1/about HTTP/1.1\r\nhost: x")
        .await
        .expect("sent");
    let mut events = Events::open(address, "/v1/groups/g/live", &[]).await;
    assert_eq!(events.next().await.expect("the group").0, "group");
    let consumer = scene.consumer(Manner::Polite).await;
    let held = consumer.holds(|held| held.len() == 8).await;
    scene.produce(8, 50).await;
    for offset in 0..50 {
        let commits = held.iter().map(|(partition, (epoch, _))| {
            json!({"partition": partition, "epoch": epoch, "offset": offset})
        });
        let commits: Vec<Value> = commits.collect();
        let reply = consumer
            .post("commits", &json!({ "commits": commits }))
            .await
            .ok(200);
        let results = reply["results"].as_array().expect("results");
        assert!(results.iter().all(|one| one["result"] == "ok"), "{reply}");
    }
    let done = |change: &Value| {
        let partitions = change["partitions"].as_array().expect("a list");
        partitions.iter().any(|one| one["next_offset"] == 50)
    };
    until(&mut events, |_, change| done(change)).await;
    // All slots are taken: the next one is told so, and the rest goes on.
    let one_more = scene.get("/v1/groups/g/live").await;
    assert_eq!(
        (one_more.status, one_more.code().as_str()),
        (429, "too_many")
    );
    assert_eq!(scene.get("/v1/about").await.status, 200);
    drop(silent);
}
