//! The file itself: whether it can be used, and whether it is still the one that was opened.
//!
//! Nothing here opens the database file. Closing any handle of a file gives up all POSIX locks that
//! the process has on it, also SQLite's; looking at its metadata does no harm.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

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
///
/// ```text
///                    a part is not there, or another one
///   all is well ───────────────────────────────────────────▶ gone, for good
///       ▲  │
///       │  └─ with its whole folder, if it may return ──▶ away ── its folder was changed ──▶ gone
///       └──────── the very same folder and files ───────────┘
/// ```
///
/// A file is its database and its WAL: whoever opens one without the other, under another name, ruins
/// it for those who have both open. So what was taken out of its folder stays gone: it may have been
/// used meanwhile. A folder that is moved takes both along, and whoever uses them there has the same
/// files and locks as before; nobody can use one without the other there without a new or renamed
/// file, which changes the folder.
#[derive(Debug)]
pub(crate) struct Guard {
    path: PathBuf,
    parts: Vec<(PathBuf, Identity)>,
    /// The folder with which the file may return.
    folder: Option<Folder>,
    gone: OnceLock<String>,
}

type Identity = (u64, u64);

/// The folder of all parts.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    identity: Identity,
    seen: Mutex<Seen>,
}

/// A folder as it was last seen where it belongs.
#[derive(Debug)]
struct Seen {
    /// When something was made, renamed or removed in it.
    changed: SystemTime,
    /// It was not where it belongs since.
    away: bool,
}

impl Folder {
    /// When something in it was changed; none if it is not where it belongs.
    fn look(&self) -> Option<SystemTime> {
        let found = fs::metadata(&self.path).ok()?;
        (identity(&found) == self.identity).then(|| found.modified().ok())?
    }
}

impl Guard {
    /// Remembers the files behind a path: the database, its WAL and the WAL's index.
    pub(super) fn new(path: PathBuf, may_return: bool) -> Result<Self, Fault> {
        let whole = || {
            let real = fs::canonicalize(&path)?;
            let mut parts = vec![(path.clone(), identity(&fs::metadata(&path)?))];
            for ending in ["-wal", "-shm"] {
                let mut part = OsString::from(&real);
                part.push(ending);
                let found = identity(&fs::metadata(&part)?);
                parts.push((part.into(), found));
            }
            let folder = match may_return {
                true => folder(&path, &real)?,
                false => None,
            };
            Ok((parts, folder))
        };
        let (parts, folder) = whole().map_err(|error: io::Error| {
            Fault::Trouble(format!("{} cannot be looked at: {error}", path.display()))
        })?;
        Ok(Self {
            path,
            parts,
            folder,
            gone: OnceLock::new(),
        })
    }

    /// The path as it was given, made whole.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the path still leads to the files that were opened.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        if let Some(why) = self.gone.get() {
            return Err(Fault::Refused(why.clone()));
        }
        let Some(folder) = &self.folder else {
            return match self.lost()? {
                Some((part, what)) => Err(self.is_gone(part, what)),
                None => Ok(()),
            };
        };
        // Whoever looks has it to itself: else one who looked before it went could forget that.
        let mut seen = folder.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let before = folder.look();
        let lost = self.lost().inspect_err(|_| seen.away = true)?;
        // It may have gone, or come back, in between.
        let after = folder.look();
        let (part, what) = match (lost, before.and(after)) {
            (None, Some(changed)) if seen.away && changed != seen.changed => {
                return Err(self.is_gone(&folder.path, "moved away, and changed there,"));
            }
            (None, Some(changed)) => {
                *seen = Seen {
                    changed,
                    away: false,
                };
                return Ok(());
            }
            (Some((part, what)), Some(_)) => return Err(self.is_gone(part, what)),
            (Some(lost), None) => lost,
            (None, None) => (folder.path.as_path(), "moved"),
        };
        seen.away = true;
        Err(Fault::Refused(format!(
            "{} was {what} while it was open: put the very same folder back as it was, and this goes \
             on by itself; otherwise stop every process that uses it, put the right files in place, \
             start again",
            part.display()
        )))
    }

    /// The first part that is not the one that was opened, and what became of it.
    fn lost(&self) -> Result<Option<(&Path, &'static str)>, Fault> {
        for (part, opened) in &self.parts {
            match fs::metadata(part) {
                Ok(found) if identity(&found) == *opened => {}
                Ok(_) => return Ok(Some((part, "replaced"))),
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    return Ok(Some((part, "deleted or moved")));
                }
                Err(error) => {
                    return Err(Fault::Trouble(format!(
                        "{} cannot be looked at: {error}",
                        part.display()
                    )));
                }
            }
        }
        Ok(None)
    }

    /// From now on, whatever comes; the first reason stays.
    fn is_gone(&self, part: &Path, what: &str) -> Fault {
        let why = self.gone.get_or_init(|| {
            format!(
                "{} was {what} while it was open; what is written now would be lost: stop every \
                 process that uses it, put the right file in place, start again",
                part.display()
            )
        });
        Fault::Refused(why.clone())
    }

    /// The size of the WAL in bytes.
    pub(super) fn wal_size(&self) -> u64 {
        let wal = self.parts.get(1).map(|(part, _)| fs::metadata(part));
        wal.and_then(Result::ok).map_or(0, |found| found.len())
    }
}

/// The folder of a file and of its WAL; none if a link keeps them apart.
fn folder(path: &Path, real: &Path) -> io::Result<Option<Folder>> {
    let (Some(of_path), Some(of_real)) = (path.parent(), real.parent()) else {
        return Ok(None);
    };
    let found = fs::metadata(of_path)?;
    if identity(&found) != identity(&fs::metadata(of_real)?) {
        return Ok(None);
    }
    Ok(Some(Folder {
        path: of_path.to_owned(),
        identity: identity(&found),
        seen: Mutex::new(Seen {
            changed: found.modified()?,
            away: false,
        }),
    }))
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

    /// A file with its companions in a folder, and its guard.
    fn guarded(folder: &Path, may_return: bool) -> Guard {
        fs::create_dir(folder).expect("a folder");
        for part in ["a.db", "a.db-wal", "a.db-shm"] {
            fs::write(folder.join(part), part).expect("written");
        }
        let guard = Guard::new(folder.join("a.db"), may_return).expect("a guard");
        assert_eq!(guard.check(), Ok(()));
        guard
    }

    #[track_caller]
    fn refuses(guard: &Guard, part: &str) {
        match guard.check() {
            Err(Fault::Refused(why)) => assert!(why.contains(part), "{why}"),
            other => panic!("{other:?}"),
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_that_comes_back_as_it_was_is_used_again_if_it_may() {
        let place = tempfile::tempdir().expect("a folder");
        let (home, away) = (place.path().join("home"), place.path().join("away"));
        let guard = guarded(&home, true);
        for _ in 0..2 {
            fs::rename(&home, &away).expect("moved");
            refuses(&guard, "a.db was deleted or moved");
            // Another one in its place is not it, and leaves no trace.
            fs::create_dir(&home).expect("a folder");
            refuses(&guard, "put the very same folder back");
            fs::write(home.join("a.db"), "another").expect("written");
            refuses(&guard, "a.db was replaced");
            fs::remove_dir_all(&home).expect("removed");
            fs::rename(&away, &home).expect("moved back");
            assert_eq!(guard.check(), Ok(()));
            // What is made where it belongs does not count.
            fs::write(home.join("b.db"), "").expect("written");
            assert_eq!(guard.check(), Ok(()));
            fs::remove_file(home.join("b.db")).expect("removed");
            assert_eq!(guard.check(), Ok(()));
        }
        let other = guarded(&place.path().join("other"), false);
        let (home, away) = (place.path().join("other"), place.path().join("gone"));
        fs::rename(&home, &away).expect("moved");
        refuses(&other, "stop every process");
        fs::rename(&away, &home).expect("moved back");
        refuses(&other, "a.db was deleted or moved");
    }

    #[cfg(unix)]
    #[test]
    fn what_may_have_been_used_without_its_wal_stays_gone() {
        let place = tempfile::tempdir().expect("a folder");
        let taken_out = |part: &str| {
            let home = place.path().join(format!("of-{part}"));
            let guard = guarded(&home, true);
            fs::rename(home.join(part), home.join("x")).expect("moved");
            refuses(&guard, "was deleted or moved");
            fs::rename(home.join("x"), home.join(part)).expect("moved back");
            refuses(&guard, "stop every process");
        };
        taken_out("a.db");
        taken_out("a.db-wal");
        // The same, in a folder that was moved.
        let (home, away) = (place.path().join("home"), place.path().join("away"));
        let guard = guarded(&home, true);
        fs::rename(&home, &away).expect("moved");
        refuses(&guard, "put the very same folder back");
        let before = fs::metadata(&away).and_then(|found| found.modified());
        while fs::metadata(&away).and_then(|found| found.modified()).ok()
            == before.as_ref().ok().copied()
        {
            fs::rename(away.join("a.db"), away.join("x")).expect("moved");
            fs::rename(away.join("x"), away.join("a.db")).expect("moved back");
        }
        fs::rename(&away, &home).expect("moved back");
        refuses(
            &guard,
            "home was moved away, and changed there, while it was open",
        );
        refuses(&guard, "stop every process");
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
