//! Each bad request gets one clear line and a fitting exit code.

use std::path::Path;

use parti_servers::{nats, postgres};

use super::scene::{Desk, billing, group_record, parti, said};

const STORE: [&str; 2] = ["--store", "sqlite:group.db"];
const BILLING: [&str; 4] = ["--store", "sqlite:group.db", "--group", "billing"];
const NOBODY: [&str; 4] = ["--store", "sqlite:group.db", "--group", "nobody"];
const DOWN: [&str; 4] = ["--store", "nats://127.0.0.1:1", "--group", "billing"];
const LOG: [&str; 4] = ["--source", "log:log", "--topic", "t"];

#[track_caller]
fn refused(folder: &Path, arguments: &[&[&str]], code: i32, said: &str) {
    let arguments = arguments.concat();
    let told = parti(folder, &arguments, "");
    assert_eq!(told.code, Some(code), "{arguments:?}: {}", told.err);
    assert!(told.err.contains(said), "{arguments:?}: {}", told.err);
    assert!(told.out.is_empty(), "{arguments:?}: {}", told.out);
    let last = told.err.lines().last().unwrap_or_default();
    // Usage mistakes have clap's own form; everything else is one line.
    if last.starts_with("parti: ") {
        let lines = told.err.lines().filter(|line| line.starts_with("parti: "));
        assert_eq!(lines.count(), 1, "{}", told.err);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_requests_are_refused_with_the_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("group.db").display());
    billing(&url).await;
    let folder = folder.path();
    let produce = [
        "produce",
        "--source",
        "log:log",
        "--topic",
        "t",
        "--partitions",
        "4",
    ];
    assert_eq!(parti(folder, &produce, "one\ntwo\n").code, Some(0));
    let cursor = "{\"partition\":\"0\",\"offset\":9}\n";
    std::fs::write(folder.join("at"), cursor).expect("written");

    let reset = ["checkpoint", "reset", "--all", "--to", "latest"];
    let reset = [&reset[..], &LOG].concat();
    for command in [
        &["group", "describe"][..],
        &["group", "history"],
        &["group", "rebalance"],
        &["worker", "list"],
        &["worker", "drain", "worker-0"],
        &["worker", "undrain", "worker-0"],
        &["worker", "evict", "worker-0"],
        &["partition", "move", "0", "--to", "worker-1"],
        &["partition", "pin", "0", "--to", "worker-1"],
        &["partition", "unpin", "0"],
        &["partition", "pause", "0"],
        &["partition", "resume", "0"],
        &["request", "list"],
        &reset[..],
        &["checkpoint", "import", "at"],
        &["partition", "list"],
        &["partition", "describe", "0"],
        &["checkpoint", "list"],
        &["checkpoint", "get", "-p", "0"],
        &["checkpoint", "set", "-p", "0", "--next", "1"],
        &["checkpoint", "export"],
        &["plan"],
        &["status"],
        &["group", "delete"],
    ] {
        refused(
            folder,
            &[command, &NOBODY],
            2,
            "has no such group; it has billing",
        );
        refused(folder, &[command, &DOWN], 3, "cannot be reached");
    }
    refused(
        folder,
        &[&["partition", "list", "--owner", "nope"], &BILLING],
        2,
        "\"nope\" is no worker of group billing: it has worker-0, worker-1, worker-2",
    );
    refused(
        folder,
        &[&["group", "list", "--store", "nats://127.0.0.1:1"]],
        3,
        "cannot be reached",
    );
    refused(
        folder,
        &[&["group", "list", "--store", "redis://h"]],
        2,
        "does not start with",
    );
    refused(
        folder,
        &[&["group", "describe", "--group", ""], &STORE],
        2,
        "a group's name has from 1 to",
    );
    refused(
        folder,
        &[&["group", "describe", "--group", "a\u{1b}[2Jb"], &STORE],
        2,
        "--group a\\u{1b}[2Jb: ",
    );
    refused(
        folder,
        &[&["group", "describe", "--group", "a\nb"], &STORE],
        2,
        "--group a\\nb: ",
    );
    refused(
        folder,
        &[&["consume", "--group", "a\nb"], &STORE, &LOG],
        2,
        "group: \"a\\nb\" contains the control character '\\n'",
    );
    let topic = [
        "topic",
        "create",
        "--source",
        "log:log",
        "--partitions",
        "2",
    ];
    refused(
        folder,
        &[&topic, &["--topic", "a\u{9b}b"]],
        2,
        "topic: \"a\\u{9b}b\" contains the control character",
    );
    for url in ["sqlite:..", "sqlite:.", "sqlite:data/..", "sqlite:/"] {
        refused(
            folder,
            &[&["group", "list", "--store", url]],
            2,
            "the path names a folder",
        );
    }
    let bogus = ["consume", "--store", "bogus:", "--group", "g"];
    refused(folder, &[&bogus, &LOG], 2, "does not start with");
    refused(folder, &[&["group", "describe"], &STORE], 2, "--group");

    let known = "does not know it; it has 0, 1, 2, 3";
    refused(
        folder,
        &[&["partition", "describe", "77"], &BILLING],
        2,
        known,
    );
    refused(
        folder,
        &[&["checkpoint", "get", "-p", "77"], &BILLING],
        2,
        known,
    );
    refused(
        folder,
        &[&["checkpoint", "set", "-p", "77", "--next", "1"], &BILLING],
        2,
        known,
    );
    let reset = ["checkpoint", "reset", "--to", "latest"];
    refused(folder, &[&reset, &["-p", "77"], &BILLING, &LOG], 2, known);
    refused(
        folder,
        &[&["partition", "describe", "a b"], &BILLING],
        2,
        "no partition has such an id",
    );

    let range = "past the end of the log; give from 0 to ";
    let set = |place: &'static str| ["checkpoint", "set", "-p", "3", "--next", place];
    refused(folder, &[&set("999"), &BILLING, &LOG], 2, range);
    refused(
        folder,
        &[
            &["checkpoint", "reset", "--all", "--to", "999"],
            &BILLING,
            &LOG,
        ],
        2,
        range,
    );
    refused(folder, &[&set("-1"), &BILLING], 2, "-1");
    refused(
        folder,
        &[&set("18446744073709551615"), &BILLING],
        2,
        "18446744073709551615",
    );
    refused(
        folder,
        &[&reset, &["--all"], &BILLING],
        2,
        "--source is missing",
    );
    refused(folder, &[&reset, &BILLING, &LOG], 2, "--partition");
    refused(
        folder,
        &[&reset, &["--all", "-p", "1"], &BILLING, &LOG],
        2,
        "cannot be used with",
    );
    let when = ["checkpoint", "reset", "--all", "--to", "yesterday"];
    refused(
        folder,
        &[&when, &BILLING, &LOG],
        2,
        "--to \"yesterday\" is no place",
    );
    let wrong = ["--source", "log:log", "--topic", "x"];
    refused(
        folder,
        &[&reset, &["--all"], &BILLING, &wrong],
        2,
        "there are t",
    );

    let long = "x".repeat(501);
    for (flag, text) in [
        ("--by", "\u{2800}"),
        ("--by", " "),
        ("--why", "a\nb"),
        ("--why", &long),
    ] {
        for command in [
            &["partition", "pause", "0"][..],
            &["checkpoint", "set", "-p", "0", "--next", "1"],
            &[
                "checkpoint",
                "reset",
                "--all",
                "--to",
                "latest",
                "--dry-run",
            ],
        ] {
            refused(folder, &[command, &BILLING, &[flag, text]], 2, flag);
        }
    }

    let small = ["--source", "log:log", "--topic", "small"];
    let make = ["topic", "create", "--partitions", "2"];
    let made = parti(folder, &[&make[..], &small].concat(), "");
    assert_eq!(made.code, Some(0), "{}", made.err);
    let none = "the source has none of this id";
    refused(folder, &[&set("0"), &BILLING, &small], 2, none);
    refused(folder, &[&reset, &["--all"], &BILLING, &small], 2, none);

    let served = "partition 0 is being served by worker-0; pause it or stop its worker, or give \
                  --force to make it let go; nothing was changed (1 more refused)";
    refused(
        folder,
        &[
            &["checkpoint", "reset", "--all", "--to", "latest"],
            &BILLING,
            &LOG,
        ],
        4,
        served,
    );
}

#[test]
fn a_mistyped_store_is_not_made() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let typo = ["--store", "sqlite:gruop.db", "--group", "billing"];
    for command in [
        &["status"][..],
        &["group", "describe"],
        &["group", "history"],
        &["group", "delete"],
        &["group", "rebalance"],
        &["worker", "list"],
        &["worker", "drain", "worker-0"],
        &["worker", "evict", "worker-0"],
        &["partition", "list"],
        &["partition", "pause", "0"],
        &["request", "list"],
        &["checkpoint", "list"],
        &["checkpoint", "set", "-p", "0", "--next", "1"],
        &["plan"],
    ] {
        let said = "--store sqlite:gruop.db: there is no such file";
        refused(folder, &[command, &typo], 2, said);
    }
    let list = ["group", "list", "--store", "sqlite:gruop.db"];
    refused(folder, &[&list], 2, "there is no such file");
    let doctor = parti(folder, &["doctor", "--store", "sqlite:gruop.db"], "");
    assert_eq!(doctor.code, Some(1), "{}", doctor.out);
    assert!(
        doctor.out.contains("there is no such file"),
        "{}",
        doctor.out
    );
    let topic = ["topic", "describe", "--source", "log:dtaa", "--topic", "t"];
    refused(folder, &[&topic], 2, "log:dtaa: there is no such folder");
    let left = std::fs::read_dir(folder).expect("a folder").count();
    assert_eq!(left, 0, "nothing was made");
}

#[test]
fn a_mistyped_name_on_a_server_makes_nothing_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let (nats, postgres) = (nats::Server::start(), postgres::Server::start());
    let on_nats = format!("{}/typo", nats.url());
    for (store, said) in [
        (on_nats, "the server has no bucket of this name"),
        (postgres.url(), "the database has no schema of Parti"),
    ] {
        let list = ["group", "list", "--store", &store];
        // Whatever the first look made, the second would find.
        refused(folder.path(), &[&list], 2, said);
        refused(folder.path(), &[&list], 2, said);
    }
}

#[test]
fn the_doctor_goes_on_after_what_fails() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    std::fs::write(folder.join("bad.yaml"), "heartbeat_ttl: soon\n").expect("written");
    let doctor = [
        "doctor",
        "--store",
        "nats://127.0.0.1:1",
        "--config",
        "bad.yaml",
    ];
    let told = parti(folder, &[&doctor[..], &LOG].concat(), "");
    assert_eq!(told.code, Some(1), "{}", told.err);
    assert_eq!(told.err, "parti: 3 to mend\n");
    for (line, start) in told.out.lines().skip(1).zip([
        "fail  settings  bad.yaml: 1 problem, the first: heartbeat_ttl: \"soon\" is no duration",
        "fail  store     the store is not available: nats://127.0.0.1:1/parti cannot be reached",
        "fail  source    --source log:log: there is no such folder",
    ]) {
        assert!(line.starts_with(start), "{}", told.out);
    }
    let url = format!("sqlite:{}", folder.join("group.db").display());
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    runtime.block_on(billing(&url));
    let nobody = ["doctor", "--store", "sqlite:group.db", "--group", "nobody"];
    let told = parti(folder, &nobody, "");
    assert_eq!(told.code, Some(1), "{}", told.out);
    assert!(
        told.out.contains("there is no group nobody"),
        "{}",
        told.out
    );
}

#[test]
fn who_may_only_read_is_told_so() {
    let server = parti_servers::etcd::Server::builder()
        .root_password("root-secret")
        .reader_password("reader-secret")
        .start();
    let folder = tempfile::tempdir().expect("a folder");
    let url = |login: &str| format!("etcd://{login}@{}", server.address());
    let (root, reader) = (url("root:root-secret"), url("reader:reader-secret"));
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    runtime.block_on(billing(&root));
    let set = [
        "checkpoint",
        "set",
        "--group",
        "billing",
        "-p",
        "3",
        "--next",
        "9",
    ];
    let told = parti(
        folder.path(),
        &[&set[..], &["--store", &reader]].concat(),
        "",
    );
    assert_eq!(told.code, Some(4), "{}", told.err);
    assert!(
        told.err.contains("parti: the store refuses"),
        "{}",
        told.err
    );
    let told = parti(folder.path(), &["doctor", "--store", &reader], "");
    assert_eq!(told.code, Some(1), "{}", told.out);
    assert!(told.out.contains("fail  permissions"), "{}", told.out);
    let told = parti(
        folder.path(),
        &["group", "list", "--store", &url("root:wrong")],
        "",
    );
    assert_eq!(told.code, Some(4), "{}", told.err);
    let all = format!("{}{}", told.out, told.err);
    assert!(!all.contains("wrong") && !all.contains("secret"), "{all}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_sees_makes_no_name_and_ends_with_what_has_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("group.db").display());
    let odd = "a\u{200b}";
    Desk::open(&url, odd).await.put(vec![group_record(7)]).await;
    let folder = folder.path();
    assert_eq!(
        parti(
            folder,
            &[
                "topic",
                "create",
                "--partitions",
                "2",
                LOG[0],
                LOG[1],
                LOG[2],
                LOG[3]
            ],
            ""
        )
        .code,
        Some(0)
    );
    let cursor = "{\"partition\":\"0\",\"offset\":9}\n";
    std::fs::write(folder.join("at"), cursor).expect("written");
    for (name, why) in [
        (
            "a\u{2060}",
            "\"a\\u{2060}\" contains the invisible character",
        ),
        ("a ", "\"a \" begins or ends with a space; leave that out"),
        (" ", "\" \" is nothing but space"),
    ] {
        let group = ["consume", "--group", name];
        refused(folder, &[&group, &STORE, &LOG], 2, &format!("group: {why}"));
        let import = ["checkpoint", "import", "--new-group", "--group", name, "at"];
        // In a store that is not there nothing is made either.
        for store in ["sqlite:group.db", "sqlite:none.db"] {
            let why = format!("--group: {why}");
            refused(folder, &[&import, &["--store", store]], 2, &why);
        }
        let topic = [
            "topic",
            "create",
            "--partitions",
            "2",
            "--source",
            "log:log",
        ];
        let why = format!("topic: {why}");
        refused(folder, &[&topic, &["--topic", name]], 2, &why);
    }
    assert!(!folder.join("none.db").exists());
    let of_odd = |command: &[&'static str]| {
        let of_odd = ["--store", "sqlite:group.db", "--group", odd];
        said(folder, &[command, &of_odd].concat())
    };
    let listed = said(folder, &[&["group", "list"], &STORE[..]].concat());
    assert!(listed.contains("a\\u{200b}"), "{listed}");
    assert!(of_odd(&["group", "describe"]).contains("a\\u{200b}"));
    let deleted = of_odd(&["group", "delete", "-o", "json"]);
    let deleted: serde_json::Value = serde_json::from_str(&deleted).expect("JSON");
    assert_eq!(
        deleted,
        serde_json::json!({
            "group": odd, "sessions_ended": 0, "checkpoints": 0, "workers": 0, "other_records": 1
        })
    );
    let listed = said(folder, &[&["group", "list"], &STORE[..]].concat());
    assert!(!listed.contains("200b"), "{listed}");
}
