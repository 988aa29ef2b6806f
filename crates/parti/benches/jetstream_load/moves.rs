//! Partitions that move under load: from 25 workers to 100 and back; and how long one pauses.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parti_servers::nats::Server;
use tokio::task::JoinHandle;

use crate::group::{Counts, Group, at};
use crate::stream::{self, Publisher};

/// A load that goes on until it is stopped. Answers how many messages each subject got.
struct Load {
    stop: Arc<AtomicBool>,
    task: JoinHandle<u64>,
}

impl Load {
    async fn start(server: &Server, subjects: u64, rate: u64) -> Self {
        let context = stream::context(server).await;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            let mut publisher = Publisher::new(context, "a");
            let begun = Instant::now();
            let mut sent: u64 = 0;
            // Only whole rounds: every subject gets the same.
            while !stopped.load(Ordering::Acquire) || !sent.is_multiple_of(subjects) {
                let due = rate * begun.elapsed().as_micros() as u64 / 1_000_000;
                while sent < due {
                    publisher.send(sent % subjects, sent / subjects).await;
                    sent += 1;
                }
                publisher.settle().await;
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            sent
        });
        Self { stop, task }
    }

    async fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Release);
        self.task.await.expect("no panic")
    }
}

const QUICK: &str = "\
planned_scale_window: 1s
settle_time: 500ms
expected_workers: 25
processing:
  start: earliest
assignment:
  rebalance_cooldown: 0s
";

pub async fn scale() {
    const SUBJECTS: u32 = 2_000;
    const RATE: u64 = 2_000;
    let server = Server::start();
    stream::make(&stream::context(&server).await, "a").await;
    let mut group = Group::new(&server, "a", SUBJECTS, QUICK);
    group.start(25).await;
    let load = Load::start(&server, u64::from(SUBJECTS), RATE).await;
    group.heard.until(u64::from(SUBJECTS) * 5).await;
    let begun = Instant::now();
    group.start(75).await;
    let up = begun.elapsed();
    tokio::time::sleep(Duration::from_secs(20).saturating_sub(up)).await;
    let handled_at_100 = group.heard.count();
    let began_down = begun.elapsed();
    group.stop_down_to(25).await;
    let down = begun.elapsed();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let sent = load.stop().await;
    let whole = tokio::time::timeout(Duration::from_secs(120), group.heard.until(sent)).await;
    let handled = group.heard.take();
    let mut counts = Counts::of(&handled, |_| sent / u64::from(SUBJECTS));
    println!(
        "25 workers, 75 more, and down to 25 again; {SUBJECTS} subjects, {RATE} messages a second"
    );
    println!("| published | lost | out of order | repeated | moves | all drained |");
    println!("|---|---|---|---|---|---|");
    println!(
        "| {sent} | {} | {} | {} | {} | {} |",
        counts.lost,
        counts.out_of_order,
        counts.repeated,
        counts.across.len(),
        whole.is_ok()
    );
    println!(
        "75 more had started after {:.1} s, and {handled_at_100} messages were handled when they \
         began to leave at {:.1} s; the last of them was gone at {:.1} s",
        up.as_secs_f64(),
        began_down.as_secs_f64(),
        down.as_secs_f64()
    );
    println!(
        "between two messages of a partition (one a second): p50 {:.0} ms, p99 {:.0} ms; across a \
         move p50 {:.0} ms, p99 {:.0} ms",
        at(&mut counts.within, 0.5),
        at(&mut counts.within, 0.99),
        at(&mut counts.across, 0.5),
        at(&mut counts.across, 0.99)
    );
    group.stop_down_to(0).await;
}

pub async fn handoff() {
    const SUBJECTS: u32 = 60;
    const RATE: u64 = 3_000;
    const ROUNDS: usize = 10;
    let server = Server::start();
    stream::make(&stream::context(&server).await, "a").await;
    let config = QUICK.replace("expected_workers: 25", "expected_workers: 3");
    let mut group = Group::new(&server, "a", SUBJECTS, &config);
    group.start(3).await;
    let load = Load::start(&server, u64::from(SUBJECTS), RATE).await;
    group.heard.until(RATE * 3).await;
    let quiet = group.heard.count();
    for _ in 0..ROUNDS {
        group.start(1).await;
        tokio::time::sleep(Duration::from_secs(4)).await;
        group.stop_down_to(3).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let sent = load.stop().await;
    group.heard.until(sent).await;
    let mut counts = Counts::of(&group.heard.take(), |_| sent / u64::from(SUBJECTS));
    println!(
        "3 workers and one that comes and goes {ROUNDS} times; {SUBJECTS} subjects, a message in \
         each every {} ms; {quiet} messages before the first move",
        1_000 * u64::from(SUBJECTS) / RATE
    );
    println!("| time between two messages of a partition | count | p50 | p99 | longest |");
    println!("|---|---|---|---|---|");
    let mut rows = BTreeMap::new();
    rows.insert("1 without a move", &mut counts.within);
    rows.insert("2 across a move", &mut counts.across);
    for (what, gaps) in rows {
        println!(
            "| {} | {} | {:.0} ms | {:.0} ms | {:.0} ms |",
            &what[2..],
            gaps.len(),
            at(gaps, 0.5),
            at(gaps, 0.99),
            at(gaps, 1.0)
        );
    }
    println!(
        "published {sent}, lost {}, out of order {}, repeated {}",
        counts.lost, counts.out_of_order, counts.repeated
    );
    group.stop_down_to(0).await;
}
