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
        let lock = File::create(folder.path().join(IN_USE))?;
        lock.lock()?;
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
