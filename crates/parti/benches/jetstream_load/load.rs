//! A load that is offered at a rate: what of it is delivered, how late, and what that costs.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parti_servers::nats::Server;

use crate::group::{Group, at};
use crate::process;
use crate::stream::{self, Publisher};

const WORKERS: usize = 25;
const SUBJECTS: u32 = 2_000;
const SECONDS: u64 = 10;
/// Publishers that share the rate.
const PUBLISHERS: u64 = 4;
/// Whoever is not done by then is behind for good.
const PATIENCE: Duration = Duration::from_secs(60);

pub async fn run() {
    println!(
        "{WORKERS} workers of {} subjects each, {SECONDS} s per row, messages of {} bytes on disk",
        SUBJECTS as usize / WORKERS,
        stream::SIZE
    );
    println!(
        "| offered | published | handled | p50 | p99 | server's CPU and memory | workers' CPU \
         and memory | publisher's CPU | delivered twice |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for rate in [10_000, 25_000, 50_000] {
        offer(rate).await;
    }
}

async fn offer(rate: u64) {
    let mut server = Server::start();
    let context = stream::context(&server).await;
    stream::make(&context, "a").await;
    let mut group = Group::new(&server, "a", SUBJECTS, "expected_workers: 25\n");
    group.start(WORKERS).await;
    // Everybody is ready once a message of every subject came through.
    let mut warm = Publisher::new(context.clone(), "a");
    while (group.heard.take().len() as u32) < SUBJECTS {
        for subject in 0..u64::from(SUBJECTS) {
            warm.send(subject, now_us()).await;
        }
        warm.settle().await;
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    let before = group.heard.count();
    group.heard.take();
    let sent_before = sequences(&context).await;
    let id = server.id().unwrap_or_default();
    let cpu = (process::cpu_of_family(id), process::cpu());
    let begun = Instant::now();
    let this = std::env::current_exe().expect("this program");
    let publisher = Command::new(this)
        .args([
            "publish",
            &server.url(),
            &rate.to_string(),
            &SECONDS.to_string(),
        ])
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let told = tokio::task::spawn_blocking(|| publisher.wait_with_output()).await;
    let told = told.expect("no panic").expect("ends").stdout;
    let told = String::from_utf8_lossy(&told).into_owned();
    let (published, its_cpu) = told.trim().split_once(' ').expect("two numbers");
    let (published, its_cpu): (u64, u64) = (
        published.parse().expect("a count"),
        its_cpu.parse().expect("milliseconds"),
    );
    let publishing = begun.elapsed();
    let done = tokio::time::timeout(PATIENCE, group.heard.until(before + published)).await;
    let time = done.map_or(begun.elapsed(), |done| done - begun);
    let handled = group.heard.count() - before;
    let cpu = (
        process::cpu_of_family(id).saturating_sub(cpu.0),
        process::cpu().saturating_sub(cpu.1),
    );
    let sent = sequences(&context).await - sent_before;
    let mut latencies = latencies(group.heard.take());
    let share = |cpu: Duration| 100.0 * cpu.as_secs_f64() / time.as_secs_f64();
    println!(
        "| {rate}/s | {:.0}/s | {:.0}/s | {:.1} ms | {:.1} ms | {:.0} %, {} MB | {:.0} %, {} MB | \
         {:.0} % | {:.3} % |",
        published as f64 / publishing.as_secs_f64(),
        handled as f64 / time.as_secs_f64(),
        at(&mut latencies, 0.5),
        at(&mut latencies, 0.99),
        share(cpu.0),
        resident_of(id) / 1_000_000,
        share(cpu.1),
        process::resident() / 1_000_000,
        100.0 * its_cpu as f64 / 1_000.0 / publishing.as_secs_f64(),
        100.0 * sent.saturating_sub(published) as f64 / published.max(1) as f64,
    );
    group.stop_down_to(0).await;
}

/// How many messages all durables have sent so far, again and again counted.
async fn sequences(context: &async_nats::jetstream::Context) -> u64 {
    use futures_util::TryStreamExt;
    let stream = context.get_stream("a").await.expect("there");
    let consumers: Vec<_> = stream.consumers().try_collect().await.expect("listed");
    consumers
        .iter()
        .map(|info| info.delivered.consumer_sequence)
        .sum()
}

fn latencies(handled: BTreeMap<parti::PartitionId, Vec<crate::group::Handled>>) -> Vec<Duration> {
    let (wall, clock) = (now_us(), Instant::now());
    let all = handled.into_values().flatten();
    all.map(|(_, sent, at)| {
        let ago = clock.saturating_duration_since(at).as_micros() as u64;
        Duration::from_micros(wall.saturating_sub(ago).saturating_sub(sent))
    })
    .collect()
}

fn now_us() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("after 1970").as_micros() as u64
}

fn resident_of(id: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kilobytes.and_then(|text| text.parse().ok()).unwrap_or(0) * 1024
}

/// The publisher's own process: each message carries when it was sent.
pub async fn publish(url: &str, rate: &str, seconds: &str) {
    let rate: u64 = rate.parse().expect("a rate");
    let time = Duration::from_secs(seconds.parse().expect("seconds"));
    let publishing = (0..PUBLISHERS).map(|_| {
        let url = url.to_owned();
        tokio::spawn(async move {
            let client = async_nats::connect(url).await.expect("connects");
            let context = async_nats::jetstream::new(client);
            let mut publisher = Publisher::new(context, "a");
            let rate = rate / PUBLISHERS;
            publisher
                .pace(u64::from(SUBJECTS), rate, time, |_| now_us())
                .await
        })
    });
    let publishing: Vec<_> = publishing.collect();
    let mut sent = 0;
    for publisher in publishing {
        sent += publisher.await.expect("no panic");
    }
    println!("{sent} {}", process::cpu().as_millis());
}
