//! `parti consume` with a reader that does not read, with a stop at a bad time, without checkpoints,
//! and with metrics.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{CONFIG, Group, Line};
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

/// A worker whose command says through one pipe that it runs, and waits for a word from another. It
/// runs when this returns.
fn in_the_middle_of_a_command(shutdown_timeout: &str) -> (Group, Child) {
    let config = format!("{CONFIG}shutdown_timeout: {shutdown_timeout}\n");
    let mut group = Group::on("sqlite:group.db", &config, 1);
    group.produce(1);
    let pipes = ["begun", "word"].map(|name| group.folder().join(name));
    let made = Command::new("mkfifo").args(&pipes).status();
    assert!(made.expect("runs").success());
    let worker = group
        .consumer()
        .args(["-o", "jsonl", "--exec", "echo > begun; read -r word < word"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    // Opening waits for the other end.
    std::fs::read(&pipes[0]).expect("it begins");
    (group, worker)
}

fn terminate(worker: &Child) {
    let pid = rustix::process::Pid::from_child(worker);
    rustix::process::kill_process(pid, Signal::TERM).expect("there");
}

fn last_word(stdout: &[u8]) -> Value {
    let text = String::from_utf8_lossy(stdout);
    let last = text.lines().last().expect("a last word");
    serde_json::from_str(last).expect("an event")
}

#[test]
fn a_command_that_outlasts_the_stop_is_named_and_its_message_comes_again() {
    let (mut group, worker) = in_the_middle_of_a_command("1s");
    terminate(&worker);
    let ended = worker.wait_with_output().expect("ended");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    for part in [
        "partition 0 offset 0",
        "to be handled again",
        "raise shutdown_timeout",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let last = last_word(&ended.stdout);
    let cut_off = serde_json::json!([{"partition": "0", "offset": 0}]);
    assert_eq!(
        (&last["event"], &last["cut_off"]),
        (&"stopped".into(), &cut_off)
    );
    let status = group.status().expect("the group");
    assert_eq!(status["partitions"][0]["owner"], Value::Null, "{status}");
    group.consume();
    group.drained();
    let again = group.lines().into_iter().map(|(_, event)| event);
    let again = again.filter(|event| event["event"] == "message").count();
    assert_eq!(again, 1, "nobody else had handled it");
    group.stop(&[]);
}

#[test]
fn a_stop_waits_for_a_command_and_has_nothing_to_say() {
    let (group, mut worker) = in_the_middle_of_a_command("2m");
    let stderr = BufReader::new(worker.stderr.take().expect("piped"));
    let mut lines = stderr.lines().map_while(Result::ok);
    terminate(&worker);
    let heard = lines.by_ref().find(|line| line.starts_with("stopping"));
    heard.expect("it heard that it is to stop");
    std::fs::write(group.folder().join("word"), "go on\n").expect("somebody reads");
    let ended = worker.wait_with_output().expect("ended");
    assert_eq!(lines.collect::<Vec<_>>(), [""; 0]);
    assert_eq!(ended.status.code(), Some(0));
    let last = last_word(&ended.stdout);
    assert_eq!(last["error"], Value::Null, "{last}");
    assert_eq!(last["cut_off"], serde_json::json!([]), "{last}");
    let status = group.status().expect("the group");
    assert_eq!(status["partitions"][0]["next_offset"], 1, "{status}");
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
