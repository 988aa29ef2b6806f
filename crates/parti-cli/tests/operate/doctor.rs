//! What workers may do to their source, tried by the doctor.

use std::path::Path;

use parti_servers::nats;
use serde_json::Value;

use super::scene::{billing, parti, said};

/// What the doctor says of permissions to the source, as `level text`.
fn permissions(folder: &Path, source: &[&str]) -> Vec<String> {
    let doctor = ["doctor", "--store", "sqlite:group.db", "-o", "json"];
    let told = parti(folder, &[&doctor[..], source].concat(), "");
    let findings: Vec<Value> = serde_json::from_str(&told.out).expect("JSON");
    let about = findings.iter().filter(|one| one["check"] == "permissions");
    let lines = about.map(|one| {
        let text = |field: &str| one[field].as_str().unwrap_or_default().to_owned();
        format!("{} {}", text("level"), text("text"))
    });
    // Those of the store come first.
    lines.skip(2).collect()
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("group.db").display());
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    runtime.block_on(billing(&url));
    folder
}

#[test]
fn what_a_user_may_not_do_to_a_stream_is_to_mend() {
    let server = nats::Server::builder()
        .user("admin", "secret")
        .limited_user("worker", "secret", &["$JS.API.CONSUMER.CREATE.>"])
        .limited_user("mute", "secret", &["parti.dlq.>"])
        .start();
    let folder = folder();
    let folder = folder.path();
    let url = |user: &str| format!("jetstream://{user}:secret@{}/ORDERS", server.address());
    let create = ["topic", "create", "--partitions", "4", "--source"];
    said(folder, &[&create[..], &[&url("admin")]].concat());
    let allowed = [
        "ok consumers can be made, pulled from and deleted",
        "ok messages can be read",
        "ok dead letters can be sent",
    ];
    assert_eq!(permissions(folder, &["--source", &url("admin")]), allowed);
    for (user, place, why) in [
        ("worker", 0, "$JS.API.CONSUMER.CREATE.ORDERS."),
        ("mute", 2, "parti.dlq.ORDERS."),
    ] {
        let told = permissions(folder, &["--group", "billing", "--source", &url(user)]);
        assert_eq!(told.len(), 3, "{user}: {told:?}");
        for (n, line) in told.iter().enumerate() {
            if n == place {
                let fails = line.starts_with("fail ") && line.contains(why);
                assert!(fails, "{user}: {line}");
                assert!(line.contains("lacks a permission"), "{user}: {line}");
            } else {
                assert_eq!(line, allowed[n], "{user}");
            }
        }
    }
}

#[test]
fn a_log_is_tried_by_a_file_that_is_removed_again() {
    let folder = folder();
    let folder = folder.path();
    let log = ["--source", "log:data", "--topic", "orders"];
    let create = ["topic", "create", "--partitions", "4"];
    said(folder, &[&create[..], &log].concat());
    let told = permissions(folder, &log);
    assert_eq!(told, ["ok messages and dead letters can be written"]);
    let files = std::fs::read_dir(folder.join("data")).expect("a folder");
    let names = files.map(|file| file.expect("a file").file_name());
    let names: Vec<String> = names
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    assert!(
        names.iter().all(|name| name.contains("orders.topic")),
        "{names:?}"
    );
}
