//! A temporary folder for one server, removed with it; and what earlier runs left, removed too.
//!
//! A process that is killed removes nothing. So each folder holds a file that its process keeps
//! locked, and the next process removes every folder whose lock nobody holds.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Once;

use tempfile::TempDir;

use crate::Error;

const PREFIX: &str = "parti-servers.";
const IN_USE: &str = "in-use";
const NOT_YET: &str = "in-use.new";

/// A folder that is ours until dropped.
#[derive(Debug)]
pub(crate) struct Folder {
    folder: TempDir,
    _lock: File,
}

impl Folder {
    /// A new one, for a server of this name.
    pub(crate) fn new(name: &str) -> Result<Self, Error> {
        static SWEEP: Once = Once::new();
        SWEEP.call_once(|| sweep(&std::env::temp_dir()));
        Self::within(&std::env::temp_dir(), name).map_err(|error| {
            Error::new(format!(
                "cannot create a folder in {}: {error}",
                std::env::temp_dir().display()
            ))
        })
    }

    fn within(parent: &Path, name: &str) -> std::io::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix(&format!("{PREFIX}{name}-"))
            .tempdir_in(parent)?;
        // Under its name only once it is locked: another process that sweeps just now would take
        // one that nobody holds for a dead process's, and remove the folder.
        let unnamed = folder.path().join(NOT_YET);
        let lock = File::create(&unnamed)?;
        lock.lock()?;
        fs::rename(&unnamed, folder.path().join(IN_USE))?;
        Ok(Self {
            folder,
            _lock: lock,
        })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes folders that nobody uses. Best effort: they only take room.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        // One without the file is just being made.
        if is_ours
            && let Ok(lock) = File::open(entry.path().join(IN_USE))
            && lock.try_lock().is_ok()
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Writes a file of a server.
pub(crate) fn write(file: &Path, text: &str) -> Result<(), Error> {
    fs::write(file, text)
        .map_err(|error| Error::new(format!("cannot write {}: {error}", file.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_takes_nothing_that_is_just_being_made() {
        let parent = tempfile::tempdir().unwrap();
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|threads| {
            for _ in 0..2 {
                threads.spawn(|| {
                    while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                        sweep(parent.path());
                    }
                });
            }
            let made: Vec<_> = (0..1_000)
                .map(|_| Folder::within(parent.path(), "new"))
                .map(|made| made.is_ok_and(|folder| folder.path().join(IN_USE).exists()))
                .collect();
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(made, vec![true; 1_000]);
        });
    }

    #[test]
    fn what_a_dead_process_left_goes_and_what_a_live_one_uses_stays() {
        let parent = tempfile::tempdir().unwrap();
        let used = Folder::within(parent.path(), "used").unwrap();
        let stranger = parent.path().join("somebody-else");
        fs::create_dir(&stranger).unwrap();
        fs::write(stranger.join(IN_USE), "").unwrap();
        let Folder {
            folder,
            _lock: lock,
        } = Folder::within(parent.path(), "left").unwrap();
        let left = folder.keep();
        drop(lock);

        sweep(parent.path());

        assert!(used.path().exists());
        assert!(stranger.exists());
        assert!(!left.exists());
    }
}
