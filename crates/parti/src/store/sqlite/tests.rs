//! Tests of what only this backend has.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use futures_util::{FutureExt, StreamExt, future};
use rusqlite::Connection;
use tempfile::TempDir;

use super::*;
use crate::store::{Bytes, Change, Expect, StoreExt};

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

async fn open(path: &Path) -> Sqlite {
    let url = format!("sqlite:{}", path.display());
    Sqlite::open(&url).await.expect("it opens")
}

async fn refused(path: &Path, part: &str) {
    let url = format!("sqlite:{}", path.display());
    match Sqlite::open(&url).await {
        Err(Error::Rejected { why }) => {
            assert!(why.contains(part), "{why:?} does not say {part:?}");
            assert!(why.contains(&path.display().to_string()), "{why}");
        }
        other => panic!("{other:?} instead of a refusal that says {part:?}"),
    }
}

/// The threads end some time after the handle is dropped. Then, and only then, SQLite lets somebody
/// else leave the WAL mode. (That the WAL is gone would say less: two who close at the same moment
/// leave it behind for the next one.)
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
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

fn put(key: &str, expect: Expect, value: &str) -> Write {
    Write {
        key: key.into(),
        expect,
        value: Some(Bytes::copy_from_slice(value.as_bytes())),
    }
}

async fn synced(watch: &mut Watch) -> Vec<Change> {
    let mut told = Vec::new();
    loop {
        match watch.next().await.expect("it never ends") {
            Change::Synced => return told,
            change => told.push(change),
        }
    }
}

#[test]
fn the_path_is_what_follows_the_scheme() {
    for (url, expected) in [
        ("sqlite:parti.db", "parti.db"),
        ("SQLite:./a b/c?d=%20#e", "./a b/c?d=%20#e"),
        ("sqlite:/abs", "/abs"),
        ("sqlite:///abs", "/abs"),
        ("sqlite:a:b", "a:b"),
    ] {
        assert_eq!(path(url), Ok(PathBuf::from(expected)), "{url}");
    }
    for url in [
        "sqlite:",
        "sqlite://",
        "sqlite://parti.db",
        "sqlite:a/",
        "sqlite:a\0",
        "nats:a",
        "sqlite",
    ] {
        assert!(matches!(path(url), Err(Error::Rejected { .. })), "{url}");
    }
}

#[tokio::test]
async fn revisions_grow_across_deletes_and_restarts() {
    let folder = folder();
    let path = folder.path().join("odd name %20?x=#.db");
    let store = open(&path).await;
    let created = store.create("a/b", "1").await.expect("created");
    let deleted = store.delete("a/b", created).await.expect("deleted");
    assert!(deleted > created);
    assert_eq!(store.read("a/b").await, Ok(None));
    assert_eq!(
        store.update("a/b", deleted, "2").await,
        Err(Error::conflict(None)),
        "a tombstone's revision is nobody's"
    );
    drop(store);
    closed(&path).await;
    assert!(path.exists());

    let store = open(&path).await;
    let again = store.create("a/b", "").await.expect("created");
    assert!(again > deleted);
    let current = store.read("a/b").await.expect("read").expect("there");
    assert_eq!((current.revision, &current.value[..]), (again, &b""[..]));
    assert_eq!(
        store.create("a/b", "3").await,
        Err(Error::conflict(Some(current)))
    );
}

#[tokio::test]
async fn a_file_that_is_not_ours_is_left_alone() {
    let folder = folder();
    let garbage = folder.path().join("garbage");
    fs::write(&garbage, "no database at all, ".repeat(100)).expect("written");
    refused(&garbage, "not a Parti store").await;

    let foreign = folder.path().join("foreign.db");
    let other = Connection::open(&foreign).expect("opened");
    other
        .execute_batch("CREATE TABLE theirs (x)")
        .expect("made");
    refused(&foreign, "another program's").await;
    let mode: String = other
        .query_row("PRAGMA journal_mode", [], |row| row.get(0))
        .expect("asked");
    assert_eq!(mode, "delete", "not even its mode is touched");

    let newer = folder.path().join("newer.db");
    drop(open(&newer).await);
    Connection::open(&newer)
        .and_then(|file| file.pragma_update(None, "user_version", 2))
        .expect("changed");
    refused(&newer, "upgrade").await;

    refused(folder.path(), "name a file in it").await;
    refused(&folder.path().join("no/such.db"), "create it").await;
}

#[tokio::test]
async fn many_open_a_new_file_at_once() {
    let folder = folder();
    let path = folder.path().join("parti.db");
    let stores = future::join_all((0..8).map(|_| open(&path))).await;
    let creations = stores.iter().map(|store| store.create("a", "1"));
    let won = future::join_all(creations).await;
    assert_eq!(won.iter().filter(|won| won.is_ok()).count(), 1, "{won:?}");
}

#[tokio::test]
async fn a_file_that_is_gone_is_noticed() {
    for replace in [false, true] {
        let folder = folder();
        let path = folder.path().join("parti.db");
        let away = folder.path().join("away.db");
        let store = open(&path).await;
        let revision = store.create("a", "1").await.expect("created");
        let mut watch = store.watch(Scope::Under(String::new()));
        assert_eq!(synced(&mut watch).await.len(), 1);

        fs::rename(&path, &away).expect("moved");
        if replace {
            fs::copy(&away, &path).expect("copied");
        }
        // Nobody writes: the watch notices by itself.
        let Some(Change::Interrupted(Error::Rejected { why })) = watch.next().await else {
            panic!("not interrupted");
        };
        assert!(why.contains("while it was open"), "{why}");
        // Once gone it stays gone: somebody may have used it by another name.
        if replace {
            fs::remove_file(&path).expect("removed");
        }
        fs::rename(&away, &path).expect("moved back");
        let update = store.update("a", revision, "2").await;
        assert!(matches!(update, Err(Error::Rejected { .. })), "{update:?}");
        let read = store.read("a").await;
        assert!(matches!(read, Err(Error::Rejected { .. })), "{read:?}");
    }
}

#[tokio::test]
async fn a_lost_wal_is_noticed() {
    let folder = folder();
    let path = folder.path().join("parti.db");
    let store = open(&path).await;
    store.create("a", "1").await.expect("created");
    fs::remove_file(format!("{}-wal", path.display())).expect("removed");
    let create = store.create("b", "1").await;
    assert!(matches!(create, Err(Error::Rejected { .. })), "{create:?}");
}

#[tokio::test]
async fn a_damaged_file_is_called_so() {
    let folder = folder();
    let path = folder.path().join("parti.db");
    let store = open(&path).await;
    let batch = (0..500).map(|number| put(&format!("a/{number}"), Expect::Absent, "value"));
    assert!(store.write(batch.collect()).await.iter().all(Result::is_ok));
    drop(store);
    closed(&path).await;

    let mut bytes = fs::read(&path).expect("read");
    // The first page has the header and the schema; everything else is overwritten.
    bytes[4096..].fill(0x5a);
    fs::write(&path, bytes).expect("written");
    let store = open(&path).await;
    let list = store.list(&Scope::Under("a/".into())).await;
    assert!(matches!(list, Err(Error::Corrupt { .. })), "{list:?}");
    let write = store.create("b", "1").await;
    assert!(matches!(write, Err(Error::Corrupt { .. })), "{write:?}");
}

#[tokio::test]
async fn a_full_disk_refuses_and_recovers() {
    let folder = folder();
    let path = folder.path().join("parti.db");
    let mut database = Database::open(&path, &LAYOUT).expect("opened");
    let limit = |pages: u32| {
        move |connection: &Connection| {
            connection.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))
        }
    };
    database.read(limit(20)).expect("limited");
    let pulse = Pulse::start(database.again(&LAYOUT).expect("opened")).expect("started");
    let writer = Writer::start(database, Arc::new(pulse)).expect("started");
    let small = writer.write(vec![put("a", Expect::Absent, "1")]).await;
    assert!(small[0].is_ok(), "{small:?}");
    let large = "x".repeat(200_000);
    // Nothing of a transaction that did not fit is there, also not what came before.
    let full = writer
        .write(vec![
            put("b", Expect::Absent, "1"),
            put("c", Expect::Absent, &large),
        ])
        .await;
    for outcome in &full {
        let Err(Error::Rejected { why }) = outcome else {
            panic!("{full:?}");
        };
        assert!(why.contains("no space is left"), "{why}");
    }
    let store = open(&path).await;
    assert_eq!(store.read("b").await, Ok(None));
    let again = writer.write(vec![put("b", Expect::Absent, "1")]).await;
    assert!(again[0].is_ok() && again != small, "{again:?}");
}

#[tokio::test]
async fn a_lock_that_is_held_for_ever_ends_in_unavailable() {
    let folder = folder();
    let path = folder.path().join("parti.db");
    let store = open(&path).await;
    let other = Connection::open(&path).expect("opened");
    other.execute_batch("BEGIN IMMEDIATE").expect("locked");
    let created = store.create("a", "1").await;
    assert!(
        matches!(created, Err(Error::Unavailable { .. })),
        "{created:?}"
    );
    assert_eq!(store.read("a").await, Ok(None), "readers do not wait");
    other.execute_batch("ROLLBACK").expect("unlocked");
    assert!(store.create("a", "1").await.is_ok());
}

#[tokio::test]
async fn a_watch_behind_the_purge_starts_anew() {
    let folder = folder();
    let path = folder.path().join("parti.db");
    let (store, other) = (open(&path).await, open(&path).await);
    let revision = store.create("a/1", "1").await.expect("created");
    store.create("a/2", "2").await.expect("created");
    let mut watch = store.watch(Scope::Under("a/".into()));
    assert_eq!(synced(&mut watch).await.len(), 2);
    // As if fifty thousand writes had happened while nobody polled.
    other.delete("a/1", revision).await.expect("deleted");
    let by_hand = Connection::open(&path).expect("opened");
    by_hand
        .execute("UPDATE counter SET revision = revision + 50000", [])
        .expect("counted");
    other.create("b", "1").await.expect("created");
    let left: i64 = by_hand
        .query_row("SELECT count(*) FROM records", [], |row| row.get(0))
        .expect("counted");
    assert_eq!(left, 2, "the tombstone is purged");

    assert_eq!(watch.next().await, Some(Change::Restarted));
    let told = synced(&mut watch).await;
    assert!(
        matches!(&told[..], [Change::Put(entry)] if entry.key == "a/2"),
        "{told:?}"
    );
}

#[tokio::test]
async fn a_watch_of_one_key_and_one_of_many_hear_another_handle() {
    let folder = folder();
    let path = folder.path().join("parti.db");
    let (store, other) = (open(&path).await, open(&path).await);
    let mut one = store.watch(Scope::Key("a/1".into()));
    let mut all = store.watch(Scope::Under("a/".into()));
    assert!(synced(&mut one).await.is_empty() && synced(&mut all).await.is_empty());
    // More than one answer takes; the neighbours "a" and "a0" are not below "a/".
    let mut keys: Vec<_> = (0..1_200).map(|number| format!("a/{number}")).collect();
    keys.extend(["a".into(), "a0".into()]);
    let batch = keys.iter().map(|key| put(key, Expect::Absent, "x"));
    assert!(other.write(batch.collect()).await.iter().all(Result::is_ok));
    for number in 0..1_200 {
        let Some(Change::Put(entry)) = all.next().await else {
            panic!("a put");
        };
        assert_eq!(entry.key, format!("a/{number}"));
    }
    let Some(Change::Put(entry)) = one.next().await else {
        panic!("a put");
    };
    let deleted = other.delete("a/1", entry.revision).await.expect("deleted");
    let news = Change::Deleted {
        key: "a/1".into(),
        revision: deleted,
    };
    assert_eq!(one.next().await, Some(news.clone()));
    assert_eq!(all.next().await, Some(news));
}

#[tokio::test]
async fn what_is_new_is_found_on_both_sides_of_the_checkpoints() {
    let folder = folder();
    let path = folder.path().join("parti.db");
    let store = open(&path).await;
    let first = store.create("first", "x").await.expect("created");
    // More checkpoints than one answer takes, and keys that sort right beside them.
    let beside = ["partitions", "partitions.", "partitions0", "a/b", "z"];
    let checkpoints = (0..1_200).map(|number| format!("partitions/g/{number}"));
    let mut keys: Vec<String> = checkpoints.collect();
    keys.extend(beside.map(str::to_owned));
    keys.sort_by_key(|key| key.len());
    let batch = keys.iter().map(|key| put(key, Expect::Absent, "x"));
    let outcomes = store.write(batch.collect()).await;
    let revision = outcomes[0].clone().expect("created");
    let deleted = store.delete(&keys[0], revision).await.expect("deleted");
    let mut order: Vec<&str> = keys[1..].iter().map(String::as_str).collect();
    order.push(&keys[0]);

    let database = Connection::open(&path).expect("opened");
    for prefix in ["", "partitions/", "partitions/g/", "partitions0/", "a/"] {
        let scope = Scope::Under(prefix.into());
        let mut found = Vec::new();
        let mut since = i64::try_from(first.0).expect("small");
        loop {
            let news = super::records::news(&database, &scope, since).expect("asked");
            let super::records::News::Changes {
                changes,
                revision,
                complete,
            } = news
            else {
                panic!("{news:?}");
            };
            found.extend(changes);
            since = revision;
            if complete {
                break;
            }
        }
        let expected: Vec<&str> = order
            .iter()
            .copied()
            .filter(|key| scope.holds(key))
            .collect();
        let told = found.iter().map(|change| match change {
            Change::Put(entry) => entry.key.as_str(),
            Change::Deleted { key, revision } if *revision == deleted => key.as_str(),
            other => panic!("{other:?}"),
        });
        assert_eq!(told.collect::<Vec<_>>(), expected, "{prefix:?}");
    }
}

#[tokio::test]
async fn dropped_futures_and_streams_leave_the_store_usable() {
    let folder = folder();
    let path = folder.path().join("parti.db");
    let store = open(&path).await;
    for number in 0..50 {
        // Polled once, so that it is under way, then dropped.
        let key = format!("a/{number}");
        assert!(store.create(&key, "1").now_or_never().is_none());
        let _ = store.read(&key).now_or_never();
        let _ = store.watch(Scope::Key(key)).next().now_or_never();
    }
    // Behind them in the queue: once it is done, they are too.
    store.create("b", "1").await.expect("created");
    let all = store.list(&Scope::Under("a/".into())).await.expect("list");
    assert_eq!(all.len(), 50);
    let watch = store.watch(Scope::Under("a/".into()));
    drop(store);
    drop(watch);
    closed(&path).await;
}
