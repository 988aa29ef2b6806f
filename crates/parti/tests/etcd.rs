//! What is etcd's own: logins, quota, compaction, members that are gone. The contract itself is
//! checked by the conformance suite.

#![cfg(feature = "etcd")]

use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use futures_util::StreamExt;
use parti::store::etcd::Etcd;
use parti::store::{Bytes, Change, Error, Expect, Revision, Scope, Store, StoreExt, Watch, Write};
use parti_servers::etcd::Server;

/// Far longer than anything takes: a test that hangs fails instead.
const PATIENCE: Duration = Duration::from_secs(180);

async fn next(watch: &mut Watch) -> Change {
    tokio::time::timeout(PATIENCE, watch.next())
        .await
        .expect("the watch says something in time")
        .expect("a watch never ends")
}

/// What is there by the next `Synced`, and whether it was told anew.
async fn snapshot(watch: &mut Watch) -> (Vec<(String, Revision)>, bool) {
    let (mut keys, mut restarted) = (Vec::new(), false);
    loop {
        match next(watch).await {
            Change::Put(entry) => keys.push((entry.key, entry.revision)),
            Change::Restarted => {
                restarted = true;
                keys.clear();
            }
            Change::Synced => return (keys, restarted),
            Change::Interrupted(_) | Change::Deleted { .. } => {}
        }
    }
}

/// Asks etcd's own JSON gateway.
fn post(server: &Server, path: &str, json: &str) {
    let mut stream = TcpStream::connect(server.address()).expect("etcd listens");
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{json}",
        json.len()
    )
    .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

fn compact(server: &Server, revision: Revision) {
    let json = format!(r#"{{"revision":"{}","physical":true}}"#, revision.0);
    post(server, "/v3/kv/compaction", &json);
}

/// Tries until the store is there again.
async fn settled<T>(mut attempt: impl AsyncFnMut() -> Result<T, Error>) -> T {
    let settle = async {
        loop {
            match attempt().await {
                Err(Error::Unavailable { .. }) => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                other => return other.expect("the store is there"),
            }
        }
    };
    tokio::time::timeout(PATIENCE, settle)
        .await
        .expect("the store comes back in time")
}

fn write(key: &str, expect: Expect, value: Option<&'static str>) -> Write {
    Write {
        key: key.to_owned(),
        expect,
        value: value.map(Bytes::from),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_is_checked_at_open_and_renewed_after_a_restart() {
    let mut server = Server::builder()
        .root_password("hush-root")
        .reader_password("hush-reader")
        .start();
    let address = server.address();

    for (url, says) in [
        (format!("etcd://root:hush-wrong@{address}"), "password"),
        (format!("etcd://nobody:hush-root@{address}"), "password"),
        (format!("etcd://{address}"), "wants a login"),
    ] {
        let error = Etcd::open(&url).await.expect_err("refused");
        assert_eq!(error.kind(), "rejected", "{error}");
        let text = error.to_string();
        assert!(text.contains(says) && !text.contains("hush"), "{text}");
    }

    let store = Etcd::open(&server.url()).await.expect("opens");
    let first = store.create("a/b", "1").await.expect("written");
    let reader = format!("etcd://reader:hush-reader@{address}");
    let reader = Etcd::open(&reader).await.expect("opens");
    let read = reader.read("a/b").await.expect("may read");
    assert_eq!(read.map(|entry| entry.revision), Some(first));
    let refused = reader.update("a/b", first, "2").await.expect_err("refused");
    assert_eq!(refused.kind(), "rejected");
    assert!(
        refused.to_string().contains("grant-permission"),
        "{refused}"
    );
    let mut watch = reader.watch(Scope::Under("a/".into()));
    assert_eq!(snapshot(&mut watch).await.0, [("a/b".into(), first)]);

    // etcd forgets its tokens when it restarts.
    server.kill();
    server.restart();
    let read = settled(async || store.read("a/b").await).await;
    assert_eq!(read.map(|entry| entry.revision), Some(first));
    assert_eq!(
        snapshot(&mut watch).await,
        (vec![("a/b".into(), first)], true)
    );
    store.update("a/b", first, "2").await.expect("written");
    for shown in [format!("{store:?}"), store.name().to_owned()] {
        assert!(!shown.contains("hush"), "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_without_space_refuses_writes_and_lets_go_of_what_it_has() {
    let server = Server::builder().quota(4 << 20).start();
    let store = Etcd::open(&server.url()).await.expect("opens");
    let value = Bytes::from(vec![7; 400 << 10]);
    let mut written = Vec::new();
    let error = loop {
        assert!(written.len() < 100, "the quota is exceeded at last");
        let key = format!("big/{}", written.len());
        match store.create(&key, value.clone()).await {
            Ok(revision) => written.push((key, revision)),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), "rejected", "{error}");
    assert!(error.to_string().contains("alarm disarm"), "{error}");

    // A delete in the same batch fares on its own, and reads go on.
    let (key, revision) = written.swap_remove(0);
    let outcomes = store
        .write(vec![
            write("small", Expect::Absent, Some("x")),
            write(&key, Expect::At(revision), None),
        ])
        .await;
    let refused = outcomes[0].as_ref().expect_err("refused");
    assert_eq!(refused.kind(), "rejected", "{refused}");
    assert!(outcomes[1].is_ok(), "{outcomes:?}");
    let big = Scope::Under("big/".into());
    let listed = store.list(&big).await.expect("read");
    assert_eq!(listed.len(), written.len());

    let error = Etcd::open(&server.url()).await.expect_err("alarm");
    assert_eq!(error.kind(), "rejected", "{error}");
    assert!(error.to_string().contains("NOSPACE"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_comes_back_whole_when_its_past_was_compacted() {
    let mut server = Server::start();
    let store = Etcd::open(&server.url()).await.expect("opens");
    let other = Etcd::open(&server.url()).await.expect("opens");
    let gone = store.create("w/gone", "1").await.expect("written");
    let kept = store.create("w/kept", "1").await.expect("written");
    let mut watch = store.watch(Scope::Under("w/".into()));
    let before = vec![("w/gone".to_owned(), gone), ("w/kept".to_owned(), kept)];
    assert_eq!(snapshot(&mut watch).await, (before, false));

    server.kill();
    assert!(matches!(
        next(&mut watch).await,
        Change::Interrupted(Error::Unavailable { .. })
    ));
    // The watch is not polled, so it does not come back before all of this.
    server.restart();
    settled(async || other.delete("w/gone", gone).await).await;
    let kept = other.update("w/kept", kept, "2").await.expect("written");
    compact(&server, kept);
    let after = vec![("w/kept".to_owned(), kept)];
    assert_eq!(snapshot(&mut watch).await, (after, true));
    let revision = other.delete("w/kept", kept).await.expect("deleted");
    let key = "w/kept".to_owned();
    assert_eq!(next(&mut watch).await, Change::Deleted { key, revision });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_member_is_passed_over() {
    let server = Server::start();
    // Nobody listens on port 1.
    let url = format!("etcd://127.0.0.1:1,{},127.0.0.1:1/x", server.address());
    for _ in 0..4 {
        // Each starts with a member of its own choice.
        let store = Etcd::open(&url).await.expect("opens");
        let at = store.create("k", "1").await.expect("written");
        assert!(store.read("k").await.expect("read").is_some());
        let mut watch = store.watch(Scope::Key("k".into()));
        assert_eq!(snapshot(&mut watch).await.0, [("k".into(), at)]);
        store.delete("k", at).await.expect("deleted");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_down_is_unavailable_and_a_watch_waits_for_it() {
    let error = Etcd::open("etcd://127.0.0.1:1").await.expect_err("nobody");
    assert_eq!(error.kind(), "unavailable", "{error}");
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");

    let mut server = Server::start();
    let store = Etcd::open(&server.url()).await.expect("opens");
    let at = store.create("k", "1").await.expect("written");
    server.kill();
    let error = store.read("k").await.expect_err("down");
    assert_eq!(error.kind(), "unavailable", "{error}");
    // It was not sent, as there was no connection.
    let error = store.update("k", at, "2").await.expect_err("down");
    assert_eq!(error.kind(), "unavailable", "{error}");
    let mut watch = store.watch(Scope::Key("k".into()));
    assert!(matches!(next(&mut watch).await, Change::Interrupted(_)));
    server.restart();
    assert_eq!(snapshot(&mut watch).await, (vec![("k".into(), at)], true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_leaves_a_write_open_and_is_noticed_by_a_watch() {
    let mut server = Server::start();
    let store = Etcd::open(&server.url()).await.expect("opens");
    let first = store.create("k", "1").await.expect("written");
    let mut watch = store.watch(Scope::Key("k".into()));
    assert_eq!(
        snapshot(&mut watch).await,
        (vec![("k".into(), first)], false)
    );

    server.pause();
    let (written, noticed) = tokio::join!(store.update("k", first, "2"), next(&mut watch));
    assert!(
        matches!(written, Err(Error::Unknown { .. })),
        "it may yet be done: {written:?}"
    );
    assert!(matches!(noticed, Change::Interrupted(_)), "{noticed:?}");
    server.resume();
    // A further write settles it, whatever became of it.
    let settled = settled(async || match store.update("k", first, "3").await {
        Err(Error::Conflict { current }) => Ok(current.expect("never deleted").revision),
        Err(Error::Unknown { why }) => Err(Error::unavailable(why)),
        other => other,
    });
    let settled = settled.await;
    assert!(settled > first);
    let (told, restarted) = snapshot(&mut watch).await;
    assert!(restarted && told[0].1 <= settled);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_etcd_is_named() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(b"220 hello, I speak something else\r\n");
        }
    });
    let error = Etcd::open(&format!("etcd://{address}")).await;
    let error = error.expect_err("no etcd").to_string();
    assert!(error.contains("is it an etcd"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_keys_are_passed_over_and_lists_have_many_pages() {
    let server = Server::start();
    let store = Etcd::open(&server.url()).await.expect("opens");
    // "parti/" followed by 0xff, and "parti/a//b": no keys that a store writes.
    for key in ["cGFydGkv/w==", "cGFydGkvYS8vYg=="] {
        let json = format!(r#"{{"key":"{key}","value":"eA=="}}"#);
        post(&server, "/v3/kv/put", &json);
    }
    let keys: Vec<String> = (0..2_500).map(|number| format!("a/{number:04}")).collect();
    let batch = keys
        .iter()
        .map(|key| write(key, Expect::Absent, Some("old")));
    let outcomes = store.write(batch.collect()).await;
    assert!(outcomes.iter().all(Result::is_ok));
    let everything = Scope::Under(String::new());
    let all = store.list(&everything).await.expect("read");
    assert!(all.iter().map(|entry| &entry.key).eq(&keys));

    // Half of the next batch meets what is not there; nothing is at revision 0.
    let batch = all.iter().enumerate().map(|(number, entry)| {
        let expect = match number % 4 {
            0 => Expect::Absent,
            1 => Expect::At(Revision(0)),
            _ => Expect::At(entry.revision),
        };
        let value = if number % 4 == 3 { None } else { Some("new") };
        write(&entry.key, expect, value)
    });
    // Absent and deleted is no write: none of the batch is that.
    let outcomes = store.write(batch.collect()).await;
    for (number, outcome) in outcomes.iter().enumerate() {
        match (number % 4, outcome) {
            (0 | 1, Err(Error::Conflict { current })) => {
                assert_eq!(current.as_deref(), Some(&all[number]));
            }
            (2 | 3, Ok(revision)) => assert!(*revision > all[number].revision),
            other => panic!("{number}: {other:?}"),
        }
    }
    // Not even what is absent is at revision 0.
    let at_zero = store.update("absent", Revision(0), "x").await;
    assert_eq!(at_zero, Err(Error::Conflict { current: None }));
}

#[tokio::test]
async fn certificates_are_checked_on_both_sides() {
    let server = Server::builder().tls().start();
    let ca = server.ca_certificate().expect("there");
    let url = format!("etcd://{}?ca={}", server.address(), ca.display());
    let store = Etcd::open(&url).await.expect("the right authority");
    store.create("a", "1").await.expect("created");
    let stranger = format!("etcd://{}?tls=true", server.address());
    assert!(
        Etcd::open(&stranger).await.is_err(),
        "nobody vouches for it"
    );

    let server = Server::builder().mutual_tls().start();
    let ca = server.ca_certificate().expect("there");
    let (cert, key) = server.client_certificate().expect("there");
    let without = format!("etcd://{}?ca={}", server.address(), ca.display());
    let url = format!("{without}&cert={}&key={}", cert.display(), key.display());
    let store = Etcd::open(&url).await.expect("the right certificate");
    store.create("a", "1").await.expect("created");
    assert!(
        Etcd::open(&without).await.is_err(),
        "it shows no certificate"
    );
}
