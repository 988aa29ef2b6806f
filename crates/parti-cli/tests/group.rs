//! Real worker processes on one folder: shared, killed, frozen.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use common::{Group, Line, messages, place};
use rustix::process::Signal;

const PARTITIONS: u32 = 8;

/// Two workers on a store with a server, one of them killed: everything is handled, in order.
fn carries_a_group(store: &str) {
    let mut group = Group::on(store, common::CONFIG, PARTITIONS);
    group.produce(200);
    let (killed, other) = (group.consume(), group.consume());
    group.serving(killed);
    group.serving(other);
    group.signal(killed, Signal::KILL);
    group.produce(200);
    group.drained();
    assert_order(&group.stop(&[killed]));
}

#[test]
fn nats_carries_a_group() {
    let server = parti_servers::nats::Server::start();
    carries_a_group(&server.url());
}

/// A stream with virtual partitions, and the group's records on the same server: workers are
/// killed and stopped, everything is handled, in order, and the lag is gone.
fn a_stream_is_consumed(version: &str, making: &[&str]) {
    let server = parti_servers::nats::Server::start_version(version);
    let stream = format!("jetstream://{}/ORDERS", server.address());
    let source = ["--source", stream.as_str()];
    let mut group = Group::with(&server.url(), &source, common::CONFIG, making, PARTITIONS);
    group.produce(200);
    let (killed, stopped) = (group.consume(), group.consume());
    group.serving(killed);
    group.serving(stopped);
    group.signal(killed, Signal::KILL);
    group.produce(200);
    let other = group.consume();
    group.serving(other);
    group.signal(stopped, Signal::TERM);
    group.produce(200);
    group.drained();
    group.until_status("no lag", |status| {
        let partitions = status["partitions"].as_array().expect("a list");
        partitions.len() == PARTITIONS as usize
            && partitions.iter().all(|partition| partition["lag"] == 0)
    });
    assert_sparse_order(&group.stop(&[killed, stopped]));
}

/// No message of a partition comes for the first time after a later one. Partitions of a stream
/// share its offsets, so each has holes.
fn assert_sparse_order(lines: &[Line]) {
    let mut by_epoch: BTreeMap<(String, u64), Vec<u64>> = BTreeMap::new();
    for (_, event) in lines.iter().filter(|(_, e)| e["event"] == "message") {
        let (partition, offset) = place(event);
        let epoch = event["epoch"].as_u64().expect("an epoch");
        by_epoch.entry((partition, epoch)).or_default().push(offset);
    }
    let mut seen: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    for ((partition, epoch), offsets) in by_epoch {
        let done = seen.entry(partition.clone()).or_default();
        for offset in offsets {
            let latest = done.last().copied().unwrap_or(0);
            assert!(
                done.contains(&offset) || offset > latest,
                "{partition}, epoch {epoch}: {offset} after {latest}"
            );
            done.insert(offset);
        }
    }
}

#[test]
fn a_stream_with_limits_is_consumed() {
    a_stream_is_consumed(parti_servers::install::NATS_LATEST, &[]);
}

#[test]
fn a_work_queue_is_consumed_on_the_oldest_server() {
    a_stream_is_consumed(parti_servers::install::NATS_OLDEST, &["--work-queue"]);
}

#[test]
fn etcd_carries_a_group() {
    let server = parti_servers::etcd::Server::start();
    carries_a_group(&server.url());
}

#[test]
fn postgres_carries_a_group() {
    let server = parti_servers::postgres::Server::start();
    carries_a_group(&server.url());
}

/// Within a partition: in the order of epochs, and of offsets within an epoch.
fn assert_order(lines: &[Line]) {
    let mut by_epoch: BTreeMap<(String, u64), Vec<u64>> = BTreeMap::new();
    for (_, event) in lines
        .iter()
        .filter(|(_, event)| event["event"] == "message")
    {
        let (partition, offset) = place(event);
        let epoch = event["epoch"].as_u64().expect("an epoch");
        by_epoch.entry((partition, epoch)).or_default().push(offset);
    }
    let mut ends: BTreeMap<String, u64> = BTreeMap::new();
    for ((partition, epoch), offsets) in by_epoch {
        assert!(
            offsets.is_sorted_by(|a, b| a < b),
            "{partition}, epoch {epoch}: {offsets:?}"
        );
        // A successor goes on where its predecessor was, or a little before; never past it.
        let end = ends.entry(partition.clone()).or_default();
        let (first, last) = (offsets[0], offsets[offsets.len() - 1]);
        assert!(
            first <= *end,
            "{partition}, epoch {epoch} starts at {first}, not at {end}"
        );
        *end = (*end).max(last + 1);
    }
}

#[test]
fn three_workers_share_the_partitions_and_survive_kill_9() {
    let mut group = Group::new(PARTITIONS);
    group.produce(200);
    let workers: Vec<usize> = (0..3).map(|_| group.consume()).collect();
    for worker in &workers {
        group.serving(*worker);
    }
    group.drained();
    group.produce(200);
    group.signal(workers[0], Signal::KILL);
    group.produce(200);
    group.drained();
    let newcomer = group.consume();
    group.serving(newcomer);
    group.produce(200);
    group.signal(workers[1], Signal::KILL);
    group.drained();
    let killed = [workers[0], workers[1]];
    assert_order(&group.stop(&killed));
}

#[test]
fn a_graceful_stop_repeats_nothing() {
    // Nobody may be taken for dead here, however busy the machine.
    let config = common::CONFIG
        .replace("heartbeat_ttl: 1500ms", "heartbeat_ttl: 2m")
        .replace("worker_id_ttl: 3s", "worker_id_ttl: 6m")
        + "shutdown_timeout: 2m\n";
    let mut group = Group::on("sqlite:group.db", &config, PARTITIONS);
    group.produce(400);
    let (first, second) = (group.consume(), group.consume());
    group.serving(first);
    group.serving(second);
    group.signal(first, Signal::TERM);
    group.produce(400);
    group.drained();
    let lines = group.stop(&[first]);
    assert_order(&lines);
    let all: Vec<(String, u64)> = messages(&lines).collect();
    let different: BTreeSet<&(String, u64)> = all.iter().collect();
    assert_eq!(all.len(), different.len(), "something was handled twice");
    assert_eq!(all.len(), 800);
}

/// How many partitions a worker has, by what it said.
fn owned(lines: &[Line], worker: usize) -> u32 {
    let mut owned = BTreeSet::new();
    for (_, event) in lines.iter().filter(|(own, _)| *own == worker) {
        let partition = event["partition"].as_str().unwrap_or_default();
        match event["event"].as_str() {
            Some("taken") => drop(owned.insert(partition)),
            Some("released" | "fenced") => drop(owned.remove(partition)),
            Some("session_lost") => owned.clear(),
            _ => {}
        }
    }
    owned.len() as u32
}

#[test]
fn a_worker_frozen_for_three_ttls_does_nothing_more_under_its_old_epochs() {
    let mut group = Group::new(PARTITIONS);
    group.produce(100);
    let (frozen, other) = (group.consume(), group.consume());
    group.serving(frozen);
    group.serving(other);
    group.drained();
    // Whoever is stopped in the middle of a write holds the file's lock, and nobody can take over
    // before it goes on: then it is stopped again at another moment.
    loop {
        group.signal(frozen, Signal::STOP);
        if group.comes(Duration::from_secs(20), |lines| {
            owned(lines, other) == PARTITIONS
        }) {
            break;
        }
        group.signal(frozen, Signal::CONT);
        group.until("its share", |lines| owned(lines, frozen) > 0);
    }
    group.produce(200);
    group.drained();
    let before = group.lines().len();
    group.signal(frozen, Signal::CONT);
    group.until("that it knows", |lines| {
        lines[before..].iter().any(|(worker, event)| {
            *worker == frozen && matches!(event["event"].as_str(), Some("fenced" | "session_lost"))
        })
    });
    group.until("that it joins again", |lines| {
        let taken = |(own, event): &Line| *own == frozen && event["event"] == "taken";
        lines[before..].iter().any(taken)
    });
    group.produce(200);
    group.drained();
    let lines = group.stop(&[]);
    assert_order(&lines);
    // Whoever handled a message had taken the partition under just that epoch.
    let mut taken = BTreeSet::new();
    for (worker, event) in &lines {
        let key = || {
            (
                *worker,
                event["partition"].to_string(),
                event["epoch"].as_u64(),
            )
        };
        match event["event"].as_str() {
            Some("taken") => drop(taken.insert(key())),
            Some("message") => assert!(taken.contains(&key()), "{event}"),
            _ => {}
        }
    }
}
