//! Groups of real workers, operated while they run.

use std::process::Stdio;

use rustix::process::Signal;

use super::common::{CONFIG, Group, Line, messages};
use super::requests::leaderless;
use super::scene::{Said, parti, said};

const STORE: [&str; 4] = ["--store", "sqlite:group.db", "--group", "g"];
const SOURCE: [&str; 4] = ["--source", "log:log", "--topic", "t"];

fn of_group(group: &Group, command: &[&str], more: &[&str]) -> Said {
    parti(group.folder(), &[command, &STORE, more].concat(), "")
}

/// How often a message was handled.
fn handled(lines: &[Line], offset: u64) -> usize {
    messages(lines).filter(|(_, own)| *own == offset).count()
}

/// Nothing arrives all the while: an owner that has nothing to commit hears of it, too.
fn forced_while_idle(store: &str, config: &str) {
    let mut group = Group::on(store, config, 2);
    let of_group = |group: &Group, command: &[&str], more: &[&str]| {
        let named = ["--store", store, "--group", "g"];
        parti(group.folder(), &[command, &named, more].concat(), "")
    };
    group.produce(30);
    group.consume();
    group.drained();
    group.until_status("the last commit", |status| lag(status) == Some(0));
    let reset = ["checkpoint", "reset", "--all", "--to", "earliest"];
    let refused = of_group(&group, &reset, &SOURCE);
    assert_eq!(refused.code, Some(4), "{}", refused.err);
    assert!(
        refused.err.contains("is being served by worker-0"),
        "{}",
        refused.err
    );
    let forced = of_group(&group, &reset, &[&SOURCE[..], &FORCE].concat());
    assert_eq!(forced.code, Some(0), "{}", forced.err);
    assert!(!forced.err.contains("had not let go"), "{}", forced.err);
    group.until("everything again", |lines| messages(lines).count() == 60);
    group.until_status("its commits, and no pause", |status| {
        let partitions = status["partitions"].as_array().into_iter().flatten();
        let mut each = partitions.map(|own| own["epoch"] == 3 && own["paused"] == false);
        lag(status) == Some(0) && each.all(|so| so)
    });
    let lines = group.lines();
    assert!(!lines.iter().any(|(_, event)| event["event"] == "fenced"));
    let history = of_group(&group, &["group", "history", "--kind", "request"], &[]);
    let why = "forced change of its checkpoint";
    for line in [
        "alice asked to pause partition 0".into(),
        format!("(for a {why})"),
        "alice set the checkpoint of".into(),
        format!("(after a {why}): done"),
    ] {
        assert!(history.out.contains(&line), "{line}: {}", history.out);
    }
    group.stop(&[]);
}

const FORCE: [&str; 5] = ["--force", "--timeout", "100s", "--by", "alice"];

fn lag(status: &serde_json::Value) -> Option<u64> {
    let partitions = status["partitions"].as_array()?;
    partitions.iter().map(|own| own["lag"].as_u64()).sum()
}

#[test]
fn a_forced_change_reaches_an_idle_owner() {
    forced_while_idle("sqlite:group.db", CONFIG);
}

#[test]
fn a_forced_change_reaches_an_idle_owner_without_a_leader() {
    forced_while_idle("sqlite:group.db", &leaderless());
}

#[test]
fn a_forced_change_reaches_an_idle_owner_on_nats() {
    let server = parti_servers::nats::Server::start();
    forced_while_idle(&server.url(), CONFIG);
}

#[test]
fn a_forced_change_reaches_an_idle_owner_on_nats_without_a_leader() {
    let server = parti_servers::nats::Server::start();
    forced_while_idle(&server.url(), &leaderless());
}

#[test]
fn a_checkpoint_that_was_paused_by_somebody_stays_so_after_a_forced_change() {
    let mut group = Group::new(2);
    group.produce(10);
    group.consume();
    group.drained();
    let pause = ["partition", "pause", "0", "--timeout", "100s"];
    let paused = of_group(&group, &pause, &[]);
    assert_eq!(paused.code, Some(0), "{}", paused.err);
    let reset = ["checkpoint", "reset", "--all", "--to", "earliest"];
    let forced = of_group(&group, &reset, &[&SOURCE[..], &FORCE].concat());
    assert_eq!(forced.code, Some(0), "{}", forced.err);
    group.until_status("only the other one resumed", |status| {
        let all = &status["partitions"];
        all[0]["paused"] == true && all[1]["paused"] == false && all[1]["owner"] == "worker-0"
    });
    let so = "partition 0 is paused; `parti partition resume` lets it go on";
    assert!(forced.err.contains(so), "{}", forced.err);
    let doctor = of_group(&group, &["doctor"], &SOURCE);
    assert!(doctor.out.contains(so), "{}", doctor.out);
    group.stop(&[]);
}

#[test]
fn an_owner_that_does_not_let_go_is_fenced_by_force() {
    let mut group = Group::new(1);
    let open = group.folder().join("open");
    let handler = format!("while [ ! -e {} ]; do sleep 0.1; done", open.display());
    let worker = group.consume_with(&["--exec", &handler]);
    group.produce(3);
    group.until_status("its share", |status| {
        status["partitions"][0]["owner"] == "worker-0"
    });
    let set = ["checkpoint", "set", "-p", "0", "--next", "1"];
    let forced = of_group(
        &group,
        &set,
        &[
            &SOURCE[..],
            &["--force", "--timeout", "1s", "--silence", "2s"],
        ]
        .concat(),
    );
    assert_eq!(forced.code, Some(0), "{}", forced.err);
    assert!(
        forced.err.contains("worker-0 had not let go of it"),
        "{}",
        forced.err
    );
    std::fs::write(&open, "").expect("written");
    group.until("the owner to be fenced", |lines| {
        lines.iter().any(|(_, event)| event["event"] == "fenced")
    });
    group.until_status("the rest, under a new epoch", |status| {
        let partition = &status["partitions"][0];
        partition["epoch"] == 3 && partition["next_offset"] == 3 && partition["paused"] == false
    });
    group.signal(worker, Signal::TERM);
    group.until("its last word", |lines| {
        lines.iter().any(|(_, event)| event["event"] == "stopped")
    });
    let reset = ["checkpoint", "reset", "--all", "--to", "earliest"];
    let reset = of_group(&group, &reset, &SOURCE);
    assert_eq!(reset.code, Some(0), "{}", reset.err);
    let again = group.consume();
    group.until("everything once more", |lines| {
        let own: Vec<Line> = lines
            .iter()
            .filter(|(own, _)| *own == again)
            .cloned()
            .collect();
        (0..3).all(|offset| handled(&own, offset) == 1)
    });
    group.stop(&[worker]);
}

#[test]
fn a_killed_worker_is_not_shown_as_if_nothing_were() {
    let mut group = Group::new(2);
    group.produce(4);
    let killed = group.consume();
    group.drained();
    group.signal(killed, Signal::KILL);
    // Nobody is there to end its session: it stays, and its beat grows old.
    group.until_status("an old beat", |status| {
        let worker = &status["workers"][0];
        let renewed = worker["renewed_ms"].as_u64().expect("it said when");
        let now = jiff::Timestamp::now().as_millisecond().unsigned_abs();
        worker["status"] == "live" && now > renewed + 2_000
    });
    let table = said(group.folder(), &[&["status"], &STORE[..]].concat());
    let line = table
        .lines()
        .find(|line| line.starts_with("worker-0"))
        .expect("shown");
    assert!(line.contains(" ago  "), "{table}");
}

#[test]
fn a_group_is_deleted_once_its_workers_are_gone() {
    let mut group = Group::new(2);
    group.produce(10);
    let worker = group.consume();
    group.drained();
    let delete = ["group", "delete", "--silence", "60s"];
    let refused = of_group(&group, &delete, &[]);
    assert_eq!(refused.code, Some(4), "{}", refused.err);
    assert!(
        refused
            .err
            .contains("worker-0 is live: it renewed its session just now"),
        "{}",
        refused.err
    );
    // It was left alone.
    group.produce(10);
    group.drained();
    group.signal(worker, Signal::KILL);
    let deleted = of_group(&group, &["group", "delete", "--silence", "3s"], &[]);
    assert_eq!(deleted.code, Some(0), "{}", deleted.err);
    assert!(
        deleted.err.contains("ended 1 session after 3s of silence"),
        "{}",
        deleted.err
    );
    let gone = of_group(&group, &["group", "describe"], &[]);
    assert_eq!(gone.code, Some(2), "{}", gone.err);
    // A new group of the same name begins anew.
    let again = group.consume();
    group.until("everything again", |lines| {
        let own = lines
            .iter()
            .filter(|(own, event)| *own == again && event["event"] == "message");
        own.count() == 20
    });
    group.stop(&[worker]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_joins_a_group_that_is_being_deleted() {
    let group = Group::new(1);
    let url = format!("sqlite:{}", group.folder().join("group.db").display());
    let desk = super::scene::Desk::open(&url, "g").await;
    // As a deletion that was interrupted leaves it: the record is closed, the rest still there.
    let worker = group.consumer().stdout(Stdio::null()).spawn();
    let mut worker = worker.expect("runs");
    group.until_status("the group", |status| {
        status["workers"][0]["status"] == "live"
    });
    worker.kill().expect("it runs");
    worker.wait().expect("ended");
    desk.close().await;
    let refused = group.consumer().output().expect("runs");
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(4), "{told}");
    assert!(
        told.contains("being deleted (`parti group delete` ends that)"),
        "{told}"
    );
    let listed = said(
        group.folder(),
        &["group", "list", "--store", "sqlite:group.db"],
    );
    assert!(listed.contains("being deleted"), "{listed}");
    let deleted = of_group(&group, &["group", "delete", "--silence", "2s"], &[]);
    assert_eq!(deleted.code, Some(0), "{}", deleted.err);
}

#[test]
fn a_worker_that_sleeps_through_the_end_of_its_group_stops() {
    let server = parti_servers::nats::Server::start();
    let url = server.url();
    let mut group = Group::on(&url, CONFIG, 1);
    group.produce(5);
    let sleeper = group.consume();
    group.drained();
    group.signal(sleeper, Signal::STOP);
    let delete = ["group", "delete", "--store", &url, "--group", "g"];
    let delete = [&delete[..], &["--silence", "3s"]].concat();
    let deleted = parti(group.folder(), &delete, "");
    assert_eq!(deleted.code, Some(0), "{}", deleted.err);
    group.signal(sleeper, Signal::CONT);
    group.until("its end", |lines| {
        let ended =
            |event: &serde_json::Value| event["event"] == "stopped" && event["error"].is_string();
        lines.iter().any(|(_, event)| ended(event))
    });
}
