//! A topic that was made anew under a group.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use parti::Fatal;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::common::Group;
use super::scene::{Said, parti};

const NAMED: [&str; 4] = ["--store", "sqlite:group.db", "--group", "g"];
const SOURCE: [&str; 4] = ["--source", "log:log", "--topic", "t"];
const RESET: [&str; 5] = ["checkpoint", "reset", "--all", "--to", "earliest"];

fn asked(group: &Group, what: &[&str]) -> Said {
    parti(group.folder(), &[what, &NAMED, &SOURCE].concat(), "")
}

#[track_caller]
fn says(said: &Said, code: i32, text: &str) {
    assert_eq!(said.code, Some(code), "{}", said.err);
    let all = format!("{}{}", said.out, said.err);
    assert!(all.contains(text), "{all}");
}

/// What is left to do in all partitions.
fn lag(status: &Value) -> Option<u64> {
    let all = status["partitions"].as_array().into_iter().flatten();
    all.map(|own| own["lag"].as_u64()).sum()
}

/// Every partition's place and lag, as `partition list` has them.
fn lags(group: &Group) -> Vec<(Value, Value)> {
    let list = asked(group, &["partition", "list", "-o", "json"]);
    let list: Vec<Value> = serde_json::from_str(&list.out).expect("a list");
    let lag = |own: &Value| (own["next_offset"].clone(), own["lag"].clone());
    list.iter().map(lag).collect()
}

#[test]
fn a_group_goes_on_with_a_topic_made_anew_once_all_checkpoints_are_reset() {
    let mut group = Group::new(2);
    group.produce(20);
    let killed = group.consume();
    group.drained();
    group.until_status("the last commit", |status| lag(status) == Some(0));
    group.signal(killed, Signal::KILL);
    std::fs::remove_dir_all(group.folder().join("log")).expect("there");
    let create = ["topic", "create", "--partitions", "2"];
    let create = [&create[..], &SOURCE].concat();
    assert_eq!(parti(group.folder(), &create, "").code, Some(0));
    group.produce(4);

    // Everybody says the same.
    let why = Fatal::StreamReplaced.to_string();
    assert!(why.contains("parti checkpoint reset --all"), "{why}");
    says(&asked(&group, &["consume"]), 4, &why);
    says(&asked(&group, &["doctor"]), 1, &why);
    says(&asked(&group, &["partition", "list"]), 0, &why);
    assert!(lags(&group).iter().all(|(_, lag)| lag.is_null()));
    let one = ["checkpoint", "reset", "-p", "0", "--to", "earliest"];
    says(&asked(&group, &one), 4, &why);
    let set = ["checkpoint", "set", "-p", "0", "--next", "1"];
    says(&asked(&group, &set), 4, &why);
    let would = "would go on with this one";
    let dry = [&RESET[..], &["--dry-run"]].concat();
    says(&asked(&group, &dry), 0, would);

    // The session of the killed worker has no end yet, and nobody is there to end it.
    says(&asked(&group, &RESET), 4, "is being served by worker-0");
    let force = [&RESET[..], &["--force", "--silence", "3s"]].concat();
    says(&asked(&group, &force), 0, "goes on with this one now");
    let history = asked(&group, &["group", "history"]);
    assert_eq!(history.code, Some(2), "it has no source: {}", history.err);
    let history = parti(
        group.folder(),
        &[&["group", "history"], &NAMED[..]].concat(),
        "",
    );
    says(&history, 0, "had the group go on with another source");

    group.consume();
    group.until_status("the new messages", |status| {
        lag(status) == Some(0) && status["partitions"][0]["next_offset"] != 0
    });
    let places: Vec<_> = lags(&group).into_iter().map(|(next, _)| next).collect();
    let sum: Option<u64> = places.iter().map(Value::as_u64).sum();
    assert_eq!(sum, Some(4));
    group.stop(&[killed]);
}

/// Somebody loses patience with a command that waits until sessions are silent.
#[test]
fn a_take_over_that_is_stopped_in_time_changes_nothing() {
    let mut group = Group::new(1);
    group.produce(2);
    let killed = group.consume();
    group.drained();
    group.until_status("the last commit", |status| lag(status) == Some(0));
    group.signal(killed, Signal::KILL);
    std::fs::remove_dir_all(group.folder().join("log")).expect("there");
    let create = ["topic", "create", "--partitions", "1"];
    let create = [&create[..], &SOURCE].concat();
    assert_eq!(parti(group.folder(), &create, "").code, Some(0));
    let mut reset = Command::new(env!("CARGO_BIN_EXE_parti"))
        .current_dir(group.folder())
        .args([&RESET[..], &NAMED, &SOURCE, &["--force", "--silence", "1h"]].concat())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    let mut said = BufReader::new(reset.stderr.take().expect("piped"));
    let mut waits = String::new();
    said.read_line(&mut waits).expect("a line");
    assert!(waits.contains("stay silent for"), "{waits}");
    kill_process(Pid::from_child(&reset), Signal::INT).expect("there");
    let mut told = String::new();
    said.read_to_string(&mut told).expect("text");
    assert_eq!(reset.wait().expect("ended").code(), Some(130), "{told}");
    let last = "parti: stopped: 0 checkpoints changed; the group is as it was";
    assert_eq!(told.lines().last(), Some(last), "{told}");
    // It is no half taken over: with its own topic it would go on.
    let would = "would go on with this one";
    let dry = [&RESET[..], &["--dry-run"]].concat();
    says(&asked(&group, &dry), 0, would);
    assert!(lags(&group).iter().all(|(next, _)| *next == 2));
    group.stop(&[killed]);
}

#[test]
fn a_group_whose_workers_live_takes_over_no_other_topic() {
    let mut group = Group::new(2);
    group.produce(2);
    group.consume();
    group.drained();
    let made = [
        &[
            "topic",
            "create",
            "--partitions",
            "1",
            "--source",
            "log:log",
        ],
        &["--topic", "other"][..],
    ];
    assert_eq!(parti(group.folder(), &made.concat(), "").code, Some(0));
    let of_other = ["--source", "log:log", "--topic", "other", "--force"];
    let refused = parti(
        group.folder(),
        &[&RESET[..], &NAMED, &of_other].concat(),
        "",
    );
    says(&refused, 4, "worker-0 is live");
    // That one has fewer: there is a way, and it is another command.
    let both = [
        "checkpoint",
        "reset",
        "-p",
        "0",
        "-p",
        "1",
        "--to",
        "earliest",
    ];
    let refused = parti(group.folder(), &[&both[..], &NAMED, &of_other].concat(), "");
    says(
        &refused,
        2,
        "partition 1: the source has none of this id; it is not",
    );
    says(&refused, 2, "`parti checkpoint reset --all`");
    group.until_status("its own topic, as before", |status| {
        lag(status) == Some(0) && status["partitions"][0]["next_offset"] == 1
    });
    group.stop(&[]);
}
