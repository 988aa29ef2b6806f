//! A log on a real disk.

use std::collections::BTreeMap;

use super::*;
use crate::source::{DeadLetter, Growth, Source, SourceError, StartPosition};
use futures_util::StreamExt;

async fn log(folder: &Path) -> Log {
    Log::open(folder.join("log")).await.expect("opens")
}

async fn topic(folder: &Path, partitions: u32) -> Topic {
    let log = log(folder).await;
    let settings = TopicSettings::partitions(partitions);
    log.create_topic("t", settings).await.expect("made")
}

fn number(n: u32) -> PartitionId {
    PartitionId::new(n.to_string())
}

#[tokio::test]
async fn what_is_appended_is_read_in_order_by_another_handle() {
    let folder = tempfile::tempdir().expect("a folder");
    let topic = topic(folder.path(), 3).await;
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
    let aged = |seconds| TopicSettings {
        retention_age: Some(Duration::from_secs(seconds)),
        ..TopicSettings::partitions(1)
    };
    let sized = |bytes| TopicSettings {
        retention_bytes: Some(bytes),
        ..aged(60)
    };
    log.create_topic("k", sized(u64::MAX)).await.expect("made");
    for same in [TopicSettings::partitions(1), aged(60), sized(u64::MAX)] {
        log.create_topic("k", same).await.expect("the same");
    }
    for (topic, partitions, settings, why) in [
        (
            "k",
            1,
            aged(61),
            "keeps messages for 60s, as it was made, and not for 61s",
        ),
        ("k", 1, sized(5), "and not up to 5 bytes"),
        ("t", 3, aged(60), "keeps messages without such a limit"),
    ] {
        let settings = TopicSettings {
            partitions,
            ..settings
        };
        let other = log.create_topic(topic, settings).await.expect_err(why);
        assert!(matches!(other, LogError::OtherLimit { .. }), "{other}");
        assert!(other.to_string().contains(why), "{other}");
    }
    let missing = log.topic("x").await.expect_err("missing").to_string();
    assert!(missing.contains("there are k, t"), "{missing}");
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
    assert_eq!(
        log.topics().await.expect("listed"),
        ["../odd *name", "k", "t"]
    );
    for bad in ["3", "-1", "00", "x"] {
        let read = topic.read(&PartitionId::new(bad), Offset(0), 1).await;
        assert!(matches!(read, Err(SourceError::Rejected(_))), "{bad}");
    }
}

#[tokio::test]
async fn positions_are_resolved() {
    let folder = tempfile::tempdir().expect("a folder");
    let topic = topic(folder.path(), 1).await;
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
async fn whether_a_topic_can_be_written_is_told_and_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("log");
    let log = log(folder.path()).await;
    let topic = log.create_topic("t", TopicSettings::partitions(1)).await;
    let topic = topic.expect("made");
    let files = || -> Vec<_> {
        let found = std::fs::read_dir(&place).expect("a folder");
        found
            .map(|file| file.expect("a file").file_name())
            .collect()
    };
    let before = files().len();
    assert_eq!(topic.check_writable().await, Ok(()));
    assert_eq!(files().len(), before, "{:?}", files());
    // What a full or read-only disk says depends on who runs this; a folder that is gone does not.
    std::fs::rename(&place, folder.path().join("moved")).expect("moved");
    let refused = topic.check_writable().await;
    assert!(refused.is_err(), "{refused:?}");
}

#[tokio::test]
async fn a_changed_message_is_noticed_and_what_is_before_it_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = log(folder.path()).await;
    let topic = log
        .create_topic("t", TopicSettings::partitions(1))
        .await
        .expect("made");
    for batch in [2, 3, 1] {
        let records = (0..batch).map(|n| NewRecord::new(format!("{n}")));
        topic.append(records.collect()).await.expect("appended");
    }
    let file = log.file("t").expect("a name");
    let raw = rusqlite::Connection::open(file).expect("opens");
    let read = async |from: u64| topic.read(&number(0), Offset(from), 10).await;
    for change in [
        "UPDATE blocks SET body = zeroblob(length(body)) WHERE row = 4",
        "UPDATE blocks SET body = x'00' WHERE row = 4",
        "UPDATE blocks SET count = 2 WHERE row = 4",
        "DELETE FROM blocks WHERE row = 4",
    ] {
        assert_eq!(raw.execute(change, []), Ok(1), "{change}");
        let batch = read(0).await.expect("read");
        assert_eq!((batch.records.len(), batch.next), (2, Offset(2)));
        let error = read(2).await.expect_err("damaged").to_string();
        assert!(error.contains("from offset 2 to"), "{change}: {error}");
        assert_eq!(read(5).await.expect("sound").records.len(), 1);
    }
    let error = read(3).await.expect_err("a hole").to_string();
    assert!(error.contains("checkpoint to 5"), "{error}");
}

#[tokio::test]
async fn blocks_of_any_size_are_read_from_any_offset() {
    let folder = tempfile::tempdir().expect("a folder");
    let topic = topic(folder.path(), 1).await;
    // Some blocks of one message, some of many, some cut where they are full.
    let sizes = [1, 70, 1, 1, 700, 3];
    let body = |n: usize| format!("{n}").repeat(1 + n % 40);
    let mut end = 0;
    for size in sizes {
        let records = (end..end + size).map(|n| NewRecord::new(body(n)));
        topic.append(records.collect()).await.expect("appended");
        end += size;
    }
    let large = NewRecord::new(vec![b'x'; 300_000]);
    topic
        .append(vec![large.clone(), large])
        .await
        .expect("appended");
    for from in 0..end {
        let batch = topic
            .read(&number(0), Offset(from as u64), 5)
            .await
            .expect("read");
        for (n, record) in (from..end).zip(&batch.records) {
            assert_eq!(record.offset.0, n as u64);
            assert_eq!(record.payload, body(n));
        }
        assert_eq!(batch.records.len(), 5.min(end + 2 - from));
        assert_eq!(batch.next.0, (from + batch.records.len()) as u64);
    }
}

#[tokio::test]
async fn a_time_is_found_among_blocks() {
    let folder = tempfile::tempdir().expect("a folder");
    let topic = topic(folder.path(), 1).await;
    for size in [3, 1, 40, 2] {
        let records = (0..size).map(|_| NewRecord::new("x"));
        topic.append(records.collect()).await.expect("appended");
        // The next ones are of a later millisecond.
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    let all = topic.read(&number(0), Offset(0), 100).await.expect("read");
    let times: Vec<u64> = all.records.iter().map(|r| r.timestamp_ms).collect();
    for (first, at) in [(0, times[0]), (3, times[3]), (4, times[4]), (44, times[44])] {
        let since = topic.resolve(&number(0), StartPosition::Time(at)).await;
        assert_eq!(since, Ok(Offset(first)));
        let after = topic.resolve(&number(0), StartPosition::Time(at + 1)).await;
        let later = times.iter().filter(|time| **time <= at).count() as u64;
        assert_eq!(after, Ok(Offset(later)));
    }
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

/// Like a folder that this user may not look into, but for root, too: a link to itself.
#[cfg(unix)]
#[tokio::test]
async fn what_cannot_be_looked_at_is_not_taken_as_missing() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = log(folder.path()).await;
    let file = folder.path().join("log/t.topic");
    fs::create_dir(folder.path().join("log")).expect("made");
    std::os::unix::fs::symlink(&file, &file).expect("linked");
    let told = log.topic("t").await.expect_err("it cannot be read");
    assert!(matches!(told, LogError::Rejected(_)), "{told:?}");
    let path = file.display().to_string();
    assert!(told.to_string().contains(&path), "{told}");
    let hidden = folder.path().join("hidden");
    std::os::unix::fs::symlink(&hidden, &hidden).expect("linked");
    let told = Log::open(&hidden).await.expect_err("it cannot be read");
    assert!(matches!(told, LogError::Rejected(_)), "{told:?}");
    let path = format!("log:{}: ", hidden.display());
    assert!(told.to_string().contains(&path), "{told}");
    let denied = io::Error::from(ErrorKind::PermissionDenied);
    assert!(unreadable(&denied).contains("let this user read"));
}
