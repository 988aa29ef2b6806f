//! The rules: ranges of single settings, and what must hold between them.
//!
//! Every broken rule is reported, with field, value and remedy. A rule about a setting that could
//! not even be read is left out, because it would judge a value that nobody gave.

use std::fmt::Display;
use std::time::Duration;

use super::duration::show;
use super::{Config, StrategyChoice};
use crate::codec;
use crate::problem::{Problem, Problems};

/// The shortest duration, where zero makes no sense.
const SHORTEST: Duration = Duration::from_millis(1);
/// The longest duration of any kind: a year. Sums and products of such cannot overflow.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// The highest worker number.
const MAX_WORKER: u64 = 1_000_000;

impl Config {
    /// Checks everything, and reports every problem at once.
    pub fn validate(&self) -> Result<(), Problems> {
        Problems::none_of(self.broken_rules(&[]))
    }

    /// Every broken rule that concerns none of the settings in `unread`.
    pub(super) fn broken_rules(&self, unread: &[String]) -> Vec<Problem> {
        let mut rules = Rules {
            unread,
            out_of_range: Vec::new(),
            problems: Vec::new(),
        };
        self.identity(&mut rules);
        self.sessions(&mut rules);
        self.limits(&mut rules);
        self.leading(&mut rules);
        self.handling(&mut rules);
        self.consumer(&mut rules);
        rules.problems
    }

    fn identity(&self, rules: &mut Rules<'_>) {
        rules.name("worker_id_prefix", &self.worker_id_prefix);
        rules.range("worker_id_max", self.worker_id_max, 0, MAX_WORKER);
        rules.at_least(
            ("worker_id_max", self.worker_id_max),
            ("worker_id_min", self.worker_id_min),
        );
        if let Some(expected) = self.expected_workers {
            rules.range("expected_workers", expected, 1, MAX_WORKER);
            let ids = self
                .worker_id_max
                .saturating_sub(self.worker_id_min)
                .saturating_add(1);
            rules.must(
                &["expected_workers", "worker_id_min", "worker_id_max"],
                expected <= ids || self.worker_id_min > self.worker_id_max,
                expected,
                format!("is more than the {ids} ids from worker_id_min to worker_id_max"),
                "raise worker_id_max, or expect fewer",
            );
        }
    }

    fn sessions(&self, rules: &mut Rules<'_>) {
        rules.some_time("worker_id_ttl", self.worker_id_ttl);
        rules.some_time("heartbeat_interval", self.heartbeat_interval);
        rules.some_time("heartbeat_ttl", self.heartbeat_ttl);
        rules.twice(
            ("heartbeat_ttl", self.heartbeat_ttl),
            ("heartbeat_interval", self.heartbeat_interval),
        );

        let own = &self.leaderless;
        rules.some_time("leaderless.lease_ttl", own.lease_ttl);
        rules.some_time("leaderless.heartbeat", own.heartbeat);
        rules.some_time("leaderless.claim_interval", own.claim_interval);
        rules.any_time("leaderless.grace_period", own.grace_period);
        rules.twice(
            ("leaderless.lease_ttl", own.lease_ttl),
            ("leaderless.heartbeat", own.heartbeat),
        );
        rules.as_long(
            ("worker_id_ttl", self.worker_id_ttl),
            (self.session_ttl_field(), self.session_ttl()),
        );
    }

    fn limits(&self, rules: &mut Rules<'_>) {
        rules.some_time("operation_timeout", self.operation_timeout);
        rules.some_time("election_timeout", self.election_timeout);
        rules.some_time("startup_timeout", self.startup_timeout);
        rules.some_time("shutdown_timeout", self.shutdown_timeout);
        rules.some_time("checkpoint_flush_interval", self.checkpoint_flush_interval);
        // A start is several operations: one that fails slowly must leave time for another.
        let longest_step = if self.operation_timeout >= self.election_timeout {
            ("operation_timeout", self.operation_timeout)
        } else {
            ("election_timeout", self.election_timeout)
        };
        rules.longer(("startup_timeout", self.startup_timeout), longest_step);

        rules.range(
            "retry.max_retries",
            u64::from(self.retry.max_retries),
            0,
            1_000,
        );
        rules.some_time("retry.initial_delay", self.retry.initial_delay);
        rules.some_time("retry.max_delay", self.retry.max_delay);
        rules.as_long(
            ("retry.max_delay", self.retry.max_delay),
            ("retry.initial_delay", self.retry.initial_delay),
        );
        rules.must(
            &["retry.backoff"],
            (1.0..=100.0).contains(&self.retry.backoff),
            self.retry.backoff,
            "is not between 1 and 100",
            "give at least 1.0, so that waits do not shrink",
        );
    }

    fn leading(&self, rules: &mut Rules<'_>) {
        rules.any_time("cold_start_window", self.cold_start_window);
        rules.any_time("planned_scale_window", self.planned_scale_window);
        if let Some(settle) = self.settle_time {
            rules.any_time("settle_time", settle);
        }
        rules.share("restart_detection_ratio", self.restart_detection_ratio);
        rules.share(
            "assignment.min_rebalance_threshold",
            self.assignment.min_rebalance_threshold,
        );
        rules.any_time(
            "assignment.rebalance_cooldown",
            self.assignment.rebalance_cooldown,
        );
        rules.some_time("handoff.prepare_timeout", self.handoff.prepare_timeout);
        rules.some_time("handoff.release_warning", self.handoff.release_warning);
        if let StrategyChoice::ConsistentHash { virtual_nodes } = self.strategy {
            rules.range(
                "strategy.virtual_nodes",
                u64::from(virtual_nodes),
                1,
                10_000,
            );
        }
    }

    fn handling(&self, rules: &mut Rules<'_>) {
        let own = &self.processing;
        rules.range(
            "processing.concurrency",
            u64::from(own.concurrency),
            1,
            100_000,
        );
        rules.range(
            "processing.lane_buffer",
            u64::from(own.lane_buffer),
            1,
            1_000_000,
        );
        // They travel in the partition's record, which must stay well below a store's value limit.
        rules.range(
            "processing.max_done_above",
            u64::from(own.max_done_above),
            1,
            10_000,
        );
        rules.range(
            "processing.suspicion_successes",
            u64::from(own.suspicion_successes),
            1,
            1_000_000,
        );
    }

    fn consumer(&self, rules: &mut Rules<'_>) {
        let own = &self.jetstream;
        rules.name("jetstream.consumer_prefix", &own.consumer_prefix);
        rules.some_time("jetstream.ack_wait", own.ack_wait);
        rules.range(
            "jetstream.max_ack_pending",
            u64::from(own.max_ack_pending),
            1,
            1_000_000,
        );
        rules.range(
            "jetstream.max_waiting",
            u64::from(own.max_waiting),
            1,
            1_000_000,
        );
        rules.range(
            "jetstream.max_deliver",
            u64::from(own.max_deliver),
            1,
            1_000_000,
        );
        for (i, wait) in own.retry_backoff.iter().enumerate() {
            rules.any_time(&format!("jetstream.retry_backoff[{i}]"), *wait);
        }
        rules.must(
            &["jetstream.retry_backoff", "jetstream.max_deliver"],
            own.max_deliver <= 1 || !own.retry_backoff.is_empty(),
            "[]",
            format!(
                "has no wait for the {} tries of max_deliver",
                own.max_deliver
            ),
            "give at least one wait such as [2s], or set max_deliver to 1",
        );
        rules.range(
            "jetstream.subject_cap",
            u64::from(own.subject_cap),
            1,
            1_000_000,
        );
        rules.any_time("jetstream.min_update_interval", own.min_update_interval);
        rules.some_time("jetstream.reconcile_interval", own.reconcile_interval);
        rules.some_time("jetstream.inactive_threshold", own.inactive_threshold);
        // Otherwise the server would forget the consumer of a worker that is still waited for.
        rules.as_long(
            ("jetstream.inactive_threshold", own.inactive_threshold),
            (self.session_ttl_field(), self.session_ttl()),
        );
        rules.range(
            "jetstream.initial_batch",
            u64::from(own.initial_batch),
            1,
            1_000_000,
        );
        rules.at_least(
            ("jetstream.max_ack_pending", u64::from(own.max_ack_pending)),
            ("jetstream.initial_batch", u64::from(own.initial_batch)),
        );
        rules.range(
            "jetstream.sweep_partitions",
            u64::from(own.sweep_partitions),
            1,
            1_000_000,
        );
        rules.some_time("jetstream.catch_up_after", own.catch_up_after);
        rules.must(
            &["jetstream.backpressure"],
            own.backpressure > 0.0 && own.backpressure <= 1.0,
            own.backpressure,
            "is not a share above 0 and up to 1",
            "give a share such as 0.8",
        );
    }
}

/// Collects broken rules.
struct Rules<'a> {
    unread: &'a [String],
    /// Settings that are wrong by themselves: rules between fields would only repeat that.
    out_of_range: Vec<String>,
    problems: Vec<Problem>,
}

type Named<'a, T> = (&'a str, T);

impl Rules<'_> {
    /// One rule over these fields; the first of them is the one to blame.
    fn must(
        &mut self,
        fields: &[&str],
        holds: bool,
        value: impl Display,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let alone = fields.len() == 1;
        let known_wrong = self
            .unread
            .iter()
            .chain(self.out_of_range.iter().filter(|_| !alone));
        let known_wrong = known_wrong.collect::<Vec<_>>();
        if holds
            || fields
                .iter()
                .any(|field| known_wrong.iter().any(|wrong| touches(field, wrong)))
        {
            return;
        }
        if alone {
            self.out_of_range.push(fields[0].to_owned());
        }
        self.problems
            .push(Problem::new(fields[0], value.to_string(), what, remedy));
    }

    fn name(&mut self, field: &str, name: &str) {
        if let Err(problem) = codec::check_name(field, name) {
            self.must(&[field], false, problem.value, problem.what, problem.remedy);
        }
    }

    fn range(&mut self, field: &str, value: u64, least: u64, most: u64) {
        let what = format!("is not between {least} and {most}");
        let near = value.clamp(least, most);
        self.must(
            &[field],
            value == near,
            value,
            what,
            format!("the nearest allowed value is {near}"),
        );
    }

    fn share(&mut self, field: &str, value: f64) {
        let holds = (0.0..=1.0).contains(&value);
        self.must(
            &[field],
            holds,
            value,
            "is not a share between 0 and 1",
            "give a share such as 0.5",
        );
    }

    /// A duration that may be zero.
    fn any_time(&mut self, field: &str, value: Duration) {
        let remedy = format!("give {} at most", show(LONGEST));
        self.must(
            &[field],
            value <= LONGEST,
            show(value),
            "is longer than a year",
            remedy,
        );
    }

    /// A duration that must take some time.
    fn some_time(&mut self, field: &str, value: Duration) {
        self.any_time(field, value);
        let remedy = format!("give {} at least", show(SHORTEST));
        self.must(
            &[field],
            value >= SHORTEST,
            show(value),
            "is too short to mean anything",
            remedy,
        );
    }

    fn at_least(&mut self, (field, value): Named<'_, u64>, (other, least): Named<'_, u64>) {
        let what = format!("is less than {other}, {least}");
        self.must(
            &[field, other],
            value >= least,
            value,
            what,
            format!("raise it to {least}, or lower {other}"),
        );
    }

    fn as_long(
        &mut self,
        (field, value): Named<'_, Duration>,
        (other, least): Named<'_, Duration>,
    ) {
        let what = format!("is shorter than {other}, {}", show(least));
        let remedy = format!("give {} at least, or lower {other}", show(least));
        self.must(&[field, other], value >= least, show(value), what, remedy);
    }

    fn longer(&mut self, (field, value): Named<'_, Duration>, (other, least): Named<'_, Duration>) {
        let what = format!("is not longer than {other}, {}", show(least));
        let remedy = format!("give more than {}, or lower {other}", show(least));
        self.must(&[field, other], value > least, show(value), what, remedy);
    }

    /// One late renewal must not end a session.
    fn twice(&mut self, (field, value): Named<'_, Duration>, (other, once): Named<'_, Duration>) {
        let least = once.saturating_mul(2);
        let what = format!("is shorter than twice {other}, {}", show(once));
        let remedy = format!("give {} at least, or lower {other}", show(least));
        self.must(&[field, other], value >= least, show(value), what, remedy);
    }
}

/// Whether one path is the other, or lies within it.
fn touches(a: &str, b: &str) -> bool {
    let within = |inner: &str, outer: &str| {
        inner
            .strip_prefix(outer)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    within(a, b) || within(b, a)
}
