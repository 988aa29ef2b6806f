//! Messages that fail, handlers that panic, and what handlers are told.

use std::time::Duration;

use async_nats::jetstream::consumer::{PullConsumer, pull};
use futures_util::{FutureExt, StreamExt};
use parti_servers::install::{NATS_LATEST, NATS_OLDEST};
use tokio::sync::watch;

use crate::ledger::PATIENCE;
use crate::scene::{Scene, Setup, on_every_setup, publish};

const PARTITIONS: u32 = 4;

on_every_setup!(poison_and_panic);

/// A message that always fails and one that always panics go to the dead letters, and only their
/// own partitions wait for it.
async fn poison_and_panic(setup: Setup) {
    let mut scene = Scene::new(setup, PARTITIONS).await;
    scene.config.jetstream.retry_backoff = vec![Duration::from_millis(50)];
    let url = scene.url();
    let worker = scene
        .start_with(&url, |_, message| async move {
            assert_eq!(
                message.header("traceparent").expect("a trace"),
                "00-11-22-01"
            );
            assert_eq!(message.subject(), format!("p.{}", message.partition));
            match (message.partition.as_str(), &message.payload()[..]) {
                ("1", b"3") => Err("poison,\nin two lines".into()),
                ("2", b"5") => panic!("what a message"),
                _ => Ok(()),
            }
        })
        .await;
    let context = scene.context().await;
    for _ in 0..10 {
        for partition in 0..PARTITIONS {
            publish(&context, &scene.ledger, &partition.to_string()).await;
        }
    }
    scene
        .ledger
        .until("all but two", |all| all.len() as u32 == 10 * PARTITIONS - 2)
        .await;
    scene.stop(worker).await;
    let counts = scene.ledger.counts();
    assert_eq!(
        (counts.never_handled, counts.repeated),
        (2, 0),
        "{counts:?}"
    );
    let letters = context.get_stream("S-dlq").await.expect("made");
    let consumer = letters.create_consumer(pull::Config::default()).await;
    let consumer = consumer.expect("made");
    let messages = consumer.fetch().max_messages(10).messages();
    let letters: Vec<_> = messages.await.expect("fetched").collect().await;
    let mut found = Vec::new();
    for letter in letters {
        let letter = letter.expect("a letter");
        let headers = letter.headers.as_ref().expect("headers");
        let header = |name| headers.get(name).expect("a header").to_string();
        assert_eq!(header("Parti-Origin-Stream"), "S");
        assert_eq!(header("Parti-Attempts"), "3");
        assert_eq!(header("Parti-Group"), "g");
        assert_eq!(header("traceparent"), "00-11-22-01", "the trace goes on");
        assert!(header("Parti-Origin-Offset").parse::<u64>().is_ok());
        let partition = header("Parti-Origin-Partition");
        assert_eq!(header("Parti-Origin-Subject"), format!("p.{partition}"));
        assert_eq!(letter.subject.as_str(), format!("parti.dlq.S.{partition}"));
        let payload = String::from_utf8_lossy(&letter.payload).into_owned();
        found.push((partition, payload, header("Parti-Error")));
    }
    found.sort();
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!((&*found[0].0, &*found[0].1), ("1", "3"));
    assert_eq!(found[0].2, "poison, in two lines");
    assert_eq!((&*found[1].0, &*found[1].1), ("2", "5"));
    assert!(found[1].2.contains("what a message"), "{found:?}");
}

/// A handler that takes longer than `ack_wait`: the server is told in time that it still runs, and
/// sends nothing again.
#[tokio::test]
async fn a_handler_that_takes_longer_than_ack_wait_is_waited_for() {
    let setup = |version, retention| Setup {
        version,
        retention,
        ack: "explicit",
    };
    let setups = [
        setup(NATS_LATEST, "limits"),
        setup(NATS_LATEST, "workqueue"),
        setup(NATS_OLDEST, "limits"),
    ];
    futures_util::future::join_all(setups.map(waited_for)).await;
}

async fn waited_for(setup: Setup) {
    let mut scene = Scene::new(setup, 2).await;
    // Each message is answered for when a third of it is over.
    scene.config.jetstream.ack_wait = Duration::from_secs(9);
    let (open, gate) = watch::channel(false);
    let url = scene.url();
    let worker = scene
        .start_with(&url, move |_, message| {
            let mut gate = gate.clone();
            async move {
                let takes_long = &message.payload()[..] == b"1";
                gate.wait_for(|open| *open || !takes_long).await?;
                Ok(())
            }
        })
        .await;
    scene.taken(2).await;
    // Once the first ones are handled, all others come by the consumer.
    scene.publish_many(2).await;
    scene.ledger.drained().await;
    let context = scene.context().await;
    let client = async_nats::connect(scene.server().url()).await;
    let client = client.expect("connects");
    let mut answers = client.subscribe("$JS.ACK.S.>").await.expect("sent");
    client.flush().await.expect("flushed");
    let stream = context.get_stream("S").await.expect("there");
    let id = scene.worker(worker).id().expect("a session");
    let durable = format!("parti-g-{id}");
    let mut durable: PullConsumer = stream.get_consumer(&durable).await.expect("there");
    let mut delivered = async || {
        let info = durable.info().await.expect("there");
        info.delivered.consumer_sequence
    };
    let before = delivered().await;
    scene.publish_many(6).await;
    // Four answers for one message are three thirds apart.
    let mut most = std::collections::BTreeMap::<String, u32>::new();
    let long = async {
        while most.values().max() < Some(&4) && delivered().await <= before + 6 {
            while let Some(Some(answer)) = answers.next().now_or_never() {
                if &answer.payload[..] == b"+WPI" {
                    *most.entry(answer.subject.to_string()).or_default() += 1;
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let long = tokio::time::timeout(PATIENCE, long).await;
    assert!(long.is_ok(), "neither answered for nor sent again");
    open.send_replace(true);
    scene.ledger.drained().await;
    assert_eq!(delivered().await, before + 6, "on {setup:?}: {most:?}");
    scene.stop(worker).await;
    let counts = scene.ledger.assert_whole();
    assert_eq!(counts.repeated, 0, "{counts:?}");
}

/// A copy of a message that was made without its payload says how large that was, as a delivery does
/// whose payload was cut off. It is a message like any other.
#[tokio::test]
async fn a_message_that_only_looks_cut_off_is_handled() {
    for retention in ["limits", "workqueue"] {
        let setup = Setup {
            version: NATS_LATEST,
            retention,
            ack: "explicit",
        };
        let mut scene = Scene::new(setup, 2).await;
        let (handled, mut news) = watch::channel(0);
        let url = scene.url();
        let worker = scene
            .start_with(&url, move |_, message| {
                let copied = message.payload().is_empty();
                assert_eq!(message.header("Nats-Msg-Size").is_some(), copied);
                handled.send_modify(|count| *count += usize::from(copied));
                async move {
                    if copied {
                        // The ledger knows nothing of it.
                        std::future::pending::<()>().await;
                    }
                    Ok(())
                }
            })
            .await;
        scene.taken(2).await;
        scene.publish_many(2).await;
        scene.ledger.drained().await;
        let context = scene.context().await;
        for partition in ["0", "1"] {
            let mut headers = async_nats::HeaderMap::new();
            headers.insert("Nats-Msg-Size", "7");
            let subject = format!("p.{partition}");
            let sent = context.publish_with_headers(subject, headers, "".into());
            sent.await.expect("sent").await.expect("stored");
        }
        let both = tokio::time::timeout(PATIENCE, news.wait_for(|count| *count == 2)).await;
        assert!(both.is_ok_and(|it| it.is_ok()), "never called");
        scene.kill(worker);
    }
}
