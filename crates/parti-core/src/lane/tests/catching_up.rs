//! A stream with limits retention, with a long way to its end: sweeps, and a durable that lags.

use super::*;
use crate::io::Swath;

const C: &str = "c";

/// Three lanes on a stream that ends at `last`; two make a sweep.
fn behind(last: u64, nexts: [u64; 3]) -> Bench {
    let mut bench = Bench::with(SourceKind::Stream(Retention::Limits), |c| {
        c.jetstream.sweep_partitions = 2;
        c.jetstream.catch_up_after = Duration::from_secs(3);
        c.processing.concurrency = 64;
    });
    bench.joined(&[A, B, C], last);
    for (name, next) in [A, B, C].into_iter().zip(nexts) {
        bench.open(name, opening(1, next));
    }
    bench
}

/// Answers first reads: every lane has one message where it starts, and more to come.
fn probed(bench: &mut Bench, reads: &[SourceRequest]) -> Vec<LaneAction> {
    let mut actions = Vec::new();
    for read in reads {
        let SourceRequest::Read {
            ask, from, limit, ..
        } = read
        else {
            panic!("{read:?} is no read");
        };
        assert_eq!(*limit, 2, "a little at first");
        bench.read_answers(*ask, &[from.0], from.0 + 1);
        actions.extend(bench.run());
    }
    actions
}

fn only_sweep(actions: &[LaneAction]) -> (Ask, Vec<String>, u64, u64) {
    match requests(actions, "Sweep").as_slice() {
        [
            SourceRequest::Sweep {
                ask,
                partitions,
                from,
                upto,
                ..
            },
        ] => {
            let names = partitions.iter().map(ToString::to_string).collect();
            (*ask, names, from.0, upto.0)
        }
        _ => panic!("one sweep expected in {actions:#?}"),
    }
}

fn swept(bench: &mut Bench, ask: Ask, messages: &[(&str, u64)], next: u64) {
    let messages = messages.iter().map(|(name, o)| (p(name), msg(*o)));
    let swath = Swath {
        messages: messages.collect(),
        next: Offset(next),
        first: Offset(0),
    };
    let result = Ok(swath);
    bench.source(SourceEvent::Swept { ask, result });
}

#[test]
fn lanes_with_much_to_read_are_read_by_one_sweep_in_order() {
    let mut bench = behind(100, [1, 1, 1]);
    let reads = requests(&bench.run(), "Read");
    assert_eq!(reads.len(), 3);
    let actions = probed(&mut bench, &reads);
    let (ask, names, from, upto) = only_sweep(&actions);
    assert_eq!(
        (names, from, upto),
        (vec![A.into(), B.into(), C.into()], 2, 100)
    );
    assert_eq!(requests(&actions, "Read"), [], "and by nothing else");
    swept(&mut bench, ask, &[(A, 4), (B, 5), (A, 6)], 50);
    let mut order = handled(&actions, A);
    let actions = bench.run();
    for offset in [1, 4, 6] {
        bench.done(A, 1, offset);
        order.extend(handled(&bench.run(), A));
    }
    assert_eq!(order, [1, 4, 6]);
    // C got nothing: it is looked at for itself before more is read for it.
    assert_eq!(only_read(&actions).1, 50);
}

#[test]
fn a_lane_below_the_sweep_reads_alone_and_the_others_go_on() {
    let mut bench = behind(100, [1, 90, 90]);
    let reads = requests(&bench.run(), "Read");
    let actions = probed(&mut bench, &reads);
    let (ask, names, from, _) = only_sweep(&actions);
    assert_eq!((names, from), (vec![B.to_string(), C.into()], 91));
    let (read, from, upto) = only_read(&actions);
    assert_eq!((from, upto), (2, Some(100)), "A for itself");
    swept(&mut bench, ask, &[(B, 91), (C, 92)], 93);
    bench.read_answers(read, &[50], 101);
    let (_, names, from, _) = only_sweep(&bench.run());
    assert_eq!((names, from), (vec![B.to_string(), C.into()], 93));
}

/// The server says in the middle of the stream that it has no more, and brought some before or not.
#[test]
fn a_sweep_that_ends_early_goes_on_where_it_ended_and_one_that_brought_nothing_is_tried_again() {
    let mut bench = behind(100, [1, 1, 1]);
    let reads = requests(&bench.run(), "Read");
    let actions = probed(&mut bench, &reads);
    let mut order = handled(&actions, A);
    let (ask, _, from, _) = only_sweep(&actions);
    assert_eq!(from, 2);
    swept(&mut bench, ask, &[(A, 2), (B, 3), (C, 4)], 5);
    let actions = bench.run();
    let (ask, names, from, upto) = only_sweep(&actions);
    let all = vec![A.into(), B.into(), C.into()];
    assert_eq!(
        (names, from, upto),
        (all.clone(), 5, 100),
        "no more, no less"
    );

    swept(&mut bench, ask, &[], 5);
    let actions = bench.run();
    assert_eq!(requests(&actions, "Sweep"), [], "not at once");
    assert_eq!(requests(&actions, "Read"), [], "nor by each for itself");
    bench.pass_to_deadline();
    let (ask, names, from, _) = only_sweep(&bench.run());
    assert_eq!((names, from), (all, 5), "nothing counts as looked at");

    swept(&mut bench, ask, &[(A, 5), (B, 6), (C, 7)], 101);
    order.extend(handled(&bench.run(), A));
    for offset in [1, 2, 5] {
        bench.done(A, 1, offset);
        order.extend(handled(&bench.run(), A));
    }
    assert_eq!(order, [1, 2, 5]);
}

#[test]
fn a_sweep_that_keeps_failing_leaves_it_to_reads() {
    let mut bench = behind(100, [1, 1, 1]);
    let reads = requests(&bench.run(), "Read");
    let mut actions = probed(&mut bench, &reads);
    for _ in 0..3 {
        let (ask, ..) = only_sweep(&actions);
        bench.source(SourceEvent::Swept {
            ask,
            result: Err(error()),
        });
        actions = bench.run();
        if requests(&actions, "Read").is_empty() {
            bench.pass_to_deadline();
            actions = bench.run();
        }
    }
    assert_eq!(requests(&actions, "Read").len(), 3);
    assert_eq!(requests(&actions, "Sweep"), []);
}

#[test]
fn a_durable_that_lags_is_put_at_the_end_and_every_lane_is_spliced() {
    let mut bench = behind(100, [101, 101, 101]);
    bench.run();
    let deliver = |bench: &mut Bench, offset, pending| {
        let sequence = bench.next_sequence;
        bench.next_sequence += 1;
        bench.source(SourceEvent::Delivered {
            consumer: 1,
            sequence,
            partition: p(A),
            message: msg(offset),
            pending,
        });
        bench.done(A, 1, offset);
    };
    deliver(&mut bench, 101, 50_000);
    deliver(&mut bench, 150, 49_999);
    let before = bench.run();
    assert_eq!(requests(&before, "StopPull"), []);
    let pulls = requests(&before, "Pull");
    bench.pass_to_deadline();
    let stops = requests(&bench.run(), "StopPull");
    assert!(
        !stops.is_empty(),
        "in a second it brought two of fifty thousand: {pulls:?}"
    );
    assert_eq!(
        requests(&bench.run(), "ResetConsumer"),
        [],
        "not with a pull open"
    );
    for stop in stops {
        bench.source(SourceEvent::PullEnded { ask: ask_of(&stop) });
    }
    let reset = only_ask(&bench.run(), "ResetConsumer");
    bench.consumer_answers(reset, 2, 0);
    let actions = bench.run();
    assert!(!requests(&actions, "Pull").is_empty(), "from its new place");
    bench.head_answers(only_ask(&actions, "Bounds"), 90_000);
    let reads = requests(&bench.run(), "Read");
    assert_eq!(reads.len(), 3, "each from where it was");
    assert!(matches!(
        &reads[0],
        SourceRequest::Read {
            from: Offset(151),
            upto: Some(Offset(90_000)),
            ..
        }
    ));
}

#[test]
fn a_hundred_rapid_changes_are_three_updates_at_the_most_and_no_ops_none() {
    let mut bench = Bench::with(SourceKind::Stream(Retention::Limits), |c| {
        c.jetstream.min_update_interval = Duration::from_millis(500);
    });
    let mut updates = 0;
    let mut answer = |bench: &mut Bench| loop {
        let actions = bench.run();
        let about: Vec<_> = [requests(&actions, "Update"), requests(&actions, "Inspect")].concat();
        if about.is_empty() {
            return;
        }
        for request in about {
            updates += u32::from(matches!(request, SourceRequest::UpdateConsumer { .. }));
            bench.consumer_answers(ask_of(&request), 1, 0);
        }
    };
    for change in 0..100 {
        bench.lanes.attach(bench.now, &p(&format!("p{change}")));
        answer(&mut bench);
        bench.pass(Duration::from_millis(5));
        answer(&mut bench);
    }
    bench.pass(Duration::from_millis(500));
    answer(&mut bench);
    for _ in 0..100 {
        bench.lanes.attach(bench.now, &p("more"));
        bench.lanes.detach(bench.now, &p("more"));
        bench.pass(Duration::from_millis(5));
        answer(&mut bench);
    }
    assert!((1..=3).contains(&updates), "{updates}");
}
