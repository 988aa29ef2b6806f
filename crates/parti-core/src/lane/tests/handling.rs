//! Order, retries, dead letters, leases, closing: on a log, where feeding is plain.

use super::*;

/// A log lane at offset 1 that has read these messages.
fn fed(bench: &mut Bench, name: &str, messages: Vec<Message>) -> Vec<LaneAction> {
    bench.open(name, opening(1, 1));
    feed(bench, messages)
}

fn feed(bench: &mut Bench, messages: Vec<Message>) -> Vec<LaneAction> {
    let (ask, ..) = only_read(&bench.run());
    let end = messages.last().map_or(Offset(1), |m| m.offset.next());
    let batch = ReadBatch {
        messages,
        next: end,
        first: Offset(1),
        end,
    };
    bench.source(SourceEvent::Read {
        ask,
        result: Ok(batch),
    });
    bench.run()
}

fn upto(last: u64) -> Vec<Message> {
    (1..=last).map(msg).collect()
}

fn with_ordering(ordering: Ordering) -> Bench {
    Bench::with(SourceKind::Log, |config| {
        config.processing.ordering = ordering;
        config.processing.max_done_above = 3;
        config.processing.concurrency = 4;
    })
}

#[test]
fn one_lane_runs_one_message_at_a_time_in_order() {
    let mut bench = Bench::log();
    assert_eq!(handled(&fed(&mut bench, A, upto(3)), A), [1]);
    bench.done(A, 1, 1);
    assert_eq!(handled(&bench.run(), A), [2]);
    assert_eq!(bench.progress(A), (Some(1), vec![]));
    bench.done(A, 1, 1);
    assert_eq!(
        handled(&bench.run(), A),
        NONE,
        "a result that comes twice counts once"
    );
}

fn ran(first: u64, done: u32, then: Then) -> Ran {
    let first = Offset(first);
    Ran { first, done, then }
}

#[test]
fn what_waits_goes_along_in_one_run() {
    let mut bench = Bench::log();
    assert_eq!(runs(&fed(&mut bench, A, upto(4)), A), [[1, 2, 3, 4]]);
    bench.ran(A, 1, ran(1, 2, Then::Failed("bad".into())));
    assert_eq!(bench.progress(A), (Some(2), vec![]));
    bench.run();
    bench.pass(Duration::from_secs(2));
    assert_eq!(runs(&bench.run(), A), [[3, 4]]);
    bench.ran(A, 1, ran(3, 2, Then::Ended));
    assert_eq!(bench.progress(A), (Some(4), vec![]));
}

#[test]
fn nothing_waits_behind_a_call_that_has_to_wait() {
    let mut bench = Bench::log();
    fed(&mut bench, A, upto(4));
    bench.ran(A, 1, ran(1, 1, Then::GoesOn(Offset(2))));
    assert_eq!(bench.progress(A), (Some(1), vec![]), "what is done counts");
    assert_eq!(handled(&bench.run(), A), NONE);
    bench.lanes.close(bench.now, &p(A));
    assert_eq!(bench.run(), [], "there is nothing to halt");
    bench.ran(A, 1, ran(2, 1, Then::Ended));
    assert_eq!(notes(&bench.run()), [LaneNote::Drained { partition: p(A) }]);

    let mut bench = Bench::log();
    fed(&mut bench, A, upto(40));
    bench.ran(A, 1, ran(1, 0, Then::GoesOn(Offset(1))));
    for offset in 1..=16 {
        bench.ran(A, 1, ran(offset, 1, Then::Ended));
        assert_eq!(runs(&bench.run(), A), [[offset + 1]]);
    }
    bench.ran(A, 1, ran(17, 1, Then::Ended));
    let tried_again: Vec<u64> = (18..=40).collect();
    assert_eq!(runs(&bench.run(), A), [tried_again]);
}

#[test]
fn what_a_run_did_not_begin_was_never_tried() {
    let mut bench = Bench::log();
    fed(&mut bench, A, upto(3));
    bench.ran(A, 1, ran(1, 0, Then::Ended));
    let attempt = |actions: &[LaneAction]| match actions {
        [LaneAction::Handle(run)] => (run.messages[0].offset.0, run.attempt),
        _ => panic!("{actions:?}"),
    };
    assert_eq!(attempt(&bench.run()), (1, 1));
    bench.ran(A, 1, ran(1, 1, Then::Failed("bad".into())));
    bench.run();
    bench.pass(Duration::from_secs(2));
    assert_eq!(attempt(&bench.run()), (2, 2));
    bench.ran(A, 1, ran(2, 0, Then::Ended));
    assert_eq!(attempt(&bench.run()), (2, 2), "nor did it wait again");
}

#[test]
fn a_lane_that_closes_or_goes_halts_its_run() {
    let mut bench = Bench::log();
    fed(&mut bench, A, upto(3));
    bench.lanes.close(bench.now, &p(A));
    assert_eq!(bench.run(), [LaneAction::Halt(p(A))]);
    bench.ran(A, 1, ran(1, 2, Then::Ended));
    let drained = LaneNote::Drained { partition: p(A) };
    assert_eq!(notes(&bench.run()), [drained]);
    assert_eq!(bench.progress(A), (Some(2), vec![]));
}

#[test]
fn a_run_of_a_lane_that_is_no_more_holds_the_partition_to_its_end() {
    let mut bench = Bench::log();
    fed(&mut bench, A, upto(3));
    bench.lanes.abandon(bench.now, &p(A));
    assert!(bench.run().contains(&LaneAction::Halt(p(A))));
    bench.open(A, opening(2, 1));
    assert_eq!(handled(&feed(&mut bench, upto(3)), A), NONE);
    bench.ran(A, 1, ran(1, 1, Then::GoesOn(Offset(2))));
    assert_eq!(handled(&bench.run(), A), NONE, "its second message runs");
    bench.ran(A, 1, ran(2, 1, Then::Ended));
    assert_eq!(runs(&bench.run(), A), [[1, 2, 3]]);
}

#[test]
fn messages_that_need_not_wait_for_each_other_run_alone() {
    let mut bench = with_ordering(Ordering::None);
    assert_eq!(runs(&fed(&mut bench, A, upto(2)), A), [[1], [2]]);
}

#[test]
fn slots_go_round_over_the_lanes() {
    let mut bench = Bench::with(SourceKind::Log, |c| c.processing.concurrency = 2);
    assert_eq!(handled(&fed(&mut bench, A, upto(9)), A), [1]);
    assert_eq!(handled(&fed(&mut bench, B, upto(9)), B), [1]);
    fed(&mut bench, "c", upto(9));
    bench.done(A, 1, 1);
    let actions = bench.run();
    assert_eq!(
        (handled(&actions, "c"), handled(&actions, A)),
        (vec![1], vec![])
    );
    bench.done(B, 1, 1);
    let actions = bench.run();
    assert_eq!(
        (handled(&actions, A), handled(&actions, B)),
        (vec![2], vec![])
    );
}

#[test]
fn failures_and_panics_are_retried_with_backoff_then_dead_lettered() {
    let mut bench = Bench::log();
    fed(&mut bench, A, upto(2));
    bench.ended(A, 1, 1, HandlerResult::Failed("bad".into()));
    assert_eq!(bench.run(), []);
    assert_eq!(
        bench.lanes.next_deadline(),
        bench.now + Duration::from_secs(2)
    );
    bench.pass(Duration::from_secs(2));
    let attempt = |attempt| {
        vec![LaneAction::Handle(Run {
            partition: p(A),
            epoch: Epoch(1),
            messages: vec![msg(1), msg(2)],
            attempt,
            within: RUN_TIME,
        })]
    };
    assert_eq!(bench.run(), attempt(2));
    bench.ended(A, 1, 1, HandlerResult::Panicked("worse".into()));
    bench.run();
    bench.pass(Duration::from_secs(4));
    assert_eq!(bench.run(), []);
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.run(), attempt(3));
    bench.ended(A, 1, 1, HandlerResult::Panicked("worst".into()));
    let actions = bench.run();
    let [SourceRequest::DeadLetter { ask, job, error }] = &requests(&actions, "Dead")[..] else {
        panic!("{actions:?}")
    };
    assert_eq!(
        (job.message.offset.0, job.attempt, &**error),
        (1, 3, "panicked: worst")
    );
    assert_eq!(
        handled(&actions, A),
        NONE,
        "not done before the dead letter is stored"
    );
    let ask = *ask;

    bench.source(SourceEvent::DeadLettered {
        ask,
        result: Err(super::error()),
    });
    assert_eq!(bench.run(), []);
    assert_eq!(bench.progress(A), (None, vec![]));
    bench.pass_to_deadline();
    let ask = only_ask(&bench.run(), "DeadLetter");
    bench.source(SourceEvent::DeadLettered {
        ask,
        result: Ok(()),
    });
    let actions = bench.run();
    let told = LaneNote::DeadLettered {
        partition: p(A),
        offset: Offset(1),
        attempts: 3,
    };
    assert_eq!(notes(&actions), [told]);
    assert_eq!(
        handled(&actions, A),
        [2],
        "one poison message, and the lane moves on"
    );
    assert_eq!(bench.progress(A), (Some(1), vec![]));
}

#[test]
fn a_poison_message_delays_only_its_own_partition() {
    let mut bench = Bench::log();
    fed(&mut bench, A, upto(3));
    fed(&mut bench, B, upto(3));
    bench.ended(A, 1, 1, HandlerResult::Failed("bad".into()));
    bench.done(B, 1, 1);
    let actions = bench.run();
    assert_eq!(
        (handled(&actions, A), handled(&actions, B)),
        (vec![], vec![2])
    );
}

#[test]
fn nothing_is_handled_without_a_lease_and_the_same_epoch_goes_on_with_one() {
    let mut bench = Bench::log();
    bench
        .lanes
        .lease(bench.now, bench.now + Duration::from_secs(1));
    assert_eq!(handled(&fed(&mut bench, A, upto(3)), A), [1]);
    bench.pass(Duration::from_secs(1));
    bench.done(A, 1, 1);
    assert_eq!(
        handled(&bench.run(), A),
        NONE,
        "at the deadline itself it is over"
    );
    assert_eq!(
        bench.progress(A),
        (Some(1), vec![]),
        "but what was done is done"
    );
    bench
        .lanes
        .lease(bench.now, bench.now + Duration::from_secs(1));
    assert_eq!(handled(&bench.run(), A), [2]);
    bench.done(A, 1, 2);
    bench.lanes.lease(bench.now, Time::ZERO);
    assert_eq!(handled(&bench.run(), A), NONE);
}

#[test]
fn the_same_key_keeps_its_order_and_others_run_beside_it() {
    let mut bench = with_ordering(Ordering::Key);
    let messages = vec![
        keyed(1, 7),
        keyed(2, 7),
        keyed(3, 8),
        keyed(4, 7),
        keyed(5, 9),
    ];
    assert_eq!(handled(&fed(&mut bench, A, messages), A), [1, 3, 5]);
    bench.ended(A, 1, 1, HandlerResult::Failed("bad".into()));
    bench.done(A, 1, 3);
    assert_eq!(handled(&bench.run(), A), NONE, "2 and 4 wait behind 1");
    assert_eq!(
        bench.progress(A),
        (None, vec![3]),
        "the watermark is contiguous"
    );
    bench.pass(Duration::from_secs(2));
    assert_eq!(handled(&bench.run(), A), [1]);
    bench.done(A, 1, 1);
    assert_eq!(handled(&bench.run(), A), [2]);
    assert_eq!(bench.progress(A), (Some(1), vec![3]));
    bench.done(A, 1, 2);
    assert_eq!(bench.progress(A), (Some(3), vec![]));
}

#[test]
fn done_above_is_bounded() {
    let mut bench = with_ordering(Ordering::None);
    assert_eq!(handled(&fed(&mut bench, A, upto(9)), A), [1, 2, 3]);
    bench.done(A, 1, 2);
    bench.done(A, 1, 3);
    assert_eq!(
        handled(&bench.run(), A),
        NONE,
        "a fourth could not be carried"
    );
    bench.done(A, 1, 1);
    assert_eq!(bench.progress(A), (Some(3), vec![]));
    assert_eq!(handled(&bench.run(), A), [4, 5, 6]);
}

#[test]
fn what_is_done_above_is_not_done_again() {
    let mut bench = with_ordering(Ordering::None);
    bench.open(
        A,
        Opening {
            done_above: vec![Offset(2), Offset(4)],
            ..opening(2, 1)
        },
    );
    let actions = feed(&mut bench, upto(5));
    assert_eq!(handled(&actions, A), [1]);
    assert_eq!(
        bench.progress(A),
        (None, vec![2, 4]),
        "carried on, also by the next release"
    );
    bench.done(A, 2, 1);
    assert_eq!(handled(&bench.run(), A), [3, 5]);
    assert_eq!(bench.progress(A), (Some(2), vec![4]));
}

#[test]
fn a_closed_lane_starts_nothing_and_is_drained_when_its_call_ended() {
    let mut bench = Bench::log();
    fed(&mut bench, A, upto(3));
    bench.lanes.close(bench.now, &p(A));
    assert_eq!(bench.run(), [LaneAction::Halt(p(A))]);
    bench.done(A, 1, 1);
    assert_eq!(
        bench.run(),
        [LaneAction::Note(LaneNote::Drained { partition: p(A) })]
    );
    assert_eq!(bench.progress(A), (Some(1), vec![]), "for the release");
}

#[test]
fn a_message_that_waits_for_another_try_does_not_hold_a_close_up() {
    let mut bench = Bench::log();
    fed(&mut bench, A, upto(3));
    bench.ended(A, 1, 1, HandlerResult::Failed("bad".into()));
    bench.run();
    bench.lanes.close(bench.now, &p(A));
    assert_eq!(notes(&bench.run()), [LaneNote::Drained { partition: p(A) }]);
    bench.pass(Duration::from_secs(60));
    assert_eq!(bench.run(), []);
    assert_eq!(bench.progress(A), (None, vec![]), "not done");
}

#[test]
fn closing_waits_for_a_dead_letter_on_its_way() {
    let mut bench = Bench::with(SourceKind::Log, |c| c.jetstream.max_deliver = 1);
    fed(&mut bench, A, upto(3));
    bench.ended(A, 1, 1, HandlerResult::Failed("bad".into()));
    let ask = only_ask(&bench.run(), "DeadLetter");
    bench.lanes.close(bench.now, &p(A));
    assert_eq!(bench.run(), []);
    bench.source(SourceEvent::DeadLettered {
        ask,
        result: Ok(()),
    });
    let told = LaneNote::DeadLettered {
        partition: p(A),
        offset: Offset(1),
        attempts: 1,
    };
    assert_eq!(
        notes(&bench.run()),
        [told, LaneNote::Drained { partition: p(A) }]
    );
    assert_eq!(bench.progress(A), (Some(1), vec![]));
}

#[test]
fn fenced_in_flight_and_reopened_never_runs_two_calls_at_once() {
    let mut bench = Bench::log();
    fed(&mut bench, A, upto(3));
    bench.lanes.abandon(bench.now, &p(A));
    assert_eq!(bench.lanes.progress(&p(A)), None);
    bench.open(A, opening(3, 1));
    assert_eq!(
        handled(&feed(&mut bench, upto(3)), A),
        NONE,
        "the old call is still in flight"
    );
    bench.done(A, 1, 1);
    assert_eq!(handled(&bench.run(), A), [1], "its result does not count");
    assert_eq!(bench.progress(A), (None, vec![]));
    bench.done(A, 3, 1);
    assert_eq!(bench.progress(A), (Some(1), vec![]));
}

#[test]
fn stale_calls_use_slots_and_hold_up_a_close() {
    let mut bench = Bench::with(SourceKind::Log, |c| c.processing.concurrency = 1);
    fed(&mut bench, A, upto(3));
    bench.lanes.abandon(bench.now, &p(A));
    assert_eq!(handled(&fed(&mut bench, B, upto(1)), B), NONE);
    bench.lanes.close(bench.now, &p(A));
    assert_eq!(notes(&bench.run()), []);
    bench.done(A, 1, 1);
    let actions = bench.run();
    assert_eq!(handled(&actions, B), [1]);
    assert_eq!(notes(&actions), [LaneNote::Drained { partition: p(A) }]);
}

#[test]
fn a_start_position_is_resolved_with_patience() {
    let mut bench = Bench::log();
    bench.lanes.resolve(bench.now, &p(A), StartPosition::Latest);
    let ask = only_ask(&bench.run(), "Resolve");
    bench.source(SourceEvent::Resolved {
        ask,
        result: Err(super::error()),
    });
    assert_eq!(bench.run(), []);
    bench.pass_to_deadline();
    let ask = only_ask(&bench.run(), "Resolve");
    bench.source(SourceEvent::Resolved {
        ask,
        result: Ok(Offset(42)),
    });
    assert_eq!(
        notes(&bench.run()),
        [LaneNote::Resolved {
            partition: p(A),
            next: Offset(42)
        }]
    );
    assert_eq!(bench.lanes.next_deadline(), Time::NEVER);
}
