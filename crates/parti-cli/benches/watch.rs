//! What `parti watch` costs: its share of a core while it shows 64 workers with 5,000 partitions,
//! whose sessions are renewed every two seconds and whose checkpoints are written every five.
//!
//! ```text
//! cargo bench -p parti-cli --bench watch [-- STORE]
//! ```

#[path = "../tests/operate/scene.rs"]
mod scene;
#[path = "../tests/operate/tty.rs"]
mod tty;

use std::time::{Duration, Instant};

use parti_servers::{etcd, nats, postgres};

const WORKERS: usize = 64;
const PARTITIONS: usize = 5_000;
/// How long it is looked at.
const SPAN: Duration = Duration::from_secs(30);

fn main() {
    let only = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let wanted = |store: &str| only.as_deref().is_none_or(|only| only == store);
    println!("| store | of a core | drawn on | writes/s meanwhile |");
    println!("|---|---|---|---|");
    let folder = tempfile::tempdir().expect("a folder");
    if wanted("sqlite") {
        let url = format!("sqlite:{}", folder.path().join("group.db").display());
        measure("SQLite", &url);
    }
    if wanted("nats") {
        let server = nats::Server::start();
        measure("NATS KV", &server.url());
    }
    if wanted("etcd") {
        let server = etcd::Server::start();
        measure("etcd", &server.url());
    }
    if wanted("postgres") {
        let server = postgres::Server::start();
        measure("PostgreSQL", &server.url());
    }
}

fn measure(store: &str, url: &str) {
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    let desk = runtime.block_on(async {
        scene::fleet(url, WORKERS, PARTITIONS).await;
        scene::Desk::open(url, "fleet").await
    });
    for (columns, rows) in [(80, 24), (160, 50)] {
        let arguments = ["watch", "--store", url, "--group", "fleet"];
        let mut tty = tty::Tty::start(std::env::temp_dir().as_path(), &arguments, columns, rows);
        tty.until(&["5000 partitions"]);
        let (began, before) = (Instant::now(), spent(tty.child.id()));
        let writes = runtime.block_on(desk.live(SPAN, WORKERS, PARTITIONS));
        let (took, after) = (began.elapsed(), spent(tty.child.id()));
        let share = (after - before).as_secs_f64() / took.as_secs_f64();
        let per_second = writes as f64 / took.as_secs_f64();
        println!(
            "| {store} | {:.1} % | {columns} x {rows} | {per_second:.0} |",
            share * 100.0
        );
        tty.press("q");
        assert!(tty.ended().success());
    }
}

/// The processor time of a process so far, in user and system mode.
fn spent(process: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("it runs");
    let fields = stat.rsplit(") ").next().expect("fields").split(' ');
    let ticks: u64 = fields
        .skip(11)
        .take(2)
        .map(|field| field.parse::<u64>().expect("a number"))
        .sum();
    // A tick is a hundredth of a second on every Linux that matters here.
    Duration::from_millis(ticks * 10)
}
