//! `parti watch` on a terminal: what it draws, and that the terminal is given back.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::common::{CONFIG, Group};
use super::scene::{Desk, billing, checkpoint, parti};
use super::tty::Tty;

const WATCH: [&str; 5] = ["watch", "--store", "sqlite:group.db", "--group", "billing"];
/// The other screen is left, and there is a cursor again.
const BACK: [&str; 2] = ["\u{1b}[?1049l", "\u{1b}[?25h"];

async fn stage() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("group.db").display());
    billing(&url).await;
    (folder, url)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_drawn_and_changes_are_and_q_gives_the_terminal_back() {
    let (folder, url) = stage().await;
    let mut tty = Tty::start(folder.path(), &WATCH, 80, 24);
    tty.until(&["worker-0 leads, term 3", "1 owner gone", "1 free", "ready"]);
    assert!(!tty.is_ordinary(), "keys act at once");
    let desk = Desk::open(&url, "billing").await;
    desk.put(vec![checkpoint("4", None, 1, None)]).await;
    tty.until(&["5 partitions", "2 free", "0 AA!··"]);
    tty.press("?");
    tty.until(&["end the view"]);
    tty.press("qq");
    assert_eq!(tty.ended().code(), Some(0));
    tty.until_sent(&BACK);
    assert!(tty.is_ordinary());
}

/// How many partitions each worker that is there serves.
fn shares(status: &Value) -> Vec<u64> {
    let workers = status["workers"].as_array().into_iter().flatten();
    let shares = workers.filter_map(|worker| worker["partitions"].as_u64());
    shares.collect()
}

#[test]
fn keys_drain_a_worker_of_a_running_group_and_what_is_refused_is_said() {
    let mut group = Group::on("sqlite:group.db", CONFIG, 6);
    group.produce(30);
    group.consume();
    group.consume();
    group.until_status("a share for each", |status| shares(status) == [3, 3]);
    let of_group = ["--store", "sqlite:group.db", "--group", "g"];
    let watch = [&["watch"], &of_group[..], &["--timeout", "100s"]].concat();
    let mut tty = Tty::start(group.folder(), &watch, 160, 50);
    // Either of them may lead.
    tty.until(&[
        ">A",
        " worker-1  live",
        "2 workers · 6 partitions",
        "Events",
    ]);
    // The second one; and nothing is done before it is confirmed.
    tty.press("\u{1b}[B");
    tty.until(&[">B"]);
    tty.press("d");
    tty.until(&["drain worker-1, why: _"]);
    tty.press("new disk\r");
    tty.until(&["drain worker-1? y/n   (new disk)"]);
    let before = group.status().expect("a group");
    assert_eq!(shares(&before), [3, 3]);
    tty.press("y");
    tty.until(&[
        " drain worker-1: done after ",
        "asked to drain worker-1 (new disk): done",
        "drained",
        "0 AAAAAA",
    ]);
    let after = group.status().expect("a group");
    assert_eq!(shares(&after), [6, 0]);
    assert_eq!(after["workers"][1]["drained"], true);
    // What the group refuses, it says why; and everything goes on.
    tty.press("\u{1b}[A");
    tty.until(&[">A"]);
    tty.press("d\ry");
    tty.until(&["refused: cannot drain worker-0: nobody else is there"]);
    group.produce(30);
    group.drained();
    tty.press("q");
    assert_eq!(tty.ended().code(), Some(0));
    assert!(tty.is_ordinary());
    let history = [&["group", "history", "--kind", "request"], &of_group[..]].concat();
    let told = parti(group.folder(), &history, "");
    let lines: Vec<&str> = told.out.lines().skip(1).collect();
    assert_eq!(lines.len(), 2, "{}", told.out);
    assert!(
        lines[0].ends_with("drain worker-1 (new disk): done"),
        "{}",
        lines[0]
    );
    assert!(
        lines[1].contains("drain worker-0: refused, nobody else"),
        "{}",
        lines[1]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_gives_the_terminal_back() {
    let (folder, _) = stage().await;
    let mut tty = Tty::start(folder.path(), &WATCH, 160, 50);
    tty.until(&["worker-0 leads, term 3"]);
    let pid = i32::try_from(tty.child.id()).ok().and_then(Pid::from_raw);
    kill_process(pid.expect("a process"), Signal::TERM).expect("sent");
    assert_eq!(tty.ended().code(), Some(0));
    tty.until_sent(&BACK);
    assert!(tty.is_ordinary());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_terminal_it_says_what_to_use_instead() {
    let (folder, _) = stage().await;
    let told = parti(folder.path(), &WATCH, "");
    assert_eq!(told.code, Some(2), "{}", told.err);
    assert!(told.err.contains("`parti group describe`"), "{}", told.err);
    assert!(told.out.is_empty());
}
