//! A work queue: no overlap, reset before add, nothing acked that was not handled.

use super::*;
use crate::ids::WorkerId;

/// Everything but pulls, as names.
pub(super) fn names(actions: &[LaneAction]) -> Vec<String> {
    let name = |action: &LaneAction| match action {
        LaneAction::Source(request) => format!("{request:?}")
            .split([' ', '{'])
            .next()
            .unwrap_or_default()
            .to_owned(),
        LaneAction::Handle(run) => format!("Handle {}", run.messages[0].offset),
        LaneAction::Halt(partition) => format!("Halt {partition}"),
        LaneAction::Note(note) => format!("{note:?}")
            .split(' ')
            .next()
            .unwrap_or_default()
            .into(),
    };
    actions.iter().map(name).collect()
}

/// A worker that serves A at 1, with a fresh durable of identity 1.
pub(super) fn serving(bench: &mut Bench) {
    let delete = only_ask(&bench.run(), "DeleteConsumer");
    bench.consumer_answers(delete, 0, 0);
    bench.open(A, opening(1, 1));
    let head = only_ask(&bench.run(), "Bounds");
    bench.head_answers(head, 10);
    bench.pass(Duration::from_secs(1));
    let update = only_ask(&bench.run(), "UpdateConsumer");
    bench.consumer_answers(update, 1, 0);
    assert_eq!(names(&bench.run()), ["Pull"]);
}

/// The same for B as well, with the durable's identity 2 since.
pub(super) fn serving_both(bench: &mut Bench) {
    serving(bench);
    bench.open(B, opening(1, 1));
    let head = only_ask(&bench.run(), "Bounds");
    bench.head_answers(head, 10);
    bench.pass(Duration::from_secs(1));
    let stop = only_ask(&bench.run(), "StopPull");
    bench.source(SourceEvent::PullEnded { ask: stop });
    let reset = only_ask(&bench.run(), "ResetConsumer");
    bench.consumer_answers(reset, 2, 0);
    let update = only_ask(&bench.run(), "UpdateConsumer");
    bench.consumer_answers(update, 2, 0);
    bench.run();
}

pub(super) fn delivery(consumer: u64, sequence: u64, name: &str, offset: u64) -> SourceEvent {
    SourceEvent::Delivered {
        consumer,
        sequence,
        partition: p(name),
        message: msg(offset),
        pending: 0,
    }
}

#[test]
fn a_leftover_of_an_earlier_life_is_taken_away_first() {
    let mut bench = Bench::work_queue();
    assert_eq!(names(&bench.run()), ["DeleteConsumer"]);
}

#[test]
fn prepared_is_ready_and_touches_nothing() {
    let mut bench = Bench::work_queue();
    let delete = only_ask(&bench.run(), "DeleteConsumer");
    bench.consumer_answers(delete, 0, 0);
    bench.lanes.attach(bench.now, &p(A));
    assert_eq!(names(&bench.run()), ["ReadyChanged"]);
    assert!(bench.lanes.ready(&p(A)));
}

#[test]
fn adding_stops_the_pull_then_resets_then_updates_then_pulls() {
    let mut bench = Bench::work_queue();
    serving(&mut bench);
    bench.deliver(A, 1);
    bench.deliver(A, 4);
    assert_eq!(names(&bench.run()), ["Handle 1"]);
    bench.pass(Duration::from_secs(1));
    bench.open(B, opening(1, 1));
    let actions = bench.run();
    assert_eq!(names(&actions), ["Bounds", "ReadyChanged"]);
    bench.head_answers(only_ask(&actions, "Bounds"), 10);
    let actions = bench.run();
    assert_eq!(names(&actions), ["StopPull"]);
    bench.source(SourceEvent::PullEnded {
        ask: only_ask(&actions, "StopPull"),
    });
    let actions = bench.run();
    assert_eq!(names(&actions), ["ResetConsumer"]);
    bench.consumer_answers(only_ask(&actions, "ResetConsumer"), 2, 0);
    let actions = bench.run();
    assert_eq!(names(&actions), ["UpdateConsumer"], "no pull in between");
    bench.consumer_answers(only_ask(&actions, "UpdateConsumer"), 2, 0);
    assert_eq!(names(&bench.run()), ["Pull"]);
    // It all comes again; the lanes know what they have.
    let mut sequence = 0;
    let mut again = |bench: &mut Bench, name: &str, offset| {
        sequence += 1;
        let (partition, message) = (p(name), msg(offset));
        bench.source(SourceEvent::Delivered {
            consumer: 2,
            sequence,
            partition,
            message,
            pending: 0,
        });
    };
    again(&mut bench, A, 1);
    again(&mut bench, B, 2);
    again(&mut bench, A, 4);
    again(&mut bench, A, 5);
    assert_eq!(names(&bench.run()), ["Handle 2"]);
    bench.done(A, 1, 1);
    let actions = bench.run();
    assert_eq!((handled(&actions, A), acks(&actions)), (vec![4], vec![1]));
}

#[test]
fn a_gap_is_answered_by_a_reset_and_nothing_is_taken_in_before() {
    let mut bench = Bench::work_queue();
    serving(&mut bench);
    bench.pass(Duration::from_secs(1));
    bench.deliver(A, 1);
    bench.lose_one();
    bench.deliver(A, 3);
    let actions = bench.run();
    assert_eq!(names(&actions), ["Bounds", "Handle 1"]);
    bench.done(A, 1, 1);
    bench.deliver(A, 5);
    // Nobody knows yet whether the stream went back: 1 comes again, and is acked then.
    assert_eq!(names(&bench.run()), [""; 0]);
    bench.head_answers(only_ask(&actions, "Bounds"), 10);
    let actions = bench.run();
    assert_eq!((handled(&actions, A), acks(&actions)), (vec![], vec![]));
    let stop = only_ask(&actions, "StopPull");
    bench.source(SourceEvent::PullEnded { ask: stop });
    let reset = only_ask(&bench.run(), "ResetConsumer");
    bench.consumer_answers(reset, 2, 0);
    assert_eq!(names(&bench.run()), ["Pull"]);
    for (sequence, offset) in [(1, 1), (2, 2), (3, 3), (4, 5)] {
        bench.source(delivery(2, sequence, A, offset));
    }
    let actions = bench.run();
    assert_eq!(acks(&actions), [1]);
    let mut order = handled(&actions, A);
    for offset in [2, 3] {
        bench.done(A, 1, offset);
        order.extend(handled(&bench.run(), A));
    }
    assert_eq!(order, [2, 3, 5]);
}

#[test]
fn an_ack_that_was_lost_is_given_again_and_nothing_is_handled_twice() {
    let mut bench = Bench::work_queue();
    serving(&mut bench);
    bench.deliver(A, 1);
    bench.run();
    bench.done(A, 1, 1);
    assert_eq!(acks(&bench.run()), [1]);
    let again = bench.deliver(A, 1);
    let actions = bench.run();
    assert_eq!(
        (acks(&actions), handled(&actions, A)),
        (vec![again], vec![])
    );
}

#[test]
fn what_a_former_owner_did_is_acked_and_skipped() {
    let mut bench = Bench::work_queue();
    let delete = only_ask(&bench.run(), "DeleteConsumer");
    bench.consumer_answers(delete, 0, 0);
    bench.open(A, opening(2, 5));
    let head = only_ask(&bench.run(), "Bounds");
    bench.head_answers(head, 10);
    bench.pass(Duration::from_secs(1));
    let update = only_ask(&bench.run(), "UpdateConsumer");
    bench.consumer_answers(update, 1, 0);
    bench.run();
    bench.deliver(A, 4);
    bench.deliver(A, 5);
    let actions = bench.run();
    assert_eq!((acks(&actions), handled(&actions, A)), (vec![1], vec![5]));
}

#[test]
fn a_close_is_drained_when_the_subject_is_out_of_the_filter() {
    let mut bench = Bench::work_queue();
    serving(&mut bench);
    bench.deliver(A, 1);
    bench.deliver(A, 2);
    bench.run();
    bench.pass(Duration::from_secs(1));
    bench.lanes.close(bench.now, &p(A));
    bench.done(A, 1, 1);
    let actions = bench.run();
    assert_eq!(acks(&actions), [1], "2 was not handled: never acked");
    assert_eq!(
        names(&actions),
        ["Halt a", "DeleteConsumer", "Ack"],
        "nothing is left to serve"
    );
    bench.consumer_answers(only_ask(&actions, "DeleteConsumer"), 0, 0);
    assert_eq!(names(&bench.run()), ["Drained"]);
    assert_eq!(bench.progress(A), (Some(1), vec![]));
}

#[test]
fn what_a_closed_lane_left_unhandled_is_cleared_from_the_window() {
    let mut bench = Bench::work_queue();
    serving_both(&mut bench);
    for (sequence, offset) in [(1, 1), (2, 2)] {
        let (partition, message) = (p(A), msg(offset));
        bench.source(SourceEvent::Delivered {
            consumer: 2,
            sequence,
            partition,
            message,
            pending: 0,
        });
    }
    bench.run();
    bench.pass(Duration::from_secs(1));
    bench.lanes.close(bench.now, &p(A));
    bench.done(A, 1, 1);
    let stop = only_ask(&bench.run(), "StopPull");
    bench.source(SourceEvent::PullEnded { ask: stop });
    let reset = only_ask(&bench.run(), "ResetConsumer");
    bench.consumer_answers(reset, 3, 0);
    let actions = bench.run();
    let [SourceRequest::UpdateConsumer { ask, partitions }] = &requests(&actions, "Update")[..]
    else {
        panic!("{actions:?}")
    };
    assert_eq!(partitions, &[p(B)]);
    assert_eq!(notes(&actions), [], "the next owner could not have it yet");
    bench.consumer_answers(*ask, 3, 0);
    assert_eq!(names(&bench.run()), ["Pull", "Drained"]);
}

#[test]
fn a_dead_owners_durable_is_evicted_before_the_subject_is_added() {
    let mut bench = Bench::work_queue();
    let delete = only_ask(&bench.run(), "DeleteConsumer");
    bench.consumer_answers(delete, 0, 0);
    let dead = Some(WorkerId::new("worker-3"));
    bench.open(
        A,
        Opening {
            seized_from: dead,
            ..opening(2, 1)
        },
    );
    let actions = bench.run();
    assert_eq!(names(&actions), ["EvictConsumer", "ReadyChanged"]);
    let ask = only_ask(&actions, "EvictConsumer");
    bench.source(SourceEvent::Consumer {
        ask,
        result: Err(error()),
    });
    assert_eq!(bench.run(), []);
    bench.pass_to_deadline();
    let ask = only_ask(&bench.run(), "EvictConsumer");
    bench.consumer_answers(ask, 0, 0);
    assert_eq!(names(&bench.run()), ["Bounds"]);
}

#[test]
fn whoever_still_has_the_subject_of_an_owned_partition_is_evicted() {
    let mut bench = Bench::work_queue();
    let delete = only_ask(&bench.run(), "DeleteConsumer");
    bench.consumer_answers(delete, 0, 0);
    bench.open(A, opening(2, 1));
    let head = only_ask(&bench.run(), "Bounds");
    bench.head_answers(head, 10);
    bench.pass(Duration::from_secs(1));
    let ask = only_ask(&bench.run(), "UpdateConsumer");
    let (by, partition) = (WorkerId::new("worker-3"), p(A));
    bench.source(SourceEvent::Consumer {
        ask,
        result: Err(SourceError::Occupied { by, partition }),
    });
    let actions = bench.run();
    let found = requests(&actions, "EvictConsumer");
    let [SourceRequest::EvictConsumer { ask, worker, .. }] = found.as_slice() else {
        panic!("an eviction, not {actions:?}")
    };
    assert_eq!(worker.as_str(), "worker-3");
    bench.consumer_answers(*ask, 0, 0);
    let head = only_ask(&bench.run(), "Bounds");
    bench.head_answers(head, 10);
    let mut actions = bench.run();
    while requests(&actions, "Pull").is_empty() {
        for named in ["DeleteConsumer", "UpdateConsumer"] {
            for request in requests(&actions, named) {
                let identity = u64::from(named == "UpdateConsumer");
                bench.consumer_answers(ask_of(&request), identity, 0);
            }
        }
        actions = bench.run();
        if actions.is_empty() {
            bench.pass_to_deadline();
        }
    }
    bench.deliver(A, 3);
    assert_eq!(handled(&bench.run(), A), [3]);
}

#[test]
fn a_pull_that_a_lost_connection_left_open_is_ended_by_deleting_the_durable() {
    let mut bench = Bench::work_queue();
    serving(&mut bench);
    bench.pass(Duration::from_secs(1));
    bench.source(SourceEvent::Reconnected);
    let head = only_ask(&bench.run(), "Bounds");
    bench.head_answers(head, 10);
    let actions = bench.run();
    assert!(
        requests(&actions, "ResetConsumer").is_empty(),
        "{actions:?}"
    );
    let delete = only_ask(&actions, "DeleteConsumer");
    bench.consumer_answers(delete, 0, 0);
    let update = only_ask(&bench.run(), "UpdateConsumer");
    bench.consumer_answers(update, 9, 0);
    assert_eq!(names(&bench.run()), ["Pull"]);
}

#[test]
fn where_a_reset_is_refused_the_durable_is_recreated() {
    let mut bench = Bench::work_queue();
    serving(&mut bench);
    bench.pass(Duration::from_secs(1));
    bench.lose_one();
    bench.deliver(A, 2);
    let head = only_ask(&bench.run(), "Bounds");
    bench.head_answers(head, 10);
    let stop = only_ask(&bench.run(), "StopPull");
    bench.source(SourceEvent::PullEnded { ask: stop });
    let reset = only_ask(&bench.run(), "ResetConsumer");
    let refused = SourceError::Rejected("unknown request".into());
    bench.source(SourceEvent::Consumer {
        ask: reset,
        result: Err(refused),
    });
    bench.pass_to_deadline();
    bench.pass(Duration::from_secs(1));
    let delete = only_ask(&bench.run(), "DeleteConsumer");
    bench.consumer_answers(delete, 0, 0);
    let update = only_ask(&bench.run(), "UpdateConsumer");
    bench.consumer_answers(update, 9, 0);
    assert_eq!(names(&bench.run()), ["Pull"]);
    let (partition, message) = (p(A), msg(3));
    bench.source(SourceEvent::Delivered {
        consumer: 9,
        sequence: 1,
        partition,
        message,
        pending: 0,
    });
    assert_eq!(names(&bench.run()), ["Handle 3"]);
}

#[test]
fn a_failed_add_keeps_the_others_going_and_runs_the_whole_sequence_again() {
    let mut bench = Bench::work_queue();
    serving(&mut bench);
    bench.pass(Duration::from_secs(1));
    bench.open(B, opening(1, 1));
    let head = only_ask(&bench.run(), "Bounds");
    bench.head_answers(head, 10);
    let stop = only_ask(&bench.run(), "StopPull");
    bench.source(SourceEvent::PullEnded { ask: stop });
    let reset = only_ask(&bench.run(), "ResetConsumer");
    bench.consumer_answers(reset, 2, 0);
    let update = only_ask(&bench.run(), "UpdateConsumer");
    bench.source(SourceEvent::Consumer {
        ask: update,
        result: Err(error()),
    });
    assert_eq!(names(&bench.run()), ["Pull"]);
    let (partition, message) = (p(A), msg(3));
    bench.source(SourceEvent::Delivered {
        consumer: 2,
        sequence: 1,
        partition,
        message,
        pending: 0,
    });
    let (partition, message) = (p(B), msg(4));
    bench.source(SourceEvent::Delivered {
        consumer: 2,
        sequence: 2,
        partition,
        message,
        pending: 0,
    });
    let actions = bench.run();
    assert_eq!(handled(&actions, A), [3]);
    assert_eq!(
        (handled(&actions, B), acks(&actions)),
        (vec![], vec![]),
        "not rewound for B yet"
    );
    bench.pass_to_deadline();
    bench.pass(Duration::from_secs(2));
    assert_eq!(requests(&bench.run(), "StopPull").len(), 1);
}

/// A suspicious lane A whose first pull ended short, and the look that follows.
fn silent_in_suspicion(begun: Option<Begun>) -> (Bench, Ask) {
    let mut bench = Bench::work_queue();
    let delete = only_ask(&bench.run(), "DeleteConsumer");
    bench.consumer_answers(delete, 0, 0);
    bench.open(
        A,
        Opening {
            suspicious: true,
            begun,
            ..opening(2, 1)
        },
    );
    let head = only_ask(&bench.run(), "Bounds");
    bench.head_answers(head, 10);
    bench.pass(Duration::from_secs(1));
    let update = only_ask(&bench.run(), "UpdateConsumer");
    bench.consumer_answers(update, 1, 0);
    let pull = only_ask(&bench.run(), "Pull");
    bench.source(SourceEvent::PullEnded { ask: pull });
    let look = only_ask(&bench.run(), "InspectConsumer");
    assert!(bench.lanes.suspicious(&p(A)), "what it brought may be lost");
    (bench, look)
}

#[test]
fn suspicion_ends_only_when_the_durable_says_that_nothing_was_lost() {
    let (mut bench, look) = silent_in_suspicion(None);
    bench.consumer_answers(look, 1, 1);
    bench.run();
    assert!(bench.lanes.suspicious(&p(A)), "one was handed out");
    let (mut bench, look) = silent_in_suspicion(None);
    bench.consumer_answers(look, 1, 0);
    bench.run();
    assert!(!bench.lanes.suspicious(&p(A)));
}

#[test]
fn suspicion_does_not_end_while_a_begun_message_is_to_come() {
    let (offset, times) = (Offset(4), 3);
    let (mut bench, look) = silent_in_suspicion(Some(Begun { offset, times }));
    bench.consumer_answers(look, 1, 0);
    bench.run();
    assert!(bench.lanes.suspicious(&p(A)));
}
