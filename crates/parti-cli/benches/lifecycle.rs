//! How long a group needs after a join, a leave, a kill, and the kill of its leader: from the action
//! until every partition has exactly one serving owner again. Real processes, every store, both
//! ways of coordination.
//!
//! ```text
//! cargo bench -p parti-cli --bench lifecycle [-- STORE]
//! ```

#[path = "../tests/common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::time::SystemTime;

use common::{Group, Line};
use jiff::{SignedDuration, Timestamp};
use parti_servers::{etcd, nats, postgres};
use rustix::process::Signal;

const PARTITIONS: u32 = 100;

fn config(coordination: &str) -> String {
    format!(
        "coordination: {coordination}\nheartbeat_interval: 2s\nheartbeat_ttl: 5s\n\
         planned_scale_window: 0s\nexpected_workers: 3\nassignment:\n  rebalance_cooldown: 0s\n\
         processing:\n  start: earliest\n"
    )
}

/// Who serves what, by what the workers said so far, and since when it has been so.
struct Served {
    owners: BTreeMap<String, usize>,
    since: Timestamp,
}

fn served(lines: &[Line], dead: &[usize]) -> Served {
    let mut owners = BTreeMap::new();
    let mut since = Timestamp::UNIX_EPOCH;
    for (worker, event) in lines {
        let partition = || event["partition"].as_str().unwrap_or_default().to_owned();
        match event["event"].as_str() {
            Some("taken") => drop(owners.insert(partition(), *worker)),
            Some("released" | "fenced") if owners.get(&partition()) == Some(worker) => {
                owners.remove(&partition());
            }
            _ => continue,
        }
        let at = event["at"].as_str().and_then(|at| at.parse().ok());
        since = since.max(at.unwrap_or(since));
    }
    owners.retain(|_, owner| !dead.contains(owner));
    Served { owners, since }
}

/// Waits until each of these workers serves a fair part and together they serve everything.
fn settled(group: &Group, alive: &[usize], dead: &[usize]) -> Timestamp {
    group.until("everything served", |lines| {
        let served = served(lines, dead);
        let fair = PARTITIONS as usize / alive.len();
        let share = |worker: &usize| {
            served
                .owners
                .values()
                .filter(|owner| *owner == worker)
                .count()
        };
        served.owners.len() == PARTITIONS as usize
            && served.owners.values().all(|owner| alive.contains(owner))
            && alive.iter().all(|worker| share(worker) >= fair - fair / 5)
    });
    served(&group.lines(), dead).since
}

fn leader(group: &Group, alive: &[usize]) -> Option<usize> {
    let lines = group.lines();
    let leads = |worker: &&usize| {
        let mut own = lines
            .iter()
            .filter(|(own, event)| own == *worker && event["event"] == "leader");
        own.next_back()
            .is_some_and(|(_, event)| event["leader"] == true)
    };
    alive.iter().find(leads).copied()
}

fn seconds(since: Timestamp, until: Timestamp) -> String {
    let took: SignedDuration = until.duration_since(since);
    format!("{:.2} s", took.as_secs_f64())
}

fn now() -> Timestamp {
    Timestamp::try_from(SystemTime::now()).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn measure(store: &str, url: &str, coordination: &str) {
    let mut group = Group::on(url, &config(coordination), PARTITIONS);
    let mut alive: Vec<usize> = (0..3).map(|_| group.consume()).collect();
    let mut dead = Vec::new();
    settled(&group, &alive, &dead);

    let began = now();
    alive.push(group.consume());
    let join = seconds(began, settled(&group, &alive, &dead));

    let follower = |group: &Group, alive: &[usize]| {
        let leads = leader(group, alive);
        let found = alive.iter().find(|worker| Some(**worker) != leads);
        found.copied().expect("more than one")
    };
    let gone = follower(&group, &alive);
    alive.retain(|worker| *worker != gone);
    let began = now();
    group.signal(gone, Signal::TERM);
    let leave = seconds(began, settled(&group, &alive, &dead));

    let gone = follower(&group, &alive);
    alive.retain(|worker| *worker != gone);
    dead.push(gone);
    let began = now();
    group.signal(gone, Signal::KILL);
    let kill = seconds(began, settled(&group, &alive, &dead));

    alive.push(group.consume());
    settled(&group, &alive, &dead);
    let kill_leader = leader(&group, &alive).map_or("-".to_owned(), |gone| {
        alive.retain(|worker| *worker != gone);
        dead.push(gone);
        let began = now();
        group.signal(gone, Signal::KILL);
        seconds(began, settled(&group, &alive, &dead))
    });
    println!("| {store} | {coordination} | {join} | {leave} | {kill} | {kill_leader} |");
}

fn main() {
    let filter = std::env::args()
        .skip(1)
        .find(|argument| !argument.starts_with('-'));
    let wanted = |store: &str| filter.as_deref().is_none_or(|filter| filter == store);
    println!("3 workers, {PARTITIONS} partitions, heartbeat 2 s, TTL 5 s, no windows");
    println!("| store | coordination | join | leave | kill | kill of the leader |");
    println!("|---|---|---|---|---|---|");
    let both = |store: &str, url: &dyn Fn() -> String| {
        for coordination in ["leader", "leaderless"] {
            measure(store, &url(), coordination);
        }
    };
    if wanted("sqlite") {
        both("sqlite", &|| "sqlite:group.db".into());
    }
    if wanted("nats") {
        for coordination in ["leader", "leaderless"] {
            let server = nats::Server::start();
            measure("nats", &server.url(), coordination);
        }
    }
    if wanted("etcd") {
        for coordination in ["leader", "leaderless"] {
            let server = etcd::Server::start();
            measure("etcd", &server.url(), coordination);
        }
    }
    if wanted("postgres") {
        for coordination in ["leader", "leaderless"] {
            let server = postgres::Server::start();
            measure("postgres", &server.url(), coordination);
        }
    }
}
