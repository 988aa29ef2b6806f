//! From the exporter's Prometheus text to OpenMetrics.
//!
//! Both name samples alike. OpenMetrics names a counter's family without `_total`, has no empty
//! lines, and ends with a mark. Units are in the names, and told nowhere else.

use super::{Kind, METRICS};

/// What plain Prometheus text is.
pub(super) const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";
/// What OpenMetrics text is.
pub(super) const OPEN: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The same text as OpenMetrics.
pub(super) fn open_metrics(plain: &str) -> String {
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
        let family = name.strip_suffix("_total").unwrap_or(name);
        let rest = rest.unwrap_or_default();
        open.push_str(&format!("# {what} {family} {rest}\n"));
    }
    open.push_str("# EOF\n");
    open
}

/// The buckets of every histogram.
pub(super) fn buckets() -> impl Iterator<Item = (&'static str, &'static [f64])> {
    METRICS.iter().filter_map(|metric| match metric.kind {
        Kind::Histogram(bounds) => Some((metric.name, bounds)),
        Kind::Counter | Kind::Gauge => None,
    })
}
