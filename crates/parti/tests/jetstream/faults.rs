//! Servers, connections and consumers fail; nothing is lost and nothing out of order.

use std::path::Path;
use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::stream::Stream;
use parti::core::worker::Trouble;
use parti::{Fatal, Report, State, WorkerError};
use parti_servers::install::NATS_LATEST;
use parti_servers::proxy::Proxy;
use serde_json::{Value, json};

use crate::ledger::PATIENCE;
use crate::scene::{Scene, Setup, on_every_setup};

const PARTITIONS: u32 = 12;
const PAUSE: Duration = Duration::from_millis(2);

on_every_setup!(
    consumer_deleted_from_outside,
    consumer_edited_from_outside,
    payloads_cut_off,
    server_restarted_in_a_rebalance,
    connection_cut,
    stream_deleted_and_made_anew,
    server_restored_from_a_copy,
);

/// Two workers that handle under load.
async fn two(setup: Setup) -> (Scene, [usize; 2]) {
    let mut scene = Scene::new(setup, PARTITIONS).await;
    let workers = [scene.start().await, scene.start().await];
    (scene, workers)
}

/// Deletes a consumer, until the server says that it did. (2.10 can fail while it writes there.)
async fn delete(stream: &Stream, name: &str) {
    let deleting = async {
        while !stream.delete_consumer(name).await.is_ok_and(|d| d.success) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let done = tokio::time::timeout(PATIENCE, deleting).await;
    assert!(done.is_ok(), "{name} cannot be deleted");
}

async fn consumer_deleted_from_outside(setup: Setup) {
    let (mut scene, workers) = two(setup).await;
    let publisher = scene.publisher(PAUSE).await;
    for worker in workers {
        scene.handles(worker).await;
    }
    let context = scene.context().await;
    let stream = context.get_stream("S").await.expect("there");
    for _ in 0..2 {
        for worker in workers {
            let id = scene.worker(worker).id().expect("a session");
            delete(&stream, &format!("parti-g-{id}")).await;
        }
        // Messages of every partition come again.
        scene.ledger.next_of_all(PARTITIONS, 3).await;
    }
    publisher.stop().await;
    scene.ledger.drained().await;
    for worker in workers {
        scene.stop(worker).await;
    }
    let counts = scene.ledger.assert_whole();
    assert_eq!(counts.repeated, 0, "{counts:?}");
}

/// What the server says of a consumer's settings, and whether it is paused. None: there is no such
/// consumer, as while one is made anew.
async fn settings_of(context: &jetstream::Context, name: &str) -> Option<(Value, bool)> {
    let info: Value = context
        .request(format!("CONSUMER.INFO.S.{name}"), &json!({}))
        .await
        .expect("answered");
    if info["error"]["err_code"] == json!(10014) {
        return None;
    }
    assert!(info["error"].is_null(), "{info}");
    let paused = info["paused"].as_bool().unwrap_or_default();
    Some((info["config"].clone(), paused))
}

/// Somebody changes settings that say what is delivered, and pauses the durable where the server
/// knows how: all of it is put back, and nothing is lost.
async fn consumer_edited_from_outside(setup: Setup) {
    let mut scene = Scene::new(setup, PARTITIONS).await;
    scene.config.jetstream.reconcile_interval = Duration::from_millis(500);
    let worker = scene.start().await;
    scene.publish_many(2 * PARTITIONS).await;
    scene.ledger.drained().await;
    let context = scene.context().await;
    let id = scene.worker(worker).id().expect("a session");
    let name = format!("parti-g-{id}");
    let (before, _) = settings_of(&context, &name).await.expect("a durable");

    let mut edited = before.clone();
    edited["headers_only"] = json!(true);
    // As tools do that send a whole configuration of their own.
    edited["metadata"] = json!({});
    edited["inactive_threshold"] = json!(Duration::from_secs(777).as_nanos() as u64);
    if setup.ack == "explicit" {
        edited["ack_wait"] = json!(Duration::from_millis(50).as_nanos() as u64);
        edited["max_ack_pending"] = json!(1);
    }
    let request = json!({ "stream_name": "S", "config": edited, "action": "update" });
    let call = format!("CONSUMER.CREATE.S.{name}");
    let answer: Value = context.request(call, &request).await.expect("answered");
    assert!(answer["error"].is_null(), "{answer}");
    if setup.version == NATS_LATEST {
        let until = json!({ "pause_until": "2100-01-01T00:00:00Z" });
        let call = format!("CONSUMER.PAUSE.S.{name}");
        let answer: Value = context.request(call, &until).await.expect("answered");
        assert_eq!(answer["paused"], json!(true), "{answer}");
    }
    let mending = async {
        while settings_of(&context, &name).await != Some((before.clone(), false)) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let mended = tokio::time::timeout(PATIENCE, mending).await;
    assert!(mended.is_ok(), "{:?}", settings_of(&context, &name).await);

    scene.publish_many(2 * PARTITIONS).await;
    scene.ledger.drained().await;
    scene.stop(worker).await;
    let counts = scene.ledger.assert_whole();
    assert_eq!(counts.repeated, 0, "{counts:?}");
}

/// Somebody has the durable deliver headers alone, and nobody looks at it for an hour: a message
/// without its payload shows it, and is not handled before it has one.
async fn payloads_cut_off(setup: Setup) {
    let mut scene = Scene::new(setup, PARTITIONS).await;
    scene.config.jetstream.reconcile_interval = Duration::from_secs(3_600);
    let worker = scene.start().await;
    scene.publish_many(2 * PARTITIONS).await;
    scene.ledger.drained().await;
    let context = scene.context().await;
    let id = scene.worker(worker).id().expect("a session");
    let name = format!("parti-g-{id}");
    let (before, _) = settings_of(&context, &name).await.expect("a durable");
    let mut edited = before;
    edited["headers_only"] = json!(true);
    let request = json!({ "stream_name": "S", "config": edited, "action": "update" });
    let call = format!("CONSUMER.CREATE.S.{name}");
    let answer: Value = context.request(call, &request).await.expect("answered");
    assert_eq!(answer["config"]["headers_only"], json!(true), "{answer}");
    // What a handler gets without a payload, it cannot read: it would be a dead letter.
    scene.publish_many(20 * PARTITIONS).await;
    scene.ledger.drained().await;
    let after = settings_of(&context, &name).await;
    let cut = |(settings, _): (Value, bool)| settings["headers_only"] == json!(true);
    assert!(!after.is_some_and(cut), "it is put back");
    scene.stop(worker).await;
    let counts = scene.ledger.assert_whole();
    assert_eq!(counts.repeated, 0, "{counts:?}");
}

async fn server_restarted_in_a_rebalance(setup: Setup) {
    let (mut scene, workers) = two(setup).await;
    let publisher = scene.publisher(PAUSE).await;
    for worker in workers {
        scene.handles(worker).await;
    }
    let url = scene.url();
    let third = scene.starting(&url);
    // The third one has its id: the rebalance begins.
    scene
        .reported("a third session", |reports| {
            let claims = |(_, report): &&(usize, Report)| matches!(report, Report::Claimed(..));
            reports.iter().filter(claims).count() == 3
        })
        .await;
    scene.server().restart();
    let third = scene.started(third).await;
    scene.handles(third).await;
    scene.server().restart();
    scene.ledger.next_of_all(PARTITIONS, 3).await;
    publisher.stop().await;
    scene.ledger.drained().await;
    for worker in [workers[0], workers[1], third] {
        scene.stop(worker).await;
    }
    let counts = scene.ledger.assert_whole();
    assert_eq!(counts.repeated, 0, "nobody died: {counts:?}");
}

/// Cut in the middle of deliveries, with replies held before: messages are sent into a dying link.
async fn connection_cut(setup: Setup) {
    let mut scene = Scene::new(setup, PARTITIONS).await;
    let mut proxy = Proxy::start(scene.server().address());
    let cut_off = scene.url_at(&proxy.address());
    let first = scene.start_with(&cut_off, |_, _| async { Ok(()) }).await;
    let second = scene.start().await;
    let publisher = scene.publisher(PAUSE).await;
    for worker in [first, second] {
        scene.handles(worker).await;
    }
    for round in 0..3 {
        if round > 0 {
            proxy.stall_replies();
            // What is published now goes into the link that dies.
            let published = scene.ledger.counts().published;
            scene.ledger.published_at_least(published + 100).await;
        }
        proxy.cut();
        proxy.heal();
        scene.ledger.next_of_all(PARTITIONS, 3).await;
    }
    publisher.stop().await;
    scene.ledger.drained().await;
    for worker in [first, second] {
        scene.stop(worker).await;
    }
    let counts = scene.ledger.assert_whole();
    assert_eq!(counts.repeated, 0, "nobody died: {counts:?}");
}

/// Offsets of the new stream mean nothing to the old checkpoints: the workers end, and say why.
async fn stream_deleted_and_made_anew(setup: Setup) {
    let (scene, workers) = two(setup).await;
    let publisher = scene.publisher(PAUSE).await;
    for worker in workers {
        scene.handles(worker).await;
    }
    publisher.stop().await;
    scene.ledger.drained().await;
    let context = scene.context().await;
    context.delete_stream("S").await.expect("deleted");
    // Without a stream, nobody can do anything but say so.
    scene
        .troubles("the stream is gone", |troubles| {
            workers.iter().all(|worker| {
                let mut own = troubles.iter().filter(|(of, _)| of == worker);
                own.any(|(_, why)| why.contains("the stream is gone"))
            })
        })
        .await;
    for worker in workers {
        assert_eq!(scene.worker(worker).state(), State::Stable);
        scene.unready(worker, "the stream is gone").await;
    }
    scene.make_stream(setup.retention).await;
    for worker in workers {
        let ended = tokio::time::timeout(PATIENCE, scene.worker(worker).ended()).await;
        assert!(
            matches!(
                ended.expect("it ends"),
                Err(WorkerError::Fatal(Fatal::StreamReplaced))
            ),
            "{worker} ended otherwise"
        );
        assert_eq!(scene.worker(worker).state(), State::Shutdown);
    }
    // A worker that comes later is told the same.
    let refused = scene.refused().await;
    assert!(refused.contains("recreated"), "{refused}");
}

/// Somebody takes its metadata from a durable, whose worker dies before it notices. Nobody deletes
/// what could be a stranger's; who needs its subjects says so, and goes on once it is deleted.
#[tokio::test]
async fn a_dead_workers_durable_that_could_be_a_strangers_is_named_and_left_alone() {
    let mut scene = Scene::new(
        Setup {
            version: NATS_LATEST,
            retention: "workqueue",
            ack: "explicit",
        },
        PARTITIONS,
    )
    .await;
    scene.config.heartbeat_ttl = Duration::from_secs(5);
    scene.config.worker_id_ttl = Duration::from_secs(5);
    // Nobody looks at it in time.
    scene.config.jetstream.reconcile_interval = Duration::from_secs(3_600);
    let workers = [scene.start().await, scene.start().await];
    scene.publish_many(10 * PARTITIONS).await;
    for worker in workers {
        scene.handles(worker).await;
    }
    scene.ledger.drained().await;
    let context = scene.context().await;
    let id = scene.worker(workers[1]).id().expect("a session");
    let name = format!("parti-g-{id}");
    let (mut edited, _) = settings_of(&context, &name).await.expect("a durable");
    edited["metadata"] = json!({});
    let request = json!({ "stream_name": "S", "config": edited, "action": "update" });
    let call = format!("CONSUMER.CREATE.S.{name}");
    let answer: Value = context.request(call, &request).await.expect("answered");
    assert!(answer["error"].is_null(), "{answer}");
    scene.kill(workers[1]);
    let remedy = format!("nats consumer rm S {name}");
    scene
        .troubles("what is in the way", |troubles| {
            troubles.iter().any(|(of, why)| {
                *of == workers[0] && why.contains(id.as_str()) && why.contains(&remedy)
            })
        })
        .await;
    assert!(settings_of(&context, &name).await.is_some(), "left alone");
    scene.publish_many(10 * PARTITIONS).await;
    let stream = context.get_stream("S").await.expect("there");
    delete(&stream, &name).await;
    scene.ledger.drained().await;
    scene.stop(workers[0]).await;
    scene.ledger.assert_whole();
}

/// A folder with all that is in it.
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("made");
    for entry in std::fs::read_dir(from).expect("there") {
        let entry = entry.expect("readable");
        let place = to.join(entry.file_name());
        if entry.file_type().expect("known").is_dir() {
            copy(&entry.path(), &place);
        } else {
            std::fs::copy(entry.path(), place).expect("copied");
        }
    }
}

/// The stream goes back under living workers: what comes then under offsets that are done is not
/// taken for done, nor acked away. Every partition stands still, and says why.
async fn server_restored_from_a_copy(setup: Setup) {
    let (mut scene, workers) = two(setup).await;
    let kept = tempfile::tempdir().expect("a folder");
    scene.publish_many(10 * PARTITIONS).await;
    scene.ledger.drained().await;
    let data = scene.server().folder().join("jetstream");
    scene.server().kill();
    copy(&data, kept.path());
    scene.server().restart();
    scene.publish_many(20 * PARTITIONS).await;
    scene.ledger.drained().await;
    let handled = scene.ledger.all().len();
    scene.server().kill();
    std::fs::remove_dir_all(&data).expect("removed");
    copy(kept.path(), &data);
    scene.server().restart();
    scene
        .reported("every partition's log went back", |reports| {
            let back = |(_, report): &&(usize, Report)| {
                matches!(report, Report::Trouble(Trouble::LogWentBack { .. }))
            };
            reports.iter().filter(back).count() == PARTITIONS as usize
        })
        .await;
    let context = scene.context().await;
    for turn in 0..5 * PARTITIONS {
        let subject = format!("p.{}", turn % PARTITIONS);
        let sent = context.publish(subject, turn.to_string().into()).await;
        sent.expect("sent").await.expect("stored");
    }
    for worker in workers {
        scene.stop(worker).await;
    }
    assert_eq!(scene.ledger.all().len(), handled, "nothing more is handled");
    let mut stream = context.get_stream("S").await.expect("there");
    let state = &stream.info().await.expect("known").state;
    assert!(state.messages >= 5 * u64::from(PARTITIONS), "{state:?}");
}
