//! Backlogs: many messages, large ones, start positions, retention that overtakes, virtual
//! partitions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_nats::jetstream::{self, stream};
use futures_util::{FutureExt, StreamExt, TryStreamExt};
use parti::source::JetStream;
use parti::source::jetstream::{NewMessage, StreamSettings};
use parti::store::Memory;
use parti::{
    HandlerError, Message, PartitionId, Report, StartPosition, StaticPartitions, Trouble, Worker,
};
use parti_servers::install::{NATS_LATEST, NATS_OLDEST};
use tokio::sync::watch;

use crate::ledger::{Handled, PATIENCE};
use crate::scene::{Scene, Setup, on_every_setup, publish};

const LIMITS: Setup = Setup {
    version: NATS_LATEST,
    retention: "limits",
    ack: "explicit",
};

on_every_setup!(a_long_backlog, a_backlog_of_many_partitions, large_messages);

/// More than any window, buffer and read holds, and handled slowly at first, so that lanes overflow.
async fn a_long_backlog(setup: Setup) {
    const PARTITIONS: u32 = 6;
    let mut scene = Scene::new(setup, PARTITIONS).await;
    scene.publish_many(9_000).await;
    let url = scene.url();
    let slow_at_first = |_, message: parti::Message| async move {
        if message.payload().len() == 1 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    };
    let first = scene.start_with(&url, slow_at_first).await;
    scene.handles(first).await;
    let publisher = scene.publisher(Duration::from_millis(1)).await;
    let second = scene.start().await;
    scene.handles(second).await;
    publisher.stop().await;
    scene.ledger.drained().await;
    for worker in [first, second] {
        scene.stop(worker).await;
    }
    let counts = scene.ledger.assert_whole();
    assert_eq!(counts.repeated, 0, "{counts:?}");
}

/// So many partitions that one read of the whole stream serves them all; no reader stays behind.
async fn a_backlog_of_many_partitions(setup: Setup) {
    let mut scene = Scene::new(setup, 60).await;
    scene.publish_many(12_000).await;
    let first = scene.start().await;
    scene.handles(first).await;
    let publisher = scene.publisher(Duration::from_millis(1)).await;
    let second = scene.start().await;
    scene.handles(second).await;
    publisher.stop().await;
    scene.ledger.drained().await;
    let context = scene.context().await;
    let stream = context.get_stream("S").await.expect("there");
    let no_readers = async {
        loop {
            let names: Vec<String> = stream.consumer_names().try_collect().await.expect("listed");
            if !names.iter().any(|name| name.starts_with("parti-read-")) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let gone = tokio::time::timeout(PATIENCE, no_readers).await;
    assert!(gone.is_ok(), "readers stay behind");
    for worker in [first, second] {
        scene.stop(worker).await;
    }
    let counts = scene.ledger.assert_whole();
    assert_eq!(counts.repeated, 0, "{counts:?}");
}

/// The handlers stand still while a backlog grows, and the durable with them. When they go on, it is
/// put at the stream's end, and what it had not delivered is read: all of it, once, in order.
#[tokio::test]
async fn a_durable_that_was_left_behind_catches_up() {
    for version in [NATS_LATEST, NATS_OLDEST] {
        let mut scene = Scene::new(Setup { version, ..LIMITS }, 40).await;
        scene.config.jetstream.catch_up_after = Duration::from_millis(1);
        let gate = watch::Sender::new(true);
        let waits = gate.clone();
        let url = scene.url();
        let handle = move |_, _| {
            let mut open = waits.subscribe();
            async move {
                open.wait_for(|open| *open).await?;
                Ok(())
            }
        };
        let worker = scene.start_with(&url, handle).await;
        let context = scene.context().await;
        let stream = context.get_stream("S").await.expect("there");
        let delivered = async || {
            let infos: Vec<_> = stream.consumers().try_collect().await.expect("listed");
            let durable = infos.iter().find(|info| info.name.starts_with("parti-g-"));
            durable.map_or(0, |info| info.delivered.consumer_sequence)
        };
        scene.taken(40).await;
        scene.publish_many(40).await;
        scene.ledger.drained().await;
        let at_first = delivered().await;
        let caught_up = async {
            // It depends on the machine's mood whether the durable counts as slow.
            let mut published = 0;
            loop {
                gate.send_replace(false);
                scene.publish_many(4_000).await;
                published += 4_000;
                gate.send_replace(true);
                scene.ledger.drained().await;
                if delivered().await < at_first + published {
                    return;
                }
            }
        };
        let caught_up = tokio::time::timeout(PATIENCE, caught_up).await;
        assert!(caught_up.is_ok(), "the durable brought everything itself");
        scene.stop(worker).await;
        let counts = scene.ledger.assert_whole();
        assert_eq!(counts.repeated, 0, "{counts:?}");
    }
}

/// Each as large as the server allows: a pull is bounded by bytes, too, and goes on.
async fn large_messages(setup: Setup) {
    let mut scene = Scene::new(setup, 2).await;
    let context = scene.context().await;
    // The number, and a lot of spaces.
    for _ in 0..40 {
        for partition in ["0", "1"] {
            let number = scene.ledger.next_number(partition);
            let payload = format!("{number}{}", " ".repeat(1_000_000));
            let sent = context.publish(format!("p.{partition}"), payload.into());
            sent.await.expect("sent").await.expect("stored");
            scene.ledger.published(partition);
        }
    }
    let worker = scene.start().await;
    scene.ledger.drained().await;
    scene.stop(worker).await;
    let counts = scene.ledger.assert_whole();
    assert_eq!((counts.published, counts.repeated), (80, 0), "{counts:?}");
}

/// A hundred megabytes in so many partitions that they are swept: all of it comes, a few megabytes
/// at a time.
#[tokio::test]
async fn large_messages_of_many_partitions() {
    const PARTITIONS: u32 = 20;
    const MOST: u64 = 8 * 1024 * 1024;
    for version in [NATS_LATEST, NATS_OLDEST] {
        let mut scene = Scene::new(Setup { version, ..LIMITS }, PARTITIONS).await;
        let context = scene.context().await;
        for number in 0..200 {
            let partition = (number % PARTITIONS).to_string();
            let number = scene.ledger.next_number(&partition);
            let payload = format!("{number}{}", " ".repeat(512 * 1024));
            // Stored once, however often it has to be sent.
            let id = format!("{partition}-{number}");
            let stored = async {
                loop {
                    let message = jetstream::message::PublishMessage::build()
                        .payload(payload.clone().into())
                        .message_id(&id);
                    let sent = context.send_publish(format!("p.{partition}"), message);
                    if let Ok(ack) = sent.await
                        && ack.await.is_ok()
                    {
                        return;
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            };
            let stored = tokio::time::timeout(PATIENCE, stored).await;
            assert!(stored.is_ok(), "{number} was not stored");
            scene.ledger.published(&partition);
        }
        let client = async_nats::connect(scene.server().url()).await;
        let client = client.expect("connects");
        let asked = |call: &str| client.subscribe(format!("$JS.API.CONSUMER.{call}.S.>"));
        let mut readers = asked("CREATE").await.expect("sent");
        let mut pulls = asked("MSG.NEXT").await.expect("sent");
        client.flush().await.expect("flushed");
        let worker = scene.start().await;
        scene.ledger.drained().await;
        scene.stop(worker).await;
        let counts = scene.ledger.assert_whole();
        assert_eq!((counts.published, counts.repeated), (200, 0), "{counts:?}");

        // Whatever was asked for is here once the server has answered what was sent after it.
        client.flush().await.expect("flushed");
        let body = |message: async_nats::Message| -> serde_json::Value {
            serde_json::from_slice(&message.payload).expect("JSON")
        };
        let mut swept = false;
        while let Some(Some(create)) = readers.next().now_or_never() {
            let config = &body(create)["config"];
            let reads = config["name"]
                .as_str()
                .is_some_and(|n| n.starts_with("parti-read-"));
            swept |= reads && config.get("filter_subject").is_none();
        }
        assert!(swept, "each partition was read for itself");
        let mut asked = 0;
        while let Some(Some(pull)) = pulls.next().now_or_never() {
            let bytes = body(pull)["max_bytes"].as_u64();
            assert!(bytes.is_some_and(|bytes| bytes <= MOST), "{bytes:?}");
            asked += 1;
        }
        assert!(
            asked >= 200 * 512 * 1024 / MOST,
            "{asked} pulls brought it all"
        );
    }
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("after 1970").as_millis() as u64
}

/// Where a new group starts: by time, at the end, at an offset.
#[tokio::test]
async fn start_positions() {
    for version in [NATS_LATEST, NATS_OLDEST] {
        for (which, expected) in [("time", 30..40), ("latest", 40..41), ("offset", 35..40)] {
            let mut scene = Scene::new(Setup { version, ..LIMITS }, 2).await;
            let context = scene.context().await;
            let mut middle = 0;
            for number in 0..40 {
                if number == 30 {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    middle = now_ms();
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                publish(&context, &scene.ledger, "0").await;
                publish(&context, &scene.ledger, "1").await;
            }
            scene.config.processing.start = match which {
                "time" => StartPosition::Time(middle),
                "offset" => StartPosition::Offset(71),
                _ => StartPosition::Latest,
            };
            let worker = scene.start().await;
            scene.taken(2).await;
            // One that comes for sure.
            publish(&context, &scene.ledger, "0").await;
            publish(&context, &scene.ledger, "1").await;
            scene
                .ledger
                .until("the last of both", |all| {
                    all.iter().filter(|handled| handled.number == 40).count() == 2
                })
                .await;
            scene.stop(worker).await;
            for partition in ["0", "1"] {
                let all = scene.ledger.all();
                let own = all.iter().filter(|handled| handled.partition == partition);
                let numbers: Vec<u64> = own.map(|handled| handled.number).collect();
                let wanted: Vec<u64> = (expected.start..41).collect();
                assert_eq!(numbers, wanted, "{which} on {version}, {partition}");
            }
        }
    }
}

/// What the stream's limits removed before it was handled is named, and the rest is handled.
#[tokio::test]
async fn retention_that_overtakes_is_named() {
    let mut scene = Scene::new(LIMITS, 2).await;
    scene.publish_many(200).await;
    let worker = scene.start().await;
    scene.ledger.drained().await;
    scene.stop(worker).await;
    scene.publish_many(200).await;
    let context = scene.context().await;
    let limited = stream::Config {
        name: "S".into(),
        subjects: vec!["p.*".into()],
        max_messages: 50,
        ..stream::Config::default()
    };
    context.update_stream(limited).await.expect("limited");
    let worker = scene.start().await;
    scene
        .ledger
        .until("the last ones", |all| {
            all.iter().filter(|handled| handled.number == 199).count() == 2
        })
        .await;
    scene
        .reported("what is gone", |reports| {
            let gone = |(_, report): &&(usize, Report)| {
                matches!(report, Report::Trouble(Trouble::RetentionOvertook { .. }))
            };
            reports.iter().filter(gone).count() >= 2
        })
        .await;
    scene.stop(worker).await;
    let counts = scene.ledger.counts();
    assert_eq!(
        (counts.never_handled, counts.repeated),
        (150, 0),
        "{counts:?}"
    );
}

/// A worker that lags by as much as the stream keeps, and goes on asking: the server passes over what
/// it removed without a word. The worker finds out, and here, where every offset is its own, exactly.
#[tokio::test]
async fn what_the_server_passes_over_is_named() {
    const LAG: Duration = Duration::from_secs(2);
    let none = Setup {
        ack: "none",
        ..LIMITS
    };
    let oldest = Setup {
        version: NATS_OLDEST,
        ..LIMITS
    };
    for setup in [LIMITS, none, oldest] {
        let mut scene = Scene::new(setup, 2).await;
        scene.config.jetstream.max_ack_pending = 20;
        scene.config.jetstream.initial_batch = 10;
        let (began, mut begins) = watch::channel(0);
        let (opens, gate) = watch::channel(false);
        let url = scene.url();
        let worker = scene
            .start_with(&url, move |_, message| {
                let is_slow = &message.payload()[..] == b"1";
                began.send_modify(|count| *count += usize::from(is_slow));
                let mut gate = gate.clone();
                async move {
                    gate.wait_for(|open| *open || !is_slow).await?;
                    Ok(())
                }
            })
            .await;
        scene.taken(2).await;
        // Once the first ones are handled, all others come by the consumer.
        scene.publish_many(2).await;
        let first = |all: &[Handled]| all.len() == 2;
        scene.ledger.until("the first ones", first).await;
        scene.publish_many(200).await;
        let both = begins.wait_for(|count| *count == 2);
        let both = tokio::time::timeout(PATIENCE, both).await;
        assert!(both.is_ok_and(|it| it.is_ok()), "never called");
        let limited = stream::Config {
            name: "S".into(),
            subjects: vec!["p.*".into()],
            max_messages: 50,
            ..stream::Config::default()
        };
        let context = scene.context().await;
        context.update_stream(limited).await.expect("limited");
        // A shorter one would not count.
        tokio::time::sleep(LAG).await;
        opens.send_replace(true);
        let is_last = |handled: &&Handled| handled.number == 100;
        scene
            .ledger
            .until("the last ones", |all| {
                all.iter().filter(is_last).count() == 2
            })
            .await;
        let gone = scene.ledger.counts().never_handled;
        assert!(gone > 50, "{gone}");
        let of = |(_, report): &(usize, Report)| match report {
            Report::Trouble(Trouble::RetentionPassed { lost, .. }) => *lost,
            Report::Trouble(Trouble::RetentionOvertook { .. }) => panic!("{report:?}"),
            _ => 0,
        };
        scene
            .reported("all that is gone", |reports| {
                reports.iter().map(of).sum::<u64>() == gone
            })
            .await;
        scene.stop(worker).await;
    }
}

/// Keys stay with their partition, their number with the stream, and another number is refused.
#[tokio::test]
async fn virtual_partitions_and_their_producer() {
    for version in [NATS_LATEST, NATS_OLDEST] {
        let mut scene = Scene::new(Setup { version, ..LIMITS }, 1).await;
        let address = scene.server().address();
        let url = format!("jetstream://{}/V?subject=v.{{0}}", address);
        let twelve = StreamSettings::partitions(12);
        let made = JetStream::create(&url, &twelve).await.expect("made");
        assert_eq!(made.partitions(), Some(12));
        JetStream::create(&url, &twelve).await.expect("the same");
        let other = JetStream::create(&url, &StreamSettings::partitions(13)).await;
        let error = other.expect_err("another number").to_string();
        assert!(error.contains("has 12 partitions"), "{error}");
        let old = format!("jetstream://{}/S", address);
        assert!(
            JetStream::create(&old, &twelve).await.is_err(),
            "not made for it"
        );

        // Whoever connects finds number and template with the stream.
        let plain = format!("jetstream://{}/V", address);
        let stream = JetStream::connect(&plain).await.expect("connects");
        assert_eq!(stream.template().to_string(), "v.{0}");
        for number in [8, 13] {
            let partitions = StaticPartitions::numbered(number);
            let worker = Worker::builder("other", Memory::new(), stream.clone(), partitions);
            let refused = worker.start(|_: Message| async { Ok::<(), HandlerError>(()) });
            let refused = refused.await;
            let error = refused.expect_err("another number").to_string();
            assert!(error.contains("list its 12 partitions"), "{error}");
        }
        let producer = stream.producer().expect("made for it").window(7);
        let messages = (0..100).map(|number| NewMessage {
            key: (number % 10 > 0).then(|| format!("key \u{e9}\n{}", number % 10).into()),
            headers: vec![("traceparent".into(), "00-1-2-01".into())],
            payload: number.to_string().into(),
        });
        let placed = producer.publish(messages.collect()).await.expect("stored");
        assert_eq!(placed.len(), 100);
        let offsets: Vec<u64> = placed.iter().map(|(_, offset)| offset.0).collect();
        assert_eq!(offsets, (1..=100).collect::<Vec<_>>(), "in order");
        let mut by_key: BTreeMap<usize, &str> = BTreeMap::new();
        for (number, (partition, _)) in placed.iter().enumerate() {
            if number % 10 > 0 {
                let own = by_key.entry(number % 10).or_insert(partition.as_str());
                assert_eq!(*own, partition.as_str(), "one key, one partition");
                let key = format!("key \u{e9}\n{}", number % 10);
                assert_eq!(producer.partition_of(key.as_bytes()), *partition);
            }
        }
        let bad = NewMessage {
            headers: vec![("a".into(), "b\r\nc".into())],
            ..NewMessage::default()
        };
        assert!(producer.publish(vec![bad]).await.is_err());

        let ids: Vec<_> = placed
            .iter()
            .map(|(partition, _)| partition.clone())
            .collect();
        let ends = stream.ends(&ids).await.expect("asked");
        assert_eq!(ends.iter().map(|(_, end)| end.0).max(), Some(101));

        let keys = scene.consume_keys(&plain, 12, 100).await;
        for (number, (partition, key)) in keys {
            let expected = (number % 10 > 0).then(|| format!("key \u{e9}\n{}", number % 10));
            assert_eq!(key, expected);
            assert_eq!(partition, placed[number].0, "{number}");
        }
    }
}

/// A server that computes the partition from a token of the subject: nobody needs our producer.
#[tokio::test]
async fn partitions_that_the_server_computes() {
    for (version, retention) in [
        (NATS_LATEST, stream::RetentionPolicy::Limits),
        (NATS_LATEST, stream::RetentionPolicy::WorkQueue),
        (NATS_OLDEST, stream::RetentionPolicy::Limits),
    ] {
        let mut scene = Scene::new(Setup { version, ..LIMITS }, 1).await;
        let context = scene.context().await;
        let made = context.create_stream(stream::Config {
            name: "T".into(),
            subjects: vec!["orders.*".into()],
            subject_transform: Some(stream::SubjectTransform {
                source: "orders.*".into(),
                destination: "o.{{partition(4,1)}}.{{wildcard(1)}}".into(),
            }),
            retention,
            ..stream::Config::default()
        });
        made.await.expect("made");
        // Half of it is backlog, which is read past the durable.
        let publish = async |numbers: std::ops::Range<usize>| {
            for number in numbers {
                let subject = format!("orders.customer-{}", number % 10);
                let sent = context.publish(subject, number.to_string().into()).await;
                sent.expect("sent").await.expect("stored");
            }
        };
        publish(0..50).await;
        let url = format!(
            "jetstream://{}/T?subject=o.{{0}}.*",
            scene.server().address()
        );
        let consume = scene.consume_keys(&url, 4, 100);
        let (keys, ()) = tokio::join!(consume, publish(50..100));
        let mut home: BTreeMap<String, PartitionId> = BTreeMap::new();
        for (number, (partition, key)) in keys {
            let key = key.expect("it is in the subject");
            assert_eq!(key, format!("customer-{}", number % 10));
            let own = home.entry(key).or_insert_with(|| partition.clone());
            assert_eq!(*own, partition, "one key, one partition");
        }
        assert!(home.values().collect::<BTreeSet<_>>().len() > 1, "{home:?}");
    }
}
