//! A group in memory, and everything that a store can do to it.

use std::sync::Arc;
use std::time::Duration;

use parti::source::MemoryLog;
use parti::store::Memory;
use parti::store::faulty::{Faults, Faulty};
use parti::{Message, PartitionId, StaticPartitions, Worker};

use crate::group::{Gate, config, metrics, until};
use crate::touched::Touched;

const PARTITIONS: u32 = 6;

struct Scene<'a> {
    touched: &'a Touched,
    store: Memory,
    log: MemoryLog,
    gate: Gate,
}

impl Scene<'_> {
    /// A worker with a store of its own to trouble.
    async fn start(&self, seed: u64) -> (Worker, Faulty) {
        let faulty = Faulty::new(Arc::new(self.store.clone()), seed);
        let partitions = StaticPartitions::numbered(PARTITIONS);
        let gate = self.gate.clone();
        let worker = Worker::builder("memory", faulty.clone(), self.log.clone(), partitions)
            .config(config())
            .metrics(metrics(self.touched))
            .start(move |message: Message| {
                let gate = gate.clone();
                async move { gate.handle(message).await }
            })
            .await
            .expect("starts");
        (worker, faulty)
    }

    fn append(&self, payload: &str) {
        for number in 0..PARTITIONS {
            let partition = PartitionId::new(number.to_string());
            self.log.append(&partition, payload.to_owned());
        }
    }
}

/// Runs it all; every metric that a source without a consumer has is fed at its end.
pub async fn run(touched: &Touched) {
    let scene = Scene {
        touched,
        store: Memory::new(),
        log: MemoryLog::new(),
        gate: Gate::shut(),
    };
    let (a, store_of_a) = scene.start(1).await;
    for payload in ["well", "fails", "panics"] {
        scene.append(payload);
    }
    touched
        .until(&[
            "parti_consumer_messages_total",
            "parti_handler_latency_seconds",
            "parti_handler_failures_total",
            "parti_handler_retries_total",
            "parti_dead_letters_total",
            "parti_checkpoint_flush_partitions",
            "parti_checkpoint_flush_age_seconds",
            "parti_lease_margin_seconds",
        ])
        .await;
    for _ in 0..3 {
        scene.append("waits");
    }
    touched.until(&["parti_partition_lag"]).await;
    scene.gate.open();

    let (b, store_of_b) = scene.start(2).await;
    touched
        .until(&[
            "parti_handoff_duration_seconds",
            "parti_handoff_pause_seconds",
            "parti_moving_partitions",
            "parti_rebalances_total",
            "parti_affinity_score",
            "parti_assignment_partitions_removed_total",
            "parti_partitions_released_total",
        ])
        .await;
    store_of_b.break_watches();
    touched
        .until(&[
            "parti_store_watch_restarts_total",
            "parti_store_watch_interruptions_total",
        ])
        .await;

    // B falls silent, is given up, and comes back.
    store_of_b.outage(true);
    touched
        .until(&[
            "parti_lease_lapses_total",
            "parti_heartbeat_failures_total",
            "parti_store_errors_total",
            "parti_troubles_total",
        ])
        .await;
    until("the other's share", || {
        a.assignment().serve.len() == PARTITIONS as usize
    })
    .await;
    store_of_b.outage(false);
    touched
        .until(&[
            "parti_session_losses_total",
            "parti_partitions_fenced_total",
        ])
        .await;

    // The leader falls silent, and another leads.
    store_of_a.outage(true);
    until("another leader", || b.is_leader()).await;
    store_of_a.outage(false);
    touched.until(&["parti_leadership_duration_seconds"]).await;

    // A store so slow that nobody waits for it.
    store_of_a.set(Faults {
        delay: 1.0,
        longest: Duration::from_secs(3600),
        ..Faults::default()
    });
    touched
        .until(&["parti_store_operations_given_up_total"])
        .await;
    store_of_a.set(Faults::default());

    // With every other write failing, takes fail too as partitions come and go.
    let mut seed = 3;
    while !touched.has("parti_take_failures_total") {
        for store in [&store_of_a, &store_of_b] {
            store.set(Faults {
                error: 0.3,
                ..Faults::default()
            });
        }
        let (c, _) = scene.start(seed).await;
        c.stop().await.expect("stops");
        seed += 1;
    }
    for store in [&store_of_a, &store_of_b] {
        store.set(Faults::default());
    }
    for worker in [a, b] {
        worker.stop().await.expect("stops");
    }
}
