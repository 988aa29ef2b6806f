//! Workers on the memory store: threads of this process, each with a runtime of its own. A runtime
//! that is not driven any more does nothing more: nobody says goodbye.

use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use parti::source::MemoryLog;
use parti::store::Memory;
use parti::{Config, HandlerError, Message, Report, StaticPartitions, Worker};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::Crew;
use crate::common::Line;

const PATIENCE: Duration = Duration::from_secs(120);

enum End {
    Leave,
    Kill,
}

#[derive(Default)]
struct Heard {
    lines: Mutex<Vec<Line>>,
    more: Condvar,
}

/// All workers of a group in this process.
pub struct InProcess {
    config: Config,
    partitions: u32,
    store: Memory,
    log: MemoryLog,
    heard: Arc<Heard>,
    workers: Vec<Running>,
}

/// One worker's thread, and the way to end it.
struct Running {
    end: Option<oneshot::Sender<End>>,
    thread: Option<JoinHandle<()>>,
}

impl InProcess {
    pub fn new(config: &str, partitions: u32) -> Self {
        Self {
            config: Config::from_yaml(config).expect("settings"),
            partitions,
            store: Memory::new(),
            log: MemoryLog::new(),
            heard: Arc::default(),
            workers: Vec::new(),
        }
    }

    fn end(&mut self, worker: usize, how: End) {
        if let Some(end) = self.workers[worker].end.take() {
            let _ = end.send(how);
        }
    }
}

impl Crew for InProcess {
    fn join(&mut self) -> usize {
        let number = self.workers.len();
        let heard = self.heard.clone();
        let observer = move |report: &Report| {
            if let Some(mut event) = event_of(report) {
                event["at"] = Value::String(crate::now().to_string());
                heard.lines.lock().expect("no panic").push((number, event));
                heard.more.notify_all();
            }
        };
        let partitions = StaticPartitions::numbered(self.partitions);
        let builder = Worker::builder("g", self.store.clone(), self.log.clone(), partitions)
            .config(self.config.clone())
            .observer(observer);
        let (end, ending) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            let handler = |_: Message| async { Ok::<(), HandlerError>(()) };
            let worker = runtime.block_on(builder.start(handler)).expect("starts");
            match runtime.block_on(ending) {
                Ok(End::Leave) => runtime.block_on(worker.stop()).expect("stops"),
                // From here on nothing of it runs.
                Ok(End::Kill) | Err(_) => runtime.shutdown_background(),
            }
        });
        self.workers.push(Running {
            end: Some(end),
            thread: Some(thread),
        });
        number
    }

    fn leave(&mut self, worker: usize) {
        self.end(worker, End::Leave);
    }

    fn kill(&mut self, worker: usize) {
        self.end(worker, End::Kill);
    }

    fn until(&self, wanted: &dyn Fn(&[Line]) -> bool) {
        let lines = self.heard.lines.lock().expect("no panic");
        let waited = self
            .heard
            .more
            .wait_timeout_while(lines, PATIENCE, |lines| !wanted(lines));
        let (lines, timeout) = waited.expect("no panic");
        assert!(!timeout.timed_out(), "it never came: {lines:?}");
    }

    fn lines(&self) -> Vec<Line> {
        self.heard.lines.lock().expect("no panic").clone()
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        for running in &mut self.workers {
            drop(running.end.take());
            if let Some(thread) = running.thread.take() {
                let _ = thread.join();
            }
        }
    }
}

fn event_of(report: &Report) -> Option<Value> {
    Some(match report {
        Report::Leading(term) => json!({"event": "leader", "leader": term.is_some()}),
        Report::Taken { partition, .. } => {
            json!({"event": "taken", "partition": partition.as_str()})
        }
        Report::Released { partition, .. } => {
            json!({"event": "released", "partition": partition.as_str()})
        }
        Report::Fenced { partition, .. } => {
            json!({"event": "fenced", "partition": partition.as_str()})
        }
        _ => return None,
    })
}
