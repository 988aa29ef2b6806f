//! Clients in other languages, as their own processes.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::client::PATIENCE;
use crate::scene::Scene;

fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients")
}

/// A consumer process, and what it says: a JSON line for everything that happens.
struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    said: Vec<Value>,
}

impl Process {
    /// Starts the example of a language.
    fn start(scene: &Scene, program: &str, example: &str) -> Self {
        let mut child = Command::new(program)
            .arg(clients().join(example))
            .args([&scene.service.url(), "g", "t"])
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdout(Stdio::piped())
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
    async fn says(&mut self, event: &str, count: usize) -> Vec<Value> {
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

/// Waits until the store has it that all partitions go on here.
async fn committed(scene: &Scene, partitions: u32, next: u64) {
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python() {
    share_and_survive("python3", "python/example.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node() {
    share_and_survive("node", "node/example.mjs").await;
}
