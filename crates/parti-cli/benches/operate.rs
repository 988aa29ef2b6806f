//! How long it takes to look at a large group: `parti group describe` and `parti partition list` of
//! 64 workers with 5,000 partitions, as a process of its own, on every store. And how long `parti
//! worker drain` takes for 80 partitions under load, and how long a scrape of the metrics of a worker
//! that has 5,000 partitions, each with a series for its lag.
//!
//! ```text
//! cargo bench -p parti-cli --bench operate [-- STORE | drain | scrape]
//! ```

#[path = "../tests/common/mod.rs"]
mod common;
#[path = "../tests/operate/scene.rs"]
mod scene;

use std::collections::BTreeMap;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use parti_servers::{etcd, nats, postgres};

const WORKERS: usize = 64;
const PARTITIONS: usize = 5_000;
const ROUNDS: usize = 7;
const SCRAPES: usize = 50;

fn main() {
    let only = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let wanted = |store: &str| only.as_deref().is_none_or(|only| only == store);
    if wanted("drain") {
        drain();
    }
    if wanted("scrape") {
        scrape();
    }
    if matches!(only.as_deref(), Some("drain" | "scrape")) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    println!("| store | group describe p50 | longest | partition list p50 | longest |");
    println!("|---|---|---|---|---|");
    if wanted("sqlite") {
        let url = format!("sqlite:{}", folder.path().join("group.db").display());
        measure("SQLite", &url, folder.path());
    }
    if wanted("nats") {
        let server = nats::Server::start();
        measure("NATS KV", &server.url(), folder.path());
    }
    if wanted("etcd") {
        let server = etcd::Server::start();
        measure("etcd", &server.url(), folder.path());
    }
    if wanted("postgres") {
        let server = postgres::Server::start();
        measure("PostgreSQL", &server.url(), folder.path());
    }
}

fn measure(store: &str, url: &str, folder: &Path) {
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    runtime.block_on(scene::fleet(url, WORKERS, PARTITIONS));
    let describe = times(folder, &["group", "describe"], url, WORKERS);
    let list = times(folder, &["partition", "list"], url, PARTITIONS);
    println!("| {store} | {describe} | {list} |");
}

/// The median and the longest of some rounds; the output must have at least so many lines.
fn times(folder: &Path, command: &[&str], url: &str, lines: usize) -> String {
    let arguments = [command, &["--store", url, "--group", "fleet"]].concat();
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            let shown = scene::said(folder, &arguments);
            let took = began.elapsed();
            assert!(shown.lines().count() > lines, "{shown}");
            took
        })
        .collect();
    times.sort();
    let ms = |time: Duration| format!("{} ms", time.as_millis());
    format!("{} | {}", ms(times[ROUNDS / 2]), ms(times[ROUNDS - 1]))
}

/// One worker that serves everything and is scraped over HTTP, each time on a new connection.
fn scrape() {
    let mut group = common::Group::on("sqlite:group.db", common::CONFIG, PARTITIONS as u32);
    group.produce(PARTITIONS as u64);
    let most = PARTITIONS.to_string();
    let (mut worker, address) = group.scraped(&["--metrics-partitions", &most]);
    let series = |text: &str| text.matches("\nparti_partition_lag{").count();
    let mut size = 0;
    while size == 0 {
        let text = metrics(&address);
        if series(&text) >= PARTITIONS {
            size = text.len();
        } else {
            std::thread::sleep(Duration::from_millis(500));
        }
    }
    let mut times: Vec<Duration> = (0..SCRAPES)
        .map(|_| {
            let began = Instant::now();
            let text = metrics(&address);
            let took = began.elapsed();
            assert!(
                series(&text) >= PARTITIONS,
                "every partition has its series"
            );
            took
        })
        .collect();
    times.sort();
    let ms = |time: Duration| time.as_secs_f64() * 1_000.0;
    println!(
        "scrape of {PARTITIONS} partitions' lags ({} kB), {SCRAPES} times: p50 {:.1} ms, longest \
         {:.1} ms\n",
        size / 1_000,
        ms(times[SCRAPES / 2]),
        ms(times[SCRAPES - 1])
    );
    worker.kill().expect("it runs");
    worker.wait().expect("ended");
}

/// What a scraper gets.
fn metrics(address: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it answers");
    let ask = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(ask.as_bytes()).expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("answered");
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    text
}

/// Three workers with 80 partitions each, 2,000 messages a second; one is drained, and gets its share
/// again, some times.
fn drain() {
    let config = format!("expected_workers: 3\n{}", common::CONFIG);
    let mut group = common::Group::on("sqlite:group.db", &config, 240);
    for _ in 0..3 {
        group.consume();
    }
    let share = |status: &serde_json::Value, worker: usize| {
        status["workers"][worker]["partitions"].as_u64()
    };
    let even = |status: &serde_json::Value| {
        let still = status["handoffs"].as_array().is_some_and(Vec::is_empty);
        still && (0..3).all(|worker| share(status, worker) == Some(80))
    };
    let mut load = group.load(2_000, "10m");
    group.until_status("80 for each", even);
    let mut took = Vec::new();
    for _ in 0..ROUNDS {
        let of_group = ["--store", "sqlite:group.db", "--group", "g", "-o", "json"];
        let ask = |verb| [&["worker", verb, "worker-1"], &of_group[..]].concat();
        let done = scene::said(group.folder(), &ask("drain"));
        let done: serde_json::Value = serde_json::from_str(&done).expect("JSON");
        took.push(done[0]["took_ms"].as_u64().expect("a time"));
        scene::said(group.folder(), &ask("undrain"));
        group.until_status("80 for each again", even);
    }
    load.kill().expect("it runs");
    load.wait().expect("ended");
    let lines = group.stop(&[]);
    let mut handled: BTreeMap<String, BTreeMap<u64, u32>> = BTreeMap::new();
    for (partition, offset) in common::messages(&lines) {
        *handled
            .entry(partition)
            .or_default()
            .entry(offset)
            .or_default() += 1;
    }
    let total: u32 = handled.values().flat_map(BTreeMap::values).sum();
    let repeated = handled.values().flat_map(BTreeMap::values);
    let repeated: u32 = repeated.map(|times| times - 1).sum();
    let holes = handled.values().map(|own| {
        let newest = own.keys().next_back().map_or(0, |newest| newest + 1);
        newest - own.len() as u64
    });
    let skipped: u64 = holes.sum();
    took.sort();
    println!(
        "drain of 80 partitions, {ROUNDS} rounds, under load: p50 {} ms, longest {} ms; {total} handled, \
         skipped {skipped}, repeated {repeated}\n",
        took[ROUNDS / 2],
        took[ROUNDS - 1]
    );
}
