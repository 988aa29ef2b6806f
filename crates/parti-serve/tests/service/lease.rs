//! The lease of clients: only the answer to a heartbeat shows that what is held is theirs, for as
//! long as it says. A scripted instance answers them, or does not, while messages go on coming.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::clients::Process;

/// Short, so that a client soon notices what is missing.
const TTL_MS: u64 = 600;
/// What a heartbeat is answered.
const LEASE_MS: u64 = 200;
/// So many heartbeats without an answer take much longer than a lease.
const MANY: usize = 30;

/// An instance that does as it is told: one session with partition 0.
#[derive(Default)]
struct Script {
    /// Whether heartbeats are answered.
    answers: AtomicBool,
    /// How many messages there are.
    messages: AtomicU64,
    /// Up to where they were fetched.
    fetched: AtomicU64,
}

impl Script {
    async fn start(self: &Arc<Self>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let script = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let script = script.clone();
                // Clients hang up as they like.
                tokio::spawn(async move { script.converse(stream).await.ok() });
            }
        });
        address
    }

    /// One request for each connection.
    async fn converse(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let (head, body) = heard(&mut stream).await?;
        let line = head.lines().next().unwrap_or_default();
        if line.contains("/events ") {
            return self.tell(stream).await;
        }
        if line.contains("/heartbeat ") && !self.answers.load(Ordering::SeqCst) {
            return Ok(());
        }
        let answer = if line.contains("/heartbeat ") {
            json!({"result": "ok", "lease_ms": LEASE_MS})
        } else if line.contains("/messages?") {
            self.fetch(line).await
        } else if line.contains("/commits ") {
            let sent: Value = serde_json::from_slice(&body).unwrap_or_default();
            let commits = sent["commits"].as_array().map_or(0, Vec::len);
            json!({"results": vec![json!({"partition": "0", "result": "ok"}); commits]})
        } else {
            let worker = "worker-0";
            json!({"session": "worker-0.1", "token": "x", "worker": worker, "ttl_ms": TTL_MS})
        };
        let answer = answer.to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\
             content-length: {}\r\n\r\n{answer}",
            answer.len()
        );
        stream.write_all(head.as_bytes()).await
    }

    /// Says forever that all is well, which proves nothing.
    async fn tell(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let held = json!([{"partition": "0", "epoch": 1}]);
        let session = json!({"session": "worker-0.1", "ttl_ms": TTL_MS, "held": held});
        let assigned = json!({"partition": "0", "epoch": 1, "next_offset": 0, "checkpoint": null});
        let told = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n\
             event: session\ndata: {session}\n\nevent: assigned\ndata: {assigned}\n\n"
        );
        stream.write_all(told.as_bytes()).await?;
        loop {
            stream.write_all(b": beat\n\n").await?;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn fetch(&self, line: &str) -> Value {
        let from = line.split_once("from=").map_or("", |(_, rest)| rest);
        let from = from.split('&').next().and_then(|from| from.parse().ok());
        let (from, end) = (from.unwrap_or(0), self.messages.load(Ordering::SeqCst));
        if from >= end {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let message =
            |offset| json!({"offset": offset, "payload": "m", "headers": [], "timestamp_ms": 1});
        let messages: Vec<Value> = (from..end).map(message).collect();
        self.fetched.fetch_max(end, Ordering::SeqCst);
        json!({"messages": messages, "next": from.max(end), "end": end})
    }
}

/// A request's head and body.
async fn heard(stream: &mut TcpStream) -> std::io::Result<(String, Vec<u8>)> {
    let mut read = Vec::new();
    let end = loop {
        if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(&mut read).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    };
    let head = String::from_utf8_lossy(&read[..end]).into_owned();
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.trim().parse().ok())?
    });
    while read.len() < end + length.unwrap_or(0) {
        if stream.read_buf(&mut read).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok((head, read.split_off(end)))
}

/// Waits until so many more heartbeats had no answer; tells how many messages were handled.
async fn unheard(process: &mut Process) -> usize {
    let failed = process.says("trouble", 0).await.len();
    let trouble = process.says("trouble", failed + MANY).await;
    let beats = trouble.iter().filter(|one| one["doing"] == "heartbeat");
    assert!(beats.count() >= MANY / 2, "{trouble:?}");
    process.handled("0").len()
}

async fn handle_nothing_without_an_answer(program: &str, example: &str) {
    let script = Arc::new(Script::default());
    script.answers.store(true, Ordering::SeqCst);
    script.messages.store(1, Ordering::SeqCst);
    let url = format!("http://{}", script.start().await);
    let mut process = Process::start_at(&url, program, example);
    process.says("message", 1).await;
    script.answers.store(false, Ordering::SeqCst);
    assert_eq!(unheard(&mut process).await, 1);
    // The lease is over by now. The stream says nothing bad, and messages come.
    script.messages.store(3, Ordering::SeqCst);
    while script.fetched.load(Ordering::SeqCst) < 3 {
        unheard(&mut process).await;
    }
    assert_eq!(unheard(&mut process).await, 1, "somebody else may have it");
    script.answers.store(true, Ordering::SeqCst);
    process.says("message", 3).await;
    assert_eq!(process.handled("0"), [0, 1, 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_handles_nothing_without_an_answer() {
    handle_nothing_without_an_answer("python3", "python/example.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_handles_nothing_without_an_answer() {
    handle_nothing_without_an_answer("node", "node/example.mjs").await;
}
