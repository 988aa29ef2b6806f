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
        "--new-group",
        "-",
    ];
    let imported = parti(folder, &import, &exported);
    assert_eq!(imported.code, Some(0), "{}", imported.err);

    examined(folder, url, version);
    runtime.block_on(no_scratch(url));
    // The two that seem to live never renew.
    let delete = [&["group", "delete", "--silence", "300ms"], &group[..]].concat();
    let deleted = parti(folder, &delete, "");
    assert_eq!(
        deleted.err,
        "ended 2 sessions after 300ms of silence\n\
         group billing is deleted: 4 checkpoints, 3 workers, 6 other records\n"
    );
    assert_eq!(
        said(folder, &["group", "list", "--store", url, "-o", "json"]),
        "[]\n"
    );
}

/// Whatever the doctor wrote is gone again.
async fn no_scratch(url: &str) {
    let store = parti::store::open(url).await.expect("a store");
    for kind in ["workers", "partitions"] {
        let scope = parti::store::Scope::Under(format!("{kind}/=doctor/"));
        assert_eq!(store.list(&scope).await, Ok(vec![]), "{kind}");
    }
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

/// A stream as the source: its partitions share its offsets.
#[test]
fn a_stream_has_ends_and_places() {
    let server = parti_servers::nats::Server::start();
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let (store, stream) = (
        server.url(),
        format!("jetstream://{}/ORDERS", server.address()),
    );
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    runtime.block_on(billing(&store));
    let produce = ["produce", "--source", &stream, "--partitions", "4"];
    let produced = parti(folder, &produce, &"message\n".repeat(40));
    assert_eq!(produced.code, Some(0), "{}", produced.err);
    let described = ["topic", "describe", "--source", &stream, "-o", "json"];
    let described: Value = serde_json::from_str(&said(folder, &described)).expect("JSON");
    let rows = described["partitions"].as_array().expect("a list").iter();
    let ends = rows.filter_map(|row| Some((row["first"].as_u64()?, row["end"].as_u64()?)));
    let mut ends: Vec<(u64, u64)> = ends.collect();
    ends.sort_unstable();
    assert_eq!(ends, [(1, 38), (1, 39), (1, 40), (1, 41)], "{described}");
    let group = ["--store", &store, "--group", "billing", "--source", &stream];
    let list = said(
        folder,
        &[&["partition", "list", "-o", "json"], &group[..]].concat(),
    );
    let list: Value = serde_json::from_str(&list).expect("JSON");
    let heads = list.as_array().expect("a list").iter();
    let heads: Vec<u64> = heads.filter_map(|p| p["end"].as_u64()).collect();
    // Sequences 1 to 40 went round: the last four are the heads.
    assert_eq!(heads.iter().sum::<u64>(), 38 + 39 + 40 + 41, "{list}");
    let reset = |to: &'static str| {
        let reset = [
            "checkpoint",
            "reset",
            "-p",
            "3",
            "--dry-run",
            "-o",
            "json",
            "--to",
            to,
        ];
        parti(folder, &[&reset[..], &group].concat(), "")
    };
    for (to, next) in [
        ("earliest", 1),
        ("latest", 41),
        ("17", 17),
        ("2000-01-01T00:00:00Z", 0),
        ("2100-01-01T00:00:00Z", 41),
    ] {
        let shown = reset(to);
        assert_eq!(shown.code, Some(0), "{to}: {}", shown.err);
        let change: Value = serde_json::from_str(&shown.out).expect("JSON");
        let after = change[0]["after"]["next_offset"].as_u64().expect("a place");
        if next == 0 {
            // The first message of this partition.
            assert!((1..=4).contains(&after), "{to}: {change}");
        } else {
            assert_eq!(after, next, "{to}: {change}");
        }
    }
    let outside = reset("42");
    assert_eq!(outside.code, Some(2), "{}", outside.err);
    assert!(outside.err.contains("give from 1 to 41"), "{}", outside.err);
    let doctor = [&["doctor"], &group[..]].concat();
    let told = parti(folder, &doctor, "");
    assert_eq!(told.code, Some(1), "{}", told.out);
    assert!(
        told.out.contains(
            "fail  checkpoints     partition 0 would go on at 42, and the log ends at 41"
        ),
        "{}",
        told.out
    );
    assert!(
        told.out
            .contains("ok    retention       limits, without any"),
        "{}",
        told.out
    );
}

/// What is allowed on one server is worth a word in a cluster.
#[test]
fn a_cluster_is_looked_at_more_closely() {
    let cluster = parti_servers::nats::Cluster::start(3);
    let folder = tempfile::tempdir().expect("a folder");
    let one = format!("{}/single?replicas=1", cluster.url());
    let missing = parti(folder.path(), &["doctor", "--store", &one], "");
    assert_eq!(missing.code, Some(1), "{}", missing.out);
    let nothing = "fail  store     --store: the server has no bucket of this name;";
    assert!(missing.out.contains(nothing), "{}", missing.out);
    let list = parti(folder.path(), &["group", "list", "--store", &one], "");
    assert_eq!(list.code, Some(2), "the doctor made none: {}", list.err);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for url in [&cluster.url(), &one] {
        runtime.block_on(parti::store::open(url)).expect("made");
    }
    for (url, wanted) in [
        (
            &cluster.url(),
            "warn  TTL            heartbeat_ttl 6s is shorter than a replicated store",
        ),
        (&one, "is kept by 1 of the cluster's servers"),
    ] {
        let told = parti(folder.path(), &["doctor", "--store", url], "");
        assert_eq!(told.code, Some(5), "{}{}", told.out, told.err);
        assert!(told.out.contains(wanted), "{}", told.out);
    }
    std::fs::write(folder.path().join("long.yaml"), "heartbeat_ttl: 15s\n").expect("written");
    let url = cluster.url();
    let patient = ["doctor", "--store", &url, "--config", "long.yaml"];
    let told = parti(folder.path(), &patient, "");
    assert!(
        told.out.contains("TTL            a session lasts 15s"),
        "{}",
        told.out
    );
}
