//! The embedded log, appended to by several real processes that are killed at any moment.
//!
//! A test starts this very program again as a child, with its task in the environment.
#![cfg(all(feature = "sqlite", unix))]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use parti::source::Source;
use parti::source::log::{Log, NewRecord, Topic, TopicSettings};
use parti::{Offset, PartitionId};

const FOLDER: &str = "PARTI_TEST_FOLDER";
const NAME: &str = "PARTI_TEST_NAME";
const PARTITIONS: u32 = 3;

async fn topic(folder: &Path) -> Topic {
    let log = Log::open(folder.join("log")).await.expect("it opens");
    let settings = TopicSettings::partitions(PARTITIONS);
    log.create_topic("t", settings).await.expect("it opens")
}

/// Not a test by itself: what the other one starts. Appends batches, and says what is acknowledged.
#[tokio::test]
async fn child() {
    let Ok(folder) = std::env::var(FOLDER) else {
        return;
    };
    let name = std::env::var(NAME).expect("a name");
    let topic = topic(Path::new(&folder)).await;
    for number in 0_u64.. {
        let text = |part: u64| {
            let size = usize::try_from((number * 131 + part * 977) % 3_000).expect("small");
            format!("{name}-{number}-{part} {}", "x".repeat(size))
        };
        let texts: Vec<String> = (0..=number % 7).map(text).collect();
        let records = texts.iter().map(|text| NewRecord::new(text.clone()));
        let placed = topic.append(records.collect()).await.expect("appended");
        let mut out = std::io::stdout().lock();
        for (text, (partition, offset)) in texts.iter().zip(placed) {
            let id = text.split(' ').next().unwrap_or_default();
            // If nobody listens any more, the end is near.
            let _ = writeln!(out, "ack {id} {partition} {offset}");
        }
        let _ = out.flush();
    }
}

/// What a child says was acknowledged: which message, and where.
type Ack = (String, PartitionId, u64);

/// Lets a child live until it has acknowledged this many; the answer is all it said. With none, it
/// is killed while it opens the log.
fn live_and_die(folder: &Path, name: &str, mut left: u64) -> Vec<Ack> {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "child", "--nocapture"])
        .env(FOLDER, folder)
        .env(NAME, name)
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut acknowledged = Vec::new();
    let mut out = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    if left == 0 {
        out.read_line(&mut line).expect("text");
        child.kill().expect("killed");
    }
    while out.read_line(&mut line).expect("text") > 0 {
        // The last line may be cut short.
        let ack = line.strip_prefix("ack ");
        if let Some(ack) = ack.and_then(|ack| ack.strip_suffix('\n')) {
            let mut words = ack.split(' ');
            let mut word = || words.next().expect("three words");
            let (id, partition) = (word().to_owned(), PartitionId::new(word()));
            acknowledged.push((id, partition, word().parse().expect("a number")));
            left = left.saturating_sub(1);
            if left == 0 {
                // SIGKILL; what it has said until then is still in the pipe.
                child.kill().expect("killed");
            }
        }
        line.clear();
    }
    assert!(!child.wait().expect("ended").success(), "it ends by a kill");
    assert_eq!(left, 0, "{name} ended by itself");
    acknowledged
}

#[tokio::test]
async fn a_kill_at_any_moment_loses_nothing_acknowledged() {
    const PRODUCERS: u64 = 3;
    const LIVES: u64 = 15;
    let folder = tempfile::tempdir().expect("a folder");
    let topic = topic(folder.path()).await;
    let producers = (0..PRODUCERS).map(|producer| {
        let folder = folder.path().to_owned();
        tokio::task::spawn_blocking(move || {
            let mut dice = producer + 1;
            let mut acknowledged = Vec::new();
            for life in 0..LIVES {
                dice = dice
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let length = if life % 5 == 0 {
                    0
                } else {
                    1 + (dice >> 33) % 80
                };
                let name = format!("{producer}-{life}");
                acknowledged.push(live_and_die(&folder, &name, length));
            }
            acknowledged
        })
    });
    // All at the same time, not one after the other; and somebody reads while they are killed.
    let producers: Vec<_> = producers.collect();
    while !producers.iter().all(tokio::task::JoinHandle::is_finished) {
        for number in 0..PARTITIONS {
            content(&topic, number).await;
        }
    }
    let mut lives = Vec::new();
    for producer in producers {
        lives.extend(producer.await.expect("no panic"));
    }

    let mut found = BTreeMap::new();
    for number in 0..PARTITIONS {
        let partition = PartitionId::new(number.to_string());
        for (offset, id) in content(&topic, number).await.into_iter().enumerate() {
            let place = (partition.clone(), offset as u64);
            assert_eq!(found.insert(id, place), None, "a message is there twice");
        }
    }
    let mut count = 0;
    for life in &lives {
        let mut last: BTreeMap<&PartitionId, u64> = BTreeMap::new();
        for (id, partition, offset) in life {
            let place = found.get(id).unwrap_or_else(|| panic!("{id} is lost"));
            assert_eq!(*place, (partition.clone(), *offset), "{id}");
            let before = last.insert(partition, *offset);
            assert!(before < Some(*offset), "{id} is out of order");
            count += 1;
        }
    }
    assert!(count > PRODUCERS * LIVES);
    println!(
        "{} kills; {count} messages acknowledged, all there",
        PRODUCERS * LIVES
    );
    // And it can be appended to.
    let placed = topic.append(vec![NewRecord::new("the end")]).await;
    assert_eq!(placed.expect("appended").len(), 1);
}

/// The ids of a partition's messages, in order. That the offsets have no gaps, and each message its
/// checksum, is checked by the read itself.
async fn content(topic: &Topic, number: u32) -> Vec<String> {
    let partition = PartitionId::new(number.to_string());
    let mut ids = Vec::new();
    loop {
        let next = Offset(ids.len() as u64);
        let batch = topic.read(&partition, next, 500).await.expect("readable");
        if batch.records.is_empty() {
            assert_eq!(batch.end, batch.next, "what is acknowledged is readable");
            return ids;
        }
        for record in batch.records {
            let text = String::from_utf8(record.payload.to_vec()).expect("text");
            ids.push(text.split(' ').next().unwrap_or_default().to_owned());
        }
    }
}
