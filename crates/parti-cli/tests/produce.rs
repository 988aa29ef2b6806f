//! `parti produce` whose input stays open: what was read goes in soon, and also when it is to end.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use parti_servers::nats::Server;
use parti_servers::proxy::Proxy;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// What does not come within this time never will. A guard: nothing is measured against it.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);

const LOG: [&str; 4] = ["--source", "log:log", "--topic", "t"];

/// A producer, and what it is to read.
fn producing(folder: &Path, source: &[&str]) -> (Child, ChildStdin) {
    let mut producer = Command::new(env!("CARGO_BIN_EXE_parti"))
        .current_dir(folder)
        .args(["produce", "--partitions", "1"])
        .args(source)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    let input = producer.stdin.take().expect("piped");
    (producer, input)
}

/// How many messages there are, once there is a topic.
fn held(folder: &Path, source: &[&str]) -> u64 {
    let described = Command::new(env!("CARGO_BIN_EXE_parti"))
        .current_dir(folder)
        .args(["topic", "describe", "-o", "json"])
        .args(source)
        .output()
        .expect("runs");
    let topic: Value = serde_json::from_slice(&described.stdout).unwrap_or_default();
    let end = topic["partitions"][0]["end"].as_u64().unwrap_or_default();
    let first = topic["partitions"][0]["first"].as_u64().unwrap_or_default();
    end - first
}

fn until_held(folder: &Path, source: &[&str], count: u64) {
    let began = Instant::now();
    while held(folder, source) != count {
        assert!(began.elapsed() < PATIENCE, "{count} never came");
        std::thread::sleep(LOOK);
    }
}

fn terminate(producer: &Child) {
    let pid = Pid::from_child(producer);
    kill_process(pid, Signal::TERM).expect("there");
}

#[test]
fn a_line_goes_in_while_more_may_come() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut producer, mut input) = producing(folder.path(), &LOG);
    input.write_all(b"one\n").expect("written");
    until_held(folder.path(), &LOG, 1);
    input.write_all(b"two\nhalf a").expect("written");
    until_held(folder.path(), &LOG, 2);
    input.write_all(b" line").expect("written");
    drop(input);
    assert!(producer.wait().expect("ended").success());
    assert_eq!(held(folder.path(), &LOG), 3);
}

#[test]
fn a_signal_loses_no_line_that_was_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let (producer, mut input) = producing(folder.path(), &LOG);
    input.write_all(b"one\n").expect("written");
    until_held(folder.path(), &LOG, 1);
    // How many of these it has read by then is not known here; it says so.
    input.write_all(&b"more\n".repeat(5_000)).expect("written");
    terminate(&producer);
    let ended = producer.wait_with_output().expect("ended");
    drop(input);
    let told = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(143), "{told}");
    let number = told.split("parti: stopped: ").nth(1);
    let number = number.and_then(|rest| rest.split(" line").next());
    let number: u64 = number.and_then(|number| number.parse().ok()).expect(&told);
    assert_eq!(number, held(folder.path(), &LOG), "{told}");
}

/// Gives it one more line, whose ack it does not get. False if it was the ack of the line before it
/// that did not come: all of them have come then.
fn stalled(
    proxy: &mut Proxy,
    input: &mut ChildStdin,
    folder: &Path,
    source: &[&str],
    count: u64,
) -> bool {
    proxy.stall_replies();
    input.write_all(b"one more\n").expect("written");
    for _ in 0..50 {
        if held(folder, source) == count {
            return true;
        }
        std::thread::sleep(LOOK);
    }
    proxy.heal();
    until_held(folder, source, count);
    false
}

/// A stream that does not say whether it has what it was given.
#[test]
fn a_second_signal_ends_what_never_goes_in() {
    let server = Server::start();
    let mut proxy = Proxy::start(server.address());
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("jetstream://{}/S", proxy.address());
    let (mut producer, mut input) = producing(folder.path(), &["--source", &url]);
    let direct = format!("jetstream://{}/S", server.address());
    let direct = ["--source", &direct];
    input.write_all(b"one\n").expect("written");
    until_held(folder.path(), &direct, 1);
    // The line that is there is one that it does not hear of, unless it still waits for the one
    // before it.
    let mut heard_of = 1;
    while !stalled(&mut proxy, &mut input, folder.path(), &direct, heard_of + 1) {
        heard_of += 1;
    }
    terminate(&producer);
    let mut said = BufReader::new(producer.stderr.take().expect("piped"));
    let mut first = String::new();
    said.read_line(&mut first).expect("a line");
    assert!(first.contains("once more ends this at once"), "{first}");
    // What comes right after the first one is taken for the same.
    let began = Instant::now();
    let ended = loop {
        if let Some(ended) = producer.try_wait().expect("asked") {
            break ended;
        }
        assert!(began.elapsed() < PATIENCE, "it goes on");
        terminate(&producer);
        std::thread::sleep(LOOK);
    };
    let mut told = String::new();
    said.read_to_string(&mut told).expect("text");
    assert_eq!(ended.code(), Some(143), "{told}");
    let stored = match heard_of {
        1 => "The first line was produced".to_owned(),
        more => format!("The first {more} lines were produced"),
    };
    let so = format!("parti: stopped. {stored}; whether the next 1 line went in");
    assert!(told.contains(&so), "{told}");
}
