//! Messages that fail, handlers that panic, and what handlers are told.

use std::time::Duration;

use async_nats::jetstream::consumer::pull;
use futures_util::StreamExt;
use parti_servers::install::NATS_LATEST;
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
