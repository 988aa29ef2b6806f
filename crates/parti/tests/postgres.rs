//! What only PostgreSQL can do to us: its permissions, its roles, its own tools.
#![cfg(feature = "postgres")]

use std::time::Duration;

use futures_util::StreamExt;
use parti::store::postgres::Postgres;
use parti::store::{Change, Error, Expect, Revision, Scope, Store, StoreExt, Watch, Write};
use parti_core::ids::{Epoch, Incarnation, Offset, WorkerId};
use parti_core::record::{PartitionRecord, Record};
use parti_servers::postgres::Server;
use tokio_postgres::{Client, NoTls};

/// A test that waits longer than this hangs.
const HANG: Duration = Duration::from_secs(180);

async fn sql(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("connects");
    tokio::spawn(connection);
    client
}

async fn next(watch: &mut Watch) -> Change {
    tokio::time::timeout(HANG, watch.next())
        .await
        .expect("news in time")
        .expect("a watch never ends")
}

/// The rejection's text.
fn rejected<T: std::fmt::Debug>(outcome: Result<T, Error>) -> String {
    match outcome {
        Err(Error::Rejected { why }) => why,
        other => panic!("not rejected: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_open_an_empty_database_at_once() {
    let server = Server::start();
    let url = server.url();
    let opened = (0..20).map(|number| {
        let url = url.clone();
        tokio::spawn(async move {
            let store = Postgres::open(&url).await?;
            store.create(&format!("opened/{number}"), "here").await
        })
    });
    for outcome in futures_util::future::join_all(opened).await {
        outcome.expect("no panic").expect("opened and written");
    }
    let store = Postgres::open(&url).await.expect("opens");
    let found = store.list(&Scope::Under("opened/".into())).await;
    assert_eq!(found.expect("a list").len(), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_and_a_missing_database_are_named_without_secrets() {
    let server = Server::builder().password("right-hush").start();
    let good = server.url();
    Postgres::open(&good).await.expect("opens");
    let wrong = good.replace("right-hush", "wrong-hush");
    for (url, told) in [
        (wrong, "28P01"),
        (server.url_without_password(), "password"),
        (
            format!("{}nowhere", good.trim_end_matches("parti")),
            "3D000",
        ),
        (format!("{good}?sslmode=require&ca=/nowhere"), "/nowhere"),
        (format!("{good}?sslmode=require"), "TLS"),
    ] {
        let why = rejected(Postgres::open(&url).await);
        assert!(why.contains(told), "{told}: {why}");
        assert!(!why.contains("hush"), "{why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_there_is_unavailable() {
    let mut server = Server::start();
    let url = server.url();
    server.kill();
    let error = Postgres::open(&url).await.expect_err("nobody is there");
    assert_eq!(error.kind(), "unavailable", "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_write_is_told_so_at_once() {
    let server = Server::start();
    // Nothing is there yet, and the reader may not make it: the error says what to run.
    let why = rejected(Postgres::open(&server.url_of_reader()).await);
    assert!(
        why.contains("CREATE TABLE IF NOT EXISTS \"parti\".records"),
        "{why}"
    );
    assert!(
        why.contains("GRANT SELECT, INSERT, UPDATE, DELETE"),
        "{why}"
    );
    let owner = Postgres::open(&server.url()).await.expect("opens");
    let why = rejected(Postgres::open(&server.url_of_reader()).await);
    assert!(why.contains("GRANT"), "{why}");
    let why = rejected(Postgres::open(&server.url_of_replica()).await);
    assert!(why.contains("read-only"), "{why}");
    // With what the error asks for, a user who may not create anything can use what is there.
    sql(&server.url_of_superuser())
        .await
        .batch_execute(
            "GRANT USAGE ON SCHEMA parti TO reader;
             GRANT SELECT, INSERT, UPDATE, DELETE ON parti.records TO reader;
             GRANT USAGE ON SEQUENCE parti.revisions TO reader;",
        )
        .await
        .expect("granted");
    let reader = Postgres::open(&server.url_of_reader())
        .await
        .expect("opens");
    let revision = reader.create("a", "1").await.expect("created");
    owner.update("a", revision, "2").await.expect("updated");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_becomes_read_only_refuses_writes_and_recovers() {
    let server = Server::start();
    let store = Postgres::open(&server.url()).await.expect("opens");
    let revision = store.create("a", "1").await.expect("created");
    let admin = sql(&server.url_of_superuser()).await;
    let alter = async |read_only: &str| {
        // It counts for sessions that begin later.
        let statement =
            format!("ALTER DATABASE parti SET default_transaction_read_only = {read_only}");
        admin.batch_execute(&statement).await.expect("altered");
        end_sessions(&admin).await;
    };
    alter("on").await;
    let refused = async {
        loop {
            match store.update("a", revision, "2").await {
                Err(error) if error.to_string().contains("read-only") => break error,
                // The end of the session was noticed only when the write was under way.
                Err(Error::Unknown { .. } | Error::Unavailable { .. }) => {
                    tokio::task::yield_now().await;
                }
                other => panic!("{other:?}"),
            }
        }
    };
    let refusal = tokio::time::timeout(HANG, refused).await.expect("in time");
    assert_eq!(refusal.kind(), "unavailable", "{refusal}");
    alter("off").await;
    let written = async {
        loop {
            match store.update("a", revision, "3").await {
                Ok(revision) => break revision,
                Err(Error::Unavailable { .. }) => tokio::task::yield_now().await,
                other => panic!("{other:?}"),
            }
        }
    };
    let written = tokio::time::timeout(HANG, written).await.expect("in time");
    assert!(written > revision);
}

/// Ends every session of the user `parti`, and waits until they are gone.
async fn end_sessions(admin: &Client) {
    let gone = "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity
                 WHERE usename = 'parti'";
    admin.query_one(gone, &[]).await.expect("ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_survives_the_end_of_its_session() {
    let server = Server::start();
    let store = Postgres::open(&server.url()).await.expect("opens");
    let revision = store.create("w/a", "1").await.expect("created");
    let doomed = store.create("w/b", "1").await.expect("created");
    let mut watch = store.watch(Scope::Under("w/".into()));
    for _ in 0..2 {
        assert!(matches!(next(&mut watch).await, Change::Put(_)));
    }
    assert_eq!(next(&mut watch).await, Change::Synced);
    let deleted = store.delete("w/b", doomed).await.expect("deleted");
    let news = Change::Deleted {
        key: "w/b".into(),
        revision: deleted,
    };
    assert_eq!(next(&mut watch).await, news);

    let admin = sql(&server.url_of_superuser()).await;
    end_sessions(&admin).await;
    assert!(matches!(next(&mut watch).await, Change::Interrupted(_)));
    let change = loop {
        match next(&mut watch).await {
            Change::Interrupted(_) => {}
            change => break change,
        }
    };
    assert_eq!(change, Change::Restarted);
    assert!(matches!(next(&mut watch).await, Change::Put(entry) if entry.revision == revision));
    assert_eq!(next(&mut watch).await, Change::Synced);
    let revision = settle(&store, "w/a", revision, "2").await;
    assert!(matches!(next(&mut watch).await, Change::Put(entry) if entry.revision == revision));
}

/// Updates, however often the connection is found to be gone.
async fn settle(store: &Postgres, key: &str, from: Revision, value: &'static str) -> Revision {
    let settled = async {
        loop {
            match store.update(key, from, value).await {
                Ok(revision) => return revision,
                Err(Error::Conflict {
                    current: Some(entry),
                }) if entry.value == value => {
                    return entry.revision;
                }
                Err(Error::Unavailable { .. } | Error::Unknown { .. }) => {
                    tokio::task::yield_now().await;
                }
                other => panic!("{other:?}"),
            }
        }
    };
    tokio::time::timeout(HANG, settled).await.expect("in time")
}

/// The gap that numbers alone would leave: a transaction that drew its numbers early commits late.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_hears_of_a_transaction_that_commits_late() {
    let server = Server::start();
    let store = Postgres::open(&server.url()).await.expect("opens");
    let mut watch = store.watch(Scope::Under("w/".into()));
    assert_eq!(next(&mut watch).await, Change::Synced);
    let admin = sql(&server.url_of_superuser()).await;
    // As a slow writer would, without a notification.
    admin
        .batch_execute(
            "BEGIN; INSERT INTO parti.records (key, value, revision, replaced)
             VALUES ('w/late', 'x', nextval('parti.revisions'), 0)",
        )
        .await
        .expect("begun");
    for number in 0..3 {
        let key = format!("w/early-{number}");
        let revision = store.create(&key, "x").await.expect("created");
        let Change::Put(entry) = next(&mut watch).await else {
            panic!("not told");
        };
        assert_eq!((entry.key, entry.revision), (key, revision));
    }
    admin.batch_execute("COMMIT").await.expect("committed");
    let Change::Put(entry) = next(&mut watch).await else {
        panic!("not told");
    };
    assert_eq!(entry.key, "w/late");
}

/// Checkpoints are not notified: the poll finds them.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_of_checkpoints_hears_of_them_too() {
    let server = Server::start();
    let store = Postgres::open(&server.url()).await.expect("opens");
    let mut watch = store.watch(Scope::Under("partitions/g/".into()));
    assert_eq!(next(&mut watch).await, Change::Synced);
    let revision = store.create("partitions/g/1", "x").await.expect("created");
    assert!(matches!(next(&mut watch).await, Change::Put(entry) if entry.revision == revision));
    let revision = store
        .delete("partitions/g/1", revision)
        .await
        .expect("deleted");
    assert!(
        matches!(next(&mut watch).await, Change::Deleted { revision: told, .. } if told == revision)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_format_is_refused() {
    let server = Server::start();
    Postgres::open(&server.url()).await.expect("opens");
    let admin = sql(&server.url_of_superuser()).await;
    admin
        .batch_execute("UPDATE parti.format SET version = version + 1")
        .await
        .expect("updated");
    let why = rejected(Postgres::open(&server.url()).await);
    assert!(why.contains("format 2") && why.contains("newer"), "{why}");
    // Another schema is another store.
    let url = format!("{}?schema=other", server.url());
    let other = Postgres::open(&url).await.expect("opens");
    other.create("a", "1").await.expect("created");
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_that_are_lost_are_named() {
    let server = Server::start();
    let store = Postgres::open(&server.url()).await.expect("opens");
    store.create("a", "1").await.expect("created");
    let admin = sql(&server.url_of_superuser()).await;
    admin
        .batch_execute("DROP SCHEMA parti CASCADE")
        .await
        .expect("dropped");
    let why = rejected(store.create("b", "1").await);
    assert!(why.contains("gone"), "{why}");
    Postgres::open(&server.url()).await.expect("made again");
    assert_eq!(store.read("a").await, Ok(None));
    store.create("a", "1").await.expect("created anew");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_can_read_what_is_there() {
    let server = Server::start();
    let store = Postgres::open(&server.url()).await.expect("opens");
    let record = PartitionRecord {
        epoch: Epoch(7),
        owner: Some((WorkerId::new("worker-3"), Incarnation(42))),
        offset: Some(Offset(99)),
        claimed_at: 1_700_000_000_000,
        ..PartitionRecord::default()
    };
    let value = Record::Partition(record.into()).encode();
    store
        .create("partitions/orders/tool001", value)
        .await
        .expect("created");
    store.create("text", "plain").await.expect("created");
    store
        .create("bytes", vec![0xff, 0x00])
        .await
        .expect("created");
    let gone = store.create("gone", "x").await.expect("created");
    store.delete("gone", gone).await.expect("deleted");

    let reader = sql(&server.url_of_superuser()).await;
    let row = reader
        .query_one(
            "SELECT grp, partition, owner, incarnation::int8, epoch::int8, done_offset::int8,
                    next_offset::int8, extract(epoch FROM claimed_at)::int8, updated_at <= now()
               FROM parti.checkpoints",
            &[],
        )
        .await
        .expect("one checkpoint");
    let texts: [String; 3] = [row.get(0), row.get(1), row.get(2)];
    assert_eq!(texts, ["orders", "tool001", "worker-3"]);
    let numbers: [i64; 5] = [row.get(3), row.get(4), row.get(5), row.get(6), row.get(7)];
    assert_eq!(numbers, [42, 7, 99, 100, 1_700_000_000]);
    assert!(row.get::<_, bool>(8));

    let rows = reader
        .query(
            "SELECT key, text, json ->> 'epoch', bytes FROM parti.records_readable ORDER BY key",
            &[],
        )
        .await
        .expect("readable");
    let shown: Vec<(String, Option<String>, Option<String>)> = rows
        .iter()
        .map(|row| (row.get(0), row.get(1), row.get(2)))
        .collect();
    assert_eq!(shown.len(), 3);
    assert_eq!(shown[0], ("bytes".into(), None, None));
    assert_eq!(shown[1].2.as_deref(), Some("7"));
    assert_eq!(shown[2], ("text".into(), Some("plain".into()), None));
}

/// Batches that overlap in opposite orders would lock each other out; sorted, they do not.
#[tokio::test(flavor = "multi_thread")]
async fn overlapping_batches_never_deadlock() {
    let server = Server::start();
    let store = Postgres::open(&format!("{}?connections=8", server.url()))
        .await
        .expect("opens");
    let batch = |round: usize, reversed: bool| {
        let mut writes: Vec<Write> = (0..200)
            .map(|number| Write {
                key: format!("{round}/{number}"),
                expect: Expect::Absent,
                value: Some("x".into()),
            })
            .collect();
        if reversed {
            writes.reverse();
        }
        writes
    };
    for round in 0..5 {
        let racing = (0..8).map(|racer| store.write(batch(round, racer % 2 == 0)));
        let outcomes = futures_util::future::join_all(racing).await.concat();
        let won = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        let lost = outcomes
            .iter()
            .filter(|outcome| matches!(outcome, Err(Error::Conflict { current: Some(_) })))
            .count();
        assert_eq!((won, lost), (200, 1400));
    }
    let admin = sql(&server.url_of_superuser()).await;
    let row = admin
        .query_one("SELECT sum(deadlocks)::int8 FROM pg_stat_database", &[])
        .await
        .expect("statistics");
    assert_eq!(row.get::<_, i64>(0), 0);
}

/// A server that is set to acknowledge first and write later is made to write first.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_acknowledged_survives_even_if_the_server_is_set_to_be_careless() {
    let mut server = Server::builder()
        .setting("synchronous_commit", "off")
        .setting("wal_writer_delay", "10s")
        .start();
    let store = Postgres::open(&server.url()).await.expect("opens");
    let revision = store.create("a", "1").await.expect("created");
    tokio::task::block_in_place(|| {
        server.kill();
        server.restart();
    });
    let store = Postgres::open(&server.url()).await.expect("opens");
    let found = store.read("a").await.expect("read");
    assert_eq!(found.map(|entry| entry.revision), Some(revision));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_is_checked_by_its_certificate() {
    let server = Server::builder().tls().start();
    let (url, ca) = (server.url(), server.ca_certificate().expect("there"));
    let checked = format!("{url}?sslmode=require&ca={}", ca.display());
    let store = Postgres::open(&checked).await;
    let store = store.expect("a server with the right certificate");
    let mut watch = store.watch(Scope::Under("w/".into()));
    assert_eq!(next(&mut watch).await, Change::Synced);
    store.create("w/a", "1").await.expect("created");
    assert!(matches!(next(&mut watch).await, Change::Put(_)));

    // The system knows nobody who signed this certificate.
    let why = rejected(Postgres::open(&format!("{url}?sslmode=require")).await);
    assert!(why.contains("TLS") || why.contains("certificate"), "{why}");
    let unchecked = Postgres::open(&format!("{url}?sslmode=prefer")).await;
    unchecked.expect("encrypted, and nobody is checked");
    rejected(Postgres::open(&format!("{url}?sslmode=disable")).await);
    let plain = Server::start();
    for mode in ["prefer", "disable"] {
        let url = format!("{}?sslmode={mode}", plain.url());
        Postgres::open(&url).await.expect(mode);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_asks_for_a_certificate_gets_it() {
    let server = Server::builder().mutual_tls().start();
    let ca = server.ca_certificate().expect("there");
    let (cert, key) = server.client_certificate().expect("there");
    let without = format!("{}?sslmode=require&ca={}", server.url(), ca.display());
    let url = format!("{without}&cert={}&key={}", cert.display(), key.display());
    let store = Postgres::open(&url).await.expect("the right certificate");
    store.create("a", "1").await.expect("created");
    rejected(Postgres::open(&without).await);
}

/// Whoever keeps a row locked holds up the writes to that row, and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn a_locked_row_does_not_hold_up_the_rest() {
    let server = Server::start();
    let store = Postgres::open(&server.url()).await.expect("opens");
    let revision = store.create("locked", "1").await.expect("created");
    let admin = sql(&server.url_of_superuser()).await;
    admin
        .batch_execute("BEGIN; SELECT 1 FROM parti.records WHERE key = 'locked' FOR UPDATE")
        .await
        .expect("locked");
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.update("locked", revision, "2").await }
    });
    let looker = sql(&server.url_of_superuser()).await;
    let waits = "SELECT count(*) FROM pg_stat_activity
                  WHERE usename = 'parti' AND wait_event_type = 'Lock'";
    while looker
        .query_one(waits, &[])
        .await
        .expect("asked")
        .get::<_, i64>(0)
        == 0
    {
        assert!(!waiting.is_finished(), "nothing was locked");
    }
    store.create("other", "1").await.expect("created meanwhile");
    // Nobody lets go: the server gives up the write, and says that nothing was done.
    let refused = tokio::time::timeout(HANG, waiting).await.expect("in time");
    let error = refused.expect("no panic").expect_err("locked");
    assert_eq!(error.kind(), "unavailable", "{error}");
    admin.batch_execute("ROLLBACK").await.expect("let go");
    store
        .update("locked", revision, "2")
        .await
        .expect("updated");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_without_an_answer_has_an_open_fate() {
    let mut server = Server::start();
    let store = Postgres::open(&server.url()).await.expect("opens");
    let revision = store.create("w/a", "1").await.expect("created");
    let mut watch = store.watch(Scope::Under("w/".into()));
    assert!(matches!(next(&mut watch).await, Change::Put(_)));
    assert_eq!(next(&mut watch).await, Change::Synced);
    tokio::task::block_in_place(|| server.pause());
    let error = store.update("w/a", revision, "2").await.expect_err("stuck");
    assert_eq!(error.kind(), "unknown", "{error}");
    assert!(matches!(next(&mut watch).await, Change::Interrupted(_)));
    tokio::task::block_in_place(|| server.resume());
    // The first one may have happened by now, or not: a further write settles it.
    let settled = async {
        loop {
            match store.update("w/a", revision, "3").await {
                Ok(revision) => return (revision, "3"),
                Err(Error::Conflict {
                    current: Some(entry),
                }) => return (entry.revision, if entry.value == "2" { "2" } else { "3" }),
                Err(Error::Unavailable { .. } | Error::Unknown { .. }) => {
                    tokio::task::yield_now().await;
                }
                other => panic!("{other:?}"),
            }
        }
    };
    let (revision, value) = tokio::time::timeout(HANG, settled).await.expect("in time");
    loop {
        if let Change::Put(entry) = next(&mut watch).await
            && entry.revision == revision
        {
            assert_eq!(entry.value, value);
            return;
        }
    }
}
