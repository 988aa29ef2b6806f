//! The feed of those who bring their own consumption: every call to the user, in order.

use super::*;
use crate::io::ExternalCall;

fn bench() -> Bench {
    Bench::with(SourceKind::External, |_| {})
}

fn call(ask: u64, call: ExternalCall) -> LaneAction {
    LaneAction::Source(SourceRequest::External {
        ask: Ask(ask),
        call,
    })
}

fn prepare(ask: u64, names: &[&str]) -> LaneAction {
    let partitions = names.iter().map(|name| p(name)).collect();
    call(ask, ExternalCall::Prepare { partitions })
}

fn start(ask: u64, name: &str, epoch: u64, next: u64) -> LaneAction {
    let (partition, epoch, next) = (p(name), Epoch(epoch), Offset(next));
    call(
        ask,
        ExternalCall::Start {
            partition,
            epoch,
            next,
        },
    )
}

fn revoke(ask: u64, name: &str, epoch: u64) -> LaneAction {
    let (partition, epoch) = (p(name), Epoch(epoch));
    call(ask, ExternalCall::Revoke { partition, epoch })
}

fn lost(ask: u64, name: &str, epoch: u64) -> LaneAction {
    let (partition, epoch) = (p(name), Epoch(epoch));
    call(ask, ExternalCall::Lost { partition, epoch })
}

const READY: LaneAction = LaneAction::Note(LaneNote::ReadyChanged);

fn drained(name: &str) -> LaneAction {
    LaneAction::Note(LaneNote::Drained { partition: p(name) })
}

fn trouble(why: &str) -> LaneAction {
    LaneAction::Note(LaneNote::Trouble(Trouble::Source(why.into())))
}

impl Bench {
    fn user_says(&mut self, ask: u64, result: Result<(), SourceError>) {
        let ask = Ask(ask);
        self.source(SourceEvent::External { ask, result });
    }

    fn commit(&mut self, name: &str, epoch: u64, offset: u64) -> Result<(), CommitRefused> {
        self.lanes
            .commit(self.now, &p(name), Epoch(epoch), Offset(offset))
    }

    /// `a` is served under epoch 1, from offset 5 on.
    fn serving_a() -> Self {
        let mut bench = bench();
        bench.open(A, opening(1, 5));
        assert_eq!(bench.run(), [prepare(1, &[A]), READY]);
        bench.user_says(1, Ok(()));
        assert_eq!(bench.run(), [start(2, A, 1, 5), READY]);
        bench.user_says(2, Ok(()));
        assert_eq!(bench.run(), []);
        bench
    }
}

#[test]
fn ready_is_what_the_user_said_to_be_ready_for_and_changes_are_gathered() {
    let mut bench = bench();
    bench.lanes.attach(bench.now, &p(A));
    assert_eq!(bench.run(), [prepare(1, &[A]), READY]);
    bench.lanes.attach(bench.now, &p(B));
    bench.lanes.attach(bench.now, &p("c"));
    assert_eq!(bench.run(), [READY], "one update at a time");
    bench.user_says(1, Ok(()));
    assert_eq!(bench.run(), [prepare(2, &[A, B, "c"]), READY]);
    assert!(bench.lanes.ready(&p(A)) && !bench.lanes.ready(&p(B)));
    bench.user_says(2, Ok(()));
    assert_eq!(bench.run(), [READY]);
    assert!(bench.lanes.ready(&p(B)));
    for name in [A, B, "c"] {
        bench.lanes.detach(bench.now, &p(name));
    }
    assert_eq!(
        bench.run(),
        [prepare(3, &[]), READY],
        "an empty set is told too"
    );
}

#[test]
fn an_answer_about_a_set_that_a_partition_has_left_does_not_make_it_ready() {
    let mut bench = bench();
    bench.lanes.attach(bench.now, &p(A));
    bench.run();
    bench.lanes.detach(bench.now, &p(A));
    bench.lanes.attach(bench.now, &p(A));
    bench.user_says(1, Ok(()));
    assert_eq!(bench.run(), [prepare(2, &[A]), READY]);
    assert!(!bench.lanes.ready(&p(A)));
}

#[test]
fn a_failed_update_is_told_once_and_tried_again_and_in_the_end_others_know() {
    let mut bench = bench();
    bench.lanes.attach(bench.now, &p(A));
    bench.run();
    bench.user_says(1, Err(error()));
    let why = "the consumer cannot be updated: the source is not available: down";
    assert_eq!(bench.run(), [trouble(why), READY]);
    for ask in 2..=3 {
        assert_eq!(bench.lanes.degraded(), None);
        bench.pass_to_deadline();
        assert_eq!(bench.run(), [prepare(ask, &[A])]);
        bench.user_says(ask, Err(error()));
        assert_eq!(bench.run(), [READY]);
    }
    assert!(bench.lanes.degraded().is_some());
    bench.pass_to_deadline();
    assert_eq!(bench.run(), [prepare(4, &[A])]);
    bench.user_says(4, Ok(()));
    assert_eq!(bench.run(), [READY]);
    assert!(bench.lanes.degraded().is_none() && bench.lanes.ready(&p(A)));
}

#[test]
fn a_partition_starts_once_the_user_is_ready_and_only_with_a_lease() {
    let mut bench = bench();
    bench.lanes.lease(bench.now, bench.now);
    bench.open(A, opening(1, 5));
    assert_eq!(bench.run(), [READY], "nothing without a lease");
    bench.lanes.lease(bench.now, Time::NEVER);
    assert_eq!(bench.run(), [prepare(1, &[A])]);
    bench.lanes.lease(bench.now, bench.now);
    bench.user_says(1, Ok(()));
    assert_eq!(bench.run(), [READY]);
    bench.lanes.lease(bench.now, Time::NEVER);
    assert_eq!(bench.run(), [start(2, A, 1, 5)]);
}

#[test]
fn commits_count_at_once_never_go_back_and_only_under_the_epoch_of_today() {
    let mut bench = Bench::serving_a();
    assert_eq!(bench.progress(A), (None, vec![]));
    assert_eq!(
        bench.commit(A, 1, 4),
        Ok(()),
        "what the record says already"
    );
    assert_eq!(bench.progress(A), (None, vec![]));
    assert_eq!(bench.commit(A, 1, 7), Ok(()));
    assert_eq!(bench.commit(A, 1, 7), Ok(()), "again is fine");
    let back = CommitRefused::GoesBack { next: Offset(8) };
    assert_eq!(bench.commit(A, 1, 6), Err(back));
    let current = Epoch(1);
    assert_eq!(
        bench.commit(A, 0, 9),
        Err(CommitRefused::Fenced { current })
    );
    assert_eq!(
        bench.commit(A, 2, 9),
        Err(CommitRefused::Fenced { current })
    );
    assert_eq!(bench.commit(B, 1, 9), Err(CommitRefused::NotOwned));
    for beyond in [Offset::LARGEST.0 + 1, u64::MAX] {
        let offset = Offset(beyond);
        let too_large = Err(CommitRefused::TooLarge { offset });
        assert_eq!(bench.commit(A, 1, beyond), too_large);
    }
    assert_eq!(bench.progress(A), (Some(7), vec![]));
    assert_eq!(bench.run(), []);
    assert_eq!(bench.commit(A, 1, Offset::LARGEST.0), Ok(()));
    assert_eq!(bench.progress(A), (Some(Offset::LARGEST.0), vec![]));
}

#[test]
fn a_commit_passes_what_was_done_above_the_watermark() {
    let mut bench = bench();
    let done_above = vec![Offset(7), Offset(9)];
    bench.open(
        A,
        Opening {
            done_above,
            ..opening(1, 5)
        },
    );
    bench.commit(A, 1, 7).expect("open");
    assert_eq!(bench.progress(A), (Some(7), vec![9]));
}

#[test]
fn lanes_with_a_source_accept_no_commit_from_outside() {
    let mut bench = Bench::log();
    bench.open(A, opening(1, 5));
    assert_eq!(bench.commit(A, 1, 7), Err(CommitRefused::NotOwned));
}

#[test]
fn a_revoked_partition_is_drained_when_the_user_says_so_with_what_he_committed_meanwhile() {
    let mut bench = Bench::serving_a();
    bench.lanes.close(bench.now, &p(A));
    assert_eq!(bench.run(), [revoke(3, A, 1)]);
    bench.commit(A, 1, 8).expect("until it is released");
    bench.user_says(3, Err(error()));
    let why = "partition a cannot be revoked: the source is not available: down";
    assert_eq!(bench.run(), [trouble(why)], "a live owner is never seized");
    bench.pass_to_deadline();
    assert_eq!(bench.run(), [revoke(4, A, 1)]);
    bench.user_says(4, Ok(()));
    assert_eq!(bench.run(), [drained(A)]);
    assert_eq!(bench.progress(A), (Some(8), vec![]));
    bench.lanes.detach(bench.now, &p(A));
    assert_eq!(bench.run(), [prepare(5, &[]), READY]);
    assert_eq!(bench.commit(A, 1, 9), Err(CommitRefused::NotOwned));
}

#[test]
fn a_partition_that_never_started_is_drained_at_once() {
    let mut bench = bench();
    bench.open(A, opening(1, 5));
    bench.run();
    bench.lanes.close(bench.now, &p(A));
    assert_eq!(bench.run(), [drained(A)]);
}

#[test]
fn a_start_that_failed_is_tried_again_and_may_be_revoked() {
    let mut bench = bench();
    bench.open(A, opening(1, 5));
    bench.run();
    bench.user_says(1, Ok(()));
    assert_eq!(bench.run(), [start(2, A, 1, 5), READY]);
    bench.user_says(2, Err(error()));
    let why = "partition a cannot be started: the source is not available: down";
    assert_eq!(bench.run(), [trouble(why)]);
    bench.pass_to_deadline();
    assert_eq!(bench.run(), [start(3, A, 1, 5)]);
    bench.lanes.close(bench.now, &p(A));
    assert_eq!(bench.run(), [], "one call of a partition at a time");
    bench.user_says(3, Err(error()));
    bench.pass_to_deadline();
    assert_eq!(
        bench.run(),
        [revoke(4, A, 1)],
        "it may have begun all the same"
    );
    bench.user_says(4, Ok(()));
    assert_eq!(bench.run(), [drained(A)]);
}

#[test]
fn a_lost_partition_starts_again_only_after_the_user_answered_to_its_earlier_epoch() {
    let mut bench = Bench::serving_a();
    bench.lanes.abandon(bench.now, &p(A));
    assert_eq!(bench.run(), [prepare(3, &[]), lost(4, A, 1), READY]);
    bench.open(A, opening(3, 9));
    bench.user_says(3, Ok(()));
    assert_eq!(bench.run(), [prepare(5, &[A]), READY]);
    bench.user_says(5, Ok(()));
    assert_eq!(bench.run(), [READY], "the loss is not answered yet");
    // Whatever the answer is: there is nothing to try again.
    bench.user_says(4, Err(error()));
    let why = "partition a cannot be told as lost: the source is not available: down";
    assert_eq!(bench.run(), [trouble(why)]);
    bench.pass_to_deadline();
    assert_eq!(bench.run(), [start(6, A, 3, 9)]);
    let current = Epoch(3);
    assert_eq!(
        bench.commit(A, 1, 9),
        Err(CommitRefused::Fenced { current })
    );
}

#[test]
fn a_partition_lost_while_it_is_revoked_waits_for_that_answer() {
    let mut bench = Bench::serving_a();
    bench.lanes.close(bench.now, &p(A));
    assert_eq!(bench.run(), [revoke(3, A, 1)]);
    bench.lanes.abandon(bench.now, &p(A));
    assert_eq!(bench.run(), [prepare(4, &[]), READY]);
    bench.user_says(3, Ok(()));
    bench.user_says(4, Ok(()));
    assert_eq!(
        bench.run(),
        [READY],
        "let go of in good order: nothing is lost"
    );
}

#[test]
fn a_seized_partition_is_not_suspicious_for_long() {
    let mut bench = bench();
    bench.open(
        A,
        Opening {
            suspicious: true,
            ..opening(2, 5)
        },
    );
    bench.run();
    assert!(!bench.lanes.suspicious(&p(A)));
}

/// A user who answers when and what he likes, and who watches what he is told.
#[derive(Default)]
struct User {
    /// What he was told to start, by partition.
    has: BTreeMap<PartitionId, Epoch>,
    calls: BTreeMap<Ask, ExternalCall>,
}

impl User {
    fn hear(&mut self, actions: Vec<LaneAction>) {
        for action in actions {
            match action {
                LaneAction::Source(SourceRequest::External { ask, call }) => self.call(ask, call),
                LaneAction::Note(LaneNote::Drained { partition }) => {
                    assert!(!self.has.contains_key(&partition), "drained, but in use");
                }
                LaneAction::Note(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn call(&mut self, ask: Ask, call: ExternalCall) {
        let about = |call: &ExternalCall| match call {
            ExternalCall::Prepare { .. } => None,
            ExternalCall::Start { partition, .. }
            | ExternalCall::Revoke { partition, .. }
            | ExternalCall::Lost { partition, .. } => Some(partition.clone()),
        };
        let busy = self.calls.values().any(|c| about(c) == about(&call));
        assert!(!busy, "two at once: {call:?}");
        match &call {
            ExternalCall::Prepare { .. } => {}
            ExternalCall::Start {
                partition, epoch, ..
            } => {
                let had = self.has.insert(partition.clone(), *epoch);
                assert!(
                    had.is_none_or(|had| had == *epoch),
                    "he still has {had:?}: {call:?}"
                );
            }
            ExternalCall::Revoke { partition, epoch } | ExternalCall::Lost { partition, epoch } => {
                assert_eq!(self.has.get(partition), Some(epoch), "{call:?}");
            }
        }
        self.calls.insert(ask, call);
    }

    /// Answers one call.
    fn answer(&mut self, bench: &mut Bench, at: usize, well: bool) {
        let Some(ask) = self.calls.keys().nth(at).copied() else {
            return;
        };
        match self.calls.remove(&ask) {
            Some(ExternalCall::Revoke { partition, .. }) if well => {
                self.has.remove(&partition);
            }
            Some(ExternalCall::Lost { partition, .. }) => {
                self.has.remove(&partition);
            }
            _ => {}
        }
        bench.user_says(ask.0, if well { Ok(()) } else { Err(error()) });
    }
}

#[test]
fn whatever_happens_in_whatever_order_the_user_ends_up_with_what_is_open() {
    for seed in 0..300 {
        let (mut bench, mut user) = (bench(), User::default());
        let mut rng = Rng::new(seed);
        let mut open: BTreeMap<PartitionId, Epoch> = BTreeMap::new();
        for epoch in 1..150 {
            let id = p(["a", "b", "c"][rng.below(3) as usize]);
            match rng.below(12) {
                0..=2 => {
                    bench.open(id.as_str(), opening(epoch, 5));
                    open.insert(id, Epoch(epoch));
                }
                3 => bench.lanes.attach(bench.now, &id),
                4 => {
                    bench.lanes.close(bench.now, &id);
                    open.remove(&id);
                }
                5 => {
                    bench.lanes.abandon(bench.now, &id);
                    open.remove(&id);
                }
                6 => bench.pass(Duration::from_millis(rng.below(500))),
                7 => {
                    let alive = rng.chance(0.7);
                    let until = if alive { Time::NEVER } else { bench.now };
                    bench.lanes.lease(bench.now, until);
                }
                _ => {
                    let at = rng.below(user.calls.len().max(1) as u64) as usize;
                    user.answer(&mut bench, at, rng.chance(0.7));
                }
            }
            user.hear(bench.run());
        }
        bench.lanes.lease(bench.now, Time::NEVER);
        for _ in 0..50 {
            user.hear(bench.run());
            user.answer(&mut bench, 0, true);
            bench.pass(Duration::from_secs(60));
        }
        user.hear(bench.run());
        assert_eq!(user.has, open, "seed {seed}");
        assert!(user.calls.is_empty(), "seed {seed}: {:?}", user.calls);
    }
}
