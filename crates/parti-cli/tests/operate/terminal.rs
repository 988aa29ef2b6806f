//! `parti watch` on a terminal: what it draws, and that the terminal is given back.

use rustix::process::{Pid, Signal, kill_process};

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
