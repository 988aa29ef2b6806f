//! The store on a disk that is full, and on one that is read-only.
//!
//! The disk is a small file system in memory. Only root may mount one: elsewhere this test says
//! that it was left out.
#![cfg(all(feature = "sqlite", target_os = "linux"))]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use parti::store::sqlite::Sqlite;
use parti::store::{Error, Store, StoreExt};

struct Disk<'p>(&'p Path);

impl<'p> Disk<'p> {
    fn mount(at: &'p Path) -> Option<Self> {
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"])
            .arg(at)
            .status();
        mounted
            .is_ok_and(|status| status.success())
            .then_some(Self(at))
    }

    fn make_read_only(&self) {
        let remounted = Command::new("mount")
            .args(["-o", "remount,ro"])
            .arg(self.0)
            .status();
        assert!(remounted.expect("it was there before").success());
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0).status();
    }
}

/// The store's threads end some time after it is dropped. Then, and only then, SQLite lets somebody
/// else leave the WAL mode.
async fn closed(path: &Path) {
    loop {
        let other = rusqlite::Connection::open(path).expect("opened");
        let mode = other.pragma_update_and_check(None, "journal_mode", "DELETE", |row| {
            row.get::<_, String>(0)
        });
        if mode.is_ok_and(|mode| mode == "delete") {
            return;
        }
        drop(other);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_full_disk_refuses_and_recovers_and_a_read_only_one_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(disk) = Disk::mount(folder.path()) else {
        println!("left out: no file system can be mounted here");
        return;
    };
    let path = folder.path().join("parti.db");
    let url = format!("sqlite:{}", path.display());
    let store = Sqlite::open(&url).await.expect("it opens");
    let filler = folder.path().join("filler");
    fs::write(&filler, vec![0; 1 << 20]).expect("it fits");

    let mut kept = Vec::new();
    let refused = loop {
        let key = format!("a/{}", kept.len());
        match store.create(&key, vec![7; 20_000]).await {
            Ok(revision) => kept.push((key, revision)),
            Err(error) => break error,
        }
    };
    let Error::Rejected { why } = &refused else {
        panic!("{refused:?}");
    };
    assert!(why.contains("no space is left on the disk"), "{why}");
    assert!(!kept.is_empty());
    let lost = format!("a/{}", kept.len());
    assert_eq!(store.read(&lost).await, Ok(None));

    fs::remove_file(&filler).expect("removed");
    let revision = store.create(&lost, vec![7; 20_000]).await;
    kept.push((lost, revision.expect("there is space again")));
    drop(store);
    closed(&folder.path().join("parti.db")).await;

    let store = Sqlite::open(&url).await.expect("it opens");
    for (key, revision) in &kept {
        let entry = store.read(key).await.expect("read").expect("kept");
        assert_eq!(entry.revision, *revision, "{key}");
    }
    drop(store);
    closed(&folder.path().join("parti.db")).await;
    disk.make_read_only();
    let refused = Sqlite::open(&url).await.expect_err("read-only");
    assert!(matches!(refused, Error::Rejected { .. }), "{refused:?}");
    println!("{refused}");
}
