//! Each command's output and mistakes.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn parti(folder: &Path, arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_parti"))
        .current_dir(folder)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    let mut stdin = child.stdin.take().expect("piped");
    // A command that ends early does not read its input.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().expect("ended")
}

/// It fails with this code, and says this in its only output, on stderr.
fn refused(folder: &Path, arguments: &[&str], code: i32, said: &str) {
    let output = parti(folder, arguments, "");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
    assert!(text.contains(said), "{arguments:?}: {text}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
}

#[test]
fn the_demo_loses_nothing_and_keeps_the_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let arguments = ["demo", "--for", "8s", "--rate", "200", "-o", "json"];
    let output = parti(folder.path(), &arguments, "");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{told}");
    let audit: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(audit["produced"], 1600, "{audit} {told}");
    assert_eq!(
        (&audit["lost"], &audit["out_of_order"]),
        (&0.into(), &0.into()),
        "{audit}"
    );
    assert_eq!(audit["events"].as_array().map(Vec::len), Some(3));
}

#[test]
fn lines_go_in_and_a_topic_shows_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let lines = "{\"customer\":\"a\",\"n\":1}\n{\"customer\":\"a\",\"n\":2}\n";
    let produce = [
        "produce",
        "--source",
        "log:log",
        "--topic",
        "t",
        "--partitions",
        "3",
        "--key-field",
        "customer",
    ];
    let output = parti(folder, &produce, lines);
    assert!(output.status.success());
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(said["produced"], 2);
    let describe = [
        "topic", "describe", "--source", "log:log", "--topic", "t", "-o", "json",
    ];
    let output = parti(folder, &describe, "");
    let topic: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let ends: Vec<u64> = topic["partitions"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|partition| partition["end"].as_u64().expect("a number"))
        .collect();
    // One key, one partition.
    assert_eq!((ends.len(), ends.iter().max()), (3, Some(&2)));
    for (bad, why) in [
        ("{\"other\":1}", "line 2 has no field \"customer\""),
        ("{\"customer\":null}", "line 2 has null as its \"customer\""),
        ("{\"customer\":", "line 2 is not JSON"),
    ] {
        let lines = format!("{{\"customer\":\"a\"}}\n{bad}\n{{\"customer\":\"a\"}}\n");
        let output = parti(folder, &produce, &lines);
        assert_eq!(output.status.code(), Some(2));
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains(why), "{told}");
        assert!(told.contains("The line before it was produced"), "{told}");
    }
    // As it said: what came before each bad line is there, what came after is not.
    let output = parti(folder, &describe, "");
    let topic: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let all = topic["partitions"].as_array().expect("a list").iter();
    let all = all.map(|partition| partition["end"].as_u64().expect("a number"));
    assert_eq!(all.sum::<u64>(), 2 + 3);
}

/// The same as `parti`, with files of up to so many blocks: more is an error, as on a full disk.
fn cramped(folder: &Path, blocks: u32, arguments: &[&str]) -> Output {
    let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\"");
    Command::new("sh")
        .current_dir(folder)
        .args(["-c", &script, "sh", env!("CARGO_BIN_EXE_parti")])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("runs")
}

/// How many messages a topic has.
fn held(folder: &Path, topic: &str) -> u64 {
    let describe = ["topic", "describe", "--source", "log:log", "-o", "json"];
    let output = parti(folder, &[&describe[..], &["--topic", topic]].concat(), "");
    let topic: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let all = topic["partitions"].as_array().expect("a list").iter();
    let all = all.map(|partition| partition["end"].as_u64().expect("a number"));
    all.sum()
}

#[test]
fn whoever_fails_half_way_says_how_far_it_came() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let lines: String = (0..100_000)
        .map(|n| format!("{n:032} {:032}\n", n * 7))
        .collect();
    std::fs::write(folder.join("lines"), lines).expect("written");
    for (topic, what, how) in [
        ("f", "line", ["--file", "lines"]),
        ("r", "message", ["--rate", "50000"]),
    ] {
        let source = ["--source", "log:log", "--topic", topic];
        let create = ["topic", "create", "--partitions", "2"];
        let create = [&create[..], &source].concat();
        assert!(parti(folder, &create, "").status.success());
        let produce = [&["produce"][..], &source, &how].concat();
        let output = cramped(folder, 1_000, &produce);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && output.stdout.is_empty());
        let first = told.split("The first ").nth(1);
        let first = first.and_then(|rest| rest.split(&format!(" {what}s were produced")).next());
        let first: u64 = first.and_then(|number| number.parse().ok()).expect(&told);
        let held = held(folder, topic);
        assert!(first > 0 && first <= held, "{held}: {told}");
        assert!(first == held || told.contains("is not known"), "{told}");
    }
    // What cannot be in a log at all is refused with what came along, and with nothing before it: the
    // thousand, and what had to wait for so long that it went in alone.
    let source = ["--source", "log:log", "--topic", "l"];
    let produce = [&["produce", "--partitions", "1"][..], &source].concat();
    let large = "x".repeat(64 * 1024 * 1024 + 1);
    let lines = format!("{}{large}\n", "one\n".repeat(1_003));
    let output = parti(folder, &produce, &lines);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    let held = held(folder, "l");
    let said = format!("The first {held} lines were produced, what follows was not");
    assert!(told.contains(&said), "{told}");
    assert!((1_000..=1_003).contains(&held), "{held}: {told}");
}

#[test]
fn a_name_steers_no_terminal() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let of_topic = |topic| ["--source", "log:log", "--topic", topic];
    let create = |topic| {
        [
            &["topic", "create", "--partitions", "2"][..],
            &of_topic(topic),
        ]
        .concat()
    };
    let describe = |topic| [&["topic", "describe"][..], &of_topic(topic)].concat();
    let odd = "a\u{1b}[2Jb";
    // Refused where it would be made, and named as text where it is only asked for.
    for (command, code) in [
        (&create("b"), 0),
        (&create(odd), 2),
        (&describe(odd), 2),
        (&describe("c"), 2),
    ] {
        let said = parti(folder, command, "");
        let text = [said.stdout, said.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        assert_eq!(said.status.code(), Some(code), "{text}");
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }
}

#[test]
fn mistakes_get_one_clear_line_and_a_fitting_code() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let create = [
        "topic",
        "create",
        "--source",
        "log:log",
        "--topic",
        "t",
        "--partitions",
        "3",
    ];
    assert!(parti(folder, &create, "").status.success());
    let consume = |more: &[&'static str]| {
        let mut all = vec!["consume", "--group", "g"];
        all.extend(more);
        all
    };
    let sqlite = [
        "--store",
        "sqlite:g.db",
        "--source",
        "log:log",
        "--topic",
        "t",
    ];
    let with = |more: &[&'static str]| consume(&[&sqlite[..], more].concat());
    refused(
        folder,
        &with(&["--partitions", "4"]),
        2,
        "has 3 partitions, for good",
    );
    refused(
        folder,
        &with(&["--strategy", "best"]),
        2,
        "--strategy: \"best\"",
    );
    refused(folder, &with(&["--start", "yesterday"]), 2, "--start");
    for (content, why) in [
        (None, "list.txt"),
        (Some("# none\n"), "names no partition"),
        (
            Some("0\n7\n"),
            "list.txt: partitions: 7 is no partition of topic",
        ),
        (
            Some("0\n1\n"),
            "list.txt: partitions: 2 are not all of topic",
        ),
        (
            Some("0\n# again\n0\n"),
            "list.txt: line 3: partition 0 is in line 1 already; list each partition once",
        ),
        (
            Some("partitions: 3\n"),
            "list.txt: line 1: partition: partitions: 3 is a setting",
        ),
        (
            Some("{\"partitions\": 3}\n"),
            "list.txt: line 1: partition: {\"partitions\": 3} is a setting",
        ),
        (
            Some("- keys: ['0']\n  wieght: 2\n"),
            "unknown field `wieght`",
        ),
        (
            Some("# twice\n- keys: ['1']\n- keys: ['1']\n"),
            "list.txt: partitions: 1 appears 2 times",
        ),
    ] {
        if let Some(content) = content {
            std::fs::write(folder.join("list.txt"), content).expect("written");
        }
        refused(folder, &with(&["--partitions-file", "list.txt"]), 2, why);
    }
    let elsewhere = ["produce", "--source", "log:elsewhere", "--topic", "t"];
    refused(folder, &elsewhere, 2, "there are none yet");
    assert!(
        !folder.join("elsewhere").exists(),
        "a refused command made a folder"
    );
    refused(folder, &with(&["--config", "no.yaml"]), 2, "no.yaml");
    refused(folder, &with(&["--subject", "a.{0}"]), 2, "JetStream");
    refused(
        folder,
        &consume(&[
            "--store",
            "sqlite:g.db",
            "--source",
            "log:log",
            "--topic",
            "x",
        ]),
        2,
        "there are t",
    );
    refused(
        folder,
        &consume(&[
            "--store",
            "sqlite:g.db",
            "--source",
            "kafka://h",
            "--topic",
            "t",
        ]),
        2,
        "log:FOLDER",
    );
    for (stream, why) in [
        ("jetstream://127.0.0.1:1", "names no stream"),
        ("jetstream://127.0.0.1:1/a.b", "cannot be a stream's name"),
        ("jetstream://127.0.0.1:1/S?bucket=x", "bucket"),
        ("jetstream:127.0.0.1", "--source"),
    ] {
        let store = ["--store", "sqlite:g.db", "--source", stream];
        refused(folder, &consume(&store), 2, why);
        refused(folder, &["produce", "--source", stream], 2, why);
        let create = ["topic", "create", "--source", stream, "--partitions", "2"];
        refused(folder, &create, 2, why);
        let serve = ["serve", "--store", "sqlite:g.db", "--source", stream];
        refused(folder, &serve, 2, why);
    }
    let stream = "jetstream://127.0.0.1:1/S";
    let store = ["--store", "sqlite:g.db", "--source", stream];
    refused(folder, &consume(&store), 3, "cannot be reached");
    refused(
        folder,
        &consume(&[
            "--store",
            "redis://h",
            "--source",
            "log:log",
            "--topic",
            "t",
        ]),
        2,
        "does not start with",
    );
    refused(
        folder,
        &consume(&[
            "--store",
            "nats://127.0.0.1:1",
            "--source",
            "log:log",
            "--topic",
            "t",
        ]),
        3,
        "cannot be reached",
    );
    refused(
        folder,
        &["status", "--store", "sqlite:g.db", "--group", "nobody"],
        2,
        "there is no such file",
    );
    refused(
        folder,
        &[
            "topic",
            "create",
            "--source",
            "log:log",
            "--topic",
            "t",
            "--partitions",
            "4",
        ],
        2,
        "use 3",
    );
    for (flags, why) in [
        (
            &["--keep-for", "1h"][..],
            "keeps messages without such a limit",
        ),
        (&["--keep-bytes", "9"], "and not up to 9 bytes"),
        (&["--work-queue"], "--work-queue is for streams"),
        (&["--replicas", "1"], "--replicas is for streams"),
        (&["--subject", "a.{0}"], "--subject is for streams"),
    ] {
        refused(folder, &[&create[..], flags].concat(), 2, why);
    }
    let topic = ["--topic", "t", "--partitions", "2"];
    let create = ["topic", "create", "--source", stream];
    refused(
        folder,
        &[&create[..], &topic].concat(),
        2,
        "--topic is for logs",
    );
    for blank in ["", " \t"] {
        refused(folder, &with(&["--exec", blank]), 2, "--exec");
    }
    let produce = ["produce", "--source", "log:log", "--topic", "new"];
    let of_folder = ["--partitions", "2", "--file", "/"];
    refused(
        folder,
        &[&produce[..], &of_folder].concat(),
        2,
        "--file /: it is a folder; give a file",
    );
    refused(folder, &produce, 2, "there are t");
    refused(
        folder,
        &[
            "group",
            "list",
            "--store",
            "postgres://u:hush@127.0.0.1:1/db",
        ],
        3,
        "postgres://127.0.0.1:1/db cannot be reached",
    );
    refused(folder, &["demo", "--for", "1s"], 2, "at least 4s");
    refused(folder, &["consume", "--group"], 2, "--group");
    std::fs::write(
        folder.join("bad.yaml"),
        "heartbeat_intervall: 2s\nheartbeat_ttl: soon\n",
    )
    .expect("written");
    refused(
        folder,
        &with(&["--config", "bad.yaml"]),
        2,
        "did you mean heartbeat_interval?",
    );
}
