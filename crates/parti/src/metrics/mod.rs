//! Metrics, through the facade of the crate [`metrics`]: Parti says what happens, and whatever
//! recorder the program installs does with it what it likes.
//!
//! ```text
//!   core ── events, actions, reports, numbers ──▶ Probe ─────┐
//!   store ── Metered ────────────────────────────────────────┤
//!   strategy ── Timed ───────────────────────────────────────┼─▶ Handles ──▶ the recorder
//!   handler calls ── CallTimes ──────────────────────────────┤   (of this group and worker)
//!   source ── ends of partitions ──▶ Lag ────────────────────┘
//! ```
//!
//! All names are in one [table](METRICS); `docs/metrics.md` is made of it. Every metric has the
//! labels `group` and `worker`; before there is an id, counts have an empty `worker`, and gauges show
//! nowhere. Handles are made once per id and kept: nothing is looked up per message. Where no recorder is installed when a worker
//! starts, nothing is measured at all.
//!
//! With the feature `prometheus`, one line serves them to Prometheus:
//!
//! ```
//! # #[cfg(feature = "prometheus")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let endpoint = parti::metrics::Endpoint::open("127.0.0.1:0").await?.install()?;
//! println!("http://{}/metrics", endpoint.address());
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "prometheus"))]
//! # fn main() {}
//! ```

#[cfg(feature = "prometheus")]
mod endpoint;
mod handles;
mod lag;
mod probe;
mod strategy;
mod table;
#[cfg(test)]
mod tests;
#[cfg(feature = "prometheus")]
mod text;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString};

#[cfg(feature = "prometheus")]
pub use endpoint::{Endpoint, EndpointError};
pub(crate) use handles::{Meters, StoreHandles};
pub(crate) use probe::{CallTimes, Probe};
pub(crate) use strategy::Timed;
pub use table::{Kind, Label, METRICS, Metric, Unit};

/// So many partitions have a series of their own, by default.
const PARTITION_SERIES: usize = 1000;
/// How often lags are looked up, by default.
const LAG_INTERVAL: Duration = Duration::from_secs(15);

/// Where a worker's metrics go. By default to the recorder that the process has installed when the
/// worker starts; nowhere, if there is none.
#[derive(Clone)]
pub struct Metrics {
    target: Target,
    pub(crate) partition_series: usize,
    pub(crate) lag_interval: Duration,
}

#[derive(Clone)]
enum Target {
    Nowhere,
    Global,
    Own(Arc<dyn Recorder + Send + Sync>),
}

impl Metrics {
    /// To this recorder.
    pub fn to(recorder: impl Recorder + Send + Sync + 'static) -> Self {
        Self {
            target: Target::Own(Arc::new(recorder)),
            ..Self::default()
        }
    }

    /// Nowhere: nothing is measured.
    pub fn none() -> Self {
        Self {
            target: Target::Nowhere,
            ..Self::default()
        }
    }

    /// How many partitions have a lag of their own (`parti_partition_lag`), 1000 by default; the
    /// lags of all others are summed up under the partition `*`.
    #[must_use]
    pub fn partition_series(mut self, most: usize) -> Self {
        self.partition_series = most;
        self
    }

    /// How often lags are looked up at the source; 15 seconds by default.
    #[must_use]
    pub fn lag_interval(mut self, interval: Duration) -> Self {
        self.lag_interval = interval;
        self
    }

    /// The recorder to use, if there is one.
    pub(crate) fn recorder(&self) -> Option<Arc<dyn Recorder + Send + Sync>> {
        match &self.target {
            Target::Nowhere => None,
            Target::Own(recorder) => Some(recorder.clone()),
            // The one that stands for none is a value without size: there is no other way to ask.
            Target::Global => {
                let size = metrics::with_recorder(|recorder| size_of_val(recorder));
                (size > 0).then(|| Arc::new(Global) as Arc<dyn Recorder + Send + Sync>)
            }
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            target: Target::Global,
            partition_series: PARTITION_SERIES,
            lag_interval: LAG_INTERVAL,
        }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = match self.target {
            Target::Nowhere => "nowhere",
            Target::Global => "global",
            Target::Own(_) => "own",
        };
        f.debug_struct("Metrics")
            .field("target", &target)
            .field("partition_series", &self.partition_series)
            .field("lag_interval", &self.lag_interval)
            .finish()
    }
}

/// The recorder that the process has installed.
struct Global;

impl Recorder for Global {
    fn describe_counter(&self, key: KeyName, unit: Option<metrics::Unit>, text: SharedString) {
        metrics::with_recorder(|recorder| recorder.describe_counter(key, unit, text));
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<metrics::Unit>, text: SharedString) {
        metrics::with_recorder(|recorder| recorder.describe_gauge(key, unit, text));
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<metrics::Unit>, text: SharedString) {
        metrics::with_recorder(|recorder| recorder.describe_histogram(key, unit, text));
    }

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        metrics::with_recorder(|recorder| recorder.register_counter(key, metadata))
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        metrics::with_recorder(|recorder| recorder.register_gauge(key, metadata))
    }

    fn register_histogram(&self, key: &Key, metadata: &Metadata<'_>) -> Histogram {
        metrics::with_recorder(|recorder| recorder.register_histogram(key, metadata))
    }
}
