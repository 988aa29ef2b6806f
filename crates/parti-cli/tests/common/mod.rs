//! Real worker processes on one folder, and everything they say.

#![allow(
    dead_code,
    reason = "every test file is a program of its own, and uses some of this"
)]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// What does not come within this time never will. A guard: nothing is measured against it.
const PATIENCE: Duration = Duration::from_secs(120);

fn parti(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_parti"));
    command.current_dir(folder).stdin(Stdio::null());
    command
}

/// Everything that all workers said, in the order it was read.
#[derive(Default)]
struct Heard {
    lines: Mutex<Vec<Line>>,
    more: Condvar,
}

/// What one worker said, with the number of its process.
pub type Line = (usize, Value);

/// Worker processes of one group.
pub struct Group {
    folder: TempDir,
    store: String,
    /// The flags that name the source.
    source: Vec<String>,
    heard: Arc<Heard>,
    workers: Vec<Child>,
    produced: u64,
}

/// Settings with short times.
pub const CONFIG: &str = "\
heartbeat_interval: 300ms
heartbeat_ttl: 1500ms
worker_id_ttl: 3s
planned_scale_window: 300ms
settle_time: 300ms
operation_timeout: 5s
election_timeout: 1s
checkpoint_flush_interval: 200ms
assignment:
  rebalance_cooldown: 0s
processing:
  start: earliest
";

impl Group {
    /// A group with a file as its store, and short times.
    pub fn new(partitions: u32) -> Self {
        Self::on("sqlite:group.db", CONFIG, partitions)
    }

    /// A group on any store, with its settings.
    pub fn on(store: &str, config: &str, partitions: u32) -> Self {
        Self::with(
            store,
            &["--source", "log:log", "--topic", "t"],
            config,
            &[],
            partitions,
        )
    }

    /// A group on any store and source; the source is made with these flags, too.
    pub fn with(
        store: &str,
        source: &[&str],
        config: &str,
        making: &[&str],
        partitions: u32,
    ) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("config.yaml"), config).expect("written");
        let group = Self {
            folder,
            store: store.to_owned(),
            source: source.iter().map(|flag| (*flag).to_owned()).collect(),
            heard: Arc::default(),
            workers: Vec::new(),
            produced: 0,
        };
        let partitions = partitions.to_string();
        let made = parti(group.folder.path())
            .args(["topic", "create", "--partitions", &partitions])
            .args(&group.source)
            .args(making)
            .status();
        assert!(made.expect("runs").success());
        group
    }

    /// Where everything is.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Appends so many messages.
    pub fn produce(&mut self, count: u64) {
        self.produce_with(count, "");
    }

    /// Appends so many messages, each of which ends with this.
    pub fn produce_with(&mut self, count: u64, tail: &str) {
        let mut producer = parti(self.folder.path())
            .arg("produce")
            .args(&self.source)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("runs");
        let mut input = producer.stdin.take().expect("piped");
        for number in self.produced..self.produced + count {
            writeln!(input, "message {number}{tail}").expect("written");
        }
        drop(input);
        assert!(producer.wait().expect("ended").success());
        self.produced += count;
    }

    /// Messages that are made up at a rate, until this process is ended.
    pub fn load(&self, rate: u32, span: &str) -> Child {
        parti(self.folder.path())
            .args(["produce", "--rate", &rate.to_string(), "--for", span])
            .args(&self.source)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("runs")
    }

    /// A worker that is not started yet.
    pub fn consumer(&self) -> Command {
        let mut command = parti(self.folder.path());
        command
            .args(["consume", "--store", &self.store, "--group", "g"])
            .args(["--config", "config.yaml"])
            .args(&self.source);
        command
    }

    /// A further worker whose metrics can be scraped, and where.
    pub fn scraped(&self, flags: &[&str]) -> (Child, String) {
        let mut worker = self
            .consumer()
            .args(["--metrics", "0"])
            .args(flags)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("runs");
        let mut stderr = BufReader::new(worker.stderr.take().expect("piped")).lines();
        let address = stderr.by_ref().map_while(Result::ok).find_map(|line| {
            let rest = line.strip_prefix("metrics: http://")?;
            rest.strip_suffix("/metrics").map(str::to_owned)
        });
        // Whoever does not read on would stop a worker that has much to say.
        std::thread::spawn(move || stderr.map_while(Result::ok).for_each(drop));
        (worker, address.expect("it says where"))
    }

    /// The group as `parti status` shows it, once there is one.
    pub fn status(&self) -> Option<Value> {
        let status = parti(self.folder.path())
            .args([
                "status",
                "--store",
                &self.store,
                "--group",
                "g",
                "-o",
                "json",
            ])
            .args(&self.source)
            .output()
            .expect("runs");
        serde_json::from_slice(&status.stdout).ok()
    }

    /// Starts a worker.
    pub fn consume(&mut self) -> usize {
        self.consume_with(&[])
    }

    /// Starts a worker with more flags.
    pub fn consume_with(&mut self, flags: &[&str]) -> usize {
        let mut child = self
            .consumer()
            .args(["-o", "jsonl"])
            .args(flags)
            .stdout(Stdio::piped())
            .spawn()
            .expect("runs");
        let index = self.workers.len();
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let heard = self.heard.clone();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                // A killed process may leave half a line.
                if let Ok(event) = serde_json::from_str(&line) {
                    heard.lines.lock().expect("no panic").push((index, event));
                    heard.more.notify_all();
                }
            }
        });
        self.workers.push(child);
        index
    }

    /// Waits until `parti status` shows what is wanted.
    pub fn until_status(&self, what: &str, wanted: impl Fn(&Value) -> bool) {
        let began = std::time::Instant::now();
        loop {
            let status = self.status();
            if status.as_ref().is_some_and(&wanted) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{what} never came: {status:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Sends a worker a signal.
    pub fn signal(&self, worker: usize, signal: Signal) {
        let pid = i32::try_from(self.workers[worker].id()).expect("a pid");
        kill_process(Pid::from_raw(pid).expect("a pid"), signal).expect("there");
    }

    /// Waits until what was heard is as wanted.
    pub fn until(&self, what: &str, wanted: impl Fn(&[Line]) -> bool) {
        let came = self.comes(PATIENCE, wanted);
        assert!(came, "{what} never came: {:#?}", self.lines());
    }

    /// Waits until what was heard is as wanted, but not for longer.
    pub fn comes(&self, within: Duration, wanted: impl Fn(&[Line]) -> bool) -> bool {
        let lines = self.heard.lines.lock().expect("no panic");
        let waited = self
            .heard
            .more
            .wait_timeout_while(lines, within, |lines| !wanted(lines));
        !waited.expect("no panic").1.timed_out()
    }

    /// Waits until everything produced was handled.
    pub fn drained(&self) {
        let produced = self.produced;
        self.until("the end of the log", |lines| {
            messages(lines).collect::<BTreeSet<_>>().len() as u64 == produced
        });
    }

    /// Waits until a worker has taken something.
    pub fn serving(&self, worker: usize) {
        self.until("a partition for each", |lines| {
            let taken = |(own, event): &Line| *own == worker && event["event"] == "taken";
            lines.iter().any(taken)
        });
    }

    /// Everything heard so far.
    pub fn lines(&self) -> Vec<Line> {
        self.heard.lines.lock().expect("no panic").clone()
    }

    /// Every worker ends well when asked.
    pub fn stop(mut self, but: &[usize]) -> Vec<Line> {
        let there: Vec<usize> = (0..self.workers.len())
            .filter(|w| !but.contains(w))
            .collect();
        for worker in &there {
            self.signal(*worker, Signal::TERM);
        }
        for worker in there {
            self.until("its last word", |lines| {
                let stopped = |(own, event): &Line| *own == worker && event["event"] == "stopped";
                lines.iter().any(stopped)
            });
            assert!(self.workers[worker].wait().expect("ended").success());
        }
        self.lines()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}

/// The places of all messages that were handled.
pub fn messages(lines: &[Line]) -> impl Iterator<Item = (String, u64)> + '_ {
    let messages = lines
        .iter()
        .filter(|(_, event)| event["event"] == "message");
    messages.map(|(_, event)| place(event))
}

/// The place of a message.
pub fn place(event: &Value) -> (String, u64) {
    let partition = event["partition"].as_str().expect("a partition");
    (
        partition.to_owned(),
        event["offset"].as_u64().expect("an offset"),
    )
}
