//! What retention removed before it was handled is named.

use super::*;

#[test]
fn retention_that_overtook_is_told_and_the_tail_is_saved() {
    let mut bench = Bench::limits();
    bench.joined(&[A], 10);
    bench.open(A, opening(1, 4));
    let (ask, ..) = only_read(&bench.run());
    bench.deliver(A, 12);
    let batch = ReadBatch {
        messages: vec![],
        next: Offset(11),
        first: Offset(30),
        end: Offset(31),
    };
    bench.source(SourceEvent::Read {
        ask,
        result: Ok(batch),
    });
    let actions = bench.run();
    let trouble = Trouble::RetentionOvertook {
        partition: p(A),
        first: Offset(11),
        lost: 7,
    };
    assert_eq!(notes(&actions), [LaneNote::Trouble(trouble)]);
    assert_eq!(handled(&actions, A), [12]);
}

#[test]
fn what_retention_took_during_a_lapsed_lease_is_told() {
    let mut bench = Bench::limits();
    bench.joined(&[A, B], 10);
    bench.open(A, opening(1, 11));
    bench.open(B, opening(1, 11));
    bench.run();
    bench.lanes.lease(bench.now, Time::ZERO);
    bench.run();
    // Nothing is pulled: 11 to 20 come and go, and the durable goes on as if they had never been.
    bench.pass(Duration::from_secs(1));
    bench.run();
    bench.lanes.lease(bench.now, Time::NEVER);
    let head = only_ask(&bench.run(), "Bounds");
    bench.deliver(A, 31);
    bench.head_answers(head, 30);
    let actions = bench.run();
    assert_eq!(handled(&actions, A), NONE);
    let reads = requests(&actions, "Read");
    assert_eq!(reads.len(), 2, "every lane: {actions:?}");
    let batch = ReadBatch {
        messages: vec![msg(25)],
        next: Offset(31),
        first: Offset(21),
        end: Offset(32),
    };
    bench.source(SourceEvent::Read {
        ask: ask_of(&reads[0]),
        result: Ok(batch),
    });
    let actions = bench.run();
    let trouble = Trouble::RetentionOvertook {
        partition: p(A),
        first: Offset(21),
        lost: 10,
    };
    assert!(notes(&actions).contains(&LaneNote::Trouble(trouble)));
    assert_eq!(handled(&actions, A), [25]);
    bench.done(A, 1, 25);
    assert_eq!(handled(&bench.run(), A), [31]);
}

/// A lane whose handlers are slow, with a full window, or one that goes on.
fn lagging(held: usize) -> Bench {
    let mut bench = Bench::with(SourceKind::Stream(Retention::Limits), |c| {
        c.jetstream.max_ack_pending = 10;
        c.jetstream.initial_batch = 8;
        c.processing.concurrency = 1;
    });
    bench.joined(&[A], 10);
    bench.open(A, opening(1, 11));
    for offset in 11..=18 {
        bench.deliver_of(A, offset, 100);
    }
    bench.run();
    for offset in 11..=(18 - held as u64) {
        bench.done(A, 1, offset);
        bench.run();
    }
    bench
}

fn passed(actions: &[LaneAction]) -> Vec<(u64, u64, u64)> {
    let of = |note: LaneNote| match note {
        LaneNote::Trouble(Trouble::RetentionPassed {
            partitions,
            from,
            first,
            lost,
        }) => {
            assert_eq!(partitions, [p(A)]);
            Some((from.0, first.0, lost))
        }
        _ => None,
    };
    notes(actions).into_iter().filter_map(of).collect()
}

#[test]
fn what_retention_took_from_before_a_consumer_that_lags_is_told() {
    // In a full window, and in one with room, which the server fills all the time.
    for held in [8, 2] {
        let mut bench = lagging(held);
        bench.pass(Duration::from_secs(1));
        let ask = only_ask(&bench.run(), "Bounds");
        bench.bounds_answer(ask, 1, 200);
        assert_eq!(passed(&bench.run()), [], "all that came is there");
        // 19 to 30 go. The server brings 31 next, as if they had never been.
        bench.deliver_of(A, 31, 80);
        bench.deliver_of(A, 33, 79);
        bench.pass(Duration::from_secs(1));
        let ask = only_ask(&bench.run(), "Bounds");
        bench.deliver_of(A, 40, 70);
        bench.bounds_answer(ask, 31, 200);
        assert_eq!(passed(&bench.run()), [(19, 31, 12)], "held {held}");
        // What came while it was asked is judged by the next answer.
        bench.pass(Duration::from_secs(9));
        assert_eq!(
            requests(&bench.run(), "Bounds"),
            [],
            "losses are told together"
        );
        bench.pass(Duration::from_secs(1));
        let ask = only_ask(&bench.run(), "Bounds");
        bench.bounds_answer(ask, 41, 200);
        assert_eq!(passed(&bench.run()), [(34, 41, 6)], "held {held}");
    }
}

#[test]
fn who_keeps_up_does_not_ask_and_who_caught_up_asks_once() {
    let mut bench = lagging(2);
    bench.deliver_of(A, 19, 0);
    bench.pass(Duration::from_secs(5));
    assert_eq!(requests(&bench.run(), "Bounds"), [], "it was but a moment");
    bench.deliver_of(A, 20, 5);
    bench.run();
    bench.pass(Duration::from_millis(1_500));
    bench.deliver_of(A, 30, 0);
    let ask = only_ask(&bench.run(), "Bounds");
    bench.bounds_answer(ask, 25, 31);
    assert_eq!(passed(&bench.run()), [(21, 25, 4)]);
    bench.pass(Duration::from_secs(5));
    assert_eq!(requests(&bench.run(), "Bounds"), []);
}

#[test]
fn what_is_passed_over_right_before_the_end_of_a_long_lag_is_told() {
    let mut bench = lagging(2);
    bench.pass(Duration::from_secs(1));
    let ask = only_ask(&bench.run(), "Bounds");
    bench.bounds_answer(ask, 1, 200);
    bench.run();
    bench.deliver_of(A, 30, 0);
    bench.pass(Duration::from_secs(1));
    let ask = only_ask(&bench.run(), "Bounds");
    bench.bounds_answer(ask, 30, 31);
    assert_eq!(passed(&bench.run()), [(19, 30, 11)]);
}

#[test]
fn what_was_passed_over_before_a_gap_is_told_and_what_lies_behind_it_is_read() {
    let mut bench = lagging(2);
    bench.deliver_of(A, 25, 50);
    bench.source(SourceEvent::Reconnected);
    let head = only_ask(&bench.run(), "Bounds");
    bench.bounds_answer(head, 1, 60);
    bench.run();
    bench.pass(Duration::from_secs(1));
    let ask = only_ask(&bench.run(), "Bounds");
    bench.bounds_answer(ask, 40, 60);
    let actions = bench.run();
    assert_eq!(passed(&actions), [(19, 26, 6)], "the rest is the reader's");
}

#[test]
fn who_gives_a_partition_away_asks_before_it_is_gone() {
    let mut bench = lagging(2);
    bench.deliver_of(A, 25, 50);
    bench.run();
    bench.lanes.close(bench.now, &p(A));
    let ask = only_ask(&bench.run(), "Bounds");
    bench.bounds_answer(ask, 23, 60);
    assert_eq!(passed(&bench.run()), [(19, 23, 4)]);
}

#[test]
fn an_answer_that_fails_leaves_the_question() {
    let mut bench = lagging(2);
    bench.deliver_of(A, 25, 50);
    bench.pass(Duration::from_secs(1));
    let ask = only_ask(&bench.run(), "Bounds");
    bench.source(SourceEvent::Bounds {
        ask,
        result: Err(SourceError::Unavailable("no answer".into())),
    });
    assert_eq!(passed(&bench.run()), []);
    bench.pass(Duration::from_secs(1));
    let ask = only_ask(&bench.run(), "Bounds");
    bench.bounds_answer(ask, 23, 60);
    assert_eq!(passed(&bench.run()), [(19, 23, 4)]);
}
