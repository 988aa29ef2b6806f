//! The lag of each partition that is owned, looked up from time to time.
//!
//! A partition that once had a series keeps it: a recorder forgets nothing. So their number is
//! bounded, and whatever comes later is summed up in one series. What a source cannot tell just now
//! stays as it was told last.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use metrics::Gauge;
use parti_core::ids::{Offset, PartitionId};
use parti_core::time::Time;
use parti_core::worker::Worker;

use super::Metrics;
use super::handles::Registrar;
use super::table::PARTITION_LAG;
use crate::driver::tasks::Tasks;
use crate::source::{Ends, Transport};

/// Stands for all partitions without a series of their own; no partition's id can be this.
const OTHERS: &str = "*";

/// A partition that was just taken is looked up after this time, with the others that come with it.
const SOON: Duration = Duration::from_secs(1);

/// Looks lags up.
pub(super) struct Lag {
    interval: Duration,
    next: Time,
    series: Arc<Mutex<Series>>,
}

/// The series that there are, and what they show.
pub(super) struct Series {
    registrar: Registrar,
    most: usize,
    own: BTreeMap<PartitionId, Gauge>,
    others: Option<Gauge>,
    /// What was last told of each partition that is owned.
    lags: BTreeMap<PartitionId, u64>,
    /// Whether somebody is looking.
    busy: bool,
    /// Grows when everything so far is over: who began to look before that comes too late.
    life: u64,
}

impl Series {
    pub(super) fn new(metrics: &Metrics, registrar: Registrar) -> Self {
        Self {
            registrar,
            most: metrics.partition_series,
            own: BTreeMap::new(),
            others: None,
            lags: BTreeMap::new(),
            busy: false,
            life: 0,
        }
    }

    /// What is owned, and the ends that could be told. A partition of which nothing was told keeps
    /// what it showed: a source that cannot be asked says nothing about lags, least of all that
    /// there are none.
    pub(super) fn told(&mut self, positions: &[(PartitionId, Offset)], ends: Ends) {
        let ends: BTreeMap<PartitionId, Offset> = ends.into_iter().collect();
        let mut before = std::mem::take(&mut self.lags);
        for (id, next) in positions {
            let lag = match ends.get(id) {
                Some(end) => Some(end.0.saturating_sub(next.0)),
                None => before.remove(id),
            };
            if let Some(lag) = lag {
                self.lags.insert(id.clone(), lag);
            }
        }
        self.show();
    }

    fn show(&mut self) {
        for (id, gauge) in &self.own {
            if !self.lags.contains_key(id) {
                gauge.set(0.0);
            }
        }
        let (mut others, mut any) = (0, false);
        for (partition, lag) in &self.lags {
            let room = self.own.len() < self.most;
            if room && !self.own.contains_key(partition) {
                let gauge = self.registrar.gauge(&PARTITION_LAG, &[partition.as_str()]);
                self.own.insert(partition.clone(), gauge);
            }
            match self.own.get(partition) {
                Some(gauge) => gauge.set(*lag as f64),
                None => (others, any) = (others + lag, true),
            }
        }
        if any || self.others.is_some() {
            let registrar = &self.registrar;
            let gauge = self
                .others
                .get_or_insert_with(|| registrar.gauge(&PARTITION_LAG, &[OTHERS]));
            gauge.set(others as f64);
        }
    }

    pub(super) fn clear(&mut self) {
        self.lags.clear();
        self.show();
        self.own.clear();
        self.others = None;
        self.life += 1;
    }
}

impl Lag {
    /// Nothing was looked up yet.
    pub(super) fn new(metrics: &Metrics, registrar: Registrar) -> Self {
        Self {
            interval: metrics.lag_interval,
            next: Time::ZERO,
            series: Arc::new(Mutex::new(Series::new(metrics, registrar))),
        }
    }

    /// The worker goes by another name.
    pub(super) fn rename(&mut self, registrar: Registrar) {
        let mut series = lock(&self.series);
        series.clear();
        series.registrar = registrar;
    }

    /// Nothing is owned any more.
    pub(super) fn clear(&self) {
        lock(&self.series).clear();
    }

    /// There is something new to look up.
    pub(super) fn soon(&mut self, now: Time) {
        self.next = self.next.min(now + SOON);
    }

    /// Has lags looked up, if it is time. The event loop does not wait for it.
    pub(super) fn look(
        &mut self,
        now: Time,
        worker: &Worker,
        transport: &Arc<dyn Transport>,
        tasks: &Tasks,
    ) {
        if now < self.next {
            return;
        }
        self.next = now + self.interval;
        let life = {
            let mut series = lock(&self.series);
            if std::mem::replace(&mut series.busy, true) {
                return;
            }
            series.life
        };
        let positions = worker.positions();
        let positions: Vec<(PartitionId, Offset)> =
            positions.map(|(id, next)| (id.clone(), next)).collect();
        let (transport, busy) = (transport.clone(), Busy(self.series.clone()));
        tasks.spawn(async move {
            let ids = positions.iter().map(|(id, _)| id.clone()).collect();
            let ends = transport.ends(ids).await;
            let mut series = lock(&busy.0);
            if series.life == life {
                series.told(&positions, ends);
            }
        });
    }
}

/// Somebody is looking, until this is dropped.
struct Busy(Arc<Mutex<Series>>);

impl Drop for Busy {
    fn drop(&mut self) {
        lock(&self.0).busy = false;
    }
}

fn lock(series: &Mutex<Series>) -> std::sync::MutexGuard<'_, Series> {
    series.lock().unwrap_or_else(PoisonError::into_inner)
}
