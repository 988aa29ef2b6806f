//! Two instances of the service as real processes, one of which is killed: consumers go on at the
//! other, where they were.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::Value;

/// What does not come within this time never will. A guard: nothing is measured against it.
const PATIENCE: Duration = Duration::from_secs(180);
const PARTITIONS: u64 = 6;
const EACH: u64 = 60;

/// A TTL that a busy machine keeps: no session may end by it here.
const CONFIG: &str = "\
heartbeat_interval: 500ms
heartbeat_ttl: 30s
worker_id_ttl: 60s
planned_scale_window: 300ms
settle_time: 300ms
assignment: { rebalance_cooldown: 0s }
processing: { start: earliest }
";

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An instance, and where it is.
fn instance(folder: &Path) -> (Process, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_parti"))
        .current_dir(folder)
        .args(["serve", "--store", "sqlite:group.db", "--source", "log:log"])
        .args(["--listen", "127.0.0.1:0", "--config", "config.yaml"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut said = BufReader::new(child.stderr.take().expect("piped"));
    let url = url_in(&mut said);
    // It must never wait for a reader.
    std::thread::spawn(move || said.lines().for_each(drop));
    (Process(child), url)
}

fn url_in(said: &mut BufReader<ChildStderr>) -> String {
    let (mut line, mut logged) = (String::new(), false);
    loop {
        line.clear();
        assert!(said.read_line(&mut line).expect("readable") > 0, "it ended");
        logged |= line.contains(" INFO ") && line.contains("listening");
        if let Some(url) = line.strip_prefix("serving ") {
            assert!(logged, "what happens is logged");
            return url.trim().to_owned();
        }
    }
}

fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/python")
}

fn python() -> Command {
    let mut python = Command::new("python3");
    python
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONPATH", clients())
        .stdin(Stdio::null());
    python
}

/// Runs a few lines with the client at hand.
fn run(lines: &str, args: &[&str]) {
    let mut command = python();
    let ended = command.args(["-c", lines]).args(args).status();
    assert!(ended.expect("python3 runs").success(), "{lines}");
}

/// What a consumer says, line by line.
fn consumer(urls: &str) -> (Process, Receiver<Value>) {
    let mut child = python()
        .arg(clients().join("example.py"))
        .args([urls, "g", "t"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 runs");
    let said = BufReader::new(child.stdout.take().expect("piped"));
    let (tell, told) = channel();
    std::thread::spawn(move || {
        for line in said.lines().map_while(Result::ok) {
            let line = serde_json::from_str(&line).expect("JSON");
            if tell.send(line).is_err() {
                return;
            }
        }
    });
    (Process(child), told)
}

/// Everything a consumer said until this is so.
fn until(told: &Receiver<Value>, said: &mut Vec<Value>, enough: impl Fn(&[Value]) -> bool) {
    while !enough(said) {
        let line = told.recv_timeout(PATIENCE);
        said.push(line.unwrap_or_else(|why| panic!("{why}: {said:?}")));
    }
}

fn count(said: &[Value], event: &str) -> usize {
    said.iter().filter(|line| line["event"] == event).count()
}

const PRODUCE: &str = "\
import sys
from parti import Client
url, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for number in range(first, first + count):
    Client(url).produce('t', [{'partition': p, 'payload': str(number)} for p in range(6)])
";

#[test]
fn consumers_survive_the_kill_of_their_instance_and_repeat_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("config.yaml"), CONFIG).expect("written");
    let (doomed, first) = instance(folder.path());
    let (_other, second) = instance(folder.path());
    let make =
        "import sys; from parti import Client; Client(sys.argv[1]).create_group('g', 't', 6)";
    run(make, &[&first]);
    let urls = format!("{first},{second}");
    let (_a, from_a) = consumer(&urls);
    let mut a = Vec::new();
    until(&from_a, &mut a, |said| count(said, "assigned") == 6);
    let (_b, from_b) = consumer(&urls);
    let mut b = Vec::new();
    until(&from_b, &mut b, |said| count(said, "assigned") == 3);

    // Under load, with messages handled that are not committed yet.
    let half = (EACH / 2).to_string();
    run(PRODUCE, &[&first, "0", &half]);
    until(&from_a, &mut a, |said| count(said, "message") >= 10);
    drop(doomed);
    run(PRODUCE, &[&second, &half, &half]);

    // Everything, once, in order, by whoever has it; nobody had to begin anew.
    let mut offsets: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let (half_of_all, each) = (usize::try_from(PARTITIONS / 2 * EACH).expect("small"), EACH);
    until(&from_a, &mut a, |said| {
        count(said, "message") >= half_of_all
    });
    until(&from_b, &mut b, |said| {
        count(said, "message") >= half_of_all
    });
    for said in [&a, &b] {
        assert_eq!(count(said, "end"), 0, "{said:?}");
        assert_eq!(count(said, "registered"), 1);
        for line in said.iter().filter(|line| line["event"] == "message") {
            let partition = line["partition"].as_str().expect("an id").to_owned();
            let offset = line["offset"].as_u64().expect("a number");
            offsets.entry(partition).or_default().push(offset);
        }
    }
    assert_eq!(offsets.len() as u64, PARTITIONS);
    for (partition, offsets) in &offsets {
        let expected: Vec<u64> = (0..each).collect();
        assert_eq!(*offsets, expected, "partition {partition}");
    }
}
