//! A backlog of 200,000 messages in 2,000 subjects: how long until 25 workers have handled it.
//!
//! Beside it, in the same run and on the same server: 25 plain pull consumers with 80 filters each;
//! and a group whose consumers were left behind at the backlog's beginning because its handlers stood
//! still, once as it is and once without catching up.

use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::{self, consumer};
use futures_util::StreamExt;
use futures_util::future::join_all;
use parti_servers::nats::Server;

use crate::group::Group;
use crate::process;
use crate::stream;

const WORKERS: usize = 25;
const SUBJECTS: u32 = 2_000;
const MESSAGES: u64 = 200_000;

const CONFIG: &str = "expected_workers: 25\nprocessing:\n  start: earliest\n";

struct Row {
    what: &'static str,
    time: Duration,
    server: Duration,
    workers: Duration,
    good: String,
}

pub async fn run() {
    let mut server = Server::start();
    let context = stream::context(&server).await;
    let mut rows = Vec::new();
    stream::make(&context, "a").await;
    stream::fill(&context, "a", SUBJECTS.into(), MESSAGES).await;
    let id = server.id();
    let used = || process::cpu_of_family(id.unwrap_or_default());
    rows.push(measured("25 plain consumers of 80 filters", &used, plain(&server)).await);
    rows.push(measured("a new group of 25", &used, new_group(&server)).await);
    context.delete_stream("a").await.expect("deleted");
    for (what, name, more) in [
        ("a group that was left behind", "b", ""),
        (
            "the same without catching up",
            "c",
            "jetstream:\n  catch_up_after: 1h\n",
        ),
    ] {
        stream::make(&context, name).await;
        let group = left_behind(&server, &context, name, more).await;
        rows.push(measured(what, &used, resume(group)).await);
        context.delete_stream(name).await.expect("deleted");
    }
    println!(
        "{MESSAGES} messages of {} bytes in {SUBJECTS} subjects, on disk; nats-server {}",
        stream::SIZE,
        parti_servers::install::NATS_LATEST
    );
    println!("| who | time | against plain | server's CPU | this process's CPU | |");
    println!("|---|---|---|---|---|---|");
    let plain = rows[0].time.as_secs_f64();
    for row in rows {
        println!(
            "| {} | {:.1} s | {:.1} x | {:.1} s | {:.1} s | {} |",
            row.what,
            row.time.as_secs_f64(),
            plain / row.time.as_secs_f64(),
            row.server.as_secs_f64(),
            row.workers.as_secs_f64(),
            row.good
        );
    }
}

async fn measured(
    what: &'static str,
    server: &impl Fn() -> Duration,
    work: impl Future<Output = (Duration, String)>,
) -> Row {
    let before = (server(), process::cpu());
    let (time, good) = work.await;
    eprintln!("{what}: {time:?} {good}");
    Row {
        what,
        time,
        server: server().saturating_sub(before.0),
        workers: process::cpu().saturating_sub(before.1),
        good,
    }
}

/// Each consumer as its own client, pulled and acked as the client library does it.
async fn plain(server: &Server) -> (Duration, String) {
    let each = SUBJECTS as usize / WORKERS;
    let begun = Instant::now();
    let consuming = (0..WORKERS).map(|worker| async move {
        let context = stream::context(server).await;
        let subjects = worker * each..(worker + 1) * each;
        let config = pull::Config {
            durable_name: Some(format!("plain-{worker}")),
            ack_policy: AckPolicy::Explicit,
            filter_subjects: subjects.map(|subject| format!("a.{subject}")).collect(),
            ..pull::Config::default()
        };
        consume(&context, config, MESSAGES / WORKERS as u64).await;
    });
    join_all(consuming).await;
    let time = begun.elapsed();
    let context = stream::context(server).await;
    let stream = context.get_stream("a").await.expect("there");
    for worker in 0..WORKERS {
        let name = format!("plain-{worker}");
        stream.delete_consumer(&name).await.expect("deleted");
    }
    (time, String::new())
}

async fn consume(context: &jetstream::Context, config: pull::Config, count: u64) {
    let stream = context.get_stream("a").await.expect("there");
    let consumer: consumer::PullConsumer = stream.create_consumer(config).await.expect("made");
    let mut messages = consumer.messages().await.expect("pulls");
    for _ in 0..count {
        let message = messages.next().await.expect("goes on").expect("delivered");
        message.ack().await.expect("sent");
    }
}

/// From the start of the workers on.
async fn new_group(server: &Server) -> (Duration, String) {
    let mut group = Group::new(server, "a", SUBJECTS, CONFIG);
    let begun = Instant::now();
    group.start(WORKERS).await;
    let first = group.heard.until(1).await;
    let done = group.heard.until(MESSAGES).await;
    let note = format!("first message after {:.1} s", (first - begun).as_secs_f64());
    let verdict = finish(group).await;
    (done - begun, format!("{note}; {verdict}"))
}

/// A group whose handlers stand still, while a backlog grows.
async fn left_behind(
    server: &Server,
    context: &jetstream::Context,
    name: &str,
    more: &str,
) -> Group {
    let mut group = Group::new(server, name, SUBJECTS, &format!("{CONFIG}{more}"));
    group.start(WORKERS).await;
    stream::fill(context, name, SUBJECTS.into(), u64::from(SUBJECTS)).await;
    group.heard.until(u64::from(SUBJECTS)).await;
    group.heard.take();
    group.heard.open(false);
    stream::fill(context, name, SUBJECTS.into(), MESSAGES).await;
    group
}

async fn resume(group: Group) -> (Duration, String) {
    let begun = Instant::now();
    group.heard.open(true);
    let done = group.heard.until(u64::from(SUBJECTS) + MESSAGES).await;
    let verdict = finish(group).await;
    (done - begun, verdict)
}

/// Every message once, in order.
async fn finish(mut group: Group) -> String {
    let handled = group.heard.take();
    let counts = crate::group::Counts::of(&handled, |_| MESSAGES / u64::from(SUBJECTS));
    group.stop_down_to(0).await;
    format!(
        "lost {}, out of order {}, repeated {}",
        counts.lost, counts.out_of_order, counts.repeated
    )
}
