//! Configuration: every setting with its default.

use std::time::Duration;

/// All settings of a worker. Every worker of a group should have the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Prefix of worker ids.
    pub worker_id_prefix: String,
    /// Lowest worker number.
    pub worker_id_min: u64,
    /// Highest worker number.
    pub worker_id_max: u64,
    /// How long a silent worker's id stays reserved for it.
    pub worker_id_ttl: Duration,
    /// How often a worker renews its session.
    pub heartbeat_interval: Duration,
    /// After how much silence a session may be ended.
    pub heartbeat_ttl: Duration,
    /// How long a new group waits for its workers, at the most.
    pub cold_start_window: Duration,
    /// How long a running group waits for further changes before it rebalances, at the most.
    pub planned_scale_window: Duration,
    /// This share of workers lost within one `heartbeat_ttl` is a restart, not a crash.
    pub restart_detection_ratio: f64,
    /// Quiet membership for this long ends any window early. Default: two heartbeats.
    pub settle_time: Option<Duration>,
    /// A cold start ends as soon as so many workers are present.
    pub expected_workers: Option<u64>,
    /// Limit for one operation on the store, and for listing partitions.
    pub operation_timeout: Duration,
    /// Limit for one call of an election agent.
    pub election_timeout: Duration,
    /// Limit for the start: id, election, first assignment. The cold-start window does not count.
    pub startup_timeout: Duration,
    /// Limit for a graceful stop.
    pub shutdown_timeout: Duration,
    /// How often dirty checkpoints are flushed.
    pub checkpoint_flush_interval: Duration,
    /// Who decides: one leader, or every worker for itself.
    pub coordination: Coordination,
    /// How partitions are spread.
    pub strategy: StrategyChoice,
    /// When to move partitions merely for balance.
    pub assignment: AssignmentConfig,
    /// Limits of a handoff.
    pub handoff: HandoffConfig,
    /// Timings of leaderless mode; they replace the heartbeat's.
    pub leaderless: LeaderlessConfig,
    /// Retries of the start's own steps.
    pub retry: RetryConfig,
    /// How messages are handled.
    pub processing: ProcessingConfig,
    /// The JetStream consumer.
    pub jetstream: JetStreamConfig,
}

/// Who decides who serves what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coordination {
    /// One elected leader.
    #[default]
    Leader,
    /// Every worker for itself, by the same pure function.
    Leaderless,
}

/// Which strategy spreads partitions over workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StrategyChoice {
    /// Weighted consistent hash with bounded load.
    ConsistentHash {
        /// Virtual nodes per worker.
        virtual_nodes: u32,
    },
    /// One after the other.
    RoundRobin,
    /// Equal counts, fewest moves.
    FairShare,
}

/// When to move partitions merely for balance.
#[derive(Clone, Debug, PartialEq)]
pub struct AssignmentConfig {
    /// The least gain in balance that is worth a move.
    pub min_rebalance_threshold: f64,
    /// The least time between two such moves.
    pub rebalance_cooldown: Duration,
}

/// Limits of a handoff.
#[derive(Clone, Debug, PartialEq)]
pub struct HandoffConfig {
    /// How long a new owner may take to get ready before the move is rolled back.
    pub prepare_timeout: Duration,
    /// After how long a slow release is reported. A live owner is never seized.
    pub release_warning: Duration,
}

/// Timings of leaderless mode.
#[derive(Clone, Debug, PartialEq)]
pub struct LeaderlessConfig {
    /// After how much silence a session may be ended.
    pub lease_ttl: Duration,
    /// How often a worker renews its session.
    pub heartbeat: Duration,
    /// How often a worker looks for free partitions.
    pub claim_interval: Duration,
    /// How long a worker does not claim again what it just released.
    pub grace_period: Duration,
}

/// Retries with exponential backoff.
#[derive(Clone, Debug, PartialEq)]
pub struct RetryConfig {
    /// How many retries before the start fails. Background loops never give up.
    pub max_retries: u32,
    /// The first wait.
    pub initial_delay: Duration,
    /// The longest wait.
    pub max_delay: Duration,
    /// Growth from wait to wait.
    pub backoff: f64,
}

/// How messages are handled.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessingConfig {
    /// What keeps its order.
    pub ordering: Ordering,
    /// How many handler calls may run at once in this worker.
    pub concurrency: u32,
    /// How many messages one lane may buffer.
    pub lane_buffer: u32,
    /// How many done offsets above the checkpoint a lane may carry (`key` and `none`).
    pub max_done_above: u32,
    /// After a seizure, so many messages in a row must succeed before suspicion ends.
    pub suspicion_successes: u32,
    /// Where a new subscription starts.
    pub start: StartPosition,
}

/// What keeps its order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ordering {
    /// All messages of a partition, one at a time.
    #[default]
    Partition,
    /// Messages of a partition that have the same key.
    Key,
    /// Nothing.
    None,
}

/// Where a new subscription starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartPosition {
    /// After the newest message.
    #[default]
    Latest,
    /// At the oldest message.
    Earliest,
    /// At this offset.
    Offset(u64),
    /// At the first message not older than this, in milliseconds since the Unix epoch.
    Time(u64),
}

/// The JetStream consumer, and what its lanes inherit from it.
#[derive(Clone, Debug, PartialEq)]
pub struct JetStreamConfig {
    /// Prefix of the durable's name.
    pub consumer_prefix: String,
    /// Whether messages are acked one by one.
    pub ack: AckMode,
    /// Redelivery of what was not acked.
    pub ack_wait: Duration,
    /// Messages in flight per consumer.
    pub max_ack_pending: u32,
    /// Open pulls per consumer.
    pub max_waiting: u32,
    /// How often a message is tried before it is dead-lettered.
    pub max_deliver: u32,
    /// Waits between tries; the last one repeats.
    pub retry_backoff: Vec<Duration>,
    /// Most subjects a consumer may have.
    pub subject_cap: u32,
    /// Least time between two consumer updates.
    pub min_update_interval: Duration,
    /// How often the server's consumer is compared with the wanted one.
    pub reconcile_interval: Duration,
    /// The server forgets an idle consumer after this long.
    pub inactive_threshold: Duration,
    /// Messages asked for by the first pull; adapts from there.
    pub initial_batch: u32,
    /// Pulling stops at this share of `max_ack_pending`.
    pub backpressure: f64,
}

/// Whether messages are acked one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AckMode {
    /// Each message is acked when handled.
    #[default]
    Explicit,
    /// The server keeps no account; the checkpoint alone counts.
    None,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            worker_id_prefix: "worker".into(),
            worker_id_min: 0,
            worker_id_max: 99,
            worker_id_ttl: Duration::from_secs(30),
            heartbeat_interval: Duration::from_secs(2),
            heartbeat_ttl: Duration::from_secs(6),
            cold_start_window: Duration::from_secs(30),
            planned_scale_window: Duration::from_secs(10),
            restart_detection_ratio: 0.5,
            settle_time: None,
            expected_workers: None,
            operation_timeout: Duration::from_secs(10),
            election_timeout: Duration::from_secs(5),
            startup_timeout: Duration::from_secs(30),
            shutdown_timeout: Duration::from_secs(10),
            checkpoint_flush_interval: Duration::from_secs(5),
            coordination: Coordination::Leader,
            strategy: StrategyChoice::ConsistentHash { virtual_nodes: 150 },
            assignment: AssignmentConfig {
                min_rebalance_threshold: 0.15,
                rebalance_cooldown: Duration::from_secs(10),
            },
            handoff: HandoffConfig {
                prepare_timeout: Duration::from_secs(10),
                release_warning: Duration::from_secs(10),
            },
            leaderless: LeaderlessConfig {
                lease_ttl: Duration::from_secs(5),
                heartbeat: Duration::from_secs(2),
                claim_interval: Duration::from_secs(3),
                grace_period: Duration::from_secs(1),
            },
            retry: RetryConfig {
                max_retries: 3,
                initial_delay: Duration::from_secs(1),
                max_delay: Duration::from_secs(30),
                backoff: 2.0,
            },
            processing: ProcessingConfig {
                ordering: Ordering::Partition,
                concurrency: 16,
                lane_buffer: 256,
                max_done_above: 1024,
                suspicion_successes: 3,
                start: StartPosition::Latest,
            },
            jetstream: JetStreamConfig {
                consumer_prefix: "parti".into(),
                ack: AckMode::Explicit,
                ack_wait: Duration::from_secs(30),
                max_ack_pending: 500,
                max_waiting: 256,
                max_deliver: 3,
                retry_backoff: vec![
                    Duration::from_secs(2),
                    Duration::from_secs(5),
                    Duration::from_secs(15),
                ],
                subject_cap: 500,
                min_update_interval: Duration::from_millis(500),
                reconcile_interval: Duration::from_secs(30),
                inactive_threshold: Duration::from_secs(24 * 60 * 60),
                initial_batch: 50,
                backpressure: 0.8,
            },
        }
    }
}

impl Config {
    /// How often this worker renews its session, in its mode of coordination.
    pub fn heartbeat(&self) -> Duration {
        match self.coordination {
            Coordination::Leader => self.heartbeat_interval,
            Coordination::Leaderless => self.leaderless.heartbeat,
        }
    }

    /// After how much silence a session may be ended, in this mode of coordination.
    pub fn session_ttl(&self) -> Duration {
        match self.coordination {
            Coordination::Leader => self.heartbeat_ttl,
            Coordination::Leaderless => self.leaderless.lease_ttl,
        }
    }

    /// How long membership must be quiet for a window to end early.
    pub fn settle_time(&self) -> Duration {
        self.settle_time.unwrap_or(self.heartbeat() * 2)
    }
}
