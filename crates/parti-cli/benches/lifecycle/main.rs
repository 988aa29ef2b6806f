//! How long a group needs after a join, a leave, a kill, and the kill of its leader: from the action
//! until every partition has exactly one serving owner again. Real processes (on the memory store,
//! which one process has for itself: workers with a runtime each), every store, both ways of
//! coordination.
//!
//! ```text
//! cargo bench -p parti-cli --bench lifecycle [-- STORE]
//! ```

#[path = "../../tests/common/mod.rs"]
mod common;
mod memory;

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use common::{Group, Line};
use jiff::Timestamp;
use parti_servers::{etcd, nats, postgres};
use rustix::process::Signal;

const PARTITIONS: u32 = 100;

/// The longest time of so many rounds counts.
const ROUNDS: usize = 2;

/// One heartbeat and a little more: a worker that is killed then has just renewed its session, which
/// is the worst moment.
const REST: Duration = Duration::from_millis(2_050);

fn config(coordination: &str) -> String {
    format!(
        "coordination: {coordination}\nheartbeat_interval: 2s\nheartbeat_ttl: 5s\n\
         planned_scale_window: 0s\nexpected_workers: 3\nassignment:\n  rebalance_cooldown: 0s\n\
         processing:\n  start: earliest\n"
    )
}

/// Workers of one group, by number.
trait Crew {
    /// Starts one.
    fn join(&mut self) -> usize;
    /// Asks one to leave.
    fn leave(&mut self, worker: usize);
    /// Ends one without a goodbye.
    fn kill(&mut self, worker: usize);
    /// Waits until what all said is as wanted.
    fn until(&self, wanted: &dyn Fn(&[Line]) -> bool);
    /// What all said so far.
    fn lines(&self) -> Vec<Line>;
}

impl Crew for Group {
    fn join(&mut self) -> usize {
        self.consume()
    }

    fn leave(&mut self, worker: usize) {
        self.signal(worker, Signal::TERM);
    }

    fn kill(&mut self, worker: usize) {
        self.signal(worker, Signal::KILL);
    }

    fn until(&self, wanted: &dyn Fn(&[Line]) -> bool) {
        Group::until(self, "everything served", wanted);
    }

    fn lines(&self) -> Vec<Line> {
        Group::lines(self)
    }
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
fn settled(group: &dyn Crew, alive: &[usize], dead: &[usize]) -> Timestamp {
    group.until(&|lines| {
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

fn leader(group: &dyn Crew, alive: &[usize]) -> Option<usize> {
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

fn since(began: Timestamp, until: Timestamp) -> f64 {
    until.duration_since(began).as_secs_f64()
}

fn now() -> Timestamp {
    Timestamp::try_from(SystemTime::now()).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn measure(store: &str, url: &str, coordination: &str) {
    let mut group = Group::on(url, &config(coordination), PARTITIONS);
    row(store, coordination, &mut group);
}

/// The longest times of all rounds.
#[derive(Default)]
struct Worst {
    join: f64,
    leave: f64,
    kill: f64,
    kill_leader: Option<f64>,
}

/// A group of three at rest at the beginning and the end of every round.
fn row(store: &str, coordination: &str, group: &mut dyn Crew) {
    let mut alive: Vec<usize> = (0..3).map(|_| group.join()).collect();
    let mut dead = Vec::new();
    settled(group, &alive, &dead);
    let mut worst = Worst::default();
    for _ in 0..ROUNDS {
        let began = rested();
        alive.push(group.join());
        let took = since(began, settled(group, &alive, &dead));
        worst.join = worst.join.max(took);

        let gone = follower(group, &alive);
        alive.retain(|worker| *worker != gone);
        let began = rested();
        group.leave(gone);
        let took = since(began, settled(group, &alive, &dead));
        worst.leave = worst.leave.max(took);

        let gone = follower(group, &alive);
        let took = killed(group, gone, &mut alive, &mut dead);
        worst.kill = worst.kill.max(took);

        if let Some(gone) = leader(group, &alive) {
            let took = killed(group, gone, &mut alive, &mut dead);
            worst.kill_leader = Some(worst.kill_leader.unwrap_or_default().max(took));
        }
    }
    let Worst {
        join, leave, kill, ..
    } = worst;
    let kill_leader = worst.kill_leader;
    let kill_leader = kill_leader.map_or("–".to_owned(), |took| format!("{took:.2} s"));
    println!(
        "| {store} | {coordination} | {join:.2} s | {leave:.2} s | {kill:.2} s | {kill_leader} |"
    );
}

/// Kills a worker and says how long that took; then another one comes in its place.
fn killed(group: &mut dyn Crew, gone: usize, alive: &mut Vec<usize>, dead: &mut Vec<usize>) -> f64 {
    alive.retain(|worker| *worker != gone);
    dead.push(gone);
    let began = rested();
    group.kill(gone);
    let took = since(began, settled(group, alive, dead));
    alive.push(group.join());
    settled(group, alive, dead);
    took
}

fn follower(group: &dyn Crew, alive: &[usize]) -> usize {
    let leads = leader(group, alive);
    let found = alive.iter().find(|worker| Some(**worker) != leads);
    found.copied().expect("more than one")
}

/// Lets the group rest. Without a leader, a worker does not claim again at once what it just let go
/// of.
fn rested() -> Timestamp {
    std::thread::sleep(REST);
    now()
}

fn main() {
    let filter = std::env::args()
        .skip(1)
        .find(|argument| !argument.starts_with('-'));
    let wanted = |store: &str| filter.as_deref().is_none_or(|filter| filter == store);
    println!(
        "3 workers, {PARTITIONS} partitions, heartbeat 2 s, TTL 5 s, no windows; the longest of \
         {ROUNDS} rounds"
    );
    println!("| store | coordination | join | leave | kill | kill of the leader |");
    println!("|---|---|---|---|---|---|");
    let both = |store: &str, url: &dyn Fn() -> String| {
        for coordination in ["leader", "leaderless"] {
            measure(store, &url(), coordination);
        }
    };
    if wanted("memory") {
        for coordination in ["leader", "leaderless"] {
            let mut crew = memory::InProcess::new(&config(coordination), PARTITIONS);
            row("memory", coordination, &mut crew);
        }
    }
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
