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
    let head = only_ask(&bench.run(), "Head");
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

#[test]
fn what_retention_took_while_the_window_was_full_is_told() {
    for (stands, first) in [(3, 31), (3, 19), (0, 31)] {
        let mut bench = Bench::with(SourceKind::Stream(Retention::Limits), |c| {
            c.jetstream.max_ack_pending = 10;
            c.jetstream.initial_batch = 8;
            c.processing.concurrency = 1;
        });
        bench.joined(&[A], 10);
        bench.open(A, opening(1, 11));
        for offset in 11..=18 {
            bench.deliver(A, offset);
        }
        bench.run();
        bench.pass(Duration::from_secs(stands));
        bench.run();
        for offset in 11..=15 {
            bench.done(A, 1, offset);
        }
        let actions = bench.run();
        if stands == 0 {
            assert_eq!(requests(&actions, "Read"), [], "it was asked all the time");
            continue;
        }
        let (ask, from, upto) = only_read(&actions);
        assert_eq!((from, upto), (19, Some(19)));
        assert_eq!(requests(&actions, "Pull"), [], "not before that is known");
        let batch = ReadBatch {
            messages: vec![],
            next: Offset(20),
            first: Offset(first),
            end: Offset(32),
        };
        bench.source(SourceEvent::Read {
            ask,
            result: Ok(batch),
        });
        let actions = bench.run();
        let heads = requests(&actions, "Head");
        assert_eq!(heads.len(), usize::from(first > 19), "first {first}");
        assert_eq!(requests(&actions, "Pull").len(), 1, "first {first}");
    }
}
