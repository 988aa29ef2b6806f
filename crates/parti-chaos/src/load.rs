//! The load: numbered messages, at a steady rate, each sent again until the stream says that it has
//! it.
//!
//! ```text
//!   lane 0: partitions 0, 16, 32, …  ─┐
//!   lane 1: partitions 1, 17, 33, …  ─┼──▶ stream ──ack with offset──▶ ledger
//!   …                                ─┘    one message of a lane at a time: order holds
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::jetstream::{self, Context};
use async_nats::{Client, ConnectOptions, HeaderMap};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::failure::{Failure, While};
use crate::ledger::Ledger;

/// So many messages may be under way.
const LANES: u32 = 16;
/// A message whose ack does not come in this time is sent again.
const ACKED_WITHIN: Duration = Duration::from_secs(2);
/// If nothing is acked for this long, another server is tried.
const OTHER_SERVER_AFTER: Duration = Duration::from_secs(4);

/// A load that runs.
pub struct Load {
    stop: Arc<AtomicBool>,
    lanes: Vec<JoinHandle<()>>,
}

/// A connection that does not give up.
pub async fn connect(servers: &str) -> Result<Client, Failure> {
    let servers: Vec<String> = servers.split(',').map(str::to_owned).collect();
    ConnectOptions::new()
        .ping_interval(Duration::from_secs(2))
        .reconnect_delay_callback(|_| Duration::from_millis(50))
        .retry_on_initial_connect()
        .connect(servers)
        .await
        .during("connecting")
}

impl Load {
    /// Publishes to all partitions in turn, so many messages per second in all.
    pub async fn start(
        servers: &str,
        ledger: &Ledger,
        partitions: u32,
        rate: u32,
    ) -> Result<Self, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        let count = LANES.min(partitions);
        let pause = Duration::from_secs_f64(f64::from(count) / f64::from(rate));
        let mut lanes = Vec::new();
        for lane in 0..count {
            let client = connect(servers).await?;
            let (servers, ledger, stop) = (servers.to_owned(), ledger.clone(), stop.clone());
            let first = Instant::now() + pause.mul_f64(f64::from(lane) / f64::from(count));
            lanes.push(tokio::spawn(async move {
                let mut context = jetstream::new(client);
                let mut ticks = tokio::time::interval_at(first, pause);
                for partition in (lane..partitions).step_by(count as usize).cycle() {
                    ticks.tick().await;
                    if stop.load(Ordering::Acquire) {
                        return;
                    }
                    publish(&servers, &mut context, &ledger, partition).await;
                }
            }));
        }
        Ok(Self { stop, lanes })
    }

    /// Publishes no more. What is under way is in the stream then.
    pub async fn stop(self) -> Result<(), Failure> {
        self.stop.store(true, Ordering::Release);
        for lane in self.lanes {
            let ended = tokio::time::timeout(crate::ledger::PATIENCE, lane).await;
            ended
                .during("the load does not end")?
                .during("the load broke")?;
        }
        Ok(())
    }
}

/// Publishes the next number of a partition, until the stream says that it has it, once.
async fn publish(servers: &str, context: &mut Context, ledger: &Ledger, partition: u32) {
    let number = ledger.next_number(partition);
    let mut here_since = Instant::now();
    loop {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Msg-Id", format!("{partition}/{number}").as_str());
        let payload = number.to_string().into();
        let sent = context.publish_with_headers(format!("p.{partition}"), headers, payload);
        let stored = async { sent.await.ok()?.await.ok() };
        // At no place: the server knows the id, and does not say that it has the message.
        if let Ok(Some(stored)) = tokio::time::timeout(ACKED_WITHIN, stored).await
            && stored.sequence > 0
        {
            ledger.published(partition, stored.sequence);
            return;
        }
        // A node that is cut off from the others takes nothing, for as long as that lasts.
        if here_since.elapsed() > OTHER_SERVER_AFTER {
            // Not a reconnection: that would prefer the server that failed least so far.
            if let Ok(client) = connect(servers).await {
                *context = jetstream::new(client);
            }
            here_since = Instant::now();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
