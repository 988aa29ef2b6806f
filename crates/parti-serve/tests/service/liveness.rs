//! What shows that a consumer is there: its requests, or its open stream, as it chose.

use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{Events, send};
use crate::scene::{Manner, Scene};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_chose_heartbeats_is_gone_without_them_though_its_stream_is_open() {
    let scene = Scene::new().await;
    scene.make_group(4).await;
    // Says nothing but listens, which is enough for it.
    let listener = scene.consumer(Manner::Polite).await;
    listener.holds(|held| held.len() == 4).await;
    let body = json!({"consumer": "x", "liveness": "heartbeat"});
    let opened = scene.post("/v1/groups/g/sessions", &body).await.ok(201);
    let text = |name: &str| opened[name].as_str().expect("text").to_owned();
    let path = format!("/v1/groups/g/sessions/{}", text("session"));
    let auth = format!("Bearer {}", text("token"));
    let headers = [("authorization", auth.as_str())];
    let mut events = Events::open(scene.address(), &format!("{path}/events"), &headers).await;
    // Requests are signs of life, until there are none any more.
    let (address, beat, own) = (scene.address(), format!("{path}/heartbeat"), auth.clone());
    let beating = tokio::spawn(async move {
        loop {
            let headers = [("authorization", own.as_str())];
            send(address, "POST", &beat, &headers, None).await.ok(200);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    });
    let mut held: Vec<Value> = Vec::new();
    while held.len() < 2 {
        let (event, data) = events.next().await.expect("the stream goes on");
        if event == "assigned" {
            held.push(data);
        }
    }
    beating.abort();
    let end = loop {
        let (event, data) = events.next().await.expect("an end");
        if event == "end" {
            break data;
        }
    };
    let why = end["why"].as_str().expect("a reason");
    assert!(why.contains("no sign of life"), "{end}");
    assert_eq!(end["again"], true);
    // Others have what it had; under its epochs nothing counts any more.
    listener.holds(|held| held.len() == 4).await;
    let (partition, epoch) = (&held[0]["partition"], &held[0]["epoch"]);
    let commit = json!({"commits": [{"partition": partition, "epoch": epoch, "offset": 0}]});
    let (path, commit) = (format!("{path}/commits"), commit.to_string());
    let late = send(scene.address(), "POST", &path, &headers, Some(&commit)).await;
    assert_eq!((late.status, late.code().as_str()), (410, "session_gone"));
    let partition = partition.as_str().expect("an id");
    let epoch = epoch.as_u64().expect("a number");
    assert_eq!(listener.commit(partition, epoch, 0).await, "fenced");
    let wrong = json!({"consumer": "x", "liveness": "telepathy"});
    assert_eq!(
        scene.post("/v1/groups/g/sessions", &wrong).await.status,
        400
    );
}
