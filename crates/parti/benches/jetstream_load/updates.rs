//! How many updates of the durable a hundred rapid changes of the partition list become, as the
//! server counts requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use parti::core::partition::Partition;
use parti::source::JetStream;
use parti::store::Memory;
use parti::{
    Config, HandlerError, Message, PartitionSource, StaticPartitions, Worker, async_trait,
};
use parti_servers::nats::Server;

use crate::stream;

const FIRST: u32 = 100;
const CHANGES: u32 = 100;

/// A list that grows.
#[derive(Clone, Debug)]
struct Growing(Arc<AtomicU32>);

#[async_trait]
impl PartitionSource for Growing {
    async fn list(&self) -> Result<Vec<Partition>, HandlerError> {
        StaticPartitions::numbered(self.0.load(Ordering::Acquire))
            .list()
            .await
    }
}

pub async fn run() {
    let server = Server::start();
    let context = stream::context(&server).await;
    stream::make(&context, "a").await;
    let client = async_nats::connect(server.url()).await.expect("connects");
    let advisories = client.subscribe("$JS.EVENT.ADVISORY.API").await;
    let mut advisories = advisories.expect("subscribes");
    client.flush().await.expect("sent");
    let url = format!("jetstream://{}/a?subject=a.{{0}}", server.address());
    let source = JetStream::connect(&url).await.expect("connects");
    let list = Growing(Arc::new(AtomicU32::new(FIRST)));
    let config = Config::from_yaml("expected_workers: 1\n").expect("settings");
    let worker = Worker::builder("g", Memory::new(), source, list.clone())
        .config(config)
        .start(|_: Message| async { Ok::<(), HandlerError>(()) })
        .await
        .expect("starts");
    settle().await;
    let at_start = count(&mut advisories).await;
    let begun = Instant::now();
    for _ in 0..CHANGES {
        list.0.fetch_add(1, Ordering::AcqRel);
        worker.refresh_partitions();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let time = begun.elapsed();
    settle().await;
    let changing = count(&mut advisories).await;
    for _ in 0..CHANGES {
        worker.refresh_partitions();
    }
    settle().await;
    let no_ops = count(&mut advisories).await;
    println!("| what | updates of the durable |");
    println!("|---|---|");
    println!("| the start, with {FIRST} partitions | {at_start} |");
    println!(
        "| {CHANGES} changes of the list within {} ms | {changing} |",
        time.as_millis()
    );
    println!("| {CHANGES} refreshes that change nothing | {no_ops} |");
    worker.stop().await.expect("stops");
}

async fn settle() {
    tokio::time::sleep(Duration::from_secs(4)).await;
}

/// How many requests to make or change a consumer came since the last count.
async fn count(advisories: &mut async_nats::Subscriber) -> usize {
    let mut found = 0;
    let quiet = Duration::from_millis(300);
    while let Ok(Some(advisory)) = tokio::time::timeout(quiet, advisories.next()).await {
        let text = String::from_utf8_lossy(&advisory.payload).into_owned();
        found += usize::from(text.contains("$JS.API.CONSUMER.CREATE."));
    }
    found
}
