//! What the service does in a second: commits, assignments, revokes, many consumers.
//!
//! `cargo bench -p parti-cli --bench serve [-- --consumers 1000]`
//!
//! One `parti serve` with a SQLite file and a log, and clients over loopback in this process. With
//! `-- --only memory` only the consumers are counted, and what they take.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

/// Commits in one request.
const BATCH: usize = 100;
/// How long commits are measured.
const LENGTH: Duration = Duration::from_secs(5);
/// What does not come within this time never will.
const PATIENCE: Duration = Duration::from_secs(120);
/// So soon after the decision an event is to reach its client.
const PROMISED_MS: f64 = 50.0;
/// Clients that commit at once.
const COMMITTERS: u32 = 4;

/// A service in a process of its own.
struct Served {
    child: Child,
    address: String,
    folder: tempfile::TempDir,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Served {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut child = Command::new(env!("CARGO_BIN_EXE_parti"))
            .current_dir(folder.path())
            .args(["serve", "--store", "sqlite:group.db", "--source", "log:log"])
            .args(["--listen", "127.0.0.1:0"])
            .stderr(Stdio::piped())
            .spawn()
            .expect("parti starts");
        let mut lines = BufReader::new(child.stderr.take().expect("its words")).lines();
        let address = loop {
            let line = lines.next().expect("a line").expect("text");
            if let Some(url) = line.strip_prefix("serving http://") {
                break url.to_owned();
            }
        };
        // Whatever else it says must not fill the pipe.
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if !line.contains(" INFO ") {
                    eprintln!("{line}");
                }
            }
        });
        Self {
            child,
            address,
            folder,
        }
    }

    /// Its resident memory, in MB.
    fn memory(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.expect("Linux");
        let line = status
            .lines()
            .find(|line| line.starts_with("VmRSS:"))
            .expect("a size");
        let kilobytes = line.split_whitespace().nth(1).expect("a number");
        kilobytes.parse::<f64>().expect("a number") / 1024.0
    }
}

/// One connection, kept open.
struct Client {
    stream: BufReader<TcpStream>,
    address: String,
}

impl Client {
    fn new(address: &str) -> Self {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_nodelay(true).expect("set");
        Self {
            stream: BufReader::new(stream),
            address: address.to_owned(),
        }
    }

    fn send(&mut self, method: &str, path: &str, token: &str, body: &str) {
        let text = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {token}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        self.stream
            .get_mut()
            .write_all(text.as_bytes())
            .expect("sent");
    }

    fn head(&mut self) -> (u16, usize) {
        let (mut status, mut length, mut line) = (0, 0, String::new());
        loop {
            line.clear();
            self.stream.read_line(&mut line).expect("a head");
            let text = line.trim().to_ascii_lowercase();
            if let Some(rest) = text.strip_prefix("http/1.1 ") {
                status = rest[..3].parse().expect("a status");
            } else if let Some(rest) = text.strip_prefix("content-length: ") {
                length = rest.parse().expect("a length");
            } else if text.is_empty() {
                return (status, length);
            }
        }
    }

    fn ask(&mut self, method: &str, path: &str, token: &str, body: &Value) -> Value {
        self.send(method, path, token, &body.to_string());
        let (status, length) = self.head();
        let mut answer = vec![0; length];
        self.stream.read_exact(&mut answer).expect("a body");
        let answer: Value = serde_json::from_slice(&answer).expect("JSON");
        assert!(status < 300, "{status}: {answer}");
        answer
    }
}

/// A session with an open stream.
struct Session {
    path: String,
    token: String,
    news: Receiver<(String, Value, u64)>,
}

fn register(client: &mut Client, group: &str) -> Session {
    let sessions = format!("/v1/groups/{group}/sessions");
    let opened = client.ask("POST", &sessions, "", &json!({"consumer": "bench"}));
    let path = format!("{sessions}/{}", opened["session"].as_str().expect("a name"));
    let token = opened["token"].as_str().expect("a token").to_owned();
    let mut stream = Client::new(&client.address);
    stream.send("GET", &format!("{path}/events"), &token, "");
    assert_eq!(stream.head().0, 200);
    let (tell, news) = mpsc::channel();
    std::thread::Builder::new()
        .stack_size(128 * 1024)
        .spawn(move || {
            let mut event = String::new();
            for line in stream.stream.lines() {
                let Ok(line) = line else { return };
                if let Some(name) = line.strip_prefix("event: ") {
                    event = name.to_owned();
                } else if let Some(data) = line.strip_prefix("data: ") {
                    let data = serde_json::from_str(data).expect("JSON");
                    if tell.send((event.clone(), data, now_ms())).is_err() {
                        return;
                    }
                }
            }
        })
        .expect("a thread");
    Session { path, token, news }
}

fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970");
    u64::try_from(since.as_millis()).expect("in range")
}

/// Waits for so many assignments: epoch and when each came, by partition.
fn assigned(session: &Session, count: usize) -> BTreeMap<String, (u64, u64)> {
    let mut held = BTreeMap::new();
    while held.len() < count {
        let next = session.news.recv_timeout(PATIENCE);
        let (event, data, at) = next.expect("an event in time");
        if event == "assigned" {
            let partition = data["partition"].as_str().expect("an id").to_owned();
            held.insert(partition, (data["epoch"].as_u64().expect("an epoch"), at));
        }
    }
    held
}

fn percentile(sorted: &[u128], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share) as usize] as f64 / 1000.0
}

/// Groups of one consumer each, with as many partitions as a batch has commits.
fn commits(served: &Served) {
    let workers = (0..COMMITTERS).map(|number| {
        let address = served.address.clone();
        std::thread::spawn(move || {
            let mut client = Client::new(&address);
            let group = format!("commits-{number}");
            let made = json!({"group": group, "topic": group, "partitions": BATCH});
            client.ask("POST", "/v1/groups", "", &made);
            let per_partition = 2_000;
            let payloads: Vec<Value> = (0..BATCH * 10)
                .map(|n| json!({"partition": (n % BATCH).to_string(), "payload": ""}))
                .collect();
            let messages = json!({ "messages": payloads });
            for _ in 0..per_partition / 10 {
                client.ask(
                    "POST",
                    &format!("/v1/topics/{group}/messages"),
                    "",
                    &messages,
                );
            }
            let session = register(&mut client, &group);
            let held = assigned(&session, BATCH);
            let (began, mut took, mut offset) = (Instant::now(), Vec::new(), 0);
            while began.elapsed() < LENGTH && offset < per_partition {
                let all = held.iter().map(|(partition, (epoch, _))| {
                    json!({"partition": partition, "epoch": epoch, "offset": offset})
                });
                let body = json!({ "commits": all.collect::<Vec<_>>() });
                let path = format!("{}/commits", session.path);
                let sent = Instant::now();
                let answer = client.ask("POST", &path, &session.token, &body);
                took.push(sent.elapsed().as_micros());
                let results = answer["results"].as_array().expect("results");
                assert!(results.iter().all(|one| one["result"] == "ok"), "{answer}");
                offset += 1;
            }
            (took, began.elapsed())
        })
    });
    let workers: Vec<_> = workers.collect();
    let (mut all, mut rate) = (Vec::new(), 0.0);
    for worker in workers {
        let (took, length) = worker.join().expect("no panic");
        rate += (took.len() * BATCH) as f64 / length.as_secs_f64();
        all.extend(took);
    }
    all.sort_unstable();
    println!(
        "commits: {rate:.0}/s in batches of {BATCH} by {COMMITTERS} clients; a batch takes \
         p50 {:.1} ms, p99 {:.1} ms",
        percentile(&all, 0.5),
        percentile(&all, 0.99)
    );
}

/// From the decision to the client's ear: who is assigned what, and who is to let go of what.
fn latency(served: &Served) {
    let mut client = Client::new(&served.address);
    let made = json!({"group": "latency", "topic": "latency", "partitions": 64});
    client.ask("POST", "/v1/groups", "", &made);
    let session = register(&mut client, "latency");
    let heard: Vec<u64> = assigned(&session, 64).values().map(|(_, at)| *at).collect();
    let placed = since_plan(&mut client, " placed", &heard);
    let heard = revoked(&mut client, &session, 32);
    let moved = since_plan(&mut client, " begun", &heard);
    println!("from the plan (its line in the group's history, by one wall clock) to the client:");
    println!(
        "  {:<9} {:>6} {:>8} {:>8}  promised",
        "", "events", "p50", "longest"
    );
    for (event, took) in [("assigned", placed), ("revoke", moved)] {
        let (half, longest) = (percentile(&took, 0.5), percentile(&took, 1.0));
        let kept = if longest > PROMISED_MS {
            ", not kept"
        } else {
            ""
        };
        println!(
            "  {event:<9} {:>6} {half:>5.0} ms {longest:>5.0} ms  {PROMISED_MS} ms{kept}",
            took.len()
        );
    }
}

/// When each of so many revokes was heard: half of the partitions go to somebody who comes.
fn revoked(client: &mut Client, session: &Session, count: usize) -> Vec<u64> {
    let _newcomer = register(client, "latency");
    let mut heard = Vec::new();
    while heard.len() < count {
        let next = session.news.recv_timeout(PATIENCE);
        let (event, data, at) = next.expect("an event in time");
        if event != "revoke" {
            continue;
        }
        heard.push(at);
        let release = json!({"partition": data["partition"], "epoch": data["epoch"]});
        let path = format!("{}/released", session.path);
        client.ask("POST", &path, &session.token, &release);
    }
    heard
}

/// How long after the plan with such words in its line each of these was heard, sorted. The leader
/// writes down when it decides, and the line gets into the store a moment later. What comes between
/// (the assignments in the store, who is to get ready, the take) is in it.
fn since_plan(client: &mut Client, words: &str, heard: &[u64]) -> Vec<u128> {
    let began = Instant::now();
    let first = *heard.iter().min().expect("some");
    let decided = loop {
        let history = client.ask("GET", "/v1/groups/latency/events", "", &Value::Null);
        let lines = history["events"].as_array().expect("a list").iter();
        let such = lines.filter(|line| {
            line["kind"] == "plan" && line["text"].as_str().expect("text").contains(words)
        });
        let times = such.map(|line| line["at_ms"].as_u64().expect("a time"));
        // One clock tells both, in whole milliseconds.
        if let Some(decided) = times.filter(|at| *at <= first + 1).max() {
            break decided;
        }
        assert!(began.elapsed() < PATIENCE, "no such plan: {history}");
        std::thread::sleep(Duration::from_millis(10));
    };
    let mut took: Vec<u128> = heard
        .iter()
        .map(|at| u128::from(at.saturating_sub(decided)) * 1000)
        .collect();
    took.sort_unstable();
    took
}

/// So many groups with so many consumers each, one partition for every consumer, all of them
/// listening.
fn many(groups: u32, consumers: u32) {
    let served = Served::start();
    let before = served.memory();
    let mut client = Client::new(&served.address);
    let began = Instant::now();
    let mut sessions: Vec<Session> = Vec::new();
    for number in 0..groups {
        let group = format!("many-{number}");
        let made = json!({"group": group, "topic": group, "partitions": consumers});
        client.ask("POST", "/v1/groups", "", &made);
        sessions.extend((0..consumers).map(|_| register(&mut client, &group)));
    }
    let registered = began.elapsed();
    let shared = Instant::now();
    for session in &sessions {
        assigned(session, 1);
    }
    println!(
        "{} consumers in {groups} groups: registered in {:.1} s, one partition each {:.1} s later; \
         {:.0} MB resident ({before:.0} MB before)",
        sessions.len(),
        registered.as_secs_f64(),
        shared.elapsed().as_secs_f64(),
        served.memory()
    );
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let after = |name: &str| {
        let at = words.iter().position(|word| word == name)?;
        words.get(at + 1)
    };
    let consumers = after("--consumers").map_or(1_000, |count| count.parse().expect("a number"));
    if after("--only").is_none_or(|only| only != "memory") {
        let served = Served::start();
        println!("parti serve in {}", served.folder.path().display());
        latency(&served);
        commits(&served);
    }
    many(1, consumers);
    many(10, consumers / 10);
}
