//! Answers with messages: as many as fit, within the room that there is for all of them.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

use crate::client::request;
use crate::scene::Scene;

/// Produces messages of these sizes to partition 0.
async fn produce(scene: &Scene, sizes: &[usize]) {
    let message = |size: &usize| json!({"partition": "0", "payload": "x".repeat(*size)});
    let messages: Vec<Value> = sizes.iter().map(message).collect();
    let messages = json!({ "messages": messages });
    scene.post("/v1/topics/t/messages", &messages).await.ok(200);
}

async fn fetch(scene: &Scene, from: u64, more: &str) -> (usize, Value) {
    let path = format!("/v1/topics/t/partitions/0/messages?from={from}&limit=1000{more}");
    let reply = scene.get(&path).await;
    (reply.body.len(), reply.ok(200))
}

fn offsets(found: &Value) -> Vec<u64> {
    let messages = found["messages"].as_array().expect("a list").iter();
    messages
        .map(|one| one["offset"].as_u64().expect("a number"))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_has_as_many_messages_as_fit_and_one_in_any_case() {
    let scene = Scene::with(|settings| settings.limits.fetch = 50_000).await;
    scene.make_group(1).await;
    // The fourth is larger than any answer.
    produce(&scene, &[20_000, 20_000, 20_000, 90_000, 10, 10]).await;
    let (mut from, mut seen) = (0, Vec::new());
    while from < 6 {
        let (bytes, found) = fetch(&scene, from, "").await;
        assert_eq!(found["end"], 6);
        let got = offsets(&found);
        assert!(bytes <= 50_000 || got == [3], "{bytes} bytes: {got:?}");
        assert_eq!(found["next"].as_u64(), got.last().map(|last| last + 1));
        seen.push(got);
        from = found["next"].as_u64().expect("a number");
    }
    assert_eq!(seen, [vec![0, 1], vec![2], vec![3], vec![4, 5]]);
    let (_, found) = fetch(&scene, 4, "&max_bytes=1").await;
    assert_eq!((offsets(&found), &found["next"]), (vec![4], &json!(5)));
    // What JSON makes longer counts as long as it becomes.
    let odd = json!({"messages": [
        {"partition": "0", "payload": "\u{1}".repeat(9_000)},
        {"partition": "0", "payload": "\u{1}".repeat(9_000)},
    ]});
    scene.post("/v1/topics/t/messages", &odd).await.ok(200);
    assert_eq!(offsets(&fetch(&scene, 6, "").await.1), [6]);
    for wrong in ["&max_bytes=0", "&max_bytes=50001", "&max_bytes=x"] {
        let path = format!("/v1/topics/t/partitions/0/messages?{}", &wrong[1..]);
        assert_eq!(scene.get(&path).await.status, 400, "{wrong}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_take_its_answer_is_let_go_and_others_get_theirs() {
    // There is room for one answer of this size, and it is too large for any buffer of the system.
    let size = 24 * 1024 * 1024;
    let scene = Scene::with(|settings| {
        settings.limits.body = 2 * size;
        settings.limits.fetch = 2 * size;
        settings.limits.fetches = 2 * size;
    })
    .await;
    scene.make_group(1).await;
    produce(&scene, &[size]).await;
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4_096).expect("a small window");
    let mut deaf = socket.connect(scene.address()).await.expect("a connection");
    let path = "/v1/topics/t/partitions/0/messages";
    let words = request(scene.address(), "GET", path, &[], None);
    deaf.write_all(words.as_bytes()).await.expect("sent");
    deaf.readable().await.expect("an answer");
    // It hears the beginning, and takes nothing. Others ask again while there is no room.
    let found = loop {
        let reply = scene.get(path).await;
        if reply.status != 503 {
            break reply.ok(200);
        }
        assert_eq!(reply.code(), "unavailable");
    };
    assert_eq!(
        found["messages"][0]["payload"].as_str().map(str::len),
        Some(size)
    );
    // There was no room before it was let go: the rest of its answer never came.
    let mut rest = Vec::new();
    let _ = deaf.read_to_end(&mut rest).await;
    assert!(rest.len() < size, "{} bytes", rest.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beyond_the_end_is_out_of_range_and_at_the_end_there_is_nothing_yet() {
    let scene = Scene::new().await;
    scene.make_group(1).await;
    produce(&scene, &[1, 1]).await;
    let (_, found) = fetch(&scene, 2, "").await;
    assert_eq!((offsets(&found), &found["next"]), (vec![], &json!(2)));
    for beyond in [3, u64::MAX] {
        let path = format!("/v1/topics/t/partitions/0/messages?from={beyond}&wait_ms=30000");
        let reply = scene.get(&path).await;
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (416, "offset_out_of_range")
        );
        assert!(reply.body.contains("ends at 2"), "{reply:?}");
    }
}
