//! The same on every store with a server.

use std::path::Path;

use serde_json::Value;

use super::scene::{billing, parti, said};

/// Shows a group, moves its checkpoints, takes them elsewhere, and ends it.
fn operates(url: &str, version: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    runtime.block_on(billing(url));
    let group = ["--store", url, "--group", "billing"];
    let of_group =
        |command: &[&str], more: &[&str]| said(folder, &[command, &group, more].concat());

    let listed = said(folder, &["group", "list", "--store", url]);
    assert_eq!(
        listed,
        "GROUP    STATE        LEADER    WORKERS  PARTITIONS  OWNED\n\
         billing  rebalancing  worker-0        2           4      3\n"
    );
    let described = of_group(&["group", "describe"], &[]);
    assert!(
        described.contains("1       worker-0  worker-1  ready\n"),
        "{described}"
    );
    let partitions = of_group(&["partition", "list"], &["-o", "json"]);
    let partitions: Value = serde_json::from_str(&partitions).expect("JSON");
    assert_eq!(partitions[2]["owner_session"], "over");

    let set = ["checkpoint", "set", "-p", "2", "--next", "120"];
    let set = parti(folder, &[&set[..], &group].concat(), "");
    assert!(
        set.out
            .ends_with("2             100    120     +20     10  -\n"),
        "{}",
        set.out
    );
    let exported = of_group(&["checkpoint", "export"], &[]);
    assert_eq!(exported.lines().count(), 4, "{exported}");
    let import = [
        "checkpoint",
        "import",
        "--store",
        url,
        "--group",
        "copy",
        "-",
    ];
    let imported = parti(folder, &import, &exported);
    assert_eq!(imported.code, Some(0), "{}", imported.err);

    examined(folder, url, version);
    // The two that seem to live never renew.
    let delete = [&["group", "delete", "--silence", "300ms"], &group[..]].concat();
    let deleted = parti(folder, &delete, "");
    assert_eq!(
        deleted.err,
        "ended 2 sessions after 300ms of silence\n\
         group billing is deleted: 4 checkpoints, 3 workers, 5 other records\n"
    );
    assert_eq!(
        said(folder, &["group", "list", "--store", url, "-o", "json"]),
        "[]\n"
    );
}

fn examined(folder: &Path, url: &str, version: &str) {
    let doctor = ["doctor", "--store", url, "--group", "billing", "-o", "json"];
    let told = parti(folder, &doctor, "");
    // A group whose records are made up has something to consider, and nothing to mend.
    assert_eq!(told.code, Some(5), "{}", told.out);
    let findings: Value = serde_json::from_str(&told.out).expect("JSON");
    let found = |check: &str, part: &str| {
        let findings = findings.as_array().expect("a list").iter();
        let about = findings.filter(|finding| finding["check"] == check);
        about
            .filter_map(|finding| finding["text"].as_str())
            .any(|text| text.contains(part))
    };
    assert!(found("store version", version), "{}", told.out);
    assert!(
        found("permissions", "records can be written"),
        "{}",
        told.out
    );
    assert!(
        found("permissions", "checkpoints can be written"),
        "{}",
        told.out
    );
    assert!(
        found("partitions", "2 of 4 partitions have no owner: 2, 3"),
        "{}",
        told.out
    );
}

#[test]
fn sqlite() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("group.db").display());
    operates(&url, "SQLite 3.");
}

#[test]
fn nats() {
    let server = parti_servers::nats::Server::start();
    operates(&server.url(), "nats-server 2.");
}

#[test]
fn etcd() {
    let server = parti_servers::etcd::Server::start();
    operates(&server.url(), "etcd 3.");
}

#[test]
fn postgres() {
    let server = parti_servers::postgres::Server::start();
    operates(&server.url(), "PostgreSQL 1");
}
