//! One server, and what happens to it and to its buckets.

use std::collections::BTreeMap;
use std::time::Duration;

use parti::store::nats::Nats;
use parti::store::{Bytes, Error, Expect, Revision, Scope, Store, StoreExt, Write};
use parti_servers::nats::Server;

use crate::mirror::Mirror;
use crate::opening::context;

fn under(prefix: &str) -> Scope {
    Scope::Under(prefix.into())
}

fn put(key: &str, expect: Expect, value: &str) -> Write {
    Write {
        key: key.into(),
        expect,
        value: Some(Bytes::from(value.to_owned())),
    }
}

/// Writes to a few keys again and again, in doubt as one must, until told to stop; answers the
/// revision of each.
pub async fn write_until(
    store: Nats,
    prefix: &str,
    mut stop: tokio::sync::oneshot::Receiver<()>,
) -> BTreeMap<String, u64> {
    const KEYS: usize = 5;
    let mut state: BTreeMap<String, u64> = BTreeMap::new();
    let mut round = 0usize;
    // After the word to stop every key is written once more: the last state is then not in doubt.
    let mut left = usize::MAX;
    while left > 0 {
        if left == usize::MAX
            && !matches!(
                stop.try_recv(),
                Err(tokio::sync::oneshot::error::TryRecvError::Empty)
            )
        {
            left = KEYS;
        }
        round += 1;
        let key = format!("{prefix}k{}", round % KEYS);
        let value = format!("{round}");
        loop {
            let expect = state
                .get(&key)
                .map_or(Expect::Absent, |at| Expect::At(Revision(*at)));
            match store.write_one(put(&key, expect, &value)).await {
                Ok(revision) => {
                    state.insert(key.clone(), revision.0);
                    break;
                }
                // This is the only writer: what is there is an earlier write of ours, and it must
                // not be older than what was acknowledged.
                Err(Error::Conflict {
                    current: Some(current),
                }) => {
                    let known = state.get(&key).copied().unwrap_or(0);
                    assert!(current.revision.0 > known, "an acknowledged write is lost");
                    state.insert(key.clone(), current.revision.0);
                }
                Err(Error::Conflict { current: None }) => {
                    assert!(!state.contains_key(&key), "an acknowledged write is lost");
                }
                Err(Error::Unknown { .. } | Error::Unavailable { .. }) => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(error) => panic!("{error}"),
            }
        }
        left = left.saturating_sub(usize::from(left != usize::MAX));
    }
    state
}

#[tokio::test(flavor = "multi_thread")]
async fn the_oldest_version_works() {
    let server = Server::start_version("2.10.26");
    let store = Nats::open(&server.url()).await.expect("opens");
    let mut mirror = Mirror::new(&store, under(""));
    mirror.until_synced().await;
    let batch: Vec<Write> = (0..5000)
        .map(|n| put(&format!("partitions/g/{n}"), Expect::Absent, "x"))
        .collect();
    let outcomes = store.write(batch).await;
    assert!(outcomes.iter().all(Result::is_ok));
    let first = store.create("workers/g/a", "1").await.expect("creates");
    let deleted = store.delete("workers/g/a", first).await.expect("deletes");
    let again = store
        .create("workers/g/a", "2")
        .await
        .expect("creates again");
    assert!(first < deleted && deleted < again);
    mirror
        .until("5001 entries", |mirror| mirror.entries.len() == 5001)
        .await;
    let listed = store.list(&under("")).await.expect("lists");
    assert_eq!(listed.len(), 5001);
    assert!(listed.is_sorted_by(|a, b| a.key < b.key));
    assert_eq!(mirror.restarts, 0, "{:?}", mirror.interruptions);
}

#[tokio::test]
async fn a_deletes_revision_is_nothing_to_build_on() {
    let server = Server::start();
    let store = Nats::open(&server.url()).await.expect("opens");
    let first = store.create("a/b", "1").await.expect("creates");
    let deleted = store.delete("a/b", first).await.expect("deletes");
    for outcome in [
        store.update("a/b", deleted, "2").await,
        store.delete("a/b", deleted).await,
        store.delete("a/b", first).await,
        store.update("a/b", Revision(0), "2").await,
    ] {
        assert_eq!(outcome, Err(Error::Conflict { current: None }));
    }
}

#[tokio::test]
async fn a_marker_expires_where_the_server_can() {
    let server = Server::start();
    let store = Nats::open(&server.url()).await.expect("opens");
    let first = store.create("a/b", "1").await.expect("creates");
    store.delete("a/b", first).await.expect("deletes");
    let stream = context(&server)
        .await
        .get_stream("KV_parti")
        .await
        .expect("a stream");
    let marker = stream
        .get_last_raw_message_by_subject("$KV.parti.a.b")
        .await
        .expect("there");
    assert_eq!(
        marker.headers.get("Nats-TTL").map(|ttl| ttl.as_str()),
        Some("1h")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_bucket_is_an_error_and_a_new_one_is_noticed() {
    let server = Server::start();
    let store = Nats::open(&server.url()).await.expect("opens");
    let first = store.create("a/b", "1").await.expect("creates");
    let mut mirror = Mirror::new(&store, under("a/"));
    mirror.until_synced().await;
    let context = context(&server).await;
    context.delete_key_value("parti").await.expect("deleted");

    let is_gone = |error: &Error| matches!(error, Error::Rejected { why } if why.contains("gone"));
    let write = store.update("a/b", first, "2").await.expect_err("gone");
    assert!(is_gone(&write), "{write}");
    let create = store.create("a/c", "2").await.expect_err("gone");
    assert!(is_gone(&create), "{create}");
    let read = store.read("a/b").await.expect_err("gone");
    assert!(is_gone(&read), "{read}");
    let list = store.list(&under("a/")).await.expect_err("gone");
    assert!(is_gone(&list), "{list}");
    mirror
        .until("the loss", |mirror| {
            mirror.interruptions.iter().any(is_gone)
        })
        .await;
    // Nobody made it again behind our back.
    assert!(context.get_key_value("parti").await.is_err());

    let anew = Nats::open(&server.url()).await.expect("opens anew");
    anew.create("a/new", "1").await.expect("creates");
    mirror.another_bucket();
    mirror
        .until("the new bucket", |mirror| {
            mirror.synced && mirror.entries.keys().eq(["a/new"])
        })
        .await;
    assert!(mirror.restarts > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_replaced_at_once_is_noticed() {
    let server = Server::start();
    let store = Nats::open(&server.url()).await.expect("opens");
    store.create("a/b", "1").await.expect("creates");
    store.create("a/c", "1").await.expect("creates");
    let mut mirror = Mirror::new(&store, under("a/"));
    mirror.until_synced().await;
    context(&server)
        .await
        .delete_key_value("parti")
        .await
        .expect("deleted");
    let anew = Nats::open(&server.url()).await.expect("opens anew");
    anew.create("a/b", "1").await.expect("creates");
    mirror.another_bucket();
    mirror
        .until("the new bucket", |mirror| {
            mirror.restarts > 0 && mirror.synced && mirror.entries.keys().eq(["a/b"])
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    let mut server = Server::start();
    let store = Nats::open(&server.url()).await.expect("opens");
    let mut mirror = Mirror::new(&store, under("workers/"));
    mirror.until_synced().await;
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let writer = tokio::spawn(write_until(store.clone(), "workers/", stopped));
    for _ in 0..3 {
        let restarts = mirror.restarts;
        let seen = mirror
            .entries
            .values()
            .map(|(revision, _)| *revision)
            .max()
            .unwrap_or(0);
        mirror
            .until("writes", |mirror| {
                mirror
                    .entries
                    .values()
                    .any(|(revision, _)| *revision > seen + 50)
            })
            .await;
        tokio::task::block_in_place(|| server.restart());
        mirror
            .until("the restart", |mirror| {
                mirror.restarts > restarts && mirror.synced
            })
            .await;
    }
    stop.send(()).expect("the writer waits");
    let state = writer.await.expect("writes");
    mirror.until_shows(&state).await;
    let listed = store.list(&under("workers/")).await.expect("lists");
    let listed: BTreeMap<_, _> = listed
        .into_iter()
        .map(|entry| (entry.key, entry.revision.0))
        .collect();
    assert_eq!(listed, state);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_away_is_waited_for() {
    let mut server = Server::start();
    let store = Nats::open(&server.url()).await.expect("opens");
    let first = store.create("a/b", "1").await.expect("creates");
    server.kill();
    let mut mirror = Mirror::new(&store, under("a/"));
    mirror
        .until("an interruption", |mirror| !mirror.interruptions.is_empty())
        .await;
    // The connection is known to be lost: nothing was sent.
    let write = store.update("a/b", first, "2").await;
    assert!(matches!(write, Err(Error::Unavailable { .. })), "{write:?}");
    let read = store.read("a/b").await;
    assert!(matches!(read, Err(Error::Unavailable { .. })), "{read:?}");
    tokio::task::block_in_place(|| server.restart());
    mirror.until("synced", |mirror| mirror.synced).await;
    assert_eq!(mirror.entries.len(), 1);
    assert_eq!(mirror.entries["a/b"].0, first.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_without_an_answer_is_in_doubt() {
    let mut server = Server::start();
    let store = Nats::open(&server.url()).await.expect("opens");
    let first = store.create("a/b", "1").await.expect("creates");
    let mut mirror = Mirror::new(&store, under("a/"));
    mirror.until_synced().await;
    server.pause();
    let batch = vec![
        put("a/b", Expect::At(first), "2"),
        put("a/c", Expect::Absent, "2"),
    ];
    for outcome in store.write(batch).await {
        assert!(matches!(outcome, Err(Error::Unknown { .. })), "{outcome:?}");
    }
    server.resume();
    // Both lay in the server's socket, and are done now.
    mirror
        .until("the late writes", |mirror| {
            mirror.synced
                && mirror.entries.len() == 2
                && mirror.entries.values().all(|(_, value)| value == "2")
        })
        .await;
    let again = store.update("a/b", first, "3").await;
    let Err(Error::Conflict {
        current: Some(current),
    }) = again
    else {
        panic!("{again:?}")
    };
    assert_eq!(current.value, "2");
}

#[tokio::test]
async fn a_server_that_is_full_says_so() {
    let server = Server::builder().store_limit(4 * 1024 * 1024).start();
    let store = Nats::open(&server.url()).await.expect("opens");
    let mut refused = None;
    for n in 0..20 {
        let value = vec![b'x'; 512 * 1024];
        if let Err(error) = store.create(&format!("a/{n}"), value).await {
            refused = Some(error);
            break;
        }
    }
    let error = refused.expect("it is full");
    assert!(
        matches!(&error, Error::Rejected { why } if why.contains("full")),
        "{error}"
    );
}

#[tokio::test]
async fn a_server_for_small_messages_says_so() {
    let server = Server::builder().max_payload(100_000).start();
    let store = Nats::open(&server.url()).await.expect("opens");
    let error = store
        .create("a/b", vec![0; 200_000])
        .await
        .expect_err("too large");
    assert!(
        matches!(&error, Error::Rejected { why } if why.contains("max_payload")),
        "{error}"
    );
    store
        .create("a/b", vec![0; 50_000])
        .await
        .expect("small enough");
}
