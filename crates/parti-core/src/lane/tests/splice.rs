//! A stream with limits retention: the durable's flow and the reader become one sequence.

use super::*;

#[test]
fn ten_published_three_handled_and_moved_the_seven_are_read() {
    let mut bench = Bench::limits();
    // B prepares while A serves: filter first, then the stream's end, handles nothing.
    bench.lanes.attach(bench.now, &p(A));
    assert_eq!(
        bench.run(),
        [LaneAction::Source(SourceRequest::UpdateConsumer {
            ask: Ask(1),
            partitions: vec![p(A)]
        })]
    );
    assert!(!bench.lanes.ready(&p(A)));
    bench.consumer_answers(Ask(1), 1, 0);
    let actions = bench.run();
    let head = only_ask(&actions, "Bounds");
    assert_eq!(requests(&actions, "Pull").len(), 1);
    bench.head_answers(head, 10);
    assert_eq!(bench.run(), [LaneAction::Note(LaneNote::ReadyChanged)]);
    assert!(bench.lanes.ready(&p(A)));
    // One more comes while B buffers; A released at 3.
    bench.deliver(A, 11);
    assert_eq!(handled(&bench.run(), A), NONE);
    bench.open(A, opening(2, 4));
    let actions = bench.run();
    let (read, from, upto) = only_read(&actions);
    assert_eq!((from, upto), (4, Some(10)));
    assert_eq!(handled(&actions, A), NONE);
    bench.read_answers(read, &[4, 5, 6, 7], 8);
    let actions = bench.run();
    let (read, from, upto) = only_read(&actions);
    assert_eq!(
        (from, upto),
        (8, Some(10)),
        "read on until the end is proved to be passed"
    );
    bench.read_answers(read, &[8, 9, 10], 11);
    let mut order = handled(&actions, A);
    for offset in 4..=11 {
        bench.done(A, 2, offset);
        order.extend(handled(&bench.run(), A));
    }
    assert_eq!(order, [4, 5, 6, 7, 8, 9, 10, 11]);
    assert_eq!(bench.progress(A), (Some(11), vec![]));
}

#[test]
fn an_empty_answer_is_no_proof() {
    let mut bench = Bench::limits();
    bench.joined(&[A], 10);
    bench.open(A, opening(2, 4));
    let (read, ..) = only_read(&bench.run());
    bench.deliver(A, 11);
    bench.read_answers(read, &[], 4);
    let actions = bench.run();
    assert_eq!(
        (handled(&actions, A), requests(&actions, "Read")),
        (vec![], vec![])
    );
    bench.pass_to_deadline();
    let (read, from, _) = only_read(&bench.run());
    assert_eq!(from, 4);
    // Nothing there, and this time it is proved.
    bench.read_answers(read, &[], 11);
    assert_eq!(handled(&bench.run(), A), [11]);
}

#[test]
fn a_gap_makes_every_lane_read_what_may_be_lost() {
    let mut bench = Bench::limits();
    bench.joined(&[A, B], 10);
    bench.open(A, opening(1, 11));
    bench.open(B, opening(1, 11));
    bench.deliver(A, 11);
    bench.run();
    bench.lose_one();
    bench.deliver(A, 13);
    let actions = bench.run();
    let head = only_ask(&actions, "Bounds");
    assert!(!bench.lanes.ready(&p(B)));
    // A second gap while the first splice is open: that answer is too old now.
    bench.lose_one();
    bench.deliver(A, 15);
    bench.head_answers(head, 13);
    let actions = bench.run();
    assert_eq!(requests(&actions, "Read"), []);
    let head = only_ask(&actions, "Bounds");
    bench.deliver(B, 17);
    bench.head_answers(head, 16);
    let reads = requests(&bench.run(), "Read");
    let goals: Vec<_> = reads
        .iter()
        .map(|read| match read {
            SourceRequest::Read {
                partition,
                from,
                upto,
                ..
            } => (partition.as_str(), from.0, upto.map(|o| o.0)),
            _ => unreachable!(),
        })
        .collect();
    assert_eq!(goals, [(A, 12, Some(16)), (B, 11, Some(16))]);
    bench.read_answers(ask_of(&reads[0]), &[12, 13, 14, 15, 16], 17);
    bench.read_answers(ask_of(&reads[1]), &[], 17);
    let actions = bench.run();
    assert_eq!(handled(&actions, B), [17]);
    let mut order = Vec::new();
    for offset in 11..=16 {
        bench.done(A, 1, offset);
        order.extend(handled(&bench.run(), A));
    }
    assert_eq!(order, [12, 13, 14, 15, 16]);
}

#[test]
fn a_gap_while_reading_does_not_spoil_what_was_read() {
    let mut bench = Bench::limits();
    bench.joined(&[A], 10);
    bench.open(A, opening(1, 1));
    let (read, ..) = only_read(&bench.run());
    bench.deliver(A, 11);
    bench.lose_one();
    bench.deliver(A, 13);
    let head = only_ask(&bench.run(), "Bounds");
    bench.read_answers(read, &[3, 9], 11);
    assert_eq!(handled(&bench.run(), A), [3]);
    bench.head_answers(head, 13);
    let (read, from, upto) = only_read(&bench.run());
    assert_eq!((from, upto), (11, Some(13)));
    bench.read_answers(read, &[11, 12, 13], 14);
    bench.deliver(A, 14);
    let mut order = Vec::new();
    for offset in [3, 9, 11, 12, 13] {
        bench.done(A, 1, offset);
        order.extend(handled(&bench.run(), A));
    }
    assert_eq!(order, [9, 11, 12, 13, 14]);
}

#[test]
fn late_redeliveries_behind_newer_ones_are_acked_and_dropped() {
    let mut bench = Bench::limits();
    bench.joined(&[A], 10);
    bench.open(A, opening(1, 11));
    bench.deliver(A, 11);
    bench.deliver(A, 12);
    assert_eq!(handled(&bench.run(), A), [11]);
    let late = [
        bench.deliver(A, 5),
        bench.deliver(A, 11),
        bench.deliver(A, 12),
    ];
    let actions = bench.run();
    assert_eq!(acks(&actions), late);
    assert_eq!(handled(&actions, A), NONE);
    bench.done(A, 1, 11);
    let actions = bench.run();
    assert_eq!((handled(&actions, A), acks(&actions)), (vec![12], vec![1]));
    bench.done(A, 1, 12);
    assert_eq!(handled(&bench.run(), A), NONE);
}

#[test]
fn what_has_no_lane_is_acked_at_once() {
    let mut bench = Bench::limits();
    bench.joined(&[A, B], 10);
    bench.deliver(A, 11);
    bench.run();
    bench.lanes.detach(bench.now, &p(A));
    assert_eq!(acks(&bench.run()), [1], "what it had buffered");
    let sequence = bench.deliver(A, 12);
    assert_eq!(acks(&bench.run()), [sequence]);
}

#[test]
fn a_step_back_and_another_durable_are_gaps_and_the_old_ones_words_are_void() {
    let mut bench = Bench::limits();
    bench.joined(&[A], 10);
    bench.open(A, opening(1, 11));
    bench.deliver(A, 11);
    bench.deliver(A, 12);
    bench.run();
    bench.next_sequence = 2;
    bench.deliver(A, 12);
    let head = only_ask(&bench.run(), "Bounds");
    bench.head_answers(head, 12);
    bench.run();
    // Recreated behind our back: its filter is unknown, so it is set again first.
    let (partition, message) = (p(A), msg(14));
    bench.source(SourceEvent::Delivered {
        consumer: 7,
        sequence: 2,
        partition,
        message,
        pending: 0,
    });
    let actions = bench.run();
    assert_eq!(requests(&actions, "Bounds"), []);
    bench.pass_to_deadline();
    let update = only_ask(&bench.run(), "UpdateConsumer");
    bench.consumer_answers(update, 7, 2);
    let head = only_ask(&bench.run(), "Bounds");
    bench.deliver(A, 13);
    assert_eq!(
        acks(&bench.run()),
        NONE,
        "a delivery of the durable that is no more"
    );
    bench.head_answers(head, 14);
    let (_, from, upto) = only_read(&bench.run());
    assert_eq!((from, upto), (13, Some(14)));
}

#[test]
fn a_reconnect_while_reading_splices_again() {
    let mut bench = Bench::limits();
    bench.joined(&[A], 10);
    bench.open(A, opening(1, 4));
    let (read, ..) = only_read(&bench.run());
    bench.source(SourceEvent::Reconnected);
    let actions = bench.run();
    let head = only_ask(&actions, "Bounds");
    assert_eq!(
        requests(&actions, "Pull").len(),
        1,
        "the open pull died with the connection"
    );
    bench.source(SourceEvent::Read {
        ask: read,
        result: Err(error()),
    });
    bench.head_answers(head, 12);
    assert_eq!(requests(&bench.run(), "Read"), []);
    bench.pass(Duration::from_secs(1));
    let (_, from, upto) = only_read(&bench.run());
    assert_eq!((from, upto), (4, Some(12)));
}

#[test]
fn an_over_full_lane_keeps_a_whole_suffix_and_reads_the_rest() {
    let mut bench = Bench::with(SourceKind::Stream(Retention::Limits), |c| {
        c.processing.lane_buffer = 4;
    });
    bench.joined(&[A], 10);
    bench.open(A, opening(1, 11));
    for offset in 11..=22 {
        bench.deliver(A, offset);
        bench.run();
    }
    let mut order = vec![11];
    let mut offset = 11;
    while offset < 22 {
        bench.done(A, 1, offset);
        let actions = bench.run();
        if let [
            SourceRequest::Read {
                ask,
                from,
                upto: Some(upto),
                limit,
                ..
            },
        ] = &requests(&actions, "Read")[..]
        {
            let last = upto.0.min(from.0 + u64::from(*limit) - 1);
            let all: Vec<_> = (from.0..=last).collect();
            bench.read_answers(*ask, &all, last + 1);
        }
        order.extend(handled(&actions, A));
        order.extend(handled(&bench.run(), A));
        offset += 1;
    }
    assert_eq!(order, (11..=22).collect::<Vec<_>>());
}

#[test]
fn a_prepared_lane_that_overflows_is_read_from_its_cursor() {
    let mut bench = Bench::with(SourceKind::Stream(Retention::Limits), |c| {
        c.processing.lane_buffer = 2;
    });
    bench.joined(&[A], 10);
    for offset in 11..=15 {
        bench.deliver(A, offset);
    }
    assert_eq!(
        acks(&bench.run()),
        [1, 2, 3],
        "dropped: the reader will bring them"
    );
    bench.open(A, opening(2, 12));
    let (_, from, upto) = only_read(&bench.run());
    assert_eq!((from, upto), (12, Some(13)));
}

#[test]
fn a_loss_at_the_end_shows_when_the_durable_is_inspected() {
    let mut bench = Bench::limits();
    bench.joined(&[A], 10);
    bench.open(A, opening(1, 11));
    bench.deliver(A, 11);
    bench.run();
    bench.pass(Duration::from_secs(30));
    let ask = only_ask(&bench.run(), "InspectConsumer");
    bench.consumer_answers(ask, 1, 2);
    assert_eq!(requests(&bench.run(), "Bounds"), [], "it may be on its way");
    bench.pass(Duration::from_secs(1));
    let head = only_ask(&bench.run(), "Bounds");
    bench.head_answers(head, 12);
    let (_, from, upto) = only_read(&bench.run());
    assert_eq!((from, upto), (12, Some(12)));
}

#[test]
fn an_edited_filter_is_set_right_and_spliced() {
    let mut bench = Bench::limits();
    bench.joined(&[A], 10);
    bench.pass(Duration::from_secs(30));
    let ask = only_ask(&bench.run(), "InspectConsumer");
    let state = ConsumerState {
        identity: 1,
        delivered: 0,
        as_wanted: false,
    };
    bench.source(SourceEvent::Consumer {
        ask,
        result: Ok(state),
    });
    let actions = bench.run();
    assert!(!bench.lanes.ready(&p(A)));
    let update = only_ask(&actions, "UpdateConsumer");
    bench.consumer_answers(update, 1, 0);
    assert_eq!(requests(&bench.run(), "Bounds").len(), 1);
}

#[test]
fn acks_come_when_handled_and_slow_ones_are_extended() {
    let mut bench = Bench::limits();
    bench.joined(&[A], 10);
    bench.open(A, opening(1, 11));
    bench.deliver(A, 11);
    bench.deliver(A, 12);
    bench.run();
    bench.pass(Duration::from_secs(10));
    let actions = bench.run();
    assert_eq!(
        requests(&actions, "Extend"),
        [SourceRequest::Extend {
            deliveries: vec![1, 2]
        }],
        "the one in the handler, and the one that waits"
    );
    bench.done(A, 1, 11);
    assert_eq!(acks(&bench.run()), [1]);
    bench.pass(Duration::from_secs(10));
    assert_eq!(
        requests(&bench.run(), "Extend"),
        [SourceRequest::Extend {
            deliveries: vec![2]
        }]
    );
}

#[test]
fn without_acks_nothing_is_acked_or_extended() {
    let mut bench = Bench::with(SourceKind::Stream(Retention::Limits), |c| {
        c.jetstream.ack = crate::config::AckMode::None;
    });
    bench.joined(&[A], 10);
    bench.open(A, opening(1, 11));
    bench.deliver(A, 11);
    bench.deliver(A, 3);
    let mut actions = bench.run();
    bench.pass(Duration::from_secs(10));
    bench.done(A, 1, 11);
    actions.extend(bench.run());
    assert_eq!(
        (acks(&actions), requests(&actions, "Extend")),
        (vec![], vec![])
    );
    assert_eq!(handled(&actions, A), [11]);
}

#[test]
fn a_slow_lane_cannot_fill_the_window() {
    let mut bench = Bench::with(SourceKind::Stream(Retention::Limits), |c| {
        c.jetstream.max_ack_pending = 10;
    });
    bench.joined(&[A, B], 10);
    bench.open(A, opening(1, 11));
    bench.open(B, opening(1, 11));
    for offset in 11..=18 {
        bench.deliver(A, offset);
    }
    bench.run();
    bench.waits(A, 1, 11);
    let actions = bench.run();
    assert_eq!(
        acks(&actions),
        [2, 3, 4, 5, 6, 7, 8],
        "handlers are free: A gives its share back"
    );
    assert!(!requests(&actions, "Pull").is_empty());
    bench.deliver(B, 19);
    let actions = bench.run();
    assert_eq!(handled(&actions, B), [19]);
    let (read, from, upto) = only_read(&actions);
    assert_eq!(
        (from, upto),
        (12, Some(18)),
        "read again, outside of the window"
    );
    bench.read_answers(read, &[12, 13, 14, 15, 16, 17, 18], 19);
    bench.done(A, 1, 11);
    assert_eq!(handled(&bench.run(), A), [12]);
}

#[test]
fn a_lane_that_gave_its_share_back_ignores_a_read_from_further_up() {
    let mut bench = Bench::with(SourceKind::Stream(Retention::Limits), |c| {
        c.jetstream.max_ack_pending = 10;
        c.processing.lane_buffer = 16;
    });
    bench.joined(&[A, B], 10);
    bench.open(A, opening(1, 11));
    bench.open(B, opening(1, 11));
    for offset in 11..=17 {
        bench.deliver(A, offset);
    }
    bench.run();
    bench.waits(A, 1, 11);
    // After a gap, A reads on from 18, while 11 to 17 wait in the lane.
    bench.lose_one();
    bench.deliver(B, 20);
    let head = only_ask(&bench.run(), "Bounds");
    bench.head_answers(head, 20);
    let reads = requests(&bench.run(), "Read");
    let further_up = ask_of(&reads[0]);
    bench.read_answers(ask_of(&reads[1]), &[], 21);
    bench.deliver(A, 21);
    let actions = bench.run();
    assert_eq!(
        acks(&actions),
        [2, 3, 4, 5, 6, 7, 10],
        "the window is full: given back"
    );
    bench.read_answers(further_up, &[18, 19], 21);
    bench.done(A, 1, 11);
    let actions = bench.run();
    assert_eq!(handled(&actions, A), NONE);
    assert_eq!(only_read(&actions).1, 12);
}

#[test]
fn pulling_stops_at_the_share_of_the_window() {
    let mut bench = Bench::with(SourceKind::Stream(Retention::Limits), |c| {
        c.jetstream.max_ack_pending = 10;
        c.jetstream.initial_batch = 6;
        c.processing.concurrency = 1;
    });
    bench.lanes.attach(bench.now, &p(A));
    bench.run();
    bench.consumer_answers(Ask(1), 1, 0);
    let actions = bench.run();
    let [SourceRequest::Pull { ask, batch: 6 }] = requests(&actions, "Pull")[..] else {
        panic!("{actions:?}")
    };
    bench.head_answers(only_ask(&actions, "Bounds"), 10);
    bench.open(A, opening(1, 11));
    for offset in 11..=16 {
        bench.deliver(A, offset);
    }
    bench.source(SourceEvent::PullEnded { ask });
    let actions = bench.run();
    let [SourceRequest::Pull { batch: 4, .. }] = requests(&actions, "Pull")[..] else {
        panic!("{actions:?}")
    };
    for offset in 17..=20 {
        bench.deliver(A, offset);
    }
    for offset in 11..=12 {
        assert_eq!(requests(&bench.run(), "Pull"), [], "8 of 10 are here");
        bench.done(A, 1, offset);
    }
    assert_eq!(requests(&bench.run(), "Pull"), [], "8 of 10 are here");
    bench.done(A, 1, 13);
    assert_eq!(requests(&bench.run(), "Pull").len(), 1);
}

#[test]
fn a_stream_that_went_back_halts_the_lane_once_it_is_sure() {
    let mut bench = Bench::limits();
    bench.open(A, opening(1, 50));
    let update = only_ask(&bench.run(), "UpdateConsumer");
    bench.consumer_answers(update, 1, 0);
    let head = only_ask(&bench.run(), "Bounds");
    let head = bench.head_stays(head, 20);
    bench.head_answers(head, 20);
    let trouble = Trouble::LogWentBack {
        partition: p(A),
        end: Offset(21),
        next: Offset(50),
    };
    let actions = bench.run();
    assert!(notes(&actions).contains(&LaneNote::Trouble(trouble)));
    bench.deliver(A, 21);
    assert_eq!(handled(&bench.run(), A), NONE);
}

#[test]
fn a_halted_lane_keeps_nothing_of_the_window() {
    let mut bench = Bench::limits();
    bench.joined(&[A, B], 10);
    bench.open(A, opening(1, 11));
    bench.open(B, opening(1, 1));
    for offset in 11..=14 {
        bench.deliver(A, offset);
    }
    bench.run();
    bench.source(SourceEvent::Reconnected);
    let head = loop {
        if let [request] = &requests(&bench.run(), "Bounds")[..] {
            break ask_of(request);
        }
        bench.pass_to_deadline();
    };
    let head = bench.head_stays(head, 5);
    bench.head_answers(head, 5);
    let actions = bench.run();
    let gone = |note: &LaneNote| matches!(note, LaneNote::Trouble(Trouble::LogWentBack { .. }));
    assert!(notes(&actions).iter().any(gone), "{actions:?}");
    assert_eq!(acks(&actions), [2, 3, 4], "11 is being handled");
    let late = bench.deliver(A, 15);
    assert_eq!(acks(&bench.run()), [late]);
}

#[test]
fn close_and_reopen_reads_again_what_was_given_up() {
    let mut bench = Bench::limits();
    bench.joined(&[A], 10);
    bench.open(A, opening(1, 11));
    for offset in 11..=13 {
        bench.deliver(A, offset);
    }
    bench.run();
    bench.lanes.close(bench.now, &p(A));
    assert_eq!(acks(&bench.run()), [2, 3]);
    bench.done(A, 1, 11);
    let actions = bench.run();
    assert_eq!((notes(&actions).len(), acks(&actions)), (1, vec![1]));
    bench.deliver(A, 14);
    bench.open(A, opening(2, 12));
    let (read, from, upto) = only_read(&bench.run());
    assert_eq!((from, upto), (12, Some(13)));
    bench.read_answers(read, &[12, 13], 14);
    assert_eq!(handled(&bench.run(), A), [12]);
}

#[test]
fn a_partition_that_left_and_came_back_needs_an_update_of_its_own() {
    let mut bench = Bench::limits();
    bench.joined(&[A, B], 10);
    bench.lanes.detach(bench.now, &p(A));
    bench.pass(Duration::from_secs(1));
    let look = only_ask(&bench.run(), "InspectConsumer");
    bench.consumer_answers(look, 1, 0);
    let without = only_ask(&bench.run(), "UpdateConsumer");
    bench.lanes.attach(bench.now, &p(A));
    bench.consumer_answers(without, 1, 0);
    assert!(
        requests(&bench.run(), "Bounds").is_empty(),
        "it is not in the filter"
    );
    bench.pass_to_deadline();
    let look = only_ask(&bench.run(), "InspectConsumer");
    bench.consumer_answers(look, 1, 0);
    let with = only_ask(&bench.run(), "UpdateConsumer");
    bench.consumer_answers(with, 1, 0);
    assert_eq!(requests(&bench.run(), "Bounds").len(), 1);
}

#[test]
fn a_late_update_of_an_earlier_life_is_noticed_before_the_next_change_hides_it() {
    let mut bench = Bench::limits();
    bench.joined(&[A], 10);
    bench.open(A, opening(1, 11));
    bench.run();
    bench.pass(Duration::from_secs(1));
    bench.lanes.attach(bench.now, &p(B));
    let actions = bench.run();
    assert!(
        requests(&actions, "UpdateConsumer").is_empty(),
        "not blindly"
    );
    let look = only_ask(&actions, "InspectConsumer");
    let state = ConsumerState {
        identity: 1,
        delivered: 0,
        as_wanted: false,
    };
    bench.source(SourceEvent::Consumer {
        ask: look,
        result: Ok(state),
    });
    let update = only_ask(&bench.run(), "UpdateConsumer");
    bench.consumer_answers(update, 1, 0);
    let head = only_ask(&bench.run(), "Bounds");
    // 12 was published while the filter was another one, and 14 is the first that comes by it.
    bench.head_answers(head, 13);
    bench.deliver(A, 14);
    let (read, from, upto) = only_read(&bench.run());
    assert_eq!((from, upto), (11, Some(13)));
    bench.read_answers(read, &[12], 14);
    assert_eq!(handled(&bench.run(), A), [12]);
    bench.done(A, 1, 12);
    assert_eq!(handled(&bench.run(), A), [14]);
}

#[test]
fn a_delivery_that_no_filter_explains_is_a_reason_to_look() {
    let mut bench = Bench::limits();
    bench.joined(&[A], 10);
    bench.deliver(B, 11);
    assert_eq!(requests(&bench.run(), "InspectConsumer").len(), 1);
}

#[test]
fn the_durable_is_touched_only_under_a_lease_and_nothing_spins_without_one() {
    let mut bench = Bench::limits();
    bench.lanes.lease(bench.now, Time::ZERO);
    bench.lanes.attach(bench.now, &p(A));
    assert_eq!(bench.run(), []);
    assert!(bench.lanes.next_deadline() > bench.now);
    bench.lanes.lease(bench.now, Time::NEVER);
    assert_eq!(requests(&bench.run(), "UpdateConsumer").len(), 1);
}
