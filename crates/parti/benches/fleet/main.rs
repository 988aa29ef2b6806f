//! A large group in one process: 64 workers share 5,000 partitions. How long until all have their
//! first assignment, what they need while nothing happens, and how large what they write is.
//!
//! ```text
//! cargo bench -p parti --bench fleet [-- memory|nats]
//! ```
//!
//! Each store is measured in a process of its own. Memory is what was allocated, and not given back,
//! since the store was opened; a store in memory is counted for itself and taken off.

#[path = "../stores/process.rs"]
mod process;

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use parti::source::MemoryLog;
use parti::store::metered::{Metered, Numbers};
use parti::store::{self, Entry, Expect, Memory, Scope, Store, Write};
use parti::{Config, HandlerError, Message, State, StaticPartitions, Worker};
use parti_servers::nats;
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

const WORKERS: usize = 64;
const PARTITIONS: u32 = 5_000;

/// How long nothing happens.
const IDLE: Duration = Duration::from_secs(20);

/// Until what the start has stirred up has settled.
const SETTLE: Duration = Duration::from_secs(10);

fn main() {
    let asked = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    match asked.as_deref() {
        None => {
            for store in ["memory", "nats"] {
                let this = std::env::current_exe().expect("this program");
                let ended = Command::new(this).arg(store).status().expect("runs");
                assert!(ended.success(), "{store} failed");
            }
        }
        Some("memory") => run(async {
            measure("memory", Arc::new(Memory::new()), None).await;
        }),
        Some("nats") => {
            let mut server = nats::Server::start();
            run(async {
                let store = store::open(&server.url()).await.expect("a store");
                measure("NATS KV", store, server.id()).await;
            });
        }
        Some(other) => panic!("no store {other}: memory or nats"),
    }
}

fn run(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(work);
}

async fn measure(name: &str, store: Arc<dyn Store>, server: Option<u32>) {
    let store = Metered::new(store);
    for (group, config) in [
        ("settle", "{}"),
        (
            "expected",
            "expected_workers: 64\nprocessing:\n  start: latest\n",
        ),
    ] {
        let config = Config::from_yaml(config).expect("settings");
        one(name, group, config, &store, server).await;
    }
}

async fn one(name: &str, group: &str, config: Config, store: &Metered, server: Option<u32>) {
    let (heap, resident) = (ALLOCATED.current_usage(), process::resident());
    let log = MemoryLog::new();
    let partitions = StaticPartitions::numbered(PARTITIONS);
    let before = Instant::now();
    let starts = (0..WORKERS).map(|_| {
        let builder = Worker::builder(group, store.clone(), log.clone(), partitions.clone());
        let handler = |_: Message| async { Ok::<(), HandlerError>(()) };
        builder.config(config.clone()).start(handler)
    });
    let workers = try_join_all(starts).await.expect("all start");
    let started = before.elapsed();
    let mut left = WORKERS;
    for worker in &workers {
        worker.wait_for(State::Stable).await.expect("stable");
        left -= 1;
    }
    assert_eq!(left, 0);
    let served: usize = workers.iter().map(|w| w.assignment().serve.len()).sum();
    assert_eq!(served, PARTITIONS as usize, "everything is assigned");
    let taken = taken(store, group, before).await;

    tokio::time::sleep(SETTLE).await;
    let of_server = || server.map(process::cpu_of_family).unwrap_or_default();
    let (cpu, server_cpu, counted) = (process::cpu(), of_server(), store.snapshot());
    tokio::time::sleep(IDLE).await;
    let part = |used: Duration| used.as_secs_f64() / IDLE.as_secs_f64() * 100.0;
    let (cpu, server_cpu) = (part(process::cpu() - cpu), part(of_server() - server_cpu));
    let counted = difference(&counted, &store.snapshot());

    let entries = everything(store, group).await;
    let own = match server {
        None => weight(&entries).await,
        Some(_) => 0,
    };
    let heap = ALLOCATED.current_usage().saturating_sub(heap + own) as f64;
    let resident = process::resident().saturating_sub(resident) as f64;
    let sizes = |kind: &str| {
        let below = format!("{kind}/{group}");
        let of_kind = entries.iter().filter(|entry| entry.key.starts_with(&below));
        let sizes: Vec<usize> = of_kind.map(|entry| entry.value.len()).collect();
        (
            sizes.iter().sum::<usize>(),
            sizes.iter().max().copied().unwrap_or(0),
        )
    };
    println!("{name}, {WORKERS} workers, {PARTITIONS} partitions, cold start ends by {group}");
    println!(
        "  all have their first assignment  {:.2} s",
        started.as_secs_f64()
    );
    println!(
        "  every partition is taken         {:.2} s",
        taken.as_secs_f64()
    );
    println!(
        "  idle: CPU                        {cpu:.1} % of a core; the server {server_cpu:.1} %"
    );
    println!(
        "  idle: per second                 {:.0} writes, {:.0} reads, {:.1} lists, {:.0} watch events, {:.0} B out, {:.0} B in",
        counted[0], counted[1], counted[2], counted[3], counted[4], counted[5]
    );
    println!(
        "  watches                          {}",
        store.snapshot().watches
    );
    println!(
        "  memory beyond the store          {:.1} MB allocated ({:.0} KB a worker, {:.0} B a partition); {:.1} MB resident, store included",
        heap / 1e6,
        heap / 1e3 / WORKERS as f64,
        heap / f64::from(PARTITIONS),
        resident / 1e6
    );
    println!(
        "  a heartbeat                      {} B",
        sizes("workers").1
    );
    println!("  the plan                         {} B", sizes("plan").0);
    println!(
        "  all assignments                  {} B, the largest {} B",
        sizes("assignments").0,
        sizes("assignments").1
    );
    println!(
        "  a partition's record             {} B",
        sizes("partitions").1
    );
    for worker in workers {
        worker.stop_within(Duration::from_secs(1)).await.ok();
    }
}

/// When every partition has an owner.
async fn taken(store: &Metered, group: &str, since: Instant) -> Duration {
    loop {
        let records = store
            .list(&Scope::Under(format!("partitions/{group}/")))
            .await;
        let records = records.expect("listed");
        let owned = records.iter().filter(|entry| {
            let text = std::str::from_utf8(&entry.value).unwrap_or_default();
            text.contains("\"owner\":\"") || text.contains("\"owner\":{")
        });
        if owned.count() == PARTITIONS as usize {
            return since.elapsed();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn everything(store: &Metered, group: &str) -> Vec<Entry> {
    let mut all = Vec::new();
    for kind in ["group", "leader", "plan"] {
        let found = store.read(&format!("{kind}/{group}")).await.expect("read");
        all.extend(found);
    }
    for kind in ["workers", "assignments", "partitions"] {
        let scope = Scope::Under(format!("{kind}/{group}/"));
        all.extend(store.list(&scope).await.expect("listed"));
    }
    all
}

/// What these records need in a store in memory.
async fn weight(entries: &[Entry]) -> usize {
    let before = ALLOCATED.current_usage();
    let store = Memory::new();
    for entry in entries {
        let write = Write {
            key: entry.key.clone(),
            expect: Expect::Absent,
            value: Some(entry.value.to_vec().into()),
        };
        store.write(vec![write]).await;
    }
    ALLOCATED.current_usage().saturating_sub(before)
}

/// Writes, reads, lists, watch events, bytes out and bytes in, each per second.
fn difference(before: &Numbers, after: &Numbers) -> [f64; 6] {
    let per_second = |before: u64, after: u64| (after - before) as f64 / IDLE.as_secs_f64();
    [
        per_second(before.writes_done, after.writes_done),
        per_second(before.reads.count, after.reads.count),
        per_second(before.lists.count, after.lists.count),
        per_second(before.watch_events, after.watch_events),
        per_second(before.bytes_out, after.bytes_out),
        per_second(before.bytes_in, after.bytes_in),
    ]
}
