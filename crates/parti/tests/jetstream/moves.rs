//! Partitions move: a worker joins, one leaves, one is killed.

use std::time::Duration;

use crate::scene::{Scene, Setup, on_every_setup};

const PARTITIONS: u32 = 12;
const PAUSE: Duration = Duration::from_millis(2);

on_every_setup!(join_and_leave, kill);

/// Nothing is lost, nothing repeated, nothing out of order.
async fn join_and_leave(setup: Setup) {
    let mut scene = Scene::new(setup, PARTITIONS).await;
    let publisher = scene.publisher(PAUSE).await;
    scene.ledger.published_at_least(200).await;
    let first = scene.start().await;
    scene.handles(first).await;
    let second = scene.start().await;
    scene.handles(second).await;
    let third = scene.start().await;
    scene.handles(third).await;
    scene.stop(first).await;
    scene.ledger.more(300).await;
    let fourth = scene.start().await;
    scene.handles(fourth).await;
    scene.stop(third).await;
    scene.ledger.more(300).await;
    publisher.stop().await;
    scene.ledger.drained().await;
    for worker in [second, fourth] {
        scene.stop(worker).await;
    }
    let counts = scene.ledger.assert_whole();
    assert_eq!(counts.repeated, 0, "{counts:?}");
    println!("{setup:?}: {counts:?}");
}

/// Nothing is lost or out of order; what was not committed yet is repeated.
async fn kill(setup: Setup) {
    let mut scene = Scene::new(setup, PARTITIONS).await;
    scene.config.heartbeat_ttl = Duration::from_secs(5);
    scene.config.worker_id_ttl = Duration::from_secs(5);
    let publisher = scene.publisher(PAUSE).await;
    let mut workers = Vec::new();
    for _ in 0..3 {
        workers.push(scene.start().await);
    }
    for worker in &workers {
        scene.handles(*worker).await;
    }
    scene.kill(workers[0]);
    scene.ledger.more(500).await;
    // It comes back under its old id, or another.
    let back = scene.start().await;
    scene.handles(back).await;
    scene.kill(workers[1]);
    scene.ledger.more(500).await;
    publisher.stop().await;
    scene.ledger.drained().await;
    for worker in [workers[2], back] {
        scene.stop(worker).await;
    }
    let counts = scene.ledger.assert_whole();
    println!("{setup:?}: {counts:?}");
}
