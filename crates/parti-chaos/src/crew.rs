//! The worker processes: this same program, started, asked to go, killed, frozen.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use crate::failure::{Failure, While};
use crate::ledger::{Ledger, PATIENCE};

/// All processes of a scenario, by number; one that has ended keeps its number.
pub struct Crew {
    ledger: Ledger,
    folder: PathBuf,
    members: Vec<Member>,
}

struct Member {
    child: Child,
    reader: JoinHandle<()>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    Frozen,
    Ended,
}

impl Crew {
    /// Nobody yet. What processes say is kept in this folder, too.
    pub fn new(ledger: &Ledger, folder: &Path) -> Self {
        Self {
            ledger: ledger.clone(),
            folder: folder.to_owned(),
            members: Vec::new(),
        }
    }

    /// Starts a worker process with these arguments; says its number.
    pub fn spawn(&mut self, arguments: &[String]) -> Result<usize, Failure> {
        let process = self.members.len();
        let program = std::env::current_exe().during("finding this program")?;
        let complaints = std::fs::File::create(self.folder.join(format!("{process}.err")))
            .during("making a log")?;
        let mut child = Command::new(program)
            .arg("worker")
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(complaints)
            // Ctrl-C in a terminal is for us.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .during("starting a worker")?;
        let stdout = child.stdout.take();
        let stdout = stdout.ok_or_else(|| Failure::new("a worker without stdout"))?;
        let (ledger, log) = (
            self.ledger.clone(),
            self.folder.join(format!("{process}.jsonl")),
        );
        let reader = tokio::spawn(async move {
            let mut log = tokio::fs::File::create(log).await.ok();
            let mut lines = BufReader::new(stdout).lines();
            while let Ok(Some(mut text)) = lines.next_line().await {
                // A killed process may leave half a line behind.
                if let Ok(line) = serde_json::from_str(&text) {
                    ledger.said(process, line);
                }
                if let Some(log) = &mut log {
                    text.push('\n');
                    let _ = log.write_all(text.as_bytes()).await;
                }
            }
        });
        self.members.push(Member {
            child,
            reader,
            state: State::Running,
        });
        Ok(process)
    }

    /// The numbers of those that run.
    pub fn running(&self) -> Vec<usize> {
        let members = self.members.iter().enumerate();
        let running = members.filter(|(_, member)| member.state == State::Running);
        running.map(|(process, _)| process).collect()
    }

    /// The process id of one that runs.
    pub fn id(&self, process: usize) -> Option<u32> {
        self.members.get(process)?.child.id()
    }

    fn member(&mut self, process: usize) -> Result<&mut Member, Failure> {
        let member = self.members.get_mut(process);
        member.ok_or_else(|| Failure::new(format!("there is no process {process}")))
    }

    fn signal(&mut self, process: usize, signal: Signal) -> Result<(), Failure> {
        let id = self.member(process)?.child.id();
        let id = id.and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let id = id.ok_or_else(|| Failure::new(format!("process {process} has ended")))?;
        kill_process(id, signal).during("sending a signal")
    }

    /// Waits until a process is gone and all that it said is in the ledger; says whether it ended
    /// well.
    pub async fn gone(&mut self, process: usize) -> Result<bool, Failure> {
        let member = self.member(process)?;
        let ended = async {
            let status = member.child.wait().await.during("waiting for a worker")?;
            let reader = &mut member.reader;
            reader.await.during("reading a worker")?;
            Ok(status.success())
        };
        let ended = tokio::time::timeout(PATIENCE, ended).await;
        let ended = ended.during("a worker does not end")?;
        member.state = State::Ended;
        ended
    }

    /// Those that have ended by themselves since they were last asked about.
    pub async fn fallen(&mut self) -> Result<Vec<usize>, Failure> {
        let mut fallen = Vec::new();
        for process in self.running() {
            let ended = self.member(process)?.child.try_wait();
            if ended.during("looking at a worker")?.is_some() {
                self.gone(process).await?;
                fallen.push(process);
            }
        }
        Ok(fallen)
    }

    /// Asks a worker to hand over and go, and waits until it did.
    pub async fn leave(&mut self, process: usize) -> Result<(), Failure> {
        self.ask_to_leave(process)?;
        self.left(process).await
    }

    /// Asks a worker to hand over and go.
    pub fn ask_to_leave(&mut self, process: usize) -> Result<(), Failure> {
        self.signal(process, Signal::TERM)
    }

    /// Waits until one that was asked is gone.
    pub async fn left(&mut self, process: usize) -> Result<(), Failure> {
        if self.gone(process).await? {
            return Ok(());
        }
        let facts = self.ledger.facts();
        let why = facts.end_of(process).cloned().flatten();
        Err(Failure::new(format!(
            "process {process} did not leave in peace: {}",
            why.unwrap_or_default()
        )))
    }

    /// Kills a worker, and waits until it is gone.
    pub async fn kill(&mut self, process: usize) -> Result<(), Failure> {
        self.signal(process, Signal::KILL)?;
        self.gone(process).await.map(drop)
    }

    /// Stops a worker where it is.
    pub fn freeze(&mut self, process: usize) -> Result<(), Failure> {
        self.signal(process, Signal::STOP)?;
        self.member(process)?.state = State::Frozen;
        Ok(())
    }

    /// Lets a frozen one go on.
    pub fn thaw(&mut self, process: usize) -> Result<(), Failure> {
        self.signal(process, Signal::CONT)?;
        self.member(process)?.state = State::Running;
        Ok(())
    }

    /// Has all that run go, one after the other: each hands over to those that are left. Frozen ones
    /// are killed.
    pub async fn dismiss(&mut self) -> Result<(), Failure> {
        for process in self.running() {
            self.leave(process).await?;
        }
        let members = self.members.iter().enumerate();
        let frozen: Vec<usize> = members
            .filter(|(_, member)| member.state == State::Frozen)
            .map(|(process, _)| process)
            .collect();
        for process in frozen {
            self.kill(process).await?;
        }
        Ok(())
    }

    /// Asks all that run to go at once, and waits.
    pub async fn dismiss_at_once(&mut self) -> Result<(), Failure> {
        let running = self.running();
        for process in &running {
            self.ask_to_leave(*process)?;
        }
        for process in running {
            self.left(process).await?;
        }
        Ok(())
    }
}
