//! Groups of real workers, operated while they run.

use std::process::Stdio;

use rustix::process::Signal;

use super::common::{Group, Line, messages};
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

#[test]
fn a_served_checkpoint_moves_only_by_force_and_its_owner_is_fenced() {
    let mut group = Group::new(1);
    group.produce(30);
    let worker = group.consume();
    group.drained();
    let set = ["checkpoint", "set", "-p", "0", "--next", "10"];
    let refused = of_group(&group, &set, &SOURCE);
    assert_eq!(refused.code, Some(4), "{}", refused.err);
    assert!(
        refused.err.contains("is being served by worker-0"),
        "{}",
        refused.err
    );
    let forced = of_group(&group, &set, &[&SOURCE[..], &["--force"]].concat());
    assert_eq!(forced.code, Some(0), "{}", forced.err);
    // Its next commit is refused; it drops what it had, and goes on at the new place.
    group.produce(1);
    group.until("the owner to be fenced", |lines| {
        lines.iter().any(|(_, event)| event["event"] == "fenced")
    });
    group.until("everything from there on again", |lines| {
        (10..31).all(|offset| handled(lines, offset) >= if offset < 30 { 2 } else { 1 })
    });
    assert_eq!(handled(&group.lines(), 9), 1, "nothing below");
    group.until_status("the new epoch", |status| {
        let partition = &status["partitions"][0];
        partition["epoch"] == 3 && partition["next_offset"] == 31
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
        (0..31).all(|offset| {
            let own = lines.iter().filter(|(own, _)| *own == again);
            let own: Vec<Line> = own.cloned().collect();
            handled(&own, offset) == 1
        })
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
    let mut group = Group::on(&url, super::common::CONFIG, 1);
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
