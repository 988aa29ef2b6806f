//! The alerts and dashboards in `ops/`, in a real Prometheus.

use std::path::{Path, PathBuf};

use parti_servers::prometheus::promtool;

fn ops() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ops")
}

#[test]
fn every_alert_fires_and_stays_silent() {
    let rules = ops().join("prometheus/parti.rules.yml");
    let tests = ops().join("prometheus/parti.rules.test.yml");
    let (rules_file, tests_file) = (rules.display().to_string(), tests.display().to_string());
    promtool(&["check", "rules", &rules_file]).expect("valid rules");
    promtool(&["test", "rules", &tests_file]).expect("alerts as promised");
    let read = |file: &Path| std::fs::read_to_string(file).expect("readable");
    let (rules, tests) = (read(&rules), read(&tests));
    for alert in rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
    {
        assert!(
            tests.contains(&format!("- name: {alert}\n")),
            "{alert} is not tested"
        );
    }
}
