//! Planning of consumer updates: which filter to send, and when.
//!
//! ```text
//!  want / unwant ──▶ wanted ──differs from answered?──▶ over the cap? ──▶ interval over? ──▶ send
//!                               │ no: skip, counted      │ yes: degraded,     (coalesces)     │
//!                                                          nothing is sent                    ▼
//!            answered = sent ◀── ok ──────────────────────────────────────────────────── in flight
//!            answered stays, wait with jitter ◀── failed ──────────────────────────────────┘
//! ```
//!
//! An empty filter list means *the whole stream*, so an empty wish deletes the consumer instead.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::config::Config;
use crate::feed::backoff::Backoff;
use crate::ids::PartitionId;
use crate::io::{Ask, SourceRequest};
use crate::rng::Rng;
use crate::time::Time;

/// What update planning did so far, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpdateCounters {
    /// Updates and deletions sent.
    pub attempted: u64,
    /// Those that were answered well.
    pub succeeded: u64,
    /// Those that were not.
    pub failed: u64,
    /// Changes of the wish that ended where the consumer already was.
    pub skipped: u64,
    /// Subjects wished for that were wished for already.
    pub duplicates: u64,
    /// Subjects added by updates that were answered well.
    pub added: u64,
    /// Subjects removed by updates that were answered well.
    pub removed: u64,
    /// Updates that mended a consumer which somebody else had changed, deleted or recreated.
    pub drift_repaired: u64,
}

/// After so many failures in a row the worker counts as degraded.
const FAILURES_TO_DEGRADE: u32 = 3;

/// Plans the updates of one durable.
#[derive(Debug)]
pub(crate) struct Planner {
    wanted: BTreeSet<PartitionId>,
    /// What the last good answer said the consumer delivers; `None` while that is unknown.
    answered: Option<BTreeSet<PartitionId>>,
    /// The last set that was answered well, for counting.
    last_good: BTreeSet<PartitionId>,
    /// What the consumer delivers for sure, whatever became of updates that failed since.
    sure: BTreeSet<PartitionId>,
    in_flight: Option<(Ask, BTreeSet<PartitionId>)>,
    /// Not before this time: minimum interval, or backoff after a failure.
    not_before: Time,
    /// Somebody else changed the consumer, and that is not mended yet.
    drifted: bool,
    failures: u32,
    last_error: String,
    /// Whether one of the failures in a row was a refusal.
    refused: bool,
    backoff: Backoff,
    min_interval: Duration,
    cap: usize,
    pub(crate) counters: UpdateCounters,
}

impl Planner {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            wanted: BTreeSet::new(),
            answered: None,
            last_good: BTreeSet::new(),
            sure: BTreeSet::new(),
            in_flight: None,
            not_before: Time::ZERO,
            drifted: false,
            failures: 0,
            last_error: String::new(),
            refused: false,
            backoff: Backoff::new(
                config
                    .jetstream
                    .min_update_interval
                    .max(Duration::from_millis(10)),
                config.retry.max_delay,
            ),
            min_interval: config.jetstream.min_update_interval,
            cap: config.jetstream.subject_cap as usize,
            counters: UpdateCounters::default(),
        }
    }

    /// The consumer should deliver this partition.
    pub(crate) fn want(&mut self, partition: &PartitionId) {
        if !self.wanted.insert(partition.clone()) {
            self.counters.duplicates += 1;
        }
        self.count_no_op();
    }

    /// Whether the consumer should deliver this partition.
    pub(crate) fn wants(&self, partition: &PartitionId) -> bool {
        self.wanted.contains(partition)
    }

    /// The consumer should deliver this partition no longer.
    pub(crate) fn unwant(&mut self, partition: &PartitionId) {
        if self.wanted.remove(partition) {
            self.count_no_op();
        }
    }

    fn count_no_op(&mut self) {
        if self.in_flight.is_none() && self.answered.as_ref() == Some(&self.wanted) {
            self.counters.skipped += 1;
        }
    }

    /// What the consumer is like now is not known.
    pub(crate) fn forget_answer(&mut self) {
        self.answered = None;
        self.sure.clear();
    }

    /// The consumer is not what the last answer said: it was recreated or edited by someone else.
    pub(crate) fn found_drift(&mut self) {
        self.forget_answer();
        self.drifted = true;
    }

    /// How many subjects the last good update asked for.
    pub(crate) fn subjects(&self) -> u64 {
        self.last_good.len() as u64
    }

    /// Whether the consumer delivers this partition for sure.
    pub(crate) fn delivers(&self, partition: &PartitionId) -> bool {
        self.sure.contains(partition)
    }

    /// Whether the consumer may still deliver this partition.
    pub(crate) fn may_deliver(&self, partition: &PartitionId) -> bool {
        let sent = |(_, set): &(Ask, BTreeSet<PartitionId>)| set.contains(partition);
        self.in_flight.as_ref().is_some_and(sent)
            || self
                .answered
                .as_ref()
                .is_none_or(|set| set.contains(partition))
    }

    /// Whether there is a consumer at all, as far as known.
    pub(crate) fn has_consumer(&self) -> bool {
        !self.sure.is_empty()
    }

    /// Whether the last answer is known and nothing is under way or wished for.
    pub(crate) fn is_settled(&self) -> bool {
        self.in_flight.is_none() && self.answered.as_ref() == Some(&self.wanted)
    }

    /// Whether nothing has been answered yet, or what was answered holds no more.
    pub(crate) fn is_unknown(&self) -> bool {
        self.answered.is_none()
    }

    /// Whether no partition is wished for.
    pub(crate) fn wants_nothing(&self) -> bool {
        self.wanted.is_empty()
    }

    /// What the consumer should deliver by the last good answer, if nothing is under way since.
    pub(crate) fn known(&self) -> Option<Vec<PartitionId>> {
        let answered = self
            .answered
            .as_ref()
            .filter(|_| self.in_flight.is_none())?;
        Some(answered.iter().cloned().collect())
    }

    /// Whether something stays that the consumer delivers for sure.
    pub(crate) fn keeps(&self) -> bool {
        self.wanted.iter().any(|p| self.sure.contains(p))
    }

    /// The update cannot be sent yet, because of this.
    pub(crate) fn put_off(&mut self, now: Time, error: String, rng: &mut Rng) {
        self.failures += 1;
        self.last_error = error;
        self.not_before = self.not_before.max(now + self.backoff.next(rng));
    }

    /// Whether an update is due now.
    pub(crate) fn is_due(&self, now: Time) -> bool {
        self.needs_update() && self.in_flight.is_none() && self.not_before <= now
    }

    /// Whether the consumer is not as wished for, whenever that can be mended.
    pub(crate) fn needs_update(&self) -> bool {
        let differs = match &self.answered {
            // A consumer left behind by an earlier life with no wish for it: nothing to hurry for.
            None => !self.wanted.is_empty() || self.counters.attempted > 0,
            Some(answered) => *answered != self.wanted,
        };
        differs && self.wanted.len() <= self.cap
    }

    /// Whether the due update adds a partition that the consumer does not have for sure.
    pub(crate) fn adds(&self) -> bool {
        self.wanted.iter().any(|p| !self.sure.contains(p))
    }

    /// When to look again.
    pub(crate) fn next_deadline(&self) -> Time {
        let waits = self.needs_update() && self.in_flight.is_none();
        if waits { self.not_before } else { Time::NEVER }
    }

    /// Sends the wish: an update, or a deletion where nothing is wanted.
    pub(crate) fn send(&mut self, now: Time, ask: Ask) -> SourceRequest {
        if planted!(EmptyFilterList) {
            return self.begin(now, ask, self.wanted.clone(), true);
        }
        self.begin(now, ask, self.wanted.clone(), false)
    }

    /// Sends a deletion, whatever is wanted: the way to a clean start.
    pub(crate) fn send_delete(&mut self, now: Time, ask: Ask) -> SourceRequest {
        self.begin(now, ask, BTreeSet::new(), false)
    }

    fn begin(
        &mut self,
        now: Time,
        ask: Ask,
        set: BTreeSet<PartitionId>,
        even_empty: bool,
    ) -> SourceRequest {
        self.counters.attempted += 1;
        self.not_before = now + self.min_interval;
        // From now on, the consumer may have either set.
        self.sure.retain(|p| set.contains(p));
        let partitions: Vec<_> = set.iter().cloned().collect();
        self.in_flight = Some((ask, set));
        if partitions.is_empty() && !even_empty {
            SourceRequest::DeleteConsumer { ask }
        } else {
            SourceRequest::UpdateConsumer { ask, partitions }
        }
    }

    /// Takes in an answer. `None`: not to this planner's request; otherwise whether it went well.
    pub(crate) fn answer(
        &mut self,
        now: Time,
        ask: Ask,
        error: Option<String>,
        rng: &mut Rng,
    ) -> Option<bool> {
        let (_, sent) = self.in_flight.take_if(|(asked, _)| *asked == ask)?;
        if let Some(error) = error {
            self.counters.failed += 1;
            self.failures += 1;
            self.last_error = error;
            // The last good answer stays, but a failed update may have been carried out: it is
            // sent again even if the wish goes back to what was answered.
            self.not_before = self.not_before.max(now + self.backoff.next(rng));
            self.answered = None;
            return Some(false);
        }
        self.counters.succeeded += 1;
        self.counters.added += sent.difference(&self.last_good).count() as u64;
        self.counters.removed += self.last_good.difference(&sent).count() as u64;
        self.last_good = sent.clone();
        // A deletion on the way to what is wanted says nothing about whether that can be had.
        if !sent.is_empty() || self.wanted.is_empty() {
            self.failures = 0;
            self.refused = false;
            self.counters.drift_repaired += u64::from(std::mem::take(&mut self.drifted));
        }
        self.backoff.reset();
        self.sure = sent.clone();
        self.answered = Some(sent);
        Some(true)
    }

    /// The last failure is none: what was in the way can be removed, and is being.
    pub(crate) fn forgive(&mut self) {
        self.failures = self.failures.saturating_sub(1);
    }

    /// The last failure was a refusal. Others that follow do not end it.
    pub(crate) fn was_refused(&mut self) {
        self.refused = true;
    }

    /// What the source refuses again and again, if it does.
    pub(crate) fn refused(&self) -> Option<String> {
        (self.refused && self.failures >= FAILURES_TO_DEGRADE).then(|| self.failed())
    }

    fn failed(&self) -> String {
        format!(
            "{} consumer updates failed in a row: {}",
            self.failures, self.last_error
        )
    }

    /// What is wrong with this consumer, if anything is.
    pub(crate) fn degraded(&self) -> Option<String> {
        if self.wanted.len() > self.cap {
            return Some(format!(
                "{} subjects wanted, but subject_cap is {}: the consumer keeps its last filter; \
                 raise jetstream.subject_cap or add workers",
                self.wanted.len(),
                self.cap
            ));
        }
        (self.failures >= FAILURES_TO_DEGRADE).then(|| self.failed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p(name: &str) -> PartitionId {
        PartitionId::new(name)
    }

    fn planner() -> (Planner, Rng) {
        let mut config = Config::default();
        config.jetstream.subject_cap = 3;
        (Planner::new(&config), Rng::new(1))
    }

    const INTERVAL: Duration = Duration::from_millis(500);

    #[test]
    fn a_burst_becomes_one_update_and_the_next_waits_for_the_interval() {
        let (mut planner, mut rng) = planner();
        planner.want(&p("a"));
        planner.want(&p("b"));
        planner.want(&p("b"));
        let now = Time(1_000);
        assert!(planner.is_due(now));
        assert_eq!(
            planner.send(now, Ask(1)),
            SourceRequest::UpdateConsumer {
                ask: Ask(1),
                partitions: vec![p("a"), p("b")]
            }
        );
        planner.want(&p("c"));
        assert!(!planner.is_due(now), "one request in flight");
        assert!(!planner.delivers(&p("a")), "not answered yet");
        assert_eq!(planner.answer(now, Ask(1), None, &mut rng), Some(true));
        assert!(planner.delivers(&p("a")) && !planner.delivers(&p("c")));
        assert!(!planner.is_due(now));
        assert_eq!(planner.next_deadline(), now + INTERVAL);
        assert!(planner.is_due(now + INTERVAL));
        assert_eq!(planner.counters.duplicates, 1);
        assert_eq!(planner.counters.added, 2);
    }

    #[test]
    fn a_wish_that_comes_back_is_a_counted_no_op() {
        let (mut planner, mut rng) = planner();
        planner.want(&p("a"));
        let _ = planner.send(Time(1), Ask(1));
        planner.answer(Time(1), Ask(1), None, &mut rng);
        planner.want(&p("b"));
        planner.unwant(&p("b"));
        assert_eq!(planner.counters.skipped, 1);
        assert!(!planner.is_due(Time(1) + INTERVAL));
        assert_eq!(planner.next_deadline(), Time::NEVER);
    }

    #[test]
    fn drift_counts_as_repaired_once_an_update_lands() {
        let (mut planner, mut rng) = planner();
        planner.want(&p("a"));
        let _ = planner.send(Time(1), Ask(1));
        planner.answer(Time(1), Ask(1), None, &mut rng);
        assert_eq!(
            (planner.subjects(), planner.counters.drift_repaired),
            (1, 0)
        );
        planner.found_drift();
        let mut now = Time(1) + INTERVAL;
        let _ = planner.send(now, Ask(2));
        planner.answer(now, Ask(2), Some("no".into()), &mut rng);
        assert_eq!(planner.counters.drift_repaired, 0, "it failed");
        now = planner.next_deadline();
        let _ = planner.send(now, Ask(3));
        planner.answer(now, Ask(3), None, &mut rng);
        assert_eq!(planner.counters.drift_repaired, 1);
        planner.want(&p("b"));
        let _ = planner.send(now + INTERVAL, Ask(4));
        planner.answer(now + INTERVAL, Ask(4), None, &mut rng);
        assert_eq!(
            planner.counters.drift_repaired, 1,
            "an update like any other"
        );
    }

    #[test]
    fn nothing_wanted_deletes_and_never_sends_an_empty_filter() {
        let (mut planner, mut rng) = planner();
        assert!(
            !planner.is_due(Time(1)),
            "nothing wanted, nothing known: nothing to do"
        );
        planner.want(&p("a"));
        let _ = planner.send(Time(1), Ask(1));
        planner.answer(Time(1), Ask(1), None, &mut rng);
        planner.unwant(&p("a"));
        let later = Time(1) + INTERVAL;
        assert!(planner.is_due(later));
        assert_eq!(
            planner.send(later, Ask(2)),
            SourceRequest::DeleteConsumer { ask: Ask(2) }
        );
    }

    #[test]
    fn over_the_cap_nothing_is_sent_and_it_is_named() {
        let (mut planner, mut rng) = planner();
        planner.want(&p("a"));
        let _ = planner.send(Time(1), Ask(1));
        planner.answer(Time(1), Ask(1), None, &mut rng);
        for name in ["b", "c", "d"] {
            planner.want(&p(name));
        }
        assert!(!planner.is_due(Time(1) + INTERVAL * 10));
        assert!(
            planner
                .degraded()
                .is_some_and(|d| d.contains("subject_cap is 3"))
        );
        assert!(planner.delivers(&p("a")), "the last good filter stays");
        planner.unwant(&p("d"));
        assert!(planner.is_due(Time(1) + INTERVAL));
        assert_eq!(planner.degraded(), None);
    }

    #[test]
    fn a_failed_update_keeps_the_last_good_one_and_is_sent_again_later() {
        let (mut planner, mut rng) = planner();
        planner.want(&p("a"));
        planner.want(&p("b"));
        let _ = planner.send(Time(1), Ask(1));
        planner.answer(Time(1), Ask(1), None, &mut rng);
        planner.unwant(&p("b"));
        let mut now = Time(1) + INTERVAL;
        for round in 0..3 {
            assert!(planner.is_due(now));
            let _ = planner.send(now, Ask(2 + round));
            assert_eq!(
                planner.answer(now, Ask(2 + round), Some("no".into()), &mut rng),
                Some(false)
            );
            assert!(planner.delivers(&p("a")));
            assert!(!planner.delivers(&p("b")), "it may have been removed");
            assert!(!planner.is_due(now));
            now = planner.next_deadline();
        }
        assert!(
            planner
                .degraded()
                .is_some_and(|d| d.contains("3 consumer updates failed"))
        );
        // Wanted again: what failed may have landed, so that this is not a no-op.
        planner.want(&p("b"));
        assert!(planner.is_due(now));
    }

    #[test]
    fn answers_to_other_requests_are_not_taken() {
        let (mut planner, mut rng) = planner();
        planner.want(&p("a"));
        let _ = planner.send(Time(1), Ask(5));
        assert_eq!(planner.answer(Time(1), Ask(4), None, &mut rng), None);
        assert_eq!(planner.answer(Time(1), Ask(5), None, &mut rng), Some(true));
    }

    #[test]
    fn a_deletion_in_between_does_not_hide_that_updates_fail() {
        let (mut planner, mut rng) = planner();
        planner.want(&p("a"));
        let mut now = Time(1_000);
        for round in 0..3 {
            assert_eq!(planner.degraded(), None, "{round}");
            now = now + Duration::from_secs(60);
            planner.send_delete(now, Ask(2 * round));
            planner.answer(now, Ask(2 * round), None, &mut rng);
            now = now + Duration::from_secs(60);
            planner.send(now, Ask(2 * round + 1));
            let refused = Some("a stranger has the subject".into());
            planner.answer(now, Ask(2 * round + 1), refused, &mut rng);
        }
        let why = planner.degraded().expect("three in a row");
        assert!(why.contains("a stranger"), "{why}");
        planner.forgive();
        assert_eq!(planner.degraded(), None);
    }
}
