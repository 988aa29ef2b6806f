//! Clients in other languages, as their own processes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::client::PATIENCE;
use crate::scene::{Manner, Scene};
use crate::trouble::{FULL, Mood, moody};

fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients")
}

/// A consumer process, and what it says: a JSON line for everything that happens.
pub struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    pub said: Vec<Value>,
}

impl Process {
    /// Starts the example of a language.
    fn start(scene: &Scene, program: &str, example: &str) -> Self {
        Self::start_at(&scene.service.url(), program, example)
    }

    /// The same, with instances of one's own.
    pub fn start_at(urls: &str, program: &str, example: &str) -> Self {
        Self::spawn([urls, "g", "t"], program, example, Stdio::inherit())
    }

    /// The same, on a topic that it cannot have: why it [ends](Self::ends) is read.
    pub fn start_on(urls: &str, program: &str, example: &str, topic: &str) -> Self {
        Self::spawn([urls, "g", topic], program, example, Stdio::piped())
    }

    fn spawn(what: [&str; 3], program: &str, example: &str, stderr: Stdio) -> Self {
        let mut child = Command::new(program)
            .arg(clients().join(example))
            .args(what)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdout(Stdio::piped())
            .stderr(stderr)
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| {
                panic!("tests need {program} (`cargo xtask test` gets it): {error}")
            });
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        Self {
            child,
            lines,
            said: Vec::new(),
        }
    }

    /// Reads until it has said so many things of this kind, and tells all of them.
    pub async fn says(&mut self, event: &str, count: usize) -> Vec<Value> {
        let waiting = async {
            loop {
                let such = self.said.iter().filter(|line| line["event"] == event);
                let such: Vec<Value> = such.cloned().collect();
                if such.len() >= count {
                    return such;
                }
                let line = self.lines.next_line().await.expect("readable");
                let line = line.expect("it goes on");
                self.said.push(serde_json::from_str(&line).expect("JSON"));
            }
        };
        let said = tokio::time::timeout(PATIENCE, waiting).await;
        said.unwrap_or_else(|_| panic!("not {count} times {event}: {:?}", self.said))
    }
}

impl Process {
    /// Waits until it has ended by itself, which is no success: what it said, and why it ended.
    pub async fn ends(self) -> (Vec<Value>, String) {
        let Self {
            child,
            mut lines,
            mut said,
        } = self;
        let waiting = async {
            while let Some(line) = lines.next_line().await.expect("readable") {
                said.push(serde_json::from_str(&line).expect("JSON"));
            }
            child.wait_with_output().await.expect("it ran")
        };
        let ended = tokio::time::timeout(PATIENCE, waiting).await;
        let ended = ended.expect("it ends");
        assert!(!ended.status.success(), "{ended:?}");
        (said, String::from_utf8_lossy(&ended.stderr).into_owned())
    }

    /// Reads until it has told of this trouble.
    async fn says_trouble(&mut self, doing: &str, why: &str) -> Value {
        self.says_trouble_times(doing, why, 1).await
    }

    /// Reads until it has told of this trouble so many times, and answers the last of them.
    pub async fn says_trouble_times(&mut self, doing: &str, why: &str, times: usize) -> Value {
        let mut seen = 0;
        loop {
            let trouble = self.says("trouble", seen + 1).await;
            let fits = |one: &&Value| {
                one["doing"] == doing && one["why"].as_str().is_some_and(|text| text.contains(why))
            };
            if let Some(found) = trouble.iter().filter(fits).nth(times - 1) {
                return found.clone();
            }
            seen = trouble.len();
        }
    }

    fn signal(&self, signal: Signal) {
        let id = self.child.id().and_then(|id| i32::try_from(id).ok());
        let id = id.and_then(Pid::from_raw).expect("it runs");
        kill_process(id, signal).expect("a signal");
    }

    /// The offsets of the messages it had, by partition.
    pub fn handled(&self, partition: &str) -> Vec<u64> {
        let messages = self.said.iter().filter(|line| line["event"] == "message");
        let of = messages.filter(|line| line["partition"] == partition);
        of.filter_map(|line| line["offset"].as_u64()).collect()
    }
}

/// Waits until the store has it that all partitions go on here.
pub async fn committed(scene: &Scene, partitions: u32, next: u64) {
    let waiting = async {
        for partition in 0..partitions {
            while scene.partition(&partition.to_string()).await["next_offset"] != next {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    waited.unwrap_or_else(|_| panic!("not committed up to {next}"));
}

/// Two processes share the work; one is killed: everything is handled, and nothing below a
/// checkpoint twice.
async fn share_and_survive(program: &str, example: &str) {
    let scene = Scene::new().await;
    scene.make_group(4).await;
    scene.produce(4, 25).await;
    let mut first = Process::start(&scene, program, example);
    first.says("assigned", 4).await;
    first.says("message", 100).await;
    committed(&scene, 4, 25).await;
    let mut second = Process::start(&scene, program, example);
    for released in first.says("released", 2).await {
        assert_eq!(released["result"], "ok");
    }
    second.says("assigned", 2).await;
    first.child.kill().await.expect("killed");
    for assigned in second.says("assigned", 4).await {
        assert_eq!(assigned["next_offset"], 25, "nothing is handled twice");
    }
    scene.produce(4, 5).await;
    let messages = second.says("message", 20).await;
    assert_eq!(messages.len(), 20);
    for partition in ["0", "1", "2", "3"] {
        let of = messages.iter().filter(|one| one["partition"] == partition);
        let offsets: Vec<u64> = of.filter_map(|one| one["offset"].as_u64()).collect();
        assert_eq!(offsets, [25, 26, 27, 28, 29], "in order, each once");
    }
    committed(&scene, 4, 30).await;
}

/// One of two processes is frozen. Its kernel goes on taking what comes, and still others have its
/// partitions after a TTL; when it wakes, it handles nothing of what it had, and begins anew.
async fn freeze_and_wake(program: &str, example: &str) {
    let scene = Scene::new().await;
    scene.make_group(4).await;
    scene.produce(4, 5).await;
    let mut frozen = Process::start(&scene, program, example);
    frozen.says("message", 20).await;
    committed(&scene, 4, 5).await;
    let mut other = Process::start(&scene, program, example);
    frozen.says("released", 2).await;
    other.says("assigned", 2).await;
    frozen.signal(Signal::STOP);
    // Long polls are answered into the buffers of a process that cannot know.
    scene.produce(4, 5).await;
    other.says("assigned", 4).await;
    other.says("message", 20).await;
    committed(&scene, 4, 10).await;
    frozen.signal(Signal::CONT);
    let end = frozen.says("end", 1).await;
    assert_eq!(end[0]["again"], true, "{end:?}");
    frozen.says("registered", 2).await;
    frozen.says("assigned", 6).await;
    scene.produce(4, 5).await;
    committed(&scene, 4, 15).await;
    other.says("message", 30).await;
    frozen.says("message", 30).await;
    for partition in ["0", "1", "2", "3"] {
        let mut all = [frozen.handled(partition), other.handled(partition)].concat();
        all.sort_unstable();
        assert_eq!(all, (0..15).collect::<Vec<u64>>(), "{partition}: each once");
        let late = frozen.handled(partition);
        assert!(
            !late.iter().any(|offset| (5..10).contains(offset)),
            "{late:?}"
        );
    }
}

/// A service in trouble is asked again later, until it is mended.
async fn wait_for_a_mended_service(program: &str, example: &str) {
    let (scene, store) = moody().await;
    scene.make_group(2).await;
    store.be(Mood::Full);
    let mut process = Process::start(&scene, program, example);
    let trouble = process.says("trouble", 2).await;
    let why = trouble[0]["why"].as_str().expect("a reason");
    assert!(why.contains(FULL), "{why}");
    store.be(Mood::Well);
    process.says("assigned", 2).await;
}

/// What fails while it works is told, with what was being done; mended, it goes on.
async fn tell_trouble(program: &str, example: &str) {
    let (scene, store) = moody().await;
    scene.make_group(1).await;
    scene.produce(1, 1).await;
    let mut process = Process::start(&scene, program, example);
    process.says("message", 1).await;
    committed(&scene, 1, 1).await;
    store.be(Mood::Full);
    scene.produce(1, 1).await;
    process.says_trouble("commit", FULL).await;
    store.be(Mood::Well);
    committed(&scene, 1, 2).await;
    let log = scene.folder.path().join("log");
    fs::rename(&log, scene.folder.path().join("away")).expect("moved");
    let fetching = process.says_trouble("fetch", "deleted or moved").await;
    assert_eq!(fetching["partition"], "0");
}

/// Evicted for good, it ends with an error, and others have what it had.
async fn stay_away(program: &str, example: &str) {
    let scene = Scene::new().await;
    scene.make_group(4).await;
    let other = scene.consumer(Manner::Polite).await;
    other.holds(|held| held.len() == 4).await;
    let mut process = Process::start(&scene, program, example);
    let registered = process.says("registered", 1).await;
    process.says("assigned", 2).await;
    let worker = &registered[0]["worker"];
    let group = scene.get("/v1/groups/g").await.ok(200);
    let workers = group["workers"].as_array().expect("a list").iter();
    let mut found = workers.filter(|one| one["worker"] == *worker);
    let incarnation = &found.next().expect("it is there")["incarnation"];
    let evict = json!({"request": {
        "kind": "evict", "worker": worker, "incarnation": incarnation, "stay_away": true,
    }});
    scene.post("/v1/groups/g/requests", &evict).await.ok(200);
    let end = process.says("end", 1).await;
    assert_eq!(end[0]["again"], false, "{end:?}");
    let why = end[0]["why"].as_str().expect("a reason");
    assert!(
        why.contains("evicted this consumer") && !why.contains("process"),
        "{why}"
    );
    let ended = tokio::time::timeout(PATIENCE, process.child.wait()).await;
    assert!(!ended.expect("in time").expect("it ran").success());
    other.holds(|held| held.len() == 4).await;
}

/// What a client does by itself, without a service.
async fn alone(program: &str, tests: &[&str], folder: &str) {
    let tests = Command::new(program)
        .args(tests)
        .current_dir(clients().join(folder))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output();
    let tested = tokio::time::timeout(PATIENCE, tests)
        .await
        .expect("in time");
    let tested = tested.unwrap_or_else(|error| panic!("tests need {program}: {error}"));
    let said = [tested.stdout, tested.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(tested.status.success(), "{said}");
}

#[tokio::test]
async fn python_alone() {
    let tests = ["-m", "unittest", "-v", "test_parti", "test_instances"];
    alone("python3", &tests, "python").await;
}

#[tokio::test]
async fn node_alone() {
    alone("node", &["--test", "parti.test.mjs"], "node").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python() {
    share_and_survive("python3", "python/example.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node() {
    share_and_survive("node", "node/example.mjs").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_frozen() {
    freeze_and_wake("python3", "python/example.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_frozen() {
    freeze_and_wake("node", "node/example.mjs").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_waits_for_a_mended_service() {
    wait_for_a_mended_service("python3", "python/example.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_waits_for_a_mended_service() {
    wait_for_a_mended_service("node", "node/example.mjs").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_tells_trouble() {
    tell_trouble("python3", "python/example.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_tells_trouble() {
    tell_trouble("node", "node/example.mjs").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_stays_away() {
    stay_away("python3", "python/example.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_stays_away() {
    stay_away("node", "node/example.mjs").await;
}
