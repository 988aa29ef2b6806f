//! What the groups of these tests have in common: settings, a list that changes, a handler that
//! does as the message says.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use parti::metrics::Metrics;
use parti::{
    Config, HandlerError, Message, Partition, PartitionSource, StaticPartitions, async_trait,
};
use tokio::sync::watch;

use crate::touched::{PATIENCE, Touched};

/// Short times: in these groups it does no harm when somebody is taken for dead by mistake.
pub const CONFIG: &str = "\
heartbeat_interval: 300ms
heartbeat_ttl: 3s
worker_id_ttl: 6s
planned_scale_window: 500ms
cold_start_window: 1s
settle_time: 300ms
operation_timeout: 1s
election_timeout: 1s
startup_timeout: 120s
shutdown_timeout: 30s
checkpoint_flush_interval: 200ms
assignment:
  rebalance_cooldown: 0s
processing:
  start: earliest
jetstream:
  max_deliver: 2
  retry_backoff: [10ms]
  min_update_interval: 1s
  reconcile_interval: 1s
  subject_cap: 2
";

pub fn config() -> Config {
    Config::from_yaml(CONFIG).expect("valid")
}

/// To this recorder, with lags looked up often.
pub fn metrics(touched: &Touched) -> Metrics {
    Metrics::to(touched.clone()).lag_interval(Duration::from_millis(100))
}

/// A list of numbered partitions whose length changes.
#[derive(Clone, Debug)]
pub struct Changing(Arc<Mutex<u32>>);

impl Changing {
    pub fn new(count: u32) -> Self {
        Self(Arc::new(Mutex::new(count)))
    }

    pub fn set(&self, count: u32) {
        *self.0.lock().expect("no panic") = count;
    }
}

#[async_trait]
impl PartitionSource for Changing {
    async fn list(&self) -> Result<Vec<Partition>, HandlerError> {
        let count = *self.0.lock().expect("no panic");
        StaticPartitions::numbered(count).list().await
    }
}

/// Lets messages go on that wait.
#[derive(Clone, Debug)]
pub struct Gate(Arc<watch::Sender<bool>>);

impl Gate {
    pub fn shut() -> Self {
        Self(Arc::new(watch::channel(false).0))
    }

    pub fn open(&self) {
        self.0.send_replace(true);
    }

    /// Does as the message says.
    pub async fn handle(&self, message: Message) -> Result<(), HandlerError> {
        match &message.payload()[..] {
            b"fails" => return Err("as asked for".into()),
            b"panics" => panic!("as asked for"),
            b"waits" => {
                let _ = self.0.subscribe().wait_for(|open| *open).await;
            }
            _ => {}
        }
        Ok(())
    }
}

/// Asks again and again until it is so.
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let came = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(came.is_ok(), "{what} never came");
}
