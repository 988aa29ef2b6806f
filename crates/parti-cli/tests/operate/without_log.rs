//! A group that `parti serve` made without a log: a log's offsets say nothing about its checkpoints,
//! and no command takes them for its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::common::CONFIG;
use super::scene::{Said, parti, said};
use super::tty::Tty;

/// What does not come within this time never will. A guard: nothing is measured against it.
const PATIENCE: Duration = Duration::from_secs(120);
const NAMED: [&str; 4] = ["--store", "sqlite:group.db", "--group", "g"];
const SOURCE: [&str; 4] = ["--source", "log:log", "--topic", "t"];
/// What every refusal has: the group, the source, and what to do.
const WHY: [&str; 4] = [
    "group g",
    "log:log",
    "made without a log",
    "leave --source away",
];

/// A service without a log that ends with the test.
struct Service {
    process: Child,
    address: String,
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Service {
    fn start(folder: &Path) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_parti"))
            .current_dir(folder)
            .args(["serve", "--store", "sqlite:group.db"])
            .args(["--listen", "127.0.0.1:0", "--config", "config.yaml"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut lines = BufReader::new(process.stderr.take().expect("piped")).lines();
        let address = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let address = line.strip_prefix("serving http://")?;
            Some(address.trim_end_matches('/').to_owned())
        });
        // It must never wait for a reader.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        let address = address.expect("it says where");
        Self { process, address }
    }

    /// Asks for something that must work.
    #[track_caller]
    fn ask(&self, method: &str, path: &str, token: &str, body: &Value) -> Value {
        let (body, address) = (body.to_string(), &self.address);
        let head = format!(
            "{method} /v1/groups{path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
             content-type: application/json\r\nauthorization: Bearer {token}\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        );
        let mut stream = TcpStream::connect(address).expect("somebody listens");
        stream
            .write_all((head + &body).as_bytes())
            .expect("written");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("text");
        assert!(answer.starts_with("HTTP/1.1 2"), "{path}: {answer}");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
        serde_json::from_str(body).unwrap_or_default()
    }
}

/// A group with two partitions, in one of which 3 is the next offset of its own; and a topic of five
/// messages in each partition, which has nothing to do with it.
fn group(folder: &Path) -> Service {
    std::fs::write(folder.join("config.yaml"), CONFIG).expect("written");
    let service = Service::start(folder);
    let made = json!({"group": "g", "topic": "t", "partitions": 2});
    assert_eq!(service.ask("POST", "", "", &made)["log"], false);
    let consumer = json!({"consumer": "c", "liveness": "heartbeat"});
    let session = service.ask("POST", "/g/sessions", "", &consumer);
    let text = |name: &str| session[name].as_str().expect("text").to_owned();
    let (path, token) = (format!("/g/sessions/{}", text("session")), text("token"));
    let began = Instant::now();
    loop {
        assert!(began.elapsed() < PATIENCE, "nothing was ever committed");
        service.ask("POST", &format!("{path}/heartbeat"), &token, &json!({}));
        let commit = json!({"commits": [{"partition": "0", "epoch": 1, "offset": 2}]});
        let answer = service.ask("POST", &format!("{path}/commits"), &token, &commit);
        if answer["results"][0]["result"] == "ok" {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    service.ask("DELETE", &path, &token, &Value::Null);
    while served(folder) {
        assert!(began.elapsed() < PATIENCE, "it is never let go of");
        std::thread::sleep(Duration::from_millis(50));
    }
    let topic = ["topic", "create", "--partitions", "2"];
    said(folder, &[&topic[..], &SOURCE].concat());
    let produce = [&["produce"][..], &SOURCE].concat();
    let produced = parti(folder, &produce, "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n");
    assert_eq!(produced.code, Some(0), "{}", produced.err);
    service
}

/// All partitions as they are shown.
fn shown(folder: &Path, flags: &[&str]) -> Vec<Value> {
    let list = ["partition", "list", "-o", "json"];
    let list = said(folder, &[&list[..], &NAMED, flags].concat());
    serde_json::from_str(&list).expect("a list")
}

fn served(folder: &Path) -> bool {
    let all = shown(folder, &[]);
    all.iter().any(|own| !own["owner"].is_null())
}

fn places(folder: &Path) -> Vec<Value> {
    let all = shown(folder, &[]);
    all.iter().map(|own| own["next_offset"].clone()).collect()
}

#[track_caller]
fn says(said: &Said, code: i32, texts: &[&str]) {
    assert_eq!(said.code, Some(code), "{}{}", said.out, said.err);
    let all = format!("{}{}", said.out, said.err);
    for text in texts {
        assert!(all.contains(text), "{text:?} is missing: {all}");
    }
}

#[test]
fn no_command_takes_a_logs_offsets_for_those_of_a_group_without_a_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let _service = group(folder);
    let before = places(folder);
    assert_eq!(before[0], 3);
    let run = |what: &[&str], flags: &[&str]| parti(folder, &[what, &NAMED, flags].concat(), "");

    // What changes checkpoints.
    let set = ["checkpoint", "set", "-p", "0", "--next", "1"];
    for force in [&[][..], &["--force"], &["--dry-run"]] {
        let with = [force, &SOURCE].concat();
        for to in ["earliest", "latest", "1", "2026-01-31T12:00:00Z"] {
            for which in [&["--all"][..], &["-p", "0"]] {
                let reset = [&["checkpoint", "reset", "--to", to], which].concat();
                let why = [
                    "group g",
                    "made without a log",
                    "checkpoint set --partition",
                ];
                let without = ["without --source", "nothing was changed"];
                says(&run(&reset, &with), 4, &[&why[..], &without].concat());
                says(&run(&reset, force), 4, &[&why[..], &without].concat());
            }
        }
        says(&run(&set, &with), 4, &WHY);
        let import = ["checkpoint", "import", "at", "--allow-back"];
        let line = "{\"partition\":\"0\",\"offset\":0}\n";
        std::fs::write(folder.join("at"), line).expect("written");
        says(&run(&import, &with), 4, &WHY);
    }
    assert_eq!(places(folder), before);

    // What looks.
    for look in [
        &["partition", "list"][..],
        &["partition", "describe", "0"],
        &["status"],
    ] {
        says(&run(look, &SOURCE), 0, &WHY);
    }
    let located = shown(folder, &SOURCE);
    assert!(located.iter().all(|own| own["lag"].is_null()));
    let doctor = run(&["doctor"], &SOURCE);
    says(&doctor, 1, &WHY);
    assert!(!doctor.out.contains("all within the log"), "{}", doctor.out);
    let watch = [&["watch"], &NAMED[..], &SOURCE].concat();
    let mut tty = Tty::start(folder, &watch, 120, 30);
    tty.until(&["the group has no log: leave --source away"]);
    tty.press("q");
    assert!(tty.ended().success());

    // A worker that reads a log is no member.
    let consume = ["consume", "--config", "config.yaml"];
    says(&run(&consume, &SOURCE), 4, &["made without a log"]);

    // And what to do instead works.
    says(&run(&set, &[]), 0, &[]);
    assert_eq!(places(folder)[0], 1);
}
