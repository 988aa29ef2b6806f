//! Configuration: every setting with its type, its default and what it means, in one table.
//!
//! ```text
//!  YAML ─┐                  ┌─ wrong types, bad durations, unknown fields ─┐
//!        ├─▶ tree ─▶ Config ┤                                              ├─▶ Problems, all at once
//!  JSON ─┘                  └─ ranges, rules between fields ───────────────┘
//! ```
//!
//! The `settings!` tables below make the structs, their defaults, the reader, the writer and the
//! JSON schema. Rules are in `validate`, advice is in `hints`.

mod duration;
mod hints;
mod load;
#[macro_use]
mod settings;
#[cfg(test)]
mod tests;
mod validate;
mod values;

use std::time::Duration;

pub use duration::{parse as parse_duration, show as show_duration};
pub use hints::{Hint, HintFor};

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

settings! {
    /// All settings of a worker. Every worker of a group should have the same.
    pub struct Config {
        /// Prefix of worker ids.
        pub worker_id_prefix: String = "worker".into(),
        /// Lowest worker number.
        pub worker_id_min: u64 = 0,
        /// Highest worker number.
        pub worker_id_max: u64 = 99,
        /// How long a silent worker's id stays reserved for it.
        pub worker_id_ttl: Duration = secs(30),
        /// How often a worker renews its session.
        pub heartbeat_interval: Duration = secs(2),
        /// After how much silence a session may be ended.
        pub heartbeat_ttl: Duration = secs(6),
        /// How long a new group waits for its workers, at the most.
        pub cold_start_window: Duration = secs(30),
        /// How long a running group waits for further changes before it rebalances, at the most.
        pub planned_scale_window: Duration = secs(10),
        /// This share of workers lost within one `heartbeat_ttl` is a restart, not a crash.
        pub restart_detection_ratio: f64 = 0.5,
        /// Quiet membership for this long ends any window early. Default: two heartbeats.
        pub settle_time: Option<Duration> = None,
        /// A cold start ends as soon as so many workers are present.
        pub expected_workers: Option<u64> = None,
        /// Limit for one operation on the store, and for listing partitions.
        pub operation_timeout: Duration = secs(10),
        /// Limit for one call of an election agent. A renewal in the store never waits for longer
        /// than a heartbeat.
        pub election_timeout: Duration = secs(5),
        /// Limit for the start: id, election, first assignment. The cold-start window does not count.
        pub startup_timeout: Duration = secs(30),
        /// Limit for a graceful stop. A handler call that still runs shortly before it is cut off,
        /// named, and its message handled again: it should be well above what a message takes.
        pub shutdown_timeout: Duration = secs(10),
        /// How often dirty checkpoints are flushed.
        pub checkpoint_flush_interval: Duration = secs(5),
        /// Who decides: one leader, or every worker for itself.
        pub coordination: Coordination = Coordination::Leader,
        /// How partitions are spread.
        pub strategy: StrategyChoice = StrategyChoice::ConsistentHash { virtual_nodes: 150 },
        /// When to move partitions merely for balance.
        pub assignment: AssignmentConfig = AssignmentConfig::default(),
        /// Limits of a handoff.
        pub handoff: HandoffConfig = HandoffConfig::default(),
        /// Timings of leaderless mode; they replace the heartbeat's.
        pub leaderless: LeaderlessConfig = LeaderlessConfig::default(),
        /// Retries of the start's own steps.
        pub retry: RetryConfig = RetryConfig::default(),
        /// How messages are handled.
        pub processing: ProcessingConfig = ProcessingConfig::default(),
        /// The JetStream consumer.
        pub jetstream: JetStreamConfig = JetStreamConfig::default(),
    }
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

impl Coordination {
    /// Its name in configurations and records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Leaderless => "leaderless",
        }
    }
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

settings! {
    /// When to move partitions merely for balance.
    pub struct AssignmentConfig {
        /// The least gain in balance that is worth a move.
        pub min_rebalance_threshold: f64 = 0.15,
        /// The least time between two such moves.
        pub rebalance_cooldown: Duration = secs(10),
    }
}

settings! {
    /// Limits of a handoff.
    pub struct HandoffConfig {
        /// How long a new owner may take to get ready before the move is rolled back.
        pub prepare_timeout: Duration = secs(10),
        /// After how long a slow release is reported. A live owner is never seized.
        pub release_warning: Duration = secs(10),
    }
}

settings! {
    /// Timings of leaderless mode.
    pub struct LeaderlessConfig {
        /// After how much silence a session may be ended.
        pub lease_ttl: Duration = secs(5),
        /// How often a worker renews its session.
        pub heartbeat: Duration = secs(2),
        /// How often a worker looks for free partitions.
        pub claim_interval: Duration = secs(3),
        /// How long a worker does not claim again what it just released.
        pub grace_period: Duration = secs(1),
    }
}

settings! {
    /// Retries with exponential backoff.
    pub struct RetryConfig {
        /// How many retries before the start fails. Background loops never give up.
        pub max_retries: u32 = 3,
        /// The first wait.
        pub initial_delay: Duration = secs(1),
        /// The longest wait.
        pub max_delay: Duration = secs(30),
        /// Growth from wait to wait.
        pub backoff: f64 = 2.0,
    }
}

settings! {
    /// How messages are handled.
    pub struct ProcessingConfig {
        /// What keeps its order.
        pub ordering: Ordering = Ordering::Partition,
        /// How many handler calls may run at once in this worker.
        pub concurrency: u32 = 16,
        /// How many messages one lane may buffer.
        pub lane_buffer: u32 = 256,
        /// How many done offsets above the checkpoint a lane may carry (`key` and `none`).
        pub max_done_above: u32 = 1024,
        /// After a seizure, so many messages in a row must succeed before suspicion ends.
        pub suspicion_successes: u32 = 3,
        /// Where a new subscription starts.
        pub start: StartPosition = StartPosition::Latest,
        /// Whether progress is written to the store. If not, a worker keeps its progress in memory,
        /// and whoever else takes a partition begins at `start`.
        pub reliable: bool = true,
    }
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

settings! {
    /// The JetStream consumer, and what its lanes inherit from it.
    pub struct JetStreamConfig {
        /// Prefix of the durable's name.
        pub consumer_prefix: String = "parti".into(),
        /// Whether messages are acked one by one.
        pub ack: AckMode = AckMode::Explicit,
        /// Redelivery of what was not acked.
        pub ack_wait: Duration = secs(30),
        /// Messages in flight per consumer. With `ack: none` the server counts none, and a worker
        /// whose handlers do more than so many in 20 ms holds up to four times as many.
        pub max_ack_pending: u32 = 500,
        /// Open pulls per consumer.
        pub max_waiting: u32 = 256,
        /// How often a message is tried before it is dead-lettered.
        pub max_deliver: u32 = 3,
        /// Waits between tries; the last one repeats.
        pub retry_backoff: Vec<Duration> = vec![secs(2), secs(5), secs(15)],
        /// Most subjects a consumer may have.
        pub subject_cap: u32 = 500,
        /// Least time between two consumer updates.
        pub min_update_interval: Duration = Duration::from_millis(500),
        /// How often the server's consumer is compared with the wanted one.
        pub reconcile_interval: Duration = secs(30),
        /// The server forgets an idle consumer after this long.
        pub inactive_threshold: Duration = secs(24 * 60 * 60),
        /// Messages asked for by the first pull; adapts from there.
        pub initial_batch: u32 = 50,
        /// Pulling stops when this share of `max_ack_pending` waits for handlers.
        pub backpressure: f64 = 0.8,
        /// From so many partitions with a backlog on, one read of the whole stream serves them all.
        pub sweep_partitions: u32 = 16,
        /// A consumer that would need longer than this for what is pending is put at the stream's
        /// end, and what it has not delivered is read past it (limits retention only).
        pub catch_up_after: Duration = secs(3),
    }
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

    /// The setting that [`Config::session_ttl`] comes from.
    fn session_ttl_field(&self) -> &'static str {
        match self.coordination {
            Coordination::Leader => "heartbeat_ttl",
            Coordination::Leaderless => "leaderless.lease_ttl",
        }
    }

    /// How long membership must be quiet for a window to end early.
    pub fn settle_time(&self) -> Duration {
        self.settle_time
            .unwrap_or(self.heartbeat().saturating_mul(2))
    }
}
