//! One server process and its children: started, waited for, killed, paused, resumed.
//!
//! ```text
//!   Launch ──spawn──▶ Process ──wait_until_ready──▶ answers
//!                      │ pause: SIGSTOP  resume: SIGCONT  kill: SIGKILL, then reaped
//!                      └ drop: kill
//! ```
//!
//! Signals reach the process and its children. PostgreSQL needs that: each of its connections is
//! a process with a session of its own, which neither a signal to the parent nor one to the process
//! group would reach.
//!
//! When the test process itself dies without dropping anything, the kernel kills the servers: they
//! are started through `setpriv --pdeathsig`, where there is one. That signal comes when the
//! *thread* ends that started them, so one thread that never ends starts them all.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{LazyLock, mpsc};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::Error;

/// How long a server may take to answer. Long, because a loaded machine is slow and a test that
/// gives up early tells nothing.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// A user and a group to run as.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) user: u32,
    pub(crate) group: u32,
}

/// How to start a process; the same each time it is restarted.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    /// What it is called in messages.
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) folder: PathBuf,
    /// As whom, if not as ourselves.
    pub(crate) identity: Option<Identity>,
}

impl Launch {
    /// Where its output goes.
    pub(crate) fn log(&self) -> PathBuf {
        self.folder.join("server.log")
    }

    /// The end of its output, for messages.
    pub(crate) fn log_tail(&self) -> String {
        const LINES: usize = 40;
        let bytes = fs::read(self.log()).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }

    fn command(&self) -> io::Result<Command> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log())?;
        let mut command = match setpriv() {
            Some(setpriv) => {
                let mut command = Command::new(setpriv);
                command.args(["--pdeathsig", "KILL"]).arg(&self.program);
                command
            }
            None => Command::new(&self.program),
        };
        command
            .args(&self.arguments)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // Ctrl-C in a terminal is for us; we end the server ourselves.
            .process_group(0);
        if let Some(identity) = self.identity {
            command.uid(identity.user).gid(identity.group);
        }
        Ok(command)
    }

    /// Starts it.
    pub(crate) fn spawn(&self) -> Result<Process, Error> {
        self.command()
            .and_then(spawn)
            .map(|child| Process {
                child,
                ended: false,
            })
            .map_err(|error| {
                Error::new(format!(
                    "{} cannot be started from {}: {error}",
                    self.name,
                    self.program.display()
                ))
            })
    }

    /// Starts it and waits until `is_ready` says that it answers. A process that ends instead is
    /// started again when `stubborn`, up to the end of our patience: just after a kill, what its
    /// predecessor held may not be free yet.
    pub(crate) fn spawn_ready(
        &self,
        stubborn: bool,
        is_ready: impl Fn() -> bool,
    ) -> Result<Process, Error> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut process = self.spawn()?;
            match self.wait_until_ready(&mut process, &is_ready) {
                Ok(()) => return Ok(process),
                Err(error) if !stubborn || Instant::now() > deadline => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    /// Waits until `is_ready` says that the process answers.
    pub(crate) fn wait_until_ready(
        &self,
        process: &mut Process,
        is_ready: impl Fn() -> bool,
    ) -> Result<(), Error> {
        let deadline = Instant::now() + PATIENCE;
        let what = loop {
            let answers = is_ready();
            // Looked at after the answer: another program on our port would answer too.
            match (process.is_running(), answers) {
                (true, true) => return Ok(()),
                (false, _) => break "ended instead of starting",
                (true, false) if Instant::now() > deadline => break "did not become ready",
                (true, false) => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        Err(Error::new(format!(
            "{} {what}. The end of its log:\n{}",
            self.name,
            self.log_tail()
        )))
    }
}

/// A running process; killed when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    ended: bool,
}

impl Process {
    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has not ended.
    pub(crate) fn is_running(&mut self) -> bool {
        if !self.ended {
            self.ended = !matches!(self.child.try_wait(), Ok(None));
        }
        !self.ended
    }

    /// Kills it and its children, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        if !self.is_running() {
            return;
        }
        // Stopped first, so that it cannot have one more child while we look.
        self.signal(Signal::STOP);
        let children = children_of(self.id());
        for child in &children {
            let _ = kill_process(*child, Signal::KILL);
        }
        self.signal(Signal::KILL);
        let _ = self.child.wait();
        self.ended = true;
        // Orphans are reaped by whoever inherits them; until then they may hold ports and memory.
        let deadline = Instant::now() + PATIENCE;
        while children.iter().any(|child| is_alive(*child)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Stops it in its tracks. Its connections stay open and silent.
    pub(crate) fn pause(&mut self) {
        if self.is_running() {
            self.signal(Signal::STOP);
            let mut processes = children_of(self.id());
            for child in &processes {
                let _ = kill_process(*child, Signal::STOP);
            }
            // A signal is on its way, not yet there, when the call returns.
            processes.push(Pid::from_child(&self.child));
            let deadline = Instant::now() + PATIENCE;
            while processes.iter().any(|process| !is_stopped(*process)) && Instant::now() < deadline
            {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Lets it go on.
    pub(crate) fn resume(&mut self) {
        if self.is_running() {
            for child in children_of(self.id()) {
                let _ = kill_process(child, Signal::CONT);
            }
            self.signal(Signal::CONT);
        }
    }

    fn signal(&self, signal: Signal) {
        // Not yet reaped, so the id is still ours.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs a command to its end; its output is part of the error.
pub(crate) fn run(command: &mut Command) -> Result<String, Error> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Error::new(format!("`{}`: {error}", typed(command))))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    Err(Error::new(format!(
        "`{}` failed with {}:\n{text}{}",
        typed(command),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    )))
}

fn typed(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy()];
    words.extend(command.get_args().map(|word| word.to_string_lossy()));
    words.join(" ")
}

/// A program of this name in the folders of `PATH`, and in those where `PATH` of a plain user
/// does not look.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|file| is_program(file))
}

/// Whether this file can be executed.
pub(crate) fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(file).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

fn setpriv() -> Option<&'static Path> {
    // Only where it knows the option: other systems have other programs of this name.
    static SETPRIV: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
        find_program("setpriv").filter(|setpriv| {
            run(Command::new(setpriv).args(["--pdeathsig", "KILL", "true"])).is_ok()
        })
    });
    SETPRIV.as_deref()
}

type Request = (Command, mpsc::Sender<io::Result<Child>>);

fn spawn(command: Command) -> io::Result<Child> {
    static SPAWNER: LazyLock<mpsc::Sender<Request>> = LazyLock::new(|| {
        let (requests, work) = mpsc::channel::<Request>();
        std::thread::spawn(move || {
            for (mut command, reply) in work {
                // Who asked may have been stopped meanwhile; then the child goes with the reply.
                let _ = reply.send(command.spawn());
            }
        });
        requests
    });
    let gone = || io::Error::other("the thread that starts servers is gone");
    let (reply, answer) = mpsc::channel();
    SPAWNER.send((command, reply)).map_err(|_| gone())?;
    answer.recv().map_err(|_| gone())?
}

fn children_of(parent: u32) -> Vec<Pid> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    processes
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|id| stat(*id).is_some_and(|(_, its_parent)| its_parent == parent))
        .filter_map(Pid::from_raw)
        .collect()
}

fn is_alive(process: Pid) -> bool {
    stat(process.as_raw_pid()).is_some_and(|(state, _)| state != 'Z' && state != 'X')
}

/// Whether none of its threads runs; one that has ended does not.
fn is_stopped(process: Pid) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else {
        return true;
    };
    threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok())
        .filter_map(|text| state_and_parent(&text))
        .all(|(state, _)| matches!(state, 'T' | 't' | 'Z' | 'X'))
}

/// State and parent of a process.
fn stat(process: i32) -> Option<(char, u32)> {
    state_and_parent(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

/// The name before them is in brackets and may hold anything.
fn state_and_parent(text: &str) -> Option<(char, u32)> {
    let (_, rest) = text.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}
