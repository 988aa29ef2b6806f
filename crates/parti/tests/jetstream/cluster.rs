//! Three servers, of which one at a time is killed or frozen under load.

use std::time::Duration;

use parti::Report;
use parti_servers::install::NATS_LATEST;
use parti_servers::nats::Cluster;

use crate::scene::{Scene, Setup};

const PARTITIONS: u32 = 12;

/// The group's records are elsewhere, so nobody loses a lease: nothing moves, nothing is lost.
async fn each_node_fails_in_turn(retention: &'static str) {
    let mut cluster = Cluster::start(3);
    let nodes: Vec<String> = (0..3).map(|n| cluster.node(n).address()).collect();
    let setup = Setup {
        version: NATS_LATEST,
        retention,
        ack: "explicit",
    };
    let mut scene = Scene::at(nodes, setup, PARTITIONS, 3).await;
    let workers = [scene.start().await, scene.start().await];
    let publisher = scene.publisher(Duration::from_millis(2)).await;
    for worker in workers {
        scene.handles(worker).await;
    }
    scene.taken(PARTITIONS as usize).await;
    for node in 0..3 {
        cluster.node(node).kill();
        scene.ledger.next_of_all(PARTITIONS, 3).await;
        cluster.node(node).restart();
        cluster.wait_until_ready();
        cluster.node(node).pause();
        scene.ledger.next_of_all(PARTITIONS, 3).await;
        cluster.node(node).resume();
        cluster.wait_until_ready();
    }
    publisher.stop().await;
    scene.ledger.drained().await;
    let taken = scene.count_reports(|report| matches!(report, Report::Taken { seized: true, .. }));
    assert_eq!(taken, 0, "a partition was seized although nobody died");
    for worker in workers {
        scene.stop(worker).await;
    }
    let counts = scene.ledger.assert_whole();
    assert_eq!(counts.repeated, 0, "{counts:?}");
    println!("{retention}: {counts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn limits() {
    each_node_fails_in_turn("limits").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_queue() {
    each_node_fails_in_turn("workqueue").await;
}
