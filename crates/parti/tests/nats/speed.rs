//! How fast it is, on request: `cargo test -p parti --release --test nats -- --ignored --nocapture`

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use parti::store::nats::Nats;
use parti::store::{Bytes, Change, Expect, Revision, Scope, Store, StoreExt, Write};
use parti_servers::nats::Server;

const KEYS: usize = 5000;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement, not a test"]
async fn batches_lists_and_watches() {
    let server = Server::start();
    let store = Nats::open(&server.url()).await.expect("opens");
    let value = Bytes::from(vec![b'x'; 200]);
    let mut at: Vec<Option<Revision>> = vec![None; KEYS];
    for round in 0..6 {
        let batch = (0..KEYS).map(|n| Write {
            key: format!("partitions/orders/p{n:04}"),
            expect: at[n].map_or(Expect::Absent, Expect::At),
            value: Some(value.clone()),
        });
        let batch = batch.collect();
        let begun = Instant::now();
        let outcomes = store.write(batch).await;
        let took = begun.elapsed();
        at = outcomes
            .into_iter()
            .map(|o| Some(o.expect("written")))
            .collect();
        println!(
            "batch {round}: {KEYS} in {took:?}, {:.0}/s",
            KEYS as f64 / took.as_secs_f64()
        );
    }
    plain(&server, &value).await;
    let begun = Instant::now();
    let listed = store
        .list(&Scope::Under("partitions/".into()))
        .await
        .expect("lists");
    println!("list: {} in {:?}", listed.len(), begun.elapsed());

    let mut watch = store.watch(Scope::Under("workers/".into()));
    while watch.next().await != Some(Change::Synced) {}
    let mut revision = store.create("workers/a", "0").await.expect("creates");
    let mut delays: Vec<Duration> = Vec::new();
    for n in 0..1000 {
        let begun = Instant::now();
        revision = store
            .update("workers/a", revision, n.to_string())
            .await
            .expect("writes");
        loop {
            match watch.next().await {
                Some(Change::Put(entry)) if entry.revision == revision => break,
                _ => {}
            }
        }
        delays.push(begun.elapsed());
    }
    delays.sort();
    println!(
        "write to watcher: p50 {:?}, p99 {:?}, max {:?}",
        delays[500], delays[990], delays[999]
    );
}

/// The plain client, pipelined, unconditional: the best it can do.
async fn plain(server: &Server, value: &Bytes) {
    let context = crate::opening::context(server).await;
    for round in 0..3 {
        let begun = Instant::now();
        let mut acks = Vec::with_capacity(KEYS);
        for n in 0..KEYS {
            let subject = format!("$KV.parti-checkpoints.partitions.plain.p{n:04}");
            acks.push(context.publish(subject, value.clone()).await.expect("sent"));
        }
        for ack in acks {
            ack.await.expect("acknowledged");
        }
        let took = begun.elapsed();
        println!(
            "plain {round}: {KEYS} in {took:?}, {:.0}/s",
            KEYS as f64 / took.as_secs_f64()
        );
    }
}
