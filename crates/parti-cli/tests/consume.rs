//! `parti consume` with a reader that does not read, with a stop at a bad time, without checkpoints,
//! and with metrics.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{Group, Line};
use rustix::process::Signal;
use serde_json::Value;

/// What does not come within this time never will. A guard: nothing is measured against it.
const PATIENCE: Duration = Duration::from_secs(120);

/// Asks until the answer is as wanted.
fn until(group: &Group, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let status = group.status();
        match status {
            Some(status) if wanted(&status) => return status,
            _ => assert!(began.elapsed() < PATIENCE, "{what} never came: {status:?}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn number(partition: &Value, field: &str) -> u64 {
    partition[field].as_u64().unwrap_or_default()
}

#[test]
fn nothing_counts_as_handled_while_nobody_reads() {
    let mut group = Group::new(1);
    // Much more than a pipe holds.
    group.produce_with(3000, &"x".repeat(1000));
    let mut worker = group
        .consumer()
        .stdout(Stdio::piped())
        .spawn()
        .expect("runs");
    let mut stdout = worker.stdout.take().expect("piped");
    // It fills the pipe, says how far it came, and gets no further.
    until(&group, "a checkpoint", |status| {
        number(&status["partitions"][0], "next_offset") > 0
    });
    worker.kill().expect("it runs");
    worker.wait().expect("ended");
    let status = group.status().expect("the group");
    let partition = &status["partitions"][0];
    assert!(number(partition, "lag") > 0, "{status}");
    // What counts as handled is in the pipe, whole.
    let mut text = String::new();
    stdout.read_to_string(&mut text).expect("readable");
    let whole = text.matches('\n').count() as u64;
    assert!(
        number(partition, "next_offset") <= whole,
        "{whole} lines are out: {status}"
    );
    assert!(whole < 3000);
}

#[test]
fn a_stop_releases_also_when_nobody_reads_stderr() {
    let mut group = Group::new(2);
    group.produce(100);
    let mut command = group.consumer();
    let command = command.args(["-o", "jsonl", "--metrics", "0"]);
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut worker = piped.spawn().expect("runs");
    drop(worker.stderr.take());
    let stdout = BufReader::new(worker.stdout.take().expect("piped"));
    let mut lines = stdout.lines().map_while(Result::ok);
    let messages = lines.by_ref().filter(|line| line.contains("\"message\""));
    assert_eq!(messages.take(100).count(), 100);
    let pid = rustix::process::Pid::from_child(&worker);
    rustix::process::kill_process(pid, Signal::TERM).expect("there");
    let last = lines.last().expect("a last word");
    assert!(last.contains("\"stopped\""), "{last}");
    assert_eq!(worker.wait().expect("ended").code(), Some(0));
    let status = group.status().expect("the group");
    for partition in status["partitions"].as_array().expect("a list") {
        assert_eq!(partition["lag"], 0, "{status}");
        assert_eq!(partition["owner"], Value::Null, "{status}");
    }
}

#[test]
fn a_stop_during_the_start_says_goodbye() {
    let config = "expected_workers: 2\ncold_start_window: 10m\nsettle_time: 10m\n";
    let mut group = Group::on("sqlite:group.db", config, 1);
    let worker = group.consume();
    group.until("its id", |lines| {
        let started = |(own, event): &Line| *own == worker && event["event"] == "started";
        lines.iter().any(started)
    });
    group.signal(worker, Signal::TERM);
    group.until("its last word", |lines| {
        let stopped = |(own, event): &Line| *own == worker && event["event"] == "stopped";
        lines.iter().any(stopped)
    });
    // By now it is in the store.
    let status = group.status().expect("the group");
    let sessions = status["workers"].as_array().map(Vec::as_slice);
    let over = |worker: &Value| worker["status"] == "goodbye";
    assert!(sessions.unwrap_or_default().iter().all(over), "{status}");
    group.stop(&[]);
}

#[test]
fn without_checkpoints_a_new_process_begins_at_the_start_again() {
    let mut group = Group::new(1);
    group.produce(20);
    for _ in 0..2 {
        let mut worker = group
            .consumer()
            .args(["--reliable", "false"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("runs");
        let lines = BufReader::new(worker.stdout.take().expect("piped")).lines();
        let first: Vec<String> = lines.take(20).map_while(Result::ok).collect();
        assert_eq!(first[0], "message 0");
        assert_eq!(first.len(), 20);
        worker.kill().expect("it runs");
        worker.wait().expect("ended");
    }
    let status = group.status().expect("the group");
    assert!(status["partitions"][0]["offset"].is_null(), "{status}");
}

/// Status and body of a path, once somebody answers.
fn get(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("somebody listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    (status.expect("a status"), body.to_owned())
}

#[test]
fn metrics_health_and_readiness_are_served() {
    let mut group = Group::new(2);
    group.produce(10);
    let mut worker = group
        .consumer()
        .args(["--metrics", "0"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    let stderr = BufReader::new(worker.stderr.take().expect("piped"));
    let mut lines = stderr.lines().map_while(Result::ok);
    let address = lines.find_map(|line| {
        let url = line.strip_prefix("metrics: http://")?;
        url.strip_suffix("/metrics").map(str::to_owned)
    });
    let address = address.expect("it says where");
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    assert_eq!(get(&address, "/healthz").0, 200);
    let began = Instant::now();
    let handled = "parti_handler_latency_seconds_count{group=";
    loop {
        let (ready, why) = get(&address, "/readyz");
        let (_, text) = get(&address, "/metrics");
        if ready == 200 && text.contains(handled) && text.contains("parti_partition_lag{") {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{ready} {why}{text}");
        std::thread::sleep(Duration::from_millis(50));
    }
    worker.kill().expect("it runs");
    worker.wait().expect("ended");
}

#[test]
fn an_address_that_cannot_be_used_is_one_line_and_a_code() {
    let listening = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = listening.local_addr().expect("bound").to_string();
    let group = Group::new(1);
    for address in [taken.as_str(), "127.0.0.1:70000", "nowhere"] {
        let mut consumer = group.consumer();
        let ended = consumer
            .args(["--metrics", address])
            .output()
            .expect("runs");
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(2), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(
            said.contains("--metrics") && said.contains(address),
            "{said}"
        );
    }
}
