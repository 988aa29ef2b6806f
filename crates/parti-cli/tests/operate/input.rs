//! What is wrong with a flag is said by its name, with the value and what to give instead.

use parti::Offset;

use super::common::CONFIG;
use super::scene::{billing, parti, said};

const BILLING: [&str; 4] = ["--store", "sqlite:group.db", "--group", "billing"];
const STREAM: &str = "jetstream://127.0.0.1:1/S";
const CREATE: [&str; 4] = ["topic", "create", "--source", STREAM];
const LOG: [&str; 4] = ["--source", "log:log", "--topic", "t"];

/// Each of these ends with 2, and says all of that. Nothing is asked of any server: there is none.
#[tokio::test(flavor = "multi_thread")]
async fn a_flag_that_cannot_be_is_named_with_its_value_and_a_remedy() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("group.db").display());
    billing(&url).await;
    let folder = folder.path();
    std::fs::write(folder.join("config.yaml"), CONFIG).expect("written");
    let make = ["topic", "create", "--partitions", "4"];
    said(folder, &[&make[..], &LOG].concat());

    let consume = [&["consume"], &BILLING[..], &LOG].concat();
    let watched = [&["partition", "list"], &BILLING[..], &LOG].concat();
    let set = [&["checkpoint", "set", "-p", "1"], &BILLING[..]].concat();
    let reset = [&["checkpoint", "reset", "-p", "1"], &BILLING[..], &LOG].concat();
    let create = [&CREATE[..], &["--partitions", "3"]].concat();
    let (largest, beyond) = (Offset::LARGEST.0, Offset::LARGEST.0 + 1);
    let (done, next) = (beyond.to_string(), (beyond + 1).to_string());
    let (up_to, up_to_next) = (format!("to {largest}"), format!("to {beyond}"));
    let subject = |template| [&create[..], &["--subject", template]].concat();
    let consumed = |template| {
        let stream = ["consume", "--source", STREAM, "--subject", template];
        [&stream[..], &BILLING].concat()
    };
    let with = |command: &[&'static str], more: &[&'static str]| [command, more].concat();
    let missing = "jetstream://127.0.0.1:1/S?creds=missing.creds";
    let cases: Vec<(Vec<&str>, Vec<&str>)> = vec![
        (
            subject("a.>"),
            vec!["--subject", "a.>", "placeholder", "{0}"],
        ),
        (
            subject("a.{1}"),
            vec!["--subject", "a.{1}", "leaves out {0}"],
        ),
        (
            subject("orders"),
            vec!["--subject", "orders", "name each key"],
        ),
        (
            subject("a.{0}.{1}"),
            vec!["--subject", "a.{0}.{1}", "orders.{0}"],
        ),
        (
            consumed("orders"),
            vec!["--subject", "orders", "name each key"],
        ),
        (
            with(
                &[
                    "topic",
                    "describe",
                    "--source",
                    "jetstream://127.0.0.1:1/S?subject=orders",
                ],
                &[],
            ),
            vec!["--source", "subject", "orders", "name each key"],
        ),
        (
            with(&create, &["--replicas", "7"]),
            vec!["--replicas", "'7'", "from 1 to 5"],
        ),
        (
            with(&create, &["--replicas", "0"]),
            vec!["--replicas", "'0'", "from 1 to 5"],
        ),
        (
            with(
                &["topic", "create", "--partitions", "1", "--source"],
                &[missing],
            ),
            vec!["--source", "creds", "missing.creds"],
        ),
        (
            with(
                &["group", "list", "--store"],
                &["nats://127.0.0.1:1?creds=missing.creds"],
            ),
            vec!["--store", "creds", "missing.creds"],
        ),
        (
            with(&consume, &["--number", "100"]),
            vec!["--number 100", "from 0 to 99", "worker_id_max"],
        ),
        (
            with(&consume, &["--number", "-1"]),
            vec!["--number", "'-1'", "whole number from 0"],
        ),
        (
            with(&consume, &["--number", "99999999999999999999"]),
            vec!["--number", "99999999999999999999", "whole number from 0"],
        ),
        (
            with(&consume, &["--partitions", "-1"]),
            vec!["--partitions", "'-1'", "from 1 to"],
        ),
        (with(&consume, &["--start", "-1"]), vec!["--start", "-1"]),
        (
            with(&watched, &["--min-lag", "-1"]),
            vec!["--min-lag", "'-1'", "from 0 to"],
        ),
        (
            with(&reset, &["--to", "-1"]),
            vec!["--to", "-1", "earliest, latest, an offset"],
        ),
        (
            with(&set, &["--next", "-1"]),
            vec!["--next", "'-1'", "from 0", &up_to_next],
        ),
        (
            with(&set, &["--done", "-1"]),
            vec!["--done", "'-1'", "from 0", &up_to],
        ),
        (
            [&set[..], &["--done", &done]].concat(),
            vec!["--done", &done, &up_to],
        ),
        (
            [&set[..], &["--next", &next]].concat(),
            vec!["--next", &next, &up_to_next],
        ),
        (set.clone(), vec!["--done <OFFSET>", "--next <OFFSET>"]),
        (
            with(&["plan", "--workers", "-3", "--partitions", "1"], &[]),
            vec!["--workers", "'-3'", "from 0 to"],
        ),
        (
            with(&["produce", "--rate", "-3"], &LOG),
            vec!["--rate", "'-3'", "from 1 to"],
        ),
        (
            with(
                &["serve", "--store", "sqlite:group.db", "--listen"],
                &["foo"],
            ),
            vec!["--listen foo", "127.0.0.1:7070"],
        ),
        (
            [
                &["checkpoint", "list"],
                &BILLING[..],
                &["--source", "log:log"],
            ]
            .concat(),
            vec!["--source", "partition list"],
        ),
    ];
    for (arguments, texts) in cases {
        let said = parti(folder, &arguments, "");
        assert_eq!(said.code, Some(2), "{arguments:?}: {}", said.err);
        for text in texts {
            assert!(
                said.err.contains(text),
                "{text:?}, {arguments:?}: {}",
                said.err
            );
        }
    }
}

/// The largest offset there can be goes everywhere: into the store, out to a file, and back.
#[tokio::test(flavor = "multi_thread")]
async fn the_largest_offset_is_set_exported_and_imported() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("group.db").display());
    billing(&url).await;
    let folder = folder.path();
    let largest = Offset::LARGEST.0.to_string();
    let run = |what: &[&str]| said(folder, &[what, &BILLING].concat());
    let list = || run(&["checkpoint", "get", "-p", "3", "-o", "json"]);
    run(&["checkpoint", "set", "-p", "3", "--done", &largest]);
    let export = run(&["checkpoint", "export"]);
    let line = export.lines().find(|line| line.contains(&largest));
    std::fs::write(folder.join("at"), line.expect("there")).expect("written");
    run(&["checkpoint", "set", "-p", "3", "--next", "0"]);
    assert!(!list().contains(&largest));
    run(&["checkpoint", "import", "at"]);
    assert!(list().contains(&largest));
}
