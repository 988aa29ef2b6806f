//! The short way through chaos: a few scenarios with a small load, on every kind of stream.
//!
//! Nothing here depends on how fast the machine is: the program waits for what must happen, and
//! sessions last long where nobody dies.

use std::process::Command;

/// What is played, one after the other: moves in peace, deaths, a freeze.
const COMING_AND_GOING: &str = "join,leave,kill,kill-leader,freeze";
/// Beside that: few partitions, a worker that wakes up beside its successor, and messages that take
/// long and that kill.
const ODDITIES: &str = "six-on-three,frozen-predecessor,slow,killing-message";
/// In these nobody dies or freezes.
const PEACEFUL: [&str; 4] = ["join", "leave", "six-on-three", "slow"];

fn play(stream: &str, scenarios: &str) {
    let played = Command::new(env!("CARGO_BIN_EXE_parti-chaos"))
        .args(["jetstream", "--only", scenarios, "--stream", stream])
        .args(["--rate", "120", "--partitions", "12", "--slow", "5s"])
        .args(["-o", "json"])
        .output()
        .expect("the program starts");
    let rows = String::from_utf8_lossy(&played.stdout);
    let story = String::from_utf8_lossy(&played.stderr);
    println!("{rows}");
    assert_eq!(
        rows.lines().count(),
        scenarios.split(',').count(),
        "a row for each scenario\n{story}"
    );
    for row in rows.lines() {
        let row: serde_json::Value = serde_json::from_str(row).expect("a JSON object");
        let count = |name: &str| row[name].as_u64().expect("a number");
        assert!(count("published") > 0, "{row}\n{story}");
        assert_eq!(count("never_handled"), 0, "{row}\n{story}");
        assert_eq!(count("out_of_order"), 0, "{row}\n{story}");
        assert!(count("repeated") <= count("allowed"), "{row}\n{story}");
        let name = row["scenario"].as_str().expect("a name");
        if PEACEFUL.contains(&name) {
            assert_eq!(count("repeated"), 0, "{row}\n{story}");
        }
    }
    assert!(played.status.success(), "a verdict is bad\n{rows}\n{story}");
}

/// All at once: they mostly wait, for sessions to end.
#[test]
fn nothing_is_lost_on_any_kind_of_stream() {
    std::thread::scope(|scope| {
        for stream in ["limits", "unacked", "workqueue"] {
            for scenarios in [COMING_AND_GOING, ODDITIES] {
                scope.spawn(move || play(stream, scenarios));
            }
        }
    });
}

#[test]
fn what_is_not_there_is_said() {
    let played = Command::new(env!("CARGO_BIN_EXE_parti-chaos"))
        .args(["jetstream", "--only", "rain"])
        .output()
        .expect("the program starts");
    assert!(!played.status.success());
    let said = String::from_utf8_lossy(&played.stderr);
    assert!(said.contains("no scenario rain"), "{said}");
}
