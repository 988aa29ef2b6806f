//! What a worker's readiness and its group's history say of a stream that is gone.

use std::time::Duration;

use parti::core::record::EventKind;
use parti::inspect;
use parti::metrics::Endpoint;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::faults::copy;
use crate::ledger::PATIENCE;
use crate::scene::{Scene, Setup, on_every_setup};

const PARTITIONS: u32 = 12;

on_every_setup!(stream_deleted_and_restored);

/// What the group's history says of trouble: by whom, and what.
async fn history_of_trouble(scene: &Scene) -> Vec<(String, String)> {
    let lines = inspect::history(&scene.records()).await;
    let mut lines = lines.expect("readable");
    lines.retain(|line| line.kind == EventKind::Trouble);
    let told = |line: inspect::Happening| (line.by.to_string(), line.text);
    lines.into_iter().map(told).collect()
}

/// Waits until `/readyz` answers so, with this in its reason.
async fn readyz(endpoint: &Endpoint, status: &str, part: &str) {
    let request = b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let waiting = async {
        loop {
            let stream = TcpStream::connect(endpoint.address()).await;
            let (mut stream, mut answer) = (stream.expect("there"), String::new());
            stream.write_all(request).await.expect("sent");
            stream.read_to_string(&mut answer).await.expect("answered");
            if answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.contains(part) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let came = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(came.is_ok(), "/readyz never says {status}, {part}");
}

/// A stream that is gone is a person's business: the history names it once for each worker, and nobody
/// is ready, until it is restored. A server that is away for a moment is none.
async fn stream_deleted_and_restored(setup: Setup) {
    let mut scene = Scene::new(setup, PARTITIONS).await;
    // So soon is noticed what nothing else tells of.
    scene.config.jetstream.reconcile_interval = Duration::from_secs(1);
    let workers = [scene.start().await, scene.start().await];
    let endpoint = Endpoint::open("127.0.0.1:0").await.expect("opens");
    for worker in workers {
        endpoint.ready_when(scene.worker(worker).readiness());
    }
    scene.publish_many(10 * PARTITIONS).await;
    scene.ledger.drained().await;
    let kept = tempfile::tempdir().expect("a folder");
    let data = scene.server().folder().join("jetstream");
    scene.server().kill();
    for worker in workers {
        assert_eq!(scene.worker(worker).readiness().not_ready(), None);
    }
    copy(&data, kept.path());
    scene.server().restart();
    readyz(&endpoint, "200", "ready").await;
    assert_eq!(history_of_trouble(&scene).await, []);
    let context = scene.context().await;
    context.delete_stream("S").await.expect("deleted");
    for worker in workers {
        scene.unready(worker, "the stream is gone").await;
    }
    readyz(&endpoint, "503", "the stream is gone").await;
    scene.server().kill();
    std::fs::remove_dir_all(&data).expect("removed");
    copy(kept.path(), &data);
    readyz(&endpoint, "503", "the stream is gone").await;
    scene.server().restart();
    readyz(&endpoint, "200", "ready").await;
    let told = async {
        loop {
            let history = history_of_trouble(&scene).await;
            if history.len() >= 4 {
                return history;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let history = tokio::time::timeout(PATIENCE, told).await.expect("told");
    for worker in workers {
        let id = scene.worker(worker).id().expect("a session").to_string();
        let own = history.iter().filter(|(by, _)| *by == id);
        let own: Vec<&str> = own.map(|(_, what)| what.as_str()).collect();
        let [gone, back] = own[..] else {
            panic!("once each: {own:?}")
        };
        assert!(gone.contains("the stream is gone"), "{gone}");
        assert_eq!(back, "the source refuses nothing any more");
    }
    scene.publish_many(PARTITIONS).await;
    scene.ledger.drained().await;
    for worker in workers {
        scene.stop(worker).await;
    }
}
