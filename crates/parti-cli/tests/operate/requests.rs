//! What operators ask of running groups: on every store, with a leader and without.

use std::collections::BTreeMap;

use parti_servers::{etcd, nats, postgres};
use rustix::process::Signal;
use serde_json::Value;

use super::common::{CONFIG, Group, messages};
use super::scene::{Said, parti};

const PARTITIONS: usize = 6;

struct Desk {
    group: Group,
    store: String,
}

impl Desk {
    /// Two workers that share everything.
    fn new(store: &str, config: &str) -> Self {
        let mut group = Group::on(store, config, PARTITIONS as u32);
        group.produce(60);
        group.consume();
        group.consume();
        group.until_status("a share for each", |status| shares(status) == [3, 3]);
        let store = store.to_owned();
        Self { group, store }
    }

    fn ask(&self, words: &[&str]) -> Said {
        let of_group = ["--store", &self.store, "--group", "g", "--timeout", "100s"];
        let reason = ["--by", "alice", "--why", "a test"];
        parti(
            self.group.folder(),
            &[words, &of_group, &reason].concat(),
            "",
        )
    }

    #[track_caller]
    fn done(&self, words: &[&str]) -> Value {
        let said = self.ask(words);
        assert_eq!(said.code, Some(0), "{words:?}: {}", said.err);
        self.group.status().expect("a group")
    }

    #[track_caller]
    fn refused(&self, words: &[&str], code: i32, why: &str) {
        let said = self.ask(words);
        assert_eq!(said.code, Some(code), "{words:?}: {}", said.err);
        assert!(said.err.contains(why), "{}", said.err);
    }
}

fn shares(status: &Value) -> Vec<u64> {
    let workers = status["workers"].as_array().into_iter().flatten();
    let here = workers.filter(|worker| worker["status"] == "live");
    here.filter_map(|worker| worker["partitions"].as_u64())
        .collect()
}

fn owner(status: &Value, partition: usize) -> String {
    let owner = status["partitions"][partition]["owner"].as_str();
    owner.unwrap_or("nobody").to_owned()
}

/// Everything that can be asked for gently, while messages flow.
fn gently(store: &str, config: &str) {
    let mut desk = Desk::new(store, config);
    let drained = desk.done(&["worker", "drain", "worker-1"]);
    assert_eq!(shares(&drained)[1], 0, "{drained}");
    assert_eq!(drained["workers"][1]["drained"], true);
    desk.refused(&["worker", "drain", "worker-0"], 4, "nobody else is there");
    desk.refused(
        &["partition", "move", "0", "--to", "worker-1"],
        4,
        "worker-1 is drained",
    );
    desk.group.produce(60);
    desk.group.drained();
    desk.done(&["worker", "undrain", "worker-1"]);
    desk.group
        .until_status("a share for each", |status| shares(status) == [3, 3]);

    let status = desk.group.status().expect("a group");
    let other = if owner(&status, 2) == "worker-0" {
        "worker-1"
    } else {
        "worker-0"
    };
    let moved = desk.done(&["partition", "move", "2", "--to", other]);
    assert_eq!(owner(&moved, 2), other);
    assert_eq!(moved["partitions"][2]["pinned_to"], other);

    let paused = desk.done(&["partition", "pause", "2", "4"]);
    assert_eq!(
        (owner(&paused, 2), owner(&paused, 4)),
        ("nobody".into(), "nobody".into())
    );
    assert_eq!(paused["partitions"][4]["paused"], true);
    desk.group.produce(60);
    let other_than_paused = |place: &(String, u64)| !["2", "4"].contains(&place.0.as_str());
    desk.group.until("all but what is paused", |lines| {
        messages(lines).filter(other_than_paused).count() == 120
    });
    let rested = messages(&desk.group.lines())
        .filter(|p| !other_than_paused(p))
        .count();
    assert_eq!(rested, 40, "nobody handled what is paused");
    desk.done(&["partition", "resume", "2", "4"]);
    desk.group.drained();
    desk.group
        .until_status("where it was put", |status| owner(status, 2) == other);
    desk.done(&["partition", "unpin", "2"]);

    let mut times: BTreeMap<(String, u64), u32> = BTreeMap::new();
    for place in messages(&desk.group.lines()) {
        *times.entry(place).or_default() += 1;
    }
    assert_eq!(times.len(), 180, "nothing was lost");
    assert!(
        times.values().all(|times| *times == 1),
        "nothing was repeated"
    );
    let history = [
        "group",
        "history",
        "--kind",
        "request",
        "--store",
        &desk.store,
    ];
    let history = parti(
        desk.group.folder(),
        &[&history[..], &["--group", "g"]].concat(),
        "",
    );
    for line in [
        "alice asked to drain worker-1 (a test): done",
        "alice asked to pause partition 4 (a test): done",
        "alice asked to unpin partition 2 (a test): done",
    ] {
        assert!(history.out.contains(line), "{}", history.out);
    }
    desk.group.stop(&[]);
}

pub fn leaderless() -> String {
    format!(
        "coordination: leaderless\nleaderless:\n  claim_interval: 500ms\n  heartbeat: 300ms\n  lease_ttl: 1500ms\n{CONFIG}"
    )
}

#[test]
fn a_file() {
    gently("sqlite:group.db", CONFIG);
}

#[test]
fn a_file_without_a_leader() {
    gently("sqlite:group.db", &leaderless());
}

#[test]
fn nats() {
    gently(&nats::Server::start().url(), CONFIG);
}

#[test]
fn nats_without_a_leader() {
    gently(&nats::Server::start().url(), &leaderless());
}

#[test]
fn etcd() {
    gently(&etcd::Server::start().url(), CONFIG);
}

#[test]
fn postgres() {
    gently(&postgres::Server::start().url(), CONFIG);
}

/// A worker whose handler never returns loses its partitions, though its heart beats.
fn evicted(config: &str) {
    let mut group = Group::on("sqlite:group.db", config, 2);
    let stuck = group.consume_with(&["--exec", "sleep 1000"]);
    group.produce(4);
    group.until_status("its share", |status| shares(status) == [2]);
    let well = group.consume();
    let desk = Desk {
        group,
        store: "sqlite:group.db".into(),
    };
    desk.group
        .until_status("another worker", |status| shares(status).len() == 2);
    desk.done(&["worker", "evict", "worker-0", "--for-good"]);
    desk.group.until("its end, with an error", |lines| {
        lines.iter().any(|(own, event)| {
            *own == stuck && event["event"] == "stopped" && event["error"].is_string()
        })
    });
    desk.group.drained();
    desk.refused(
        &["worker", "evict", "worker-9"],
        2,
        "is no worker of group g",
    );
    desk.group.signal(well, Signal::TERM);
}

#[test]
fn a_worker_that_hangs_is_evicted() {
    evicted(CONFIG);
}

#[test]
fn a_worker_that_hangs_is_evicted_without_a_leader() {
    evicted(&leaderless());
}

/// The only worker is evicted for good: it leads, too, and nobody comes after it.
fn the_last(config: &str) {
    let mut group = Group::on("sqlite:group.db", config, 2);
    let last = group.consume();
    group.serving(last);
    let desk = Desk {
        group,
        store: "sqlite:group.db".into(),
    };
    let evicted = desk.done(&["worker", "evict", "worker-0", "--for-good"]);
    assert_eq!(evicted["workers"][0]["status"], "evicted", "{evicted}");
    desk.group.until("its end, with an error", |lines| {
        lines.iter().any(|(own, event)| {
            *own == last && event["event"] == "stopped" && event["error"].is_string()
        })
    });
}

#[test]
fn the_only_worker_is_evicted_for_good() {
    the_last(CONFIG);
}

#[test]
fn the_only_worker_is_evicted_for_good_without_a_leader() {
    the_last(&leaderless());
}

#[test]
fn nobody_is_asked_where_nobody_is() {
    let mut group = Group::new(2);
    group.produce(2);
    let worker = group.consume();
    group.drained();
    group.signal(worker, Signal::TERM);
    group.until("its last word", |lines| {
        lines.iter().any(|(_, event)| event["event"] == "stopped")
    });
    let desk = Desk {
        group,
        store: "sqlite:group.db".into(),
    };
    desk.refused(&["partition", "pause", "0"], 4, "has no workers that could");
}

/// Nobody is left who could end the session of a worker that was killed.
#[test]
fn the_dead_are_evicted_though_nobody_is_left_without_a_leader() {
    let mut desk = Desk::new("sqlite:group.db", &leaderless());
    for worker in 0..2 {
        desk.group.signal(worker, Signal::KILL);
    }
    desk.group.produce(6);
    let evict = ["worker", "evict", "worker-1", "--silence", "3s"];
    let evicted = desk.done(&evict);
    assert_eq!(evicted["workers"][1]["status"], "evicted", "{evicted}");
    assert_eq!(evicted["workers"][0]["status"], "live", "{evicted}");
    desk.done(&evict);
    // Whoever comes takes over from both, as soon as the other one was silent for long enough.
    desk.group.consume();
    desk.group.drained();
}
