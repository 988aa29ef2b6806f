//! How long it takes to look at a large group: `parti group describe` and `parti partition list` of
//! 64 workers with 5,000 partitions, as a process of its own, on every store.
//!
//! ```text
//! cargo bench -p parti-cli --bench operate [-- STORE]
//! ```

#[path = "../tests/operate/scene.rs"]
mod scene;

use std::path::Path;
use std::time::{Duration, Instant};

use parti_servers::{etcd, nats, postgres};

const WORKERS: usize = 64;
const PARTITIONS: usize = 5_000;
const ROUNDS: usize = 7;

fn main() {
    let only = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let wanted = |store: &str| only.as_deref().is_none_or(|only| only == store);
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
