//! Completions, manual pages, help, settings, plans from numbers.

use std::path::Path;

use super::scene::{parti, said};

/// Every command that does something, as clap has them: each has a page of its own.
fn commands(folder: &Path) -> Vec<String> {
    said(folder, &["man", "all"]);
    let pages = std::fs::read_dir(folder.join("all")).expect("a folder");
    let names = pages.map(|page| page.expect("a page").file_name());
    let names: Vec<String> = names
        .map(|name| name.to_string_lossy().trim_end_matches(".1").to_owned())
        .collect();
    let is_noun = |name: &str| names.iter().any(|one| one.starts_with(&format!("{name}-")));
    let verbs = names.iter().filter(|name| !is_noun(name));
    // No verb has a dash in its name.
    let commands = verbs.filter_map(|name| Some(name.strip_prefix("parti-")?.replace('-', " ")));
    commands.collect()
}

#[test]
fn every_command_has_help_with_an_example() {
    let folder = tempfile::tempdir().expect("a folder");
    let commands = commands(folder.path());
    for known in ["group history", "worker undrain", "request list", "watch"] {
        assert!(commands.iter().any(|one| one == known), "{commands:?}");
    }
    for command in &commands {
        let mut arguments: Vec<&str> = command.split(' ').collect();
        arguments.push("--help");
        let help = said(folder.path(), &arguments);
        let example = format!("parti {command}");
        assert!(
            help.contains("Example") && help.contains(&example),
            "{command}: {help}"
        );
        assert!(help.contains("Exit codes: 0"), "{command}: {help}");
        let inside = help
            .lines()
            .any(|line| line.trim().find("Example:") > Some(0));
        assert!(!inside, "each example has a line of its own: {help}");
    }
}

#[test]
fn shells_and_manuals_know_every_noun() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = said(folder, &["completions", shell]);
        assert!(
            text.contains("checkpoint") && text.contains("dry-run"),
            "{shell}"
        );
    }
    said(folder, &["man", "pages"]);
    for page in ["parti.1", "parti-checkpoint-reset.1", "parti-doctor.1"] {
        let text = std::fs::read_to_string(folder.join("pages").join(page)).expect(page);
        assert!(text.starts_with(".ie"), "{page}: {text}");
    }
}

#[test]
fn settings_are_checked_shown_and_described() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let bad = "heartbeat_intervall: 2s\nheartbeat_ttl: soon\nworker_id_min: 7\nworker_id_max: 3\n";
    std::fs::write(folder.join("bad.yaml"), bad).expect("written");
    let checked = parti(folder, &["config", "check", "bad.yaml"], "");
    assert_eq!(checked.code, Some(2));
    assert_eq!(
        checked.err,
        "bad.yaml: heartbeat_intervall: \"2s\" is set, but there is no such setting; did you mean \
         heartbeat_interval?\n\
         bad.yaml: heartbeat_ttl: \"soon\" is no duration; give a duration such as 500ms, 30s or \
         1h30m\n\
         bad.yaml: worker_id_max: 3 is less than worker_id_min, 7; raise it to 7, or lower \
         worker_id_min\n\
         parti: bad.yaml has 3 problems\n"
    );
    std::fs::write(folder.join("good.yaml"), "heartbeat_ttl: 20s\n").expect("written");
    let checked = parti(folder, &["config", "check", "good.yaml"], "");
    assert_eq!(checked.code, Some(0), "{}", checked.err);
    assert!(
        checked.err.ends_with("good.yaml: good\n"),
        "{}",
        checked.err
    );
    let shown = said(folder, &["config", "show", "--config", "good.yaml"]);
    assert!(shown.contains("heartbeat_ttl: 20s\n"), "{shown}");
    assert!(shown.contains("worker_id_max: 99\n"), "{shown}");
    // What is shown can be read again, and says the same.
    std::fs::write(folder.join("shown.yaml"), &shown).expect("written");
    assert_eq!(
        said(folder, &["config", "show", "--config", "shown.yaml"]),
        shown
    );
    let schema = said(folder, &["config", "schema"]);
    let schema: serde_json::Value = serde_json::from_str(&schema).expect("JSON");
    assert_eq!(schema["properties"]["heartbeat_ttl"]["default"], "6s");
}

#[test]
fn a_plan_from_numbers_shows_strategies_side_by_side() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let plan = ["plan", "--workers", "3", "--partitions", "12", "--add", "1"];
    assert_eq!(
        said(folder, &plan),
        "\
STRATEGY                            BALANCE  BY COUNT  MOVED  LEAST  PLACED  UNSERVED
consistent_hash(virtual_nodes=150)    1.000     1.000      3      3       0         0
fair_share                            1.000     1.000      3      3       0         0
round_robin                           1.000     1.000      9      3       0         0

WORKER    consistent_hash(virtual_nodes=150)  fair_share  round_robin
worker-0  4 -> 3                              4 -> 3      4 -> 3
worker-1  4 -> 3                              4 -> 3      4 -> 3
worker-2  4 -> 3                              4 -> 3      4 -> 3
worker-3  0 -> 3                              0 -> 3      0 -> 3
"
    );
    let plan = [
        "plan",
        "--workers",
        "2",
        "--partitions",
        "4",
        "--weigh",
        "3=9",
        "-o",
        "json",
    ];
    let told: serde_json::Value = serde_json::from_str(&said(folder, &plan)).expect("JSON");
    assert_eq!(told[1]["strategy"], "fair_share");
    assert_eq!(
        told[1]["partitions"]["3"]["before"],
        told[1]["partitions"]["3"]["after"]
    );
    for (arguments, why) in [
        (&["plan", "--workers", "2"][..], "--partitions"),
        (&["plan"][..], "--workers"),
        (
            &[
                "plan",
                "--workers",
                "2",
                "--partitions",
                "4",
                "--remove",
                "worker-7",
            ][..],
            "there are worker-0, worker-1",
        ),
        (
            &[
                "plan",
                "--workers",
                "2",
                "--partitions",
                "4",
                "--weigh",
                "7=2",
            ][..],
            "no such partition",
        ),
        (
            &[
                "plan",
                "--workers",
                "2",
                "--partitions",
                "4",
                "--weigh",
                "7",
            ][..],
            "PARTITION=WEIGHT",
        ),
    ] {
        let refused = parti(folder, arguments, "");
        assert_eq!(refused.code, Some(2), "{arguments:?}: {}", refused.err);
        assert!(refused.err.contains(why), "{arguments:?}: {}", refused.err);
    }
}
