//! From the exporter's Prometheus text to OpenMetrics.
//!
//! Both name samples alike. OpenMetrics names a counter's family without `_total`, has no empty
//! lines, and ends with a mark. Units are in the names, and told nowhere else.

use std::collections::BTreeSet;

use super::{Kind, METRICS};

/// What plain Prometheus text is.
pub(super) const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";
/// What OpenMetrics text is.
pub(super) const OPEN: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The same text as OpenMetrics.
pub(super) fn open_metrics(plain: &str) -> String {
    let counters: BTreeSet<&str> = plain.lines().filter_map(counter).collect();
    let mut open = String::with_capacity(plain.len() + 1024);
    for line in plain.lines().filter(|line| !line.is_empty()) {
        let mut words = line.splitn(4, ' ');
        let (mark, what) = (words.next(), words.next());
        let (Some("#"), Some(what @ ("HELP" | "TYPE"))) = (mark, what) else {
            open.push_str(line);
            open.push('\n');
            continue;
        };
        let (name, rest) = (words.next().unwrap_or_default(), words.next());
        let mut rest = rest.unwrap_or_default();
        let mut family = name;
        if counters.contains(name) {
            match name.strip_suffix("_total") {
                Some(bare) => family = bare,
                // Not one of ours, and not what OpenMetrics calls a counter.
                None if what == "TYPE" => rest = "unknown",
                None => {}
            }
        }
        open.push_str(&format!("# {what} {family} {rest}\n"));
    }
    open.push_str("# EOF\n");
    open
}

/// The counter whose type this line tells.
fn counter(line: &str) -> Option<&str> {
    line.strip_prefix("# TYPE ")?.strip_suffix(" counter")
}

/// The buckets of every histogram.
pub(super) fn buckets() -> impl Iterator<Item = (&'static str, &'static [f64])> {
    METRICS.iter().filter_map(|metric| match metric.kind {
        Kind::Histogram(bounds) => Some((metric.name, bounds)),
        Kind::Counter | Kind::Gauge => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_named_without_total_and_the_end_is_marked() {
        let plain = "\
# HELP a_total What it is.
# TYPE a_total counter
a_total{x=\"# TYPE b counter\"} 1

# TYPE b_total gauge
b_total 2

# TYPE c counter
c 3
";
        let open = "\
# HELP a What it is.
# TYPE a counter
a_total{x=\"# TYPE b counter\"} 1
# TYPE b_total gauge
b_total 2
# TYPE c unknown
c 3
# EOF
";
        assert_eq!(open_metrics(plain), open);
    }
}
