//! A log on a real disk.

use std::collections::BTreeMap;

use super::*;
use crate::source::{DeadLetter, Growth, Source, SourceError, StartPosition};
use futures_util::StreamExt;

async fn log(folder: &Path) -> Log {
    Log::open(folder.join("log")).await.expect("opens")
}

fn number(n: u32) -> PartitionId {
    PartitionId::new(n.to_string())
}

#[tokio::test]
async fn what_is_appended_is_read_in_order_by_another_handle() {
    let folder = tempfile::tempdir().expect("a folder");
    let topic = log(folder.path())
        .await
        .create_topic("t", TopicSettings::partitions(3))
        .await
        .expect("made");
    let mut expected: BTreeMap<PartitionId, Vec<String>> = BTreeMap::new();
    for round in 0..10 {
        let batch: Vec<NewRecord> = (0..10)
            .map(|n| NewRecord {
                headers: vec![("h".into(), Bytes::from_static(b"v"))],
                ..NewRecord::new(format!("{round}/{n}")).with_key(format!("k{n}"))
            })
            .collect();
        for (n, (partition, offset)) in topic
            .append(batch)
            .await
            .expect("appended")
            .into_iter()
            .enumerate()
        {
            assert_eq!(partition, topic.partition_of(format!("k{n}").as_bytes()));
            let there = expected.entry(partition).or_default();
            assert_eq!(offset.0, there.len() as u64);
            there.push(format!("{round}/{n}"));
        }
    }
    let other = log(folder.path()).await.topic("t").await.expect("there");
    assert_eq!(other.identity().await, topic.identity().await);
    for (partition, payloads) in expected {
        let batch = other.read(&partition, Offset(0), 1000).await.expect("read");
        let read: Vec<String> = batch
            .records
            .iter()
            .map(|r| String::from_utf8_lossy(&r.payload).into_owned())
            .collect();
        assert_eq!(read, payloads);
        assert_eq!(batch.end.0, payloads.len() as u64);
        assert_eq!(batch.records[0].headers[0].1, "v");
        let tail = other.read(&partition, Offset(3), 2).await.expect("read");
        assert_eq!((tail.records.len(), tail.next), (2, Offset(5)));
        let past = other.read(&partition, batch.end, 10).await.expect("read");
        assert!(past.records.is_empty() && past.next == batch.end);
    }
}

#[tokio::test]
async fn the_number_of_partitions_is_for_good_and_mistakes_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = log(folder.path()).await;
    assert!(matches!(
        log.topic("t").await,
        Err(LogError::NoSuchTopic { .. })
    ));
    let topic = log
        .create_topic("t", TopicSettings::partitions(3))
        .await
        .expect("made");
    log.create_topic("t", TopicSettings::partitions(3))
        .await
        .expect("the same");
    let other = log
        .create_topic("t", TopicSettings::partitions(4))
        .await
        .expect_err("another");
    assert_eq!(
        other,
        LogError::Mismatch {
            topic: "t".into(),
            has: 3,
            asked: 4
        }
    );
    let missing = log.topic("x").await.expect_err("missing").to_string();
    assert!(missing.contains("there are t"), "{missing}");
    assert!(
        log.create_topic("z", TopicSettings::partitions(0))
            .await
            .is_err()
    );
    assert!(
        log.create_topic("", TopicSettings::partitions(1))
            .await
            .is_err()
    );
    log.create_topic("../odd *name", TopicSettings::partitions(1))
        .await
        .expect("escaped");
    assert_eq!(log.topics().await.expect("listed"), ["../odd *name", "t"]);
    for bad in ["3", "-1", "00", "x"] {
        let read = topic.read(&PartitionId::new(bad), Offset(0), 1).await;
        assert!(matches!(read, Err(SourceError::Rejected(_))), "{bad}");
    }
}

#[tokio::test]
async fn positions_are_resolved() {
    let folder = tempfile::tempdir().expect("a folder");
    let topic = log(folder.path())
        .await
        .create_topic("t", TopicSettings::partitions(1))
        .await
        .expect("made");
    topic
        .append((0..5).map(|n| NewRecord::new(format!("{n}"))).collect())
        .await
        .expect("appended");
    let resolve = async |start| topic.resolve(&number(0), start).await.expect("resolved").0;
    assert_eq!(resolve(StartPosition::Earliest).await, 0);
    assert_eq!(resolve(StartPosition::Latest).await, 5);
    assert_eq!(resolve(StartPosition::Offset(3)).await, 3);
    assert_eq!(resolve(StartPosition::Offset(30)).await, 5);
    assert_eq!(resolve(StartPosition::Time(0)).await, 0);
    assert_eq!(resolve(StartPosition::Time(u64::MAX)).await, 5);
}

#[tokio::test]
async fn growth_is_told_across_handles() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = log(folder.path()).await;
    let topic = log
        .create_topic("t", TopicSettings::partitions(4))
        .await
        .expect("made");
    let other = log.topic("t").await.expect("there");
    let mut growth = other.growth();
    // The first look tells of everything, so that nothing is missed before it.
    for n in 0..4 {
        assert_eq!(growth.next().await, Some(Growth::Partition(number(n))));
    }
    let record = NewRecord {
        partition: Some(number(2)),
        ..NewRecord::new("x")
    };
    topic.append(vec![record]).await.expect("appended");
    assert_eq!(growth.next().await, Some(Growth::Partition(number(2))));
}

#[tokio::test]
async fn a_dead_letter_is_kept_once_and_tells_its_origin() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = log(folder.path()).await;
    let topic = log
        .create_topic("t", TopicSettings::partitions(2))
        .await
        .expect("made");
    let letter = DeadLetter {
        partition: number(1),
        record: crate::source::Record {
            offset: Offset(7),
            payload: "bad".into(),
            ..Default::default()
        },
        attempts: 3,
        error: "no".into(),
    };
    topic.dead_letter(letter.clone()).await.expect("kept");
    topic.dead_letter(letter).await.expect("kept");
    let letters = log.topic("t.dlq").await.expect("made");
    let batch = letters.read(&number(1), Offset(0), 10).await.expect("read");
    assert_eq!(batch.records.len(), 1);
    let header = |name: &str| {
        let found = batch.records[0].headers.iter().find(|(own, _)| own == name);
        found.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
    };
    assert_eq!(header("parti-offset").as_deref(), Some("7"));
    assert_eq!(header("parti-error").as_deref(), Some("no"));
}

#[tokio::test]
async fn a_changed_message_is_noticed_and_what_is_before_it_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = log(folder.path()).await;
    let topic = log
        .create_topic("t", TopicSettings::partitions(1))
        .await
        .expect("made");
    topic
        .append((0..3).map(|n| NewRecord::new(format!("{n}"))).collect())
        .await
        .expect("appended");
    let file = log.file("t").expect("a name");
    let raw = rusqlite::Connection::open(file).expect("opens");
    raw.execute("UPDATE messages SET payload = x'00' WHERE row = 1", [])
        .expect("changed");
    let batch = topic.read(&number(0), Offset(0), 10).await.expect("read");
    assert_eq!((batch.records.len(), batch.next), (1, Offset(1)));
    let error = topic
        .read(&number(0), Offset(1), 10)
        .await
        .expect_err("damaged");
    assert!(error.to_string().contains("offset 1"), "{error}");
}

#[tokio::test]
async fn retention_removes_the_oldest_first() {
    let folder = tempfile::tempdir().expect("a folder");
    let settings = TopicSettings {
        retention_bytes: Some(100),
        ..TopicSettings::partitions(1)
    };
    let topic = log(folder.path())
        .await
        .create_topic("t", settings)
        .await
        .expect("made");
    // The first append sweeps, with everything of its own batch there.
    topic
        .append((0..50).map(|_| NewRecord::new("0123456789")).collect())
        .await
        .expect("appended");
    topic
        .append(vec![NewRecord::new("0123456789")])
        .await
        .expect("appended");
    let info = topic.describe().await.expect("described");
    assert_eq!(
        (info.partitions[0].first, info.partitions[0].end),
        (Offset(40), Offset(51))
    );
    assert_eq!(info.partitions[0].bytes, 110);
    let batch = topic.read(&number(0), Offset(0), 100).await.expect("read");
    assert_eq!(
        (batch.first, batch.records[0].offset),
        (Offset(40), Offset(40))
    );
    assert_eq!(batch.records.len(), 11);
}
