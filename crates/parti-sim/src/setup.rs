//! What a seed stands for: the size of the group, its settings, its machines and its traffic.
//!
//! Everything is drawn before the run begins, so that removing a fault from the scenario leaves
//! the rest of the world as it was.

use std::sync::Arc;
use std::time::Duration;

use parti_core::config::{AckMode, Config, Coordination, Ordering, StartPosition, StrategyChoice};
use parti_core::ids::PartitionId;
use parti_core::io::{Retention, SourceKind};
use parti_core::partition::Partition;
use parti_core::rng::Rng;
use serde::{Deserialize, Serialize};

/// Microseconds of the world's own time, which no process can see.
pub type Micros = u64;

/// One second.
pub const SECOND: Micros = 1_000_000;
/// One millisecond.
pub const MILLI: Micros = 1_000;

/// No fault begins after this.
pub const FAULTS_UNTIL: Micros = 40 * SECOND;
/// Everything is healed here.
pub const HEAL_AT: Micros = 42 * SECOND;
/// No message is published after this.
pub const TRAFFIC_UNTIL: Micros = 45 * SECOND;
/// No run ends before this.
pub const SHORTEST_RUN: Micros = 60 * SECOND;

/// What kind of trouble a seed tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Anything, at any time.
    Mixed,
    /// Crashes around chosen writes: every step of a handoff.
    Handoff,
    /// Workers come and go politely; nothing fails.
    Polite,
    /// All workers restart, one after the other.
    Rolling,
    /// The group rests, then the store (or one client's way to it) fails for a while.
    Outage,
    /// The store is replaced by another or goes back in time.
    StoreLoss,
}

/// All that a seed decides before the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// The seed.
    pub seed: u64,
    /// What kind of trouble it tries.
    pub class: Class,
    /// Settings of every worker.
    pub config: Config,
    /// What feeds the lanes.
    #[serde(with = "as_text::Source")]
    pub source: SourceKind,
    /// The partitions, sorted by id.
    pub partitions: Arc<[Partition]>,
    /// The machines that start at the beginning come first.
    pub machines: Vec<Machine>,
    /// How many of them start at the beginning.
    pub initial: usize,
    /// What is published, and how it behaves.
    pub traffic: Traffic,
    /// What handlers do.
    pub handlers: Handlers,
}

/// A machine that can run one process at a time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The number its workers would like in their ids.
    pub preferred: Option<u64>,
    /// How much faster than the world its clock runs, in parts per million.
    pub ppm: i64,
    /// What its clock showed when the world began.
    pub offset: u64,
    /// When its first process starts, if it starts by itself.
    pub starts_at: Micros,
}

/// What is published.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// Messages in all.
    pub messages: u64,
    /// How many of them are there before any worker.
    pub backlog: u64,
    /// Different keys in a partition.
    pub keys: u64,
    /// Chance that a message fails a few times.
    pub failing: f64,
    /// Chance that a message fails always.
    pub poison: f64,
    /// Chance that a message takes long.
    pub slow: f64,
    /// How many messages kill the process that handles them.
    pub killers: u64,
}

/// What handlers do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Handlers {
    /// Shortest normal call.
    pub fastest: Micros,
    /// Longest normal call.
    pub slowest: Micros,
}

/// The source's kind in a file.
mod as_text {
    use super::{Deserialize, Retention, Serialize, SourceKind};

    #[derive(Serialize, Deserialize)]
    #[serde(remote = "SourceKind", rename_all = "snake_case")]
    pub enum Source {
        Log,
        Stream(#[serde(with = "Forgets")] Retention),
        /// Never drawn, and refused in a file: here, handlers handle.
        #[serde(skip)]
        External,
    }

    #[derive(Serialize, Deserialize)]
    #[serde(remote = "Retention", rename_all = "snake_case")]
    pub enum Forgets {
        Limits,
        WorkQueue,
    }
}

impl Setup {
    /// What this seed stands for.
    pub fn of(seed: u64) -> Setup {
        let mut rng = Rng::new(seed ^ 0x7061_7274_6921_0001);
        let class = draw_class(&mut rng);
        let source = match rng.below(10) {
            0..=2 => SourceKind::Log,
            3..=7 => SourceKind::Stream(Retention::Limits),
            _ => SourceKind::Stream(Retention::WorkQueue),
        };
        let partitions = draw_partitions(&mut rng);
        let initial = rng.between(2, 6) as usize;
        let machines = draw_machines(&mut rng, initial);
        let mut config = draw_config(&mut rng, class, initial as u64);
        if source == SourceKind::Stream(Retention::WorkQueue) {
            // A work queue lives by acks.
            config.jetstream.ack = AckMode::Explicit;
        }
        // From lots of its own, so that what a seed stood for before stays as it was.
        let mut lots = Rng::new(seed ^ 0x7061_7274_6921_0006);
        config.jetstream.sweep_partitions = lots.between(1, 8) as u32;
        config.jetstream.catch_up_after = Duration::from_millis(lots.between(1, 600));
        if class == Class::Mixed && rng.chance(0.06) {
            // Not everybody who may come finds an id.
            let ids = rng.between(initial as u64, machines.len() as u64 - 1);
            config.worker_id_max = config.worker_id_min + ids - 1;
        }
        let killers = u64::from(matches!(class, Class::Mixed) && rng.chance(0.1));
        if source != SourceKind::Stream(Retention::WorkQueue)
            && class != Class::StoreLoss
            && killers == 0
        {
            // From lots of its own, so that what a seed stood for before stays as it was.
            let mut lots = Rng::new(seed ^ 0x7061_7274_6921_0005);
            config.processing.reliable = !lots.chance(0.06);
        }
        let slow = if class != Class::Outage && rng.chance(0.3) {
            0.01
        } else {
            0.0
        };
        let traffic = Traffic {
            messages: rng.between(60, 400),
            backlog: if rng.chance(0.4) {
                rng.between(1, 60)
            } else {
                0
            },
            keys: rng.between(1, 5),
            failing: if rng.chance(0.5) { 0.03 } else { 0.0 },
            poison: if rng.chance(0.3) { 0.01 } else { 0.0 },
            slow,
            killers,
        };
        // Quick ones too: of those, several are handled in one run.
        let slowest = match rng.below(10) {
            0..3 => 200 * MILLI,
            3..7 => 20 * MILLI,
            _ => MILLI / 2,
        };
        let handlers = Handlers {
            fastest: 0,
            slowest,
        };
        Setup {
            seed,
            class,
            config,
            source,
            partitions,
            machines,
            initial,
            traffic,
            handlers,
        }
    }

    /// Whether the sessions of this run are hosted for consumers that may go from host to host.
    pub fn hosted(&self) -> bool {
        let fits = matches!(self.class, Class::Mixed | Class::Handoff)
            && self.source == SourceKind::Log
            && self.traffic.killers == 0;
        fits && Rng::new(self.seed ^ 0x7061_7274_6921_000a).chance(0.4)
    }

    /// The main facts in one line.
    pub fn summary(&self) -> String {
        let config = &self.config;
        format!(
            "{:?}, {:?}, {:?}, {:?} order, {:?} acks, {} workers, {} partitions, {} killers{}",
            self.class,
            config.coordination,
            self.source,
            config.processing.ordering,
            config.jetstream.ack,
            self.initial,
            self.partitions.len(),
            self.traffic.killers,
            if config.processing.reliable {
                ""
            } else {
                ", keeps nothing"
            }
        )
    }

    /// The index of a partition.
    pub fn index_of(&self, id: &PartitionId) -> Option<usize> {
        self.partitions
            .binary_search_by(|partition| partition.id.cmp(id))
            .ok()
    }

    /// The lease of a session, in microseconds.
    pub fn ttl(&self) -> Micros {
        micros(self.config.session_ttl())
    }

    /// How long this span is at the least for whoever has the fastest clock.
    pub fn shortest(&self, span: Micros) -> Micros {
        let fastest = self.machines.iter().map(|machine| machine.ppm).max();
        let fastest = fastest.unwrap_or(0).max(0) as u64;
        span / 1000 * 1_000_000 / (1_000_000 + fastest) * 1000
    }

    /// How many stable ids there are.
    pub fn ids(&self) -> usize {
        (self.config.worker_id_max - self.config.worker_id_min) as usize + 1
    }

    /// The time between two renewals, in microseconds.
    pub fn heartbeat(&self) -> Micros {
        micros(self.config.heartbeat())
    }

    /// How long after healing everything must be well again. Each term is a wait that the design
    /// allows; whoever needs longer is stuck.
    pub fn patience(&self) -> Micros {
        let config = &self.config;
        let detection = 3 * self.ttl() + micros(config.operation_timeout) + 3 * SECOND;
        let windows = 2 * micros(config.cold_start_window.max(config.planned_scale_window))
            + 4 * micros(config.settle_time())
            + micros(config.assignment.rebalance_cooldown)
            + micros(config.leaderless.claim_interval + config.leaderless.grace_period) * 3;
        let handoff = 2 * micros(config.handoff.prepare_timeout);
        let ids = micros(config.worker_id_ttl);
        let backoff: Micros = config
            .jetstream
            .retry_backoff
            .iter()
            .map(|wait| micros(*wait))
            .sum();
        let retries = u64::from(config.jetstream.max_deliver) * (backoff + 25 * SECOND);
        let rounds = 1 + self.traffic.killers * (u64::from(config.jetstream.max_deliver) + 3);
        60 * SECOND + rounds * (detection + windows + handoff + ids) + retries
    }
}

/// A duration in microseconds.
pub fn micros(duration: Duration) -> Micros {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn draw_class(rng: &mut Rng) -> Class {
    match rng.below(100) {
        0..=49 => Class::Mixed,
        50..=69 => Class::Handoff,
        70..=77 => Class::Polite,
        78..=85 => Class::Rolling,
        86..=94 => Class::Outage,
        _ => Class::StoreLoss,
    }
}

fn draw_partitions(rng: &mut Rng) -> Arc<[Partition]> {
    let count = rng.between(6, 24);
    let weighted = rng.chance(0.3);
    let mut draw = |number: u64| {
        let name = format!("p{number:02}");
        let weight = if weighted { rng.between(1, 5) } else { 1 };
        Partition {
            id: PartitionId::new(&name),
            keys: vec![name],
            weight,
        }
    };
    (0..count).map(&mut draw).collect()
}

fn draw_machines(rng: &mut Rng, initial: usize) -> Vec<Machine> {
    // Twins share a preferred number; joiners come after the initial ones.
    let spare = rng.between(1, 3) as usize;
    let preferring = rng.chance(0.4);
    let skewed = rng.chance(0.6);
    // Two clocks may differ by nearly the whole margin of a lease.
    let skew = if rng.chance(0.2) { 45_000 } else { 20_000 };
    let together = rng.chance(0.5);
    (0..initial + spare)
        .map(|number| Machine {
            preferred: preferring.then_some(number as u64),
            ppm: if skewed {
                rng.between(0, 2 * skew as u64) as i64 - skew
            } else {
                0
            },
            offset: rng.between(1, 1_000_000 * SECOND),
            starts_at: rng.below(if together { 200 * MILLI } else { 5 * SECOND }),
        })
        .collect()
}

fn draw_config(rng: &mut Rng, class: Class, workers: u64) -> Config {
    let mut config = Config::default();
    let heartbeat = Duration::from_millis(rng.between(500, 2000));
    let ttl = heartbeat * 3 + heartbeat.mul_f64(rng.unit());
    config.heartbeat_interval = heartbeat;
    config.heartbeat_ttl = ttl;
    config.worker_id_ttl = ttl * 2 + ttl.mul_f64(3.0 * rng.unit());
    config.cold_start_window = Duration::from_millis(rng.between(0, 10_000));
    config.planned_scale_window = Duration::from_millis(rng.between(0, 10_000));
    config.settle_time = rng
        .chance(0.5)
        .then(|| Duration::from_millis(rng.between(200, 4_000)));
    config.expected_workers = rng.chance(0.2).then_some(workers);
    config.restart_detection_ratio = 0.3 + 0.6 * rng.unit();
    config.operation_timeout = Duration::from_millis(rng.between(1_000, 5_000));
    config.shutdown_timeout = Duration::from_millis(rng.between(5_000, 15_000));
    config.checkpoint_flush_interval = Duration::from_millis(rng.between(200, 5_000));
    config.coordination = if rng.chance(0.75) {
        Coordination::Leader
    } else {
        Coordination::Leaderless
    };
    config.leaderless.heartbeat = heartbeat;
    config.leaderless.lease_ttl = ttl;
    config.leaderless.claim_interval = Duration::from_millis(rng.between(500, 3_000));
    config.leaderless.grace_period = Duration::from_millis(rng.between(200, 1_000));
    config.strategy = match rng.below(10) {
        0..=4 => StrategyChoice::ConsistentHash {
            virtual_nodes: rng.between(10, 60) as u32,
        },
        5..=6 => StrategyChoice::RoundRobin,
        _ => StrategyChoice::FairShare,
    };
    config.assignment.min_rebalance_threshold = 0.05 + 0.3 * rng.unit();
    config.assignment.rebalance_cooldown = Duration::from_millis(rng.between(0, 10_000));
    config.handoff.prepare_timeout = Duration::from_millis(rng.between(2_000, 10_000));
    config.handoff.release_warning = Duration::from_millis(rng.between(1_000, 10_000));
    config.processing.ordering = match rng.below(10) {
        0..=5 => Ordering::Partition,
        6..=7 => Ordering::Key,
        _ => Ordering::None,
    };
    config.processing.concurrency = rng.between(1, 16) as u32;
    config.processing.lane_buffer = rng.between(4, 64) as u32;
    config.processing.max_done_above = rng.between(8, 256) as u32;
    config.processing.suspicion_successes = rng.between(1, 4) as u32;
    config.processing.start = match rng.below(10) {
        0..=6 => StartPosition::Earliest,
        7..=8 => StartPosition::Latest,
        _ => StartPosition::Offset(rng.between(0, 20)),
    };
    if class == Class::Outage {
        // What an outage may move is only visible in a group that rests before it.
        config.cold_start_window = config.cold_start_window.min(Duration::from_secs(3));
        config.planned_scale_window = config.planned_scale_window.min(Duration::from_secs(3));
    }
    draw_jetstream(rng, &mut config);
    config
}

fn draw_jetstream(rng: &mut Rng, config: &mut Config) {
    let jetstream = &mut config.jetstream;
    jetstream.ack = if rng.chance(0.75) {
        AckMode::Explicit
    } else {
        AckMode::None
    };
    jetstream.ack_wait = Duration::from_millis(rng.between(2_000, 10_000));
    jetstream.max_ack_pending = rng.between(16, 200) as u32;
    jetstream.max_deliver = rng.between(2, 4) as u32;
    jetstream.retry_backoff = (0..rng.between(1, 3))
        .map(|_| Duration::from_millis(rng.between(50, 1_500)))
        .collect();
    jetstream.min_update_interval = Duration::from_millis(rng.between(20, 500));
    jetstream.reconcile_interval = Duration::from_millis(rng.between(3_000, 20_000));
    jetstream.initial_batch = rng.between(1, 50).min(u64::from(jetstream.max_ack_pending)) as u32;
    jetstream.backpressure = 0.5 + 0.4 * rng.unit();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_groups_keep_nothing() {
        let setups = (0..300).map(Setup::of);
        let keeping_nothing = setups.filter(|setup| !setup.config.processing.reliable);
        assert!((5..30).contains(&keeping_nothing.count()));
    }

    #[test]
    fn a_setup_survives_a_file() {
        for seed in 0..300 {
            let setup = Setup::of(seed);
            let text = serde_json::to_string(&setup).expect("plain data");
            let read: Setup = serde_json::from_str(&text).expect("what was written");
            assert_eq!(read, setup, "seed {seed}");
        }
    }
}
