//! The alerts and dashboards in `ops/`, in a real Prometheus that scrapes real workers.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use parti_servers::prometheus::promtool;
use parti_servers::{nats, prometheus};
use serde_json::Value;

mod common;

use common::{CONFIG, Group};

/// What does not come within this time never will. A guard: nothing is measured against it.
const PATIENCE: Duration = Duration::from_secs(240);

fn ops(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../ops")
        .join(file)
}

fn read(file: &str) -> String {
    std::fs::read_to_string(ops(file)).expect("readable")
}

/// What follows this word in the lines of the rules.
fn named<'a>(rules: &'a str, word: &str) -> Vec<&'a str> {
    let lines = rules.lines().map(str::trim);
    lines.filter_map(|line| line.strip_prefix(word)).collect()
}

#[test]
fn every_alert_fires_and_stays_silent() {
    let path = |file| ops(file).display().to_string();
    let (rules, tests) = (
        "prometheus/parti.rules.yml",
        "prometheus/parti.rules.test.yml",
    );
    promtool(&["check", "rules", &path(rules)]).expect("valid rules");
    promtool(&["test", "rules", &path(tests)]).expect("alerts as promised");
    let (rules, tests) = (read(rules), read(tests));
    for alert in named(&rules, "- alert: ") {
        let tested = format!("- name: {alert}\n");
        assert!(tests.contains(&tested), "{alert} is not tested");
    }
}

/// The panels of the dashboard.
fn panels() -> Vec<Value> {
    let dashboard: Value = serde_json::from_str(&read("grafana/parti.json")).expect("JSON");
    dashboard["panels"].as_array().expect("panels").clone()
}

/// The queries of a panel, for all groups.
fn queries_of(panel: &Value) -> impl Iterator<Item = String> {
    let targets = panel["targets"].as_array().into_iter().flatten();
    targets.map(|target| {
        let expression = target["expr"].as_str().expect("a query");
        expression
            .replace("$group", ".*")
            .replace("$__rate_interval", "1m")
    })
}

/// The only query of the panel with this title.
fn query_titled(title: &str) -> String {
    let panels = panels();
    let panel = panels.iter().find(|panel| panel["title"] == title);
    let mut queries = queries_of(panel.expect(title));
    let query = queries.next().expect("a query");
    assert_eq!(queries.next(), None, "{title} has one query");
    query
}

/// Every query of the dashboard, and every series that a rule records or an alert looks at.
fn queries() -> BTreeSet<String> {
    let rules = read("prometheus/parti.rules.yml");
    let mut all: BTreeSet<String> = named(&rules, "- record: ")
        .into_iter()
        .map(str::to_owned)
        .collect();
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == ':';
    let words = rules.split(|c| !is_name(c));
    all.extend(words.filter(|w| w.starts_with("parti_")).map(str::to_owned));
    all.extend(panels().iter().flat_map(queries_of));
    all
}

#[test]
fn every_query_of_every_panel_and_rule_returns_data() {
    let nats = nats::Server::start();
    let store = format!("nats://{}", nats.address());
    let source = format!("jetstream://{}/S", nats.address());
    let mut group = Group::with(&store, &["--source", &source], CONFIG, &[], 12);
    group.produce(100);
    let (mut workers, targets): (Vec<_>, Vec<_>) = (0..3).map(|_| group.scraped(&[])).unzip();
    let rules = ops("prometheus/parti.rules.yml");
    let rules = rules.canonicalize().expect("there");
    let prometheus = prometheus::Server::start(&targets, &rules);
    let answer = |query: &str| {
        let answer = prometheus.query(query).expect("a valid query");
        let mut answer: Value = serde_json::from_str(&answer).expect("JSON");
        answer["data"]["result"].take()
    };
    let count = |query: &str| answer(query).as_array().map_or(0, Vec::len);
    let began = Instant::now();
    let wait = |what: &str| {
        assert!(began.elapsed() < PATIENCE, "{what} never came");
        std::thread::sleep(Duration::from_millis(500));
    };
    while count("parti_is_leader == 1") == 0 || count("parti_owned_partitions > 0") < 3 {
        wait("a group that shares its partitions");
    }
    let shown = answer(&query_titled("Workers"));
    assert_eq!(shown[0]["value"][1], "3", "one for each process: {shown}");
    for title in ["States of workers", "Pull loop", "In flight"] {
        let shown = answer(&query_titled(title));
        let shown = shown.as_array().expect("series").iter();
        let names: BTreeSet<_> = shown.map(|s| s["metric"]["worker"].as_str()).collect();
        assert_eq!(names.len(), 3, "{title}: {names:?}");
        assert!(!names.contains(&None), "{title}: {names:?}");
    }
    // It joins while the others are watched: partitions move, consumers are updated.
    group.consume();
    let mut missing = queries();
    while !missing.is_empty() {
        group.produce(20);
        missing.retain(|query| count(query) == 0);
        wait(&format!("data for {missing:#?}"));
    }
    for worker in &mut workers {
        worker.kill().expect("killed");
        worker.wait().expect("gone");
    }
}
