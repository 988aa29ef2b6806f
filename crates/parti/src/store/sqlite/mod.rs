//! The store on one file, which several processes of one machine share.
//!
//! ```text
//!   read, list ──▶ readers ─┐
//!   write ───────▶ writer ──┼─▶ PATH, PATH-wal, PATH-shm ◀── other processes
//!   watch ◀─beat── pulse ───┘
//!      ▲── recent: what is new, read once for all of them
//! ```
//!
//! SQLite blocks, so each handle has threads of its own: one that writes (`writer`), two that
//! read, one that looks for changes while somebody watches (`pulse`). They end once the handle
//! and its watches are dropped. What was acknowledged is on the disk: a kill or a power cut at any
//! moment loses nothing of it.
//!
//! The URL is `sqlite:` and a path, which is taken literally, with whatever spaces, `?`, `%` or `#`
//! it has. A relative one counts from the folder in which the process is when it opens the store.
//! `sqlite:///var/lib/parti.db` is the same as `sqlite:/var/lib/parti.db`.
//!
//! What to know when running it:
//!
//! - The file must be on a disk of this machine. Network file systems are refused where they can be
//!   told; processes on two machines would ruin the file.
//! - Its companions `PATH-wal` and `PATH-shm` belong to it. Back it up with `sqlite3 PATH .backup`,
//!   never by copying the file alone. Moving, deleting or replacing any of them while a process
//!   has it open is noticed within moments: from then on the store refuses everything, because
//!   another process could be on another file by the same name.
//! - The table `records` can be read with the `sqlite3` program. A row without value is a key that
//!   was deleted lately.
//! - A process that cannot get the lock for 5 s answers `Unavailable`. A full disk is `Rejected`
//!   until there is space again.

mod recent;
mod records;
#[cfg(test)]
mod tests;
mod watch;
mod writer;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use async_trait::async_trait;
use rusqlite::Connection;
use tokio::sync::oneshot;

use self::recent::Recent;
use self::records::LAYOUT;
use self::writer::Writer;
use super::{About, Entry, Error, Revision, Scope, Store, Watch, Write, check_key};
use crate::sqlite::{Database, Fault, Pulse};

/// So many threads read: a long list does not hold up a watch.
const READERS: usize = 2;

/// A store on one file. Clones share their threads.
#[derive(Clone)]
pub struct Sqlite {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    readers: Sender<Reading>,
    pulse: Arc<Pulse>,
    recent: Recent,
    writer: Writer,
}

type Reading = Box<dyn FnOnce(&mut Database) + Send>;

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sqlite").field(&self.inner.name).finish()
    }
}

impl Sqlite {
    /// Opens the file that a URL such as `sqlite:parti.db` names, or creates it.
    pub async fn open(url: &str) -> Result<Self, Error> {
        let path = path(url)?;
        let (reply, answer) = oneshot::channel();
        thread::Builder::new()
            .name("parti-sqlite-open".into())
            .spawn(move || {
                // Nobody may be waiting any more; then it is closed again.
                let _ = reply.send(Inner::open(path));
            })
            .map_err(no_thread)?;
        let inner = answer
            .await
            .map_err(|_| Error::unavailable("the thread that opens the file has ended"))??;
        Ok(Self {
            inner: Arc::new(inner),
        })
    }
}

impl Inner {
    fn open(path: PathBuf) -> Result<Self, Error> {
        let database = Database::open(&path, &LAYOUT).map_err(error)?;
        let name = format!("sqlite:{}", database.guard().path().display());
        let (readers, queue) = mpsc::channel::<Reading>();
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..READERS {
            let mut reader = database.again(&LAYOUT).map_err(error)?;
            let queue = queue.clone();
            thread::Builder::new()
                .name("parti-sqlite-read".into())
                .spawn(move || {
                    while let Some(reading) = next(&queue) {
                        reading(&mut reader);
                    }
                })
                .map_err(no_thread)?;
        }
        let pulse = Arc::new(
            database
                .again(&LAYOUT)
                .map_err(error)
                .and_then(|database| Pulse::start(database).map_err(no_thread))?,
        );
        let writer = Writer::start(database, pulse.clone()).map_err(no_thread)?;
        Ok(Self {
            name,
            readers,
            pulse,
            recent: Recent::default(),
            writer,
        })
    }

    /// Reads in one transaction, on a thread that may block.
    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        let reading = Box::new(move |database: &mut Database| {
            // Whoever asked may be gone: then there is no need to look.
            if !reply.is_closed() {
                let _ = reply.send(database.read(work).map_err(error));
            }
        });
        let ended = || Error::unavailable("the threads that read have ended");
        self.readers.send(reading).map_err(|_| ended())?;
        answer.await.unwrap_or_else(|_| Err(ended()))
    }
}

fn next(queue: &Mutex<Receiver<Reading>>) -> Option<Reading> {
    let queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
    queue.recv().ok()
}

#[async_trait]
impl Store for Sqlite {
    fn name(&self) -> &str {
        &self.inner.name
    }

    async fn read(&self, key: &str) -> Result<Option<Entry>, Error> {
        check_key(key)?;
        let key = key.to_owned();
        self.inner
            .read(move |connection| records::read(connection, &key))
            .await
    }

    async fn list(&self, scope: &Scope) -> Result<Vec<Entry>, Error> {
        scope.check()?;
        let scope = scope.clone();
        self.inner
            .read(move |connection| records::list(connection, &scope))
            .await
    }

    async fn about(&self) -> Result<About, Error> {
        Ok(About {
            server: Some(format!("SQLite {}", rusqlite::version())),
            ..About::default()
        })
    }

    async fn write(&self, batch: Vec<Write>) -> Vec<Result<Revision, Error>> {
        self.inner.writer.write(batch).await
    }

    fn watch(&self, scope: Scope) -> Watch {
        watch::watch(self.inner.clone(), scope)
    }
}

/// Whether the URL can be used.
pub(super) fn check_url(url: &str) -> Result<(), Error> {
    path(url).map(|_| ())
}

/// Whether the file that the URL names is there.
pub(super) async fn is_there(url: &str) -> Result<bool, Error> {
    let path = path(url)?;
    let shown = path.display().to_string();
    match tokio::task::spawn_blocking(move || path.try_exists()).await {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(error)) => Err(Error::rejected(format!("{shown}: {error}"))),
        Err(error) => Err(Error::unavailable(error)),
    }
}

/// The path of a URL.
fn path(url: &str) -> Result<PathBuf, Error> {
    let refused = |why: &str| Err(Error::rejected(format!("the URL cannot be used: {why}")));
    let path = match url.split_once(':') {
        Some((scheme, path)) if scheme.eq_ignore_ascii_case("sqlite") => path,
        _ => return refused("it does not start with sqlite:"),
    };
    let path = match path.strip_prefix("//") {
        None => path,
        Some(path) if path.starts_with('/') => path,
        Some(_) => {
            return refused(
                "after sqlite:// a host would follow, and a file has none; write sqlite:parti.db or \
                 sqlite:///var/lib/parti.db",
            );
        }
    };
    match path {
        "" => refused("the path is missing, as in sqlite:parti.db"),
        path if path.contains('\0') => refused("the path holds a NUL character"),
        path if path.ends_with('/') || Path::new(path).file_name().is_none() => {
            refused("the path names a folder; name a file in it, as in sqlite:data/parti.db")
        }
        path => Ok(path.into()),
    }
}

/// What a fault means to a caller, if nothing was done.
fn error(fault: Fault) -> Error {
    match fault {
        Fault::Busy(why) | Fault::Trouble(why) => Error::unavailable(why),
        Fault::Refused(why) => Error::rejected(why),
        Fault::Damaged(why) => Error::corrupt("the store", why),
    }
}

fn no_thread(error: std::io::Error) -> Error {
    Error::unavailable(format!("no thread could be started: {error}"))
}
