//! OpenMetrics text: one family after the other, each with its type, unit and help.

use std::fmt::Write;

use super::{Kind, Metric};

/// What a scrape is answered with.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A text in the making.
pub(super) struct Text {
    out: String,
    /// Labels that every sample has, ready to be written.
    common: String,
}

impl Text {
    /// With labels that every sample has; empty ones are left out.
    pub fn new(common: &[(&str, &str)]) -> Self {
        let set = common.iter().filter(|(_, value)| !value.is_empty());
        let pairs: Vec<String> = set.map(|(name, value)| pair(name, value)).collect();
        Self {
            out: String::new(),
            common: pairs.join(","),
        }
    }

    /// Begins a family.
    pub fn begin(&mut self, metric: &Metric) {
        let family = family(metric);
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        self.line(format_args!("# TYPE {family} {kind}"));
        if let Some(unit) = metric.unit {
            self.line(format_args!("# UNIT {family} {unit}"));
        }
        self.line(format_args!("# HELP {family} {}", escaped(metric.help)));
    }

    /// One number, with the values of the metric's own labels.
    pub fn number(&mut self, metric: &Metric, values: &[&str], number: u64) {
        let labels = self.labels(metric, values, None);
        self.line(format_args!("{}{labels} {number}", metric.name));
    }

    /// A histogram. `counts`: of each bucket by itself, and one more for what is above all bounds.
    pub fn histogram(
        &mut self,
        metric: &Metric,
        values: &[&str],
        bounds: &[f64],
        counts: &[u64],
        sum: f64,
    ) {
        let name = metric.name;
        let mut so_far = 0;
        for (index, count) in counts.iter().enumerate() {
            so_far += count;
            let bound = match bounds.get(index) {
                Some(bound) => format!("{bound:?}"),
                None => "+Inf".to_owned(),
            };
            let labels = self.labels(metric, values, Some(&bound));
            self.line(format_args!("{name}_bucket{labels} {so_far}"));
        }
        let labels = self.labels(metric, values, None);
        self.line(format_args!("{name}_sum{labels} {sum:?}"));
        self.line(format_args!("{name}_count{labels} {so_far}"));
    }

    /// The whole text.
    pub fn end(mut self) -> String {
        self.out.push_str("# EOF\n");
        self.out
    }

    fn labels(&self, metric: &Metric, values: &[&str], bound: Option<&str>) -> String {
        let own = metric.labels.iter().zip(values);
        let mut pairs: Vec<String> = own.map(|(name, value)| pair(name, value)).collect();
        pairs.extend(bound.map(|bound| pair("le", bound)));
        if !self.common.is_empty() {
            pairs.insert(0, self.common.clone());
        }
        if pairs.is_empty() {
            return String::new();
        }
        format!("{{{}}}", pairs.join(","))
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.out, "{line}");
    }
}

/// A family's name: a counter's has no `_total`.
fn family(metric: &Metric) -> &'static str {
    metric.name.strip_suffix("_total").unwrap_or(metric.name)
}

fn pair(name: &str, value: &str) -> String {
    format!("{name}=\"{}\"", escaped(value))
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
    out
}
