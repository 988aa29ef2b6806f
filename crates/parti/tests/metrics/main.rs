//! Every metric of the table is really fed: small real groups are run, with what has to go wrong
//! for each, and a recorder remembers which metrics had something to say.

#[cfg(feature = "prometheus")]
mod endpoint;
mod group;
#[cfg(feature = "nats")]
mod jetstream;
mod memory;
mod touched;

use parti::metrics::METRICS;

use touched::Touched;

/// What cannot happen, as long as the core has no bug, is fed by a unit test.
#[cfg(feature = "nats")]
const ANOMALIES: [&str; 1] = ["parti_consumer_duplicate_subjects_total"];

#[cfg(feature = "nats")]
#[tokio::test(flavor = "multi_thread")]
async fn every_metric_is_fed() {
    let touched = Touched::default();
    tokio::join!(memory::run(&touched), jetstream::run(&touched));
    let fed = touched.names();
    let missing: Vec<&str> = METRICS
        .iter()
        .map(|metric| metric.name)
        .filter(|name| !fed.contains(*name) && !ANOMALIES.contains(name))
        .collect();
    assert_eq!(missing, [""; 0], "never fed");
    let known = |name: &&String| METRICS.iter().any(|metric| metric.name == **name);
    let unknown: Vec<&String> = fed.iter().filter(|name| !known(name)).collect();
    assert!(unknown.is_empty(), "not in the table: {unknown:?}");
}
