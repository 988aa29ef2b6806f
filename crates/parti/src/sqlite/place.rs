//! The file itself: whether it can be used, and whether it is still the one that was opened.
//!
//! Nothing here opens the database file. Closing any handle of a file gives up all POSIX locks that
//! the process has on it, also SQLite's; looking at its metadata does no harm.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::Fault;

/// File systems that several machines share. The WAL's index is shared memory: processes on two
/// machines would not see each other's, and ruin the file.
const OF_NETWORKS: [&str; 11] = [
    "afs",
    "beegfs",
    "ceph",
    "cifs",
    "fuse.glusterfs",
    "fuse.sshfs",
    "lustre",
    "nfs",
    "nfs4",
    "smb3",
    "smbfs",
];

/// Makes a path whole, so that a later change of the working folder does not matter, and refuses
/// what could not be used.
pub(super) fn usable(path: &Path) -> Result<PathBuf, Fault> {
    let refused = |why: String| Err(Fault::Refused(format!("{}: {why}", path.display())));
    let whole = match std::path::absolute(path) {
        Ok(whole) => whole,
        Err(error) => return refused(format!("this is no path of a file: {error}")),
    };
    let Some(folder) = whole.parent() else {
        return refused("this is a folder; name a file in it, such as parti.db".into());
    };
    match fs::metadata(&whole) {
        Ok(found) if found.is_dir() => {
            return refused("this is a folder; name a file in it, such as parti.db".into());
        }
        Ok(found) if !found.is_file() => {
            return refused("this is not a file; name another path".into());
        }
        Ok(found) if links(&found) > 1 => {
            return refused(
                "this file has several names (hard links), and each would get a WAL of its own; \
                 keep one of them"
                    .into(),
            );
        }
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => match fs::metadata(folder) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => return refused(format!("{} is not a folder", folder.display())),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return refused(format!(
                    "the folder {} is missing; create it",
                    folder.display()
                ));
            }
            Err(error) => {
                return refused(format!(
                    "the folder {} cannot be looked at: {error}",
                    folder.display()
                ));
            }
        },
        Err(error) => return refused(format!("it cannot be looked at: {error}")),
    }
    let real = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    if let Some(kind) = network(&mounts, &real) {
        return refused(format!(
            "this is on a network file system ({kind}), where processes cannot share a WAL; \
             use a disk of this machine, or a server as the store"
        ));
    }
    Ok(whole)
}

/// The kind of network file system that a path is on, by Linux's list of mounts.
fn network<'a>(mounts: &'a str, path: &Path) -> Option<&'a str> {
    let (_, kind) = mounts
        .lines()
        .filter_map(|line| {
            let (mount, source) = line.split_once(" - ")?;
            let point = mount.split(' ').nth(4)?.replace("\\040", " ");
            let kind = source.split(' ').next()?;
            path.starts_with(&point).then_some((point.len(), kind))
        })
        // Of two mounts at one point, the later lies over the earlier.
        .max_by_key(|(length, _)| *length)?;
    OF_NETWORKS.contains(&kind).then_some(kind)
}

/// Remembers which file was opened. A process that opens the path later must get the same one, or
/// two groups would live under one name.
#[derive(Debug)]
pub(crate) struct Guard {
    path: PathBuf,
    parts: Vec<(PathBuf, Identity)>,
    // Once it was gone it stays so: while it was away, somebody may have used it by another name.
    gone: OnceLock<String>,
}

type Identity = (u64, u64);

impl Guard {
    /// Remembers the files behind a path: the database, its WAL and the WAL's index.
    pub(super) fn new(path: PathBuf) -> Result<Self, Fault> {
        let whole = || {
            let real = fs::canonicalize(&path)?;
            let mut parts = vec![(path.clone(), identity(&fs::metadata(&path)?))];
            for ending in ["-wal", "-shm"] {
                let mut part = OsString::from(&real);
                part.push(ending);
                let found = identity(&fs::metadata(&part)?);
                parts.push((part.into(), found));
            }
            Ok(parts)
        };
        let parts = whole().map_err(|error: io::Error| {
            Fault::Trouble(format!("{} cannot be looked at: {error}", path.display()))
        })?;
        Ok(Self {
            path,
            parts,
            gone: OnceLock::new(),
        })
    }

    /// The path as it was given, made whole.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the path still leads to the files that were opened.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        let gone = |why: &String| Err(Fault::Refused(why.clone()));
        if let Some(why) = self.gone.get() {
            return gone(why);
        }
        for (part, opened) in &self.parts {
            let what = match fs::metadata(part) {
                Ok(found) if identity(&found) == *opened => continue,
                Ok(_) => "replaced",
                Err(error) if error.kind() == ErrorKind::NotFound => "deleted or moved",
                Err(error) => {
                    return Err(Fault::Trouble(format!(
                        "{} cannot be looked at: {error}",
                        part.display()
                    )));
                }
            };
            return gone(self.gone.get_or_init(|| {
                format!(
                    "{} was {what} while it was open; what is written now would be lost: stop every \
                     process that uses it, put the right file in place, start again",
                    part.display()
                )
            }));
        }
        Ok(())
    }

    /// The size of the WAL in bytes.
    pub(super) fn wal_size(&self) -> u64 {
        let wal = self.parts.get(1).map(|(part, _)| fs::metadata(part));
        wal.and_then(Result::ok).map_or(0, |found| found.len())
    }
}

#[cfg(unix)]
fn identity(found: &Metadata) -> Identity {
    use std::os::unix::fs::MetadataExt;
    (found.dev(), found.ino())
}

#[cfg(unix)]
fn links(found: &Metadata) -> u64 {
    use std::os::unix::fs::MetadataExt;
    found.nlink()
}

// Elsewhere an open file cannot be replaced.
#[cfg(not(unix))]
fn identity(_: &Metadata) -> Identity {
    (0, 0)
}

#[cfg(not(unix))]
fn links(_: &Metadata) -> u64 {
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_file_system_is_known_by_its_mount() {
        let mounts = "\
22 1 253:0 / / rw,relatime - ext4 /dev/vda rw
40 22 0:40 / /srv/my\\040share rw shared:1 - nfs4 host:/share rw
41 40 8:1 / /srv/my\\040share/disk rw - ext4 /dev/sdb rw";
        let on = |path: &str| network(mounts, Path::new(path));
        assert_eq!(on("/srv/my share/parti.db"), Some("nfs4"));
        assert_eq!(on("/srv/my share/disk/parti.db"), None);
        assert_eq!(on("/srv/my shared/parti.db"), None);
        assert_eq!(network("", Path::new("/x")), None);
    }

    #[test]
    fn what_cannot_be_a_file_is_refused_with_a_remedy() {
        let folder = tempfile::tempdir().expect("a folder");
        let plain = folder.path().join("plain");
        fs::write(&plain, "").expect("written");
        let refused = |path: &Path, part: &str| match usable(path) {
            Err(Fault::Refused(why)) => assert!(why.contains(part), "{why}"),
            other => panic!("{other:?}"),
        };
        refused(folder.path(), "name a file in it");
        refused(Path::new("/"), "name a file in it");
        refused(&folder.path().join("a/b.db"), "/a is missing; create it");
        refused(Path::new("/dev/null"), "not a file");
        assert_eq!(usable(&plain), Ok(plain.clone()));
        #[cfg(unix)]
        {
            fs::hard_link(&plain, folder.path().join("other")).expect("linked");
            refused(&plain, "hard links");
        }
    }
}
