//! Finds the programs, and fetches those that are not there.
//!
//! ```text
//!   environment variable ──▶ PATH and the usual folders ──▶ cache folder ──▶ fetched into it
//!   (must be right)                                          one process fetches, others wait
//! ```
//!
//! The cache folder is `$PARTI_SERVERS_CACHE`, or `parti-servers` in `$XDG_CACHE_HOME` or
//! `~/.cache`. What is in it was unpacked there, not installed: nothing runs because of it, and it
//! can be deleted at any time.

mod debian;
mod etcd;
mod nats;
mod postgres;
mod prometheus;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::Error;
use crate::process::is_program;

pub use etcd::etcd;
pub use nats::{NATS_LATEST, NATS_OLDEST, nats};
pub use postgres::{PostgresPrograms, postgres};
pub use prometheus::prometheus;

/// Finds or fetches everything; each with its name and what came of it.
pub fn everything() -> Vec<(String, Result<PathBuf, Error>)> {
    vec![
        (format!("nats-server {NATS_LATEST}"), nats(NATS_LATEST)),
        (format!("nats-server {NATS_OLDEST}"), nats(NATS_OLDEST)),
        ("etcd".to_owned(), etcd()),
        (
            "PostgreSQL".to_owned(),
            postgres().map(|programs| programs.postgres),
        ),
        ("Prometheus".to_owned(), prometheus()),
    ]
}

/// The program that a variable names. One that names nothing is an error: whoever set it would
/// not want another program used in silence.
fn from_environment(variable: &str) -> Result<Option<PathBuf>, Error> {
    match std::env::var_os(variable).map(PathBuf::from) {
        None => Ok(None),
        Some(file) if is_program(&file) => Ok(Some(file)),
        Some(file) => Err(Error::new(format!(
            "{variable} names {}, which is not a program; correct or unset it",
            file.display()
        ))),
    }
}

/// The folder where fetched programs are.
fn cache() -> Result<PathBuf, Error> {
    let set = |variable| std::env::var_os(variable).filter(|value| !value.is_empty());
    let folder = set("PARTI_SERVERS_CACHE")
        .map(PathBuf::from)
        .or_else(|| set("XDG_CACHE_HOME").map(|cache| Path::new(&cache).join("parti-servers")))
        .or_else(|| set("HOME").map(|home| Path::new(&home).join(".cache/parti-servers")))
        .ok_or_else(|| {
            Error::new("no folder to keep servers in: set HOME or PARTI_SERVERS_CACHE")
        })?;
    fs::create_dir_all(&folder)
        .map_err(|error| Error::new(format!("cannot create {}: {error}", folder.display())))?;
    Ok(folder)
}

/// The program `file` within the cached folder `name`, which `fetch` fills if it is not there.
/// Test processes that run side by side fetch once; one that is killed meanwhile leaves nothing
/// that looks complete.
fn cached(
    name: &str,
    file: &str,
    fetch: impl FnOnce(&Path) -> Result<(), Error>,
) -> Result<PathBuf, Error> {
    cached_in(&cache()?, name, file, fetch)
}

fn cached_in(
    cache: &Path,
    name: &str,
    file: &str,
    fetch: impl FnOnce(&Path) -> Result<(), Error>,
) -> Result<PathBuf, Error> {
    let complete = cache.join(name);
    let program = complete.join(file);
    if is_program(&program) {
        return Ok(program);
    }
    let io = |error: std::io::Error| {
        Error::new(format!(
            "cannot keep {name} in {}: {error}",
            cache.display()
        ))
    };
    let lock = File::create(cache.join(format!("{name}.lock"))).map_err(io)?;
    lock.lock().map_err(io)?;
    if is_program(&program) {
        return Ok(program);
    }
    let partial = cache.join(format!("{name}.partial"));
    for leftover in [&partial, &complete] {
        if leftover.exists() {
            fs::remove_dir_all(leftover).map_err(io)?;
        }
    }
    fs::create_dir_all(&partial).map_err(io)?;
    fetch(&partial)?;
    if !is_program(&partial.join(file)) {
        return Err(Error::new(format!(
            "what was fetched for {name} holds no program {file}; look into {}",
            partial.display()
        )));
    }
    fs::rename(&partial, &complete).map_err(io)?;
    Ok(program)
}

/// One message for one missing thing: what, how to get it, and why we could not.
fn missing(what: &str, remedy: &str, variable: &str, why: &dyn std::fmt::Display) -> Error {
    Error::new(format!(
        "{what} is missing, and could not be fetched.\n\
         get it with: {remedy}\n\
         or set {variable} to where it is.\n\
         {why}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn put_program(folder: &Path) -> Result<(), Error> {
        let file = folder.join("program");
        fs::write(&file, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        Ok(())
    }

    #[test]
    fn what_many_want_is_fetched_once() {
        let cache = tempfile::tempdir().unwrap();
        let fetches = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let found = cached_in(cache.path(), "thing", "program", |folder| {
                        fetches.fetch_add(1, Ordering::Relaxed);
                        put_program(folder)
                    });
                    assert!(is_program(&found.unwrap()));
                });
            }
        });
        assert_eq!(fetches.into_inner(), 1);
    }

    #[test]
    fn a_failed_fetch_leaves_nothing_that_looks_complete() {
        let cache = tempfile::tempdir().unwrap();
        let failed = cached_in(cache.path(), "thing", "program", |folder| {
            fs::write(folder.join("half"), "").unwrap();
            Err(Error::new("no network"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "no network");
        let empty = cached_in(cache.path(), "thing", "program", |_| Ok(()));
        assert!(empty.unwrap_err().to_string().contains("no program"));
        let found = cached_in(cache.path(), "thing", "program", put_program).unwrap();
        assert!(is_program(&found));
        assert!(!found.with_file_name("half").exists());
    }

    #[test]
    fn the_message_names_thing_command_and_variable() {
        let text = missing("etcd", "apt-get install", "PARTI_ETCD", &"no network").to_string();
        for part in [
            "etcd is missing",
            "apt-get install",
            "PARTI_ETCD",
            "no network",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}
