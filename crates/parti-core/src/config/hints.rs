//! Advice: settings that are allowed, but seldom what one wants. Hints are data; the runtime knows
//! the store and decides which to show.

use std::time::Duration;

use super::Config;
use super::duration::show;

/// How long a replicated NATS store may take to answer again after losing a node (4.2 to 7.6 s
/// were measured on three nodes, and with a TTL of 10 s no session was lost).
const FAILOVER: Duration = Duration::from_secs(10);

/// One piece of advice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    /// Which setting.
    pub field: &'static str,
    /// Its value.
    pub value: String,
    /// What to consider.
    pub advice: String,
    /// Where this matters.
    pub applies: HintFor,
}

/// Where a hint matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HintFor {
    /// Everywhere.
    Any,
    /// Only on a store that several servers replicate.
    ReplicatedStore,
    /// Only on a JetStream source.
    JetStream,
}

impl Config {
    /// Advice that stops nobody.
    pub fn hints(&self) -> Vec<Hint> {
        let mut hints = Vec::new();
        let mut hint = |when: bool, applies, field, value: String, advice: String| {
            if when {
                hints.push(Hint {
                    field,
                    value,
                    advice,
                    applies,
                });
            }
        };

        let ttl = self.session_ttl();
        hint(
            ttl < FAILOVER,
            HintFor::ReplicatedStore,
            self.session_ttl_field(),
            show(ttl),
            format!(
                "is shorter than a replicated store may need to fail over ({}); a lost store node can pause workers",
                show(FAILOVER)
            ),
        );
        for (field, window) in [
            ("cold_start_window", self.cold_start_window),
            ("planned_scale_window", self.planned_scale_window),
        ] {
            let settle = self.settle_time();
            hint(
                !window.is_zero() && settle > window,
                HintFor::Any,
                field,
                show(window),
                format!(
                    "is shorter than settle_time ({}), which then has no effect on it",
                    show(settle)
                ),
            );
        }
        hint(
            self.restart_detection_ratio == 0.0,
            HintFor::Any,
            "restart_detection_ratio",
            "0".into(),
            "makes every crash count as a restart, so that lost partitions wait for cold_start_window".into(),
        );
        hint(
            u64::from(self.processing.lane_buffer) >= u64::from(self.jetstream.max_ack_pending),
            HintFor::JetStream,
            "processing.lane_buffer",
            self.processing.lane_buffer.to_string(),
            format!(
                "is not below jetstream.max_ack_pending ({}), so one slow partition can hold up all others",
                self.jetstream.max_ack_pending
            ),
        );
        hint(
            !self.jetstream.retry_backoff.is_sorted(),
            HintFor::Any,
            "jetstream.retry_backoff",
            self.jetstream
                .retry_backoff
                .iter()
                .map(|wait| show(*wait))
                .collect::<Vec<_>>()
                .join(", "),
            "has a wait that is shorter than the one before".into(),
        );
        hints
    }
}
