//! Forced changes that do not go as planned: owners that do not answer, commands that are stopped.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::common::{CONFIG, Group};
use super::requests::leaderless;
use super::scene::parti;

const SOURCE: [&str; 4] = ["--source", "log:log", "--topic", "t"];
const SET: [&str; 6] = ["checkpoint", "set", "-p", "0", "--next", "3"];

/// The owner stands still for longer than its lease, and nobody is there to end its session. Nothing
/// arrives for it when it wakes.
fn frozen_owner(config: &str) {
    let server = parti_servers::nats::Server::start();
    let url = server.url();
    let mut group = Group::on(&url, config, 2);
    group.produce(20);
    let owner = group.consume();
    group.drained();
    group.until_status("the last commit", |status| {
        let all = status["partitions"].as_array().into_iter().flatten();
        all.map(|own| own["lag"].as_u64()).sum::<Option<u64>>() == Some(0)
    });
    group.signal(owner, Signal::STOP);
    // To the end of the log: nothing is handled again either.
    let end = group.status().expect("shown")["partitions"][0]["end"].to_string();
    let set = ["checkpoint", "set", "-p", "0", "--next", &end];
    let named = ["--store", &url, "--group", "g"];
    let force = ["--force", "--timeout", "4s", "--silence", "4s"];
    let forced = [&set[..], &named, &SOURCE, &force].concat();
    let forced = parti(group.folder(), &forced, "");
    assert_eq!(forced.code, Some(0), "{}", forced.err);
    let told =
        "worker-0 had not let go of it, and is fenced at its next commit, or when its lapsed lease";
    assert!(forced.err.contains(told), "{}", forced.err);
    group.signal(owner, Signal::CONT);
    group.until("that it is fenced", |lines| {
        lines.iter().any(|(_, event)| event["event"] == "fenced")
    });
    group.until_status("an owner, under a new epoch", |status| {
        let own = &status["partitions"][0];
        own["owner"] == "worker-0" && own["epoch"] == 3 && own["paused"] == false
    });
    group.stop(&[]);
}

#[test]
fn an_idle_owner_that_was_frozen_finds_out_that_it_was_fenced() {
    frozen_owner(CONFIG);
}

#[test]
fn an_idle_owner_that_was_frozen_finds_out_that_it_was_fenced_without_a_leader() {
    frozen_owner(&leaderless());
}

/// Somebody has no patience at all with an owner that is well, and has nothing to do.
fn impatient(config: &str) {
    let mut group = Group::on("sqlite:group.db", config, 1);
    group.produce(10);
    group.consume();
    group.drained();
    let named = ["--store", "sqlite:group.db", "--group", "g"];
    let force = ["--force", "--timeout", "5ms"];
    let forced = [&SET[..], &named, &SOURCE, &force].concat();
    let forced = parti(group.folder(), &forced, "");
    assert_eq!(forced.code, Some(0), "{}", forced.err);
    let waits = "1 partition to be let go of by worker-0; whoever has not done so is fenced after 10s \
                 (--silence: sooner an idle owner would not notice)\n";
    assert!(forced.err.starts_with(waits), "{}", forced.err);
    assert!(!forced.err.contains("had not let go"), "{}", forced.err);
    group.until_status("an owner at the new place, which goes on", |status| {
        let own = &status["partitions"][0];
        own["owner"] == "worker-0" && own["next_offset"] == 10 && own["epoch"] == 3
    });
    group.stop(&[]);
}

#[test]
fn an_idle_owner_is_not_fenced_however_short_the_patience() {
    impatient(CONFIG);
}

#[test]
fn an_idle_owner_is_not_fenced_however_short_the_patience_without_a_leader() {
    impatient(&leaderless());
}

/// A handler that does not return before somebody says so.
fn hanging(group: &mut Group) -> PathBuf {
    let open = group.folder().join("open");
    let handler = format!("while [ ! -e {} ]; do sleep 0.1; done", open.display());
    group.consume_with(&["--exec", &handler]);
    group.produce(5);
    group.until_status("its share", |status| {
        status["partitions"][0]["owner"] == "worker-0"
    });
    open
}

/// A forced change that has paused the partition, and waits.
fn waiting(group: &Group, store: &str, timeout: &str) -> Child {
    let set = Command::new(env!("CARGO_BIN_EXE_parti"))
        .current_dir(group.folder())
        .args(SET)
        .args(["--store", store, "--group", "g"])
        .args(SOURCE)
        .args(["--force", "--timeout", timeout, "--silence", "2s"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    group.until_status("a pause", |status| {
        status["partitions"][0]["paused"] == true
    });
    set
}

fn send(signal: Signal, to: &Child) {
    let pid = Pid::from_raw(i32::try_from(to.id()).expect("a pid")).expect("a pid");
    kill_process(pid, signal).expect("there");
}

/// How it ended, and what it said at last.
fn last_word(command: Child) -> (Option<i32>, String) {
    let ended = command.wait_with_output().expect("ended");
    let told = String::from_utf8_lossy(&ended.stderr).into_owned();
    (ended.status.code(), told)
}

/// The store goes while the command waits for an owner.
fn without_a_store(config: &str, signal: Option<Signal>, code: i32) {
    let server = parti_servers::nats::Server::start();
    let url = server.url();
    let mut group = Group::on(&url, config, 1);
    hanging(&mut group);
    let timeout = if signal.is_some() { "1h" } else { "2s" };
    let set = waiting(&group, &url, timeout);
    drop(server);
    if let Some(signal) = signal {
        send(signal, &set);
    }
    let (ended, told) = last_word(set);
    assert_eq!(ended, Some(code), "{told}");
    let last = told.lines().last().expect("a word");
    let remedy = "`parti partition resume 0 --group g --store …`";
    assert!(last.contains(remedy), "{told}");
    assert!(last.contains("paused"), "{told}");
}

#[test]
fn a_store_that_is_gone_half_way_is_why_it_ends_and_what_is_left_paused_is_named() {
    without_a_store(CONFIG, None, 3);
}

#[test]
fn a_store_that_is_gone_half_way_is_why_it_ends_without_a_leader() {
    without_a_store(&leaderless(), None, 3);
}

#[test]
fn ctrl_c_ends_the_wait_though_the_store_is_gone() {
    without_a_store(CONFIG, Some(Signal::INT), 130);
}

/// The owner does not let go, and somebody loses patience with the command.
fn stopped(config: &str, signal: Signal, code: i32) {
    let mut group = Group::on("sqlite:group.db", config, 1);
    let open = hanging(&mut group);
    let set = waiting(&group, "sqlite:group.db", "1h");
    send(signal, &set);
    let set = set.wait_with_output().expect("ended");
    let told = String::from_utf8_lossy(&set.stderr).into_owned();
    assert_eq!(set.status.code(), Some(code), "{told}");
    let last = "parti: stopped: 0 checkpoints changed; it left nothing paused";
    assert_eq!(told.lines().last(), Some(last), "{told}");
    let shown = String::from_utf8_lossy(&set.stdout).into_owned();
    assert!(shown.contains("not changed"), "{shown}");
    group.until_status("no pause", |status| {
        let own = &status["partitions"][0];
        own["paused"] == false && own["next_offset"] == 0
    });
    std::fs::write(&open, "").expect("written");
    group.until_status("the rest", |status| {
        status["partitions"][0]["next_offset"] == 5
    });
    let lines = group.stop(&[]);
    let fenced = lines.iter().any(|(_, event)| event["event"] == "fenced");
    assert!(!fenced, "nobody was");
}

#[test]
fn ctrl_c_resumes_what_a_forced_change_has_paused() {
    stopped(CONFIG, Signal::INT, 130);
}

#[test]
fn ctrl_c_resumes_what_a_forced_change_has_paused_without_a_leader() {
    stopped(&leaderless(), Signal::TERM, 143);
}

/// What an owner has handled and not yet committed comes with its release.
#[test]
fn a_row_that_was_refused_half_way_says_so() {
    let config = CONFIG.replace(
        "checkpoint_flush_interval: 200ms",
        "checkpoint_flush_interval: 1h",
    );
    let mut group = Group::on("sqlite:group.db", &config, 2);
    group.produce(20);
    group.consume();
    group.drained();
    let rows = "{\"partition\":\"0\",\"offset\":3}\n{\"partition\":\"1\",\"offset\":99}\n";
    let import = [
        "checkpoint",
        "import",
        "--store",
        "sqlite:group.db",
        "--group",
        "g",
    ];
    let import = [&import[..], &["--force", "-"]].concat();
    let partly = parti(group.folder(), &import, rows);
    assert_eq!(partly.code, Some(4), "{}", partly.err);
    assert!(
        partly.err.contains("1 checkpoint changed\n"),
        "{}",
        partly.err
    );
    let back = "partition 0 would go back from 10 to 4";
    assert!(partly.err.contains(back), "{}", partly.err);
    let row = |id: &str| -> Vec<&str> {
        let mut rows = partly
            .out
            .lines()
            .map(|row| row.split_whitespace().collect());
        rows.find(|row: &Vec<&str>| row[0] == id).expect("a row")
    };
    assert_eq!(
        row("0")[1..5],
        ["10", "10", "not", "changed"],
        "{}",
        partly.out
    );
    assert_eq!(row("1")[1..4], ["10", "100", "+90"], "{}", partly.out);
}
