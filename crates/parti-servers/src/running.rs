//! What all servers have in common: one process, one folder, and what a test does to them.

use std::path::{Path, PathBuf};

use crate::Error;
use crate::error::loud;
use crate::folder::Folder;
use crate::process::{Launch, Process};
use crate::tls::Certificates;

/// What differs between servers.
pub trait Kind: Send + Sync {
    /// What it is called.
    const NAME: &'static str;

    /// Host and port for clients.
    fn address(&self) -> String;

    /// The URL that Parti opens, with user and password if it needs them.
    fn url(&self) -> String;

    /// Whether it answers.
    fn is_ready(&self) -> bool;
}

/// A server with a folder of its own. Dropping it kills it and removes the folder.
#[derive(Debug)]
pub struct Running<K: Kind> {
    // Before the folder: fields are dropped in order, and the process writes there.
    process: Option<Process>,
    pub(crate) kind: K,
    pub(crate) launch: Launch,
    folder: Folder,
}

impl<K: Kind> Running<K> {
    /// Not started yet.
    pub(crate) fn prepared(kind: K, launch: Launch, folder: Folder) -> Self {
        Self {
            process: None,
            kind,
            launch,
            folder,
        }
    }

    /// Starts the process, and does not wait until it answers.
    pub(crate) fn spawn(&mut self) -> Result<(), Error> {
        self.process = Some(self.launch.spawn()?);
        Ok(())
    }

    /// Starts the process and waits until it answers.
    pub(crate) fn spawn_ready(&mut self, stubborn: bool) -> Result<(), Error> {
        let kind = &self.kind;
        let process = self.launch.spawn_ready(stubborn, || kind.is_ready())?;
        self.process = Some(process);
        Ok(())
    }

    /// Waits until a process that was spawned answers.
    pub(crate) fn wait_until_ready(&mut self) -> Result<(), Error> {
        let Some(process) = &mut self.process else {
            return Err(Error::new(format!("{} was not started", K::NAME)));
        };
        let kind = &self.kind;
        self.launch.wait_until_ready(process, || kind.is_ready())
    }

    /// The URL that Parti opens, with user and password if it needs them.
    pub fn url(&self) -> String {
        self.kind.url()
    }

    /// Host and port for clients, as in `127.0.0.1:4222`.
    pub fn address(&self) -> String {
        self.kind.address()
    }

    /// Its folder, with data and log.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The certificate that a client must trust, when the server was started with TLS.
    pub fn ca_certificate(&self) -> Option<PathBuf> {
        Some(Certificates::within(self.folder()).authority).filter(|file| file.exists())
    }

    /// A certificate and its key that a client may show, when the server was started with TLS.
    pub fn client_certificate(&self) -> Option<(PathBuf, PathBuf)> {
        let made = Certificates::within(self.folder());
        made.key.exists().then_some((made.certificate, made.key))
    }

    /// What it has written to its log.
    pub fn log(&self) -> String {
        let bytes = std::fs::read(self.launch.log()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The id of its process, while it runs.
    pub fn id(&mut self) -> Option<u32> {
        let process = self.process.as_mut()?;
        process.is_running().then(|| process.id())
    }

    /// Whether its process runs; a paused one does.
    pub fn is_running(&mut self) -> bool {
        self.id().is_some()
    }

    /// Kills it with SIGKILL and waits until it is gone. Its port stays reserved, its data stays.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill();
        }
    }

    /// Starts it again on the same port with the same data, killed before if it still runs. Waits
    /// until it answers; panics if it does not.
    #[track_caller]
    pub fn restart(&mut self) {
        self.kill();
        loud(self.spawn_ready(true));
    }

    /// Stops it with SIGSTOP: connections stay open, new ones are accepted by the kernel, and
    /// nobody answers.
    pub fn pause(&mut self) {
        if let Some(process) = &mut self.process {
            process.pause();
        }
    }

    /// Lets a paused server go on.
    pub fn resume(&mut self) {
        if let Some(process) = &mut self.process {
            process.resume();
        }
    }
}

/// Tries a start again, on other ports, when a program that is not ours took one between our look
/// and the server's.
pub(crate) fn try_thrice<T>(start: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
    let again = |error: Error| {
        let lost_a_port = error.to_string().contains("ddress already in use");
        if lost_a_port { start() } else { Err(error) }
    };
    start().or_else(again).or_else(again)
}
