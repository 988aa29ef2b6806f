//! The processes of the demo, and what they say.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use parti::core::rng::Rng;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use crate::exit::Failure;

/// Where everything happens.
pub struct Place {
    pub store: String,
    pub source: String,
    pub topic: String,
    pub group: String,
    pub config: PathBuf,
}

/// Settings that show in seconds what takes longer with the defaults.
pub fn settings(workers: u32) -> String {
    format!(
        "heartbeat_interval: 500ms\nheartbeat_ttl: 2s\nworker_id_ttl: 4s\n\
         cold_start_window: 10s\nplanned_scale_window: 1s\nsettle_time: 500ms\n\
         expected_workers: {workers}\noperation_timeout: 5s\nelection_timeout: 2s\n\
         checkpoint_flush_interval: 500ms\n\
         assignment:\n  rebalance_cooldown: 0s\nprocessing:\n  start: earliest\n"
    )
}

/// One line that a worker process wrote.
pub struct Line {
    /// Which process.
    pub process: usize,
    /// What it said.
    pub event: Value,
}

/// All processes.
pub struct Crew {
    place: Place,
    members: BTreeMap<usize, Child>,
    started: usize,
    names: BTreeMap<usize, String>,
    rng: Rng,
    lines: mpsc::UnboundedSender<Line>,
    inbox: mpsc::UnboundedReceiver<Line>,
}

impl Crew {
    /// Nobody yet.
    pub fn new(place: Place, seed: u64) -> Self {
        let (lines, inbox) = mpsc::unbounded_channel();
        Self {
            place,
            members: BTreeMap::new(),
            started: 0,
            names: BTreeMap::new(),
            rng: Rng::new(seed),
            lines,
            inbox,
        }
    }

    fn command(&self, name: &str) -> Result<Command, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args([
                name,
                "--source",
                &self.place.source,
                "--topic",
                &self.place.topic,
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // A ctrl-C is for the demo alone: it decides what becomes of the others.
            .process_group(0)
            .kill_on_drop(true);
        Ok(command)
    }

    /// Starts a worker; says its name.
    pub fn join(&mut self) -> Result<String, Failure> {
        let process = self.started;
        self.started += 1;
        let mut child = self
            .command("consume")?
            .args(["--store", &self.place.store, "--group", &self.place.group])
            .arg("--config")
            .arg(&self.place.config)
            .args(["--number", &process.to_string(), "-o", "jsonl"])
            .spawn()?;
        if let Some(stdout) = child.stdout.take() {
            let lines = self.lines.clone();
            tokio::spawn(async move {
                let mut stdout = BufReader::new(stdout).lines();
                while let Ok(Some(line)) = stdout.next_line().await {
                    // A killed process may leave half a line behind.
                    let Ok(event) = serde_json::from_str(&line) else {
                        continue;
                    };
                    if lines.send(Line { process, event }).is_err() {
                        return;
                    }
                }
            });
        }
        self.members.insert(process, child);
        Ok(self.name(process))
    }

    fn name(&self, process: usize) -> String {
        let known = self.names.get(&process);
        known.map_or_else(|| format!("worker-{process}"), String::clone)
    }

    /// The producer.
    pub fn produce(&self, rate: u32, length: Duration) -> Result<Child, Failure> {
        let length = format!("{}ms", length.as_millis());
        Ok(self
            .command("produce")?
            .args(["--rate", &rate.to_string(), "--for", &length])
            .spawn()?)
    }

    fn choose(&mut self) -> Result<usize, Failure> {
        let there: Vec<usize> = self.members.keys().copied().collect();
        let choice = self.rng.below(there.len() as u64) as usize;
        there
            .get(choice)
            .copied()
            .ok_or_else(|| Failure::failed("no worker is left"))
    }

    fn signal(&self, process: usize, signal: Signal) {
        let pid = self.members.get(&process).and_then(Child::id);
        if let Some(pid) = pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)) {
            // Who has ended meanwhile needs no signal.
            let _ = kill_process(pid, signal);
        }
    }

    /// Asks a worker to go; says which.
    pub fn leave(&mut self) -> Result<String, Failure> {
        self.end(Signal::TERM)
    }

    /// Kills a worker with SIGKILL; says which.
    pub fn kill(&mut self) -> Result<String, Failure> {
        self.end(Signal::KILL)
    }

    fn end(&mut self, signal: Signal) -> Result<String, Failure> {
        let process = self.choose()?;
        self.signal(process, signal);
        if let Some(mut child) = self.members.remove(&process) {
            tokio::spawn(async move { child.wait().await });
        }
        Ok(self.name(process))
    }

    /// The next line of any worker.
    pub async fn next(&mut self, limit: Duration) -> Result<Line, Failure> {
        let line = tokio::time::timeout(limit, self.inbox.recv()).await;
        let line = line
            .ok()
            .flatten()
            .ok_or_else(|| Failure::failed(format!("no worker said anything for {limit:?}")))?;
        if line.event["event"] == "started"
            && let Some(name) = line.event["worker"].as_str()
        {
            self.names.insert(line.process, name.to_owned());
        }
        Ok(line)
    }

    /// Asks everybody to go, waits, and yields what they still said.
    pub async fn stop_all(mut self) -> Result<Vec<Line>, Failure> {
        for process in self.members.keys() {
            self.signal(*process, Signal::TERM);
        }
        for child in self.members.values_mut() {
            child.wait().await?;
        }
        drop(self.lines);
        let mut rest = Vec::new();
        while let Some(line) = self.inbox.recv().await {
            rest.push(line);
        }
        Ok(rest)
    }
}
