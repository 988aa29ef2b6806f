//! Bodies of requests: how much of them there may be at once, and who may send any.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::{PATIENCE, raw};
use crate::scene::Scene;

/// Told to a request that may send its body now.
const GO_ON: &str = "HTTP/1.1 100";

/// A request that has said how long its body is, and asked whether it may send it.
struct Begun {
    stream: TcpStream,
    told: String,
}

impl Begun {
    async fn new(address: SocketAddr, path: &str, token: &str, length: usize) -> Self {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\
             expect: 100-continue\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.expect("sent");
        let mut told = Vec::new();
        let hearing = async {
            while !told.windows(4).any(|four| four == b"\r\n\r\n") {
                let some = stream.read_buf(&mut told).await.expect("a head");
                assert!(some > 0, "{}", String::from_utf8_lossy(&told));
            }
        };
        tokio::time::timeout(PATIENCE, hearing).await.expect("told");
        let told = String::from_utf8(told).expect("text");
        Self { stream, told }
    }

    /// Sends its body; the answer.
    async fn finish(mut self, body: &str) -> String {
        let sent = self.stream.write_all(body.as_bytes()).await;
        sent.expect("sent");
        let mut answer = String::new();
        let reading = self.stream.read_to_string(&mut answer);
        let read = tokio::time::timeout(PATIENCE, reading).await;
        read.expect("in time").expect("an answer");
        answer
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_share_their_room_and_small_ones_need_none() {
    let scene = Scene::with(|settings| {
        settings.limits.bodies = 1024 * 1024;
        settings.limits.patience = Duration::from_millis(1);
    })
    .await;
    let group = json!({"group": "g", "topic": "t", "partitions": 2}).to_string();
    let large = group.clone() + &" ".repeat(600 * 1024);
    let begin = || Begun::new(scene.address(), "/v1/groups", "", large.len());
    let slow = begin().await;
    assert!(slow.told.starts_with(GO_ON), "{}", slow.told);
    let refused = begin().await.told;
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    scene.make_group(2).await;
    let answer = slow.finish(&large).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let next = begin().await;
    assert!(next.told.starts_with(GO_ON), "{}", next.told);
}

/// Begins a request whose length only its end tells.
fn chunked(address: SocketAddr, part: &str) -> String {
    format!(
        "POST /v1/groups HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         transfer-encoding: chunked\r\nconnection: close\r\n\r\n{:x}\r\n{part}\r\n",
        part.len()
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_does_not_say_how_long_it_is_takes_room_when_it_is_not_small() {
    let scene = Scene::with(|settings| {
        settings.limits.bodies = 1024 * 1024;
        settings.limits.patience = Duration::from_millis(1);
    })
    .await;
    let group = json!({"group": "g", "topic": "t", "partitions": 2}).to_string();
    let padded = |length: usize| group.clone() + &" ".repeat(length.saturating_sub(group.len()));
    let large = 600 * 1024;
    let slow = Begun::new(scene.address(), "/v1/groups", "", large).await;
    assert!(slow.told.starts_with(GO_ON), "{}", slow.told);
    let send = async |length: usize, end: &str| {
        let sent = chunked(scene.address(), &padded(length)) + end;
        raw(scene.address(), sent.as_bytes()).await.status
    };
    let end = "0\r\n\r\n";
    assert_eq!(send(0, end).await, 201, "it is small");
    let some = 20 * 1024;
    assert_eq!(send(some, "").await, 503, "there is no room for the rest");
    let answer = slow.finish(&padded(large)).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(send(large, end).await, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_no_session_sends_nothing_for_one() {
    let scene = Scene::new().await;
    scene.make_group(2).await;
    for what in ["commits", "released"] {
        let path = format!("/v1/groups/g/sessions/worker-0.1/{what}");
        let begun = Begun::new(scene.address(), &path, "e30", 1024 * 1024).await;
        assert!(begun.told.starts_with("HTTP/1.1 401"), "{}", begun.told);
    }
}
