//! Three servers, of which one is killed, stopped or cut off while everybody works.

use std::collections::BTreeMap;
use std::time::Instant;

use parti::store::nats::Nats;
use parti::store::{Error, Scope, Store};
use parti_servers::nats::Cluster;
use tokio::task::block_in_place;

use crate::mirror::{Mirror, PATIENCE};
use crate::single::write_until;

/// One client on each node, each writes and watches; then something happens to the leader of the
/// watched bucket. All must go on while it is away, and agree once it is back.
async fn all_go_on(harm: impl Fn(&mut Cluster, usize), mend: impl Fn(&mut Cluster, usize)) {
    let mut cluster = block_in_place(|| Cluster::start(3));
    let mut clients = Vec::new();
    let mut mirrors = Vec::new();
    for (number, url) in cluster.urls().iter().enumerate() {
        let store = open(url).await;
        let mut mirror = Mirror::new(&store, Scope::Under("workers/".into()));
        mirror.until_synced().await;
        mirrors.push(mirror);
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let prefix = format!("workers/{number}/");
        let writer = async move { write_until(store, &prefix, stopped).await };
        clients.push((stop, tokio::spawn(writer)));
    }
    all_hear_all(&mut mirrors).await;
    let leader = loop {
        match block_in_place(|| cluster.leader_of("KV_parti")) {
            Some(leader) => break leader,
            // The nodes do not agree at the moment.
            None => tokio::task::yield_now().await,
        }
    };
    block_in_place(|| harm(&mut cluster, leader));
    // Nobody waits for the one that is away: neither its own client, nor the others.
    all_hear_all(&mut mirrors).await;
    all_hear_all(&mut mirrors).await;
    block_in_place(|| mend(&mut cluster, leader));
    all_hear_all(&mut mirrors).await;
    let mut state = BTreeMap::new();
    for (stop, writer) in clients {
        stop.send(()).expect("the writer waits");
        state.extend(writer.await.expect("writes"));
    }
    for mirror in &mut mirrors {
        mirror.until_shows(&state).await;
    }
    let store = open(&cluster.url()).await;
    let listed = loop {
        match store.list(&Scope::Under("workers/".into())).await {
            Ok(listed) => break listed.into_iter(),
            // The one that came back may not have found the others yet.
            Err(error) => assert!(matches!(error, Error::Unavailable { .. }), "{error}"),
        }
    };
    let listed: BTreeMap<_, _> = listed.map(|entry| (entry.key, entry.revision.0)).collect();
    assert_eq!(listed, state);
}

/// Opens a store, and insists: while a cluster chooses leaders, it may not answer.
async fn open(url: &str) -> Nats {
    let begun = Instant::now();
    loop {
        match Nats::open(url).await {
            Ok(store) => return store,
            Err(error) => assert!(
                matches!(error, Error::Unavailable { .. } | Error::Unknown { .. })
                    && begun.elapsed() < PATIENCE,
                "{error}"
            ),
        }
    }
}

/// Every watch hears further writes of every writer. All are read at once: one that is not read
/// would lag behind.
async fn all_hear_all(mirrors: &mut [Mirror]) {
    futures_util::future::join_all(mirrors.iter_mut().map(hears_all)).await;
}

async fn hears_all(mirror: &mut Mirror) {
    let seen = [0, 1, 2].map(|writer| newest(mirror, writer));
    mirror
        .until("a write of everybody", |mirror| {
            let hears = |writer| newest(mirror, writer) > seen[writer] + 10;
            mirror.synced && (0..seen.len()).all(hears)
        })
        .await;
}

fn newest(mirror: &Mirror, writer: usize) -> u64 {
    let prefix = format!("workers/{writer}/");
    let own = mirror
        .entries
        .iter()
        .filter(|(key, _)| key.starts_with(&prefix));
    own.map(|(_, (revision, _))| *revision).max().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_leader_loses_nothing() {
    all_go_on(
        |cluster, node| cluster.node(node).kill(),
        |cluster, node| cluster.node(node).restart(),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_leader_loses_nothing() {
    all_go_on(
        |cluster, node| cluster.node(node).pause(),
        |cluster, node| cluster.node(node).resume(),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_cut_off_loses_nothing() {
    all_go_on(Cluster::isolate, Cluster::heal).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_cut_off_without_a_word_loses_nothing() {
    all_go_on(Cluster::isolate_silently, Cluster::heal).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_keeps_three_replicas_unless_told() {
    let cluster = block_in_place(|| Cluster::start(3));
    for (url, replicas) in [
        (format!("{}/three", cluster.url()), 3),
        (format!("{}/one?replicas=1", cluster.url()), 1),
        // One that is there stays as it is.
        (format!("{}/one?replicas=3", cluster.url()), 1),
    ] {
        open(&url).await;
        let client = async_nats::connect(&cluster.urls()[0])
            .await
            .expect("connects");
        let bucket = if url.contains("three") {
            "three"
        } else {
            "one"
        };
        for stream in [format!("KV_{bucket}"), format!("KV_{bucket}-checkpoints")] {
            let context = async_nats::jetstream::new(client.clone());
            // A node that has just joined may not answer yet.
            let stream = loop {
                match context.get_stream(&stream).await {
                    Ok(stream) => break stream,
                    Err(_) => tokio::task::yield_now().await,
                }
            };
            assert_eq!(stream.cached_info().config.num_replicas, replicas);
        }
    }
}
